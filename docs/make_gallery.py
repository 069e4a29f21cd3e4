"""Run the examples and store what the gallery shows: python docs/make_gallery.py [NAME …] [--data-dir DIR]

``examples.toml`` says which command is run. Pictures go where it says; what is printed, and the CPU time, go
to ``gallery.json``. Examples that need MNIST are left as they are unless its folder is given.
"""

import argparse
import json
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
STORED = DOCS / "gallery.json"
sys.path.insert(0, str(ROOT))

from benchmarks.machine import machine  # noqa: E402


def run(name: str, entry: dict[str, str], data_dir: Path | None) -> dict[str, object] | None:
    """Run one example in an empty folder; None if it needs data that are not there."""
    words = shlex.split(entry["command"])
    if "DIR" in words:
        if data_dir is None:
            return None
        words[words.index("DIR")] = str(data_dir.resolve())
    with tempfile.TemporaryDirectory() as folder:
        for part in ("examples", "benchmarks"):
            os.symlink(ROOT / part, Path(folder) / part)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, *words[1:]],
            cwd=folder,
            env={**os.environ, "MPLBACKEND": "agg", "OPTLEARN_CACHE": folder, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            sys.exit(f"{name} ended with code {done.returncode}:\n{done.stderr}")
        drawn = entry.get("drawn", "drawn.png" if "drawn.png" in words else None)
        if drawn is not None:
            picture = DOCS / entry["picture"]
            picture.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(folder) / drawn, picture)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"command": entry["command"], "cpu_seconds": round(cpu, 1), "output": done.stdout, **machine()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    entries = tomllib.loads((DOCS / "examples.toml").read_text(encoding="utf-8"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="examples to run (default: all)")
    parser.add_argument("--data-dir", type=Path, help="folder with MNIST")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in entries]
    if unknown:
        parser.error(f"unknown example {unknown[0]!r}; there are {', '.join(entries)}")
    for name in options.names or entries:
        result = run(name, entries[name], options.data_dir)
        if result is None:
            print(f"{name}: left as it is; it needs MNIST (--data-dir DIR)")
            continue
        # Read again each time: several of these may be running.
        stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
        stored[name] = result
        STORED.write_text(json.dumps(dict(sorted(stored.items())), ensure_ascii=False, indent=1) + "\n")
        print(f"{name}: {result['cpu_seconds']} s of CPU", flush=True)


if __name__ == "__main__":
    main()
