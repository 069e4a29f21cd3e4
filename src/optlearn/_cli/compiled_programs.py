"""Compiled JAX programs are kept between runs of the command line."""

import hashlib
import logging
import os
import platform
from pathlib import Path

from optlearn._io import cache_folder


def keep_compiled_programs() -> None:
    """Let JAX keep what it compiles in the user's cache; only the command line does this.

    ``OPTLEARN_CACHE`` names another directory; the user's own ``JAX_COMPILATION_CACHE_DIR`` is left
    alone.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    # Programs are compiled for one kind of processor; a home directory may be shared by several.
    directory = cache_folder() / "jax" / _processor()
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not os.access(directory, os.W_OK):
            raise PermissionError(f"{directory} is not writable")
    except OSError as error:
        logging.getLogger("optlearn").debug("compiled programs are not kept: %s", error)
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(directory)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
    # XLA looks for its own tuning flags (prefer-no-gather) among the processor's features, and
    # fills the screen with errors about programs that it has written itself: jax-ml/jax#38445.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def _processor() -> str:
    """A short name for the processor's instruction set."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
        features = next(line for line in lines if line.lower().startswith(("flags", "features")))
    except (OSError, StopIteration):
        features = platform.processor()
    return f"{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:8]}"
