"""What a measurement was made with and on, to be stored beside it."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("jax", "casadi", "numpy", "scipy")


def processor() -> str:
    """The processor's own name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    """Processor, cores, and versions of Python, optlearn and what computes."""
    import optlearn

    versions = {"optlearn": optlearn.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            print(f"{name} is not installed: its version is not recorded", file=sys.stderr)
    kind = f"{processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    return {"machine": kind, "versions": versions}
