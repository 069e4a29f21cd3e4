"""The folder of a sweep: every finished point is a separate file, written atomically with a checksum.

``OUT/sweep.json`` says what is computed, and with which code and versions each part was;
``OUT/points/000_003.json`` is one point; ``OUT/sweep.nc`` holds everything and is written at the end.
"""

import json
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from optlearn._errors import SpecificationError, warn
from optlearn._io.files import read_file, read_json, remove_half_written, write_file
from optlearn._io.provenance import code_digest, versions_of
from optlearn._json import parse
from optlearn.sweeps.spec import Index, Spec, digest

SCHEMA = 1
_PACKAGES = ("casadi", "jax", "jaxlib", "numpy", "scipy")  # packages that affect numbers

Record = dict[str, Any]


class SweepChangedWarning(UserWarning):
    """A sweep is resumed with different code or versions; finished points are kept."""


class DamagedPointWarning(UserWarning):
    """The file of a point is truncated or altered; the point counts as not computed."""


class SweepFolderError(OSError):
    """The folder of a sweep cannot be read or written. Finished points are kept."""


@dataclass(frozen=True)
class Store:
    """The folder of one sweep during one part: a run of the driver until its end or interruption.

    Attributes:
        folder: its path.
        sweep: ``Spec.id`` of the sweep.
        part: index of this run, from 0.
    """

    folder: Path
    sweep: str
    part: int

    def path(self, index: Index) -> Path:
        """File of a point."""
        return self.folder / "points" / ("_".join(f"{i:03d}" for i in index) + ".json")

    def write(self, index: Index, record: Record) -> Record:
        """Write a finished point; returns its complete record."""
        whole = {"index": list(index), "sweep": self.sweep, "part": self.part, **record}
        write_json(self.path(index), {"sha256": digest(whole), "record": whole})
        return whole

    def read(self, index: Index) -> Record | None:
        """A finished point; None if there is none, or if its file is damaged."""
        path = self.path(index)
        try:
            text = read_file(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SweepFolderError(f"cannot read {path}: {error.strerror or error}") from error
        try:
            content = parse(text)
            record: Record = content["record"]
            sound = content["sha256"] == digest(record) and record["index"] == list(index)
        except (ValueError, KeyError, TypeError):
            sound, record = False, {}
        if not sound:
            warn(f"{path} is damaged: the point counts as not computed", DamagedPointWarning)
            return None
        return record if record["sweep"] == self.sweep else None

    def check_visible(self) -> None:
        """Raise unless this process, possibly on another machine, sees the folder of this very sweep."""
        try:
            sweep = read_json(self.folder / "sweep.json")["id"]
        except (OSError, KeyError, TypeError) as error:
            raise SweepFolderError(
                f"{platform.node()} does not see {self.folder}: workers on other machines need a folder that "
                "all of them share"
            ) from error
        if sweep != self.sweep:
            raise SweepFolderError(f"{self.folder} on {platform.node()} holds another sweep")


def open_store(folder: Path, spec: Spec, *, resume: bool, force: bool, executor: str) -> Store:
    """Begin a sweep in a folder, or continue it.

    Raises:
        SpecificationError: the folder holds a sweep already, or, to resume, another one.
        SweepFolderError: the folder cannot be written.
    """
    folder = folder.absolute()
    if resume and force:
        raise SpecificationError("give either resume or force, not both: continue the sweep, or start over")
    description = folder / "sweep.json"
    parts: list[dict[str, Any]] = []
    if description.exists():
        if force:
            _clear(folder)
        elif resume:
            parts = _parts_to_continue(description, spec)
        else:
            raise SpecificationError(
                f"out={str(folder)!r} already holds a sweep: continue it with resume=True (--resume), start "
                "over with force=True (--force), or name another folder"
            )
    this = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "executor": executor,
        "code": code_digest(),
        "own_code": spec.own_code(),
        "versions": versions_of(*_PACKAGES),
    }
    if parts:
        _say_what_changed(parts[-1], this)
    content = {"schema": SCHEMA, "id": spec.id, "spec": spec.to_json(), "parts": [*parts, this]}
    try:
        (folder / "points").mkdir(parents=True, exist_ok=True)
        remove_half_written(folder / "points")
    except OSError as error:
        raise SweepFolderError(f"cannot write {folder}: {error.strerror or error}") from error
    write_json(description, content)
    return Store(folder, spec.id, len(parts))


def read_description(folder: Path) -> dict[str, Any]:
    """The content of ``sweep.json``."""
    path = folder / "sweep.json"
    if not path.is_file():
        raise SpecificationError(f"folder must hold a sweep, got {str(folder)!r} (no sweep.json)")
    try:
        content = read_json(path)
        schema = content["schema"]
    except (OSError, KeyError, TypeError) as error:
        raise SpecificationError(f"{path} cannot be read: {error}") from error
    if schema != SCHEMA:
        raise SpecificationError(f"{path} has schema {schema}; this version of optlearn reads {SCHEMA}")
    return dict(content)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Allow only one driver at a time in a folder; a killed driver releases the lock."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise SpecificationError(f"another process is working on the sweep in {folder}") from None
    except NotImplementedError:  # a file system without locks
        pass
    try:
        yield
    finally:
        lock.release()


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a file of the sweep."""
    try:
        write_file(path, json.dumps(content, separators=(",", ":")))
    except OSError as error:
        raise SweepFolderError(
            f"cannot write {path}: {error.strerror or error}; finished points are kept, and "
            "resume=True (--resume) continues from there"
        ) from error


def _parts_to_continue(description: Path, spec: Spec) -> list[dict[str, Any]]:
    """The parts so far of a sweep, which must equal ``spec``."""
    content = read_description(description.parent)
    before, now = content["spec"], spec.to_json()
    differing = [name for name in now if before.get(name) != now[name]]
    if differing:
        shown = "; ".join(f"{name} was {before.get(name)}, is {now[name]}" for name in differing)
        raise SpecificationError(
            f"{description.parent} holds another sweep: {shown}. Name another folder, or start over with "
            "force=True (--force)"
        )
    return list(content["parts"])


def _say_what_changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    changes = [
        f"{name} {before['versions'].get(name)} → {now['versions'].get(name)}"
        for name in sorted({*before["versions"], *now["versions"]})
        if before["versions"].get(name) != now["versions"].get(name)
    ]
    if before["code"] != now["code"]:
        changes.append("the code of optlearn")
    if before["own_code"] != now["own_code"]:
        changes.append("the code of your scenario or reduce function")
    if changes:
        warn(
            f"changed since the last part of this sweep: {', '.join(changes)}. Finished points are kept; "
            "`part` in the result says which run a point is from",
            SweepChangedWarning,
        )


def _clear(folder: Path) -> None:
    """Remove the files of a sweep, and nothing else."""
    try:
        for path in (folder / "points").glob("*.json"):
            path.unlink()
        for name in ("sweep.nc", "sweep.json"):
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise SweepFolderError(f"cannot remove the old sweep in {folder}: {error.strerror}") from error
