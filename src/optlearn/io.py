"""Labelled results on disk: NetCDF with provenance, written so that no half of a file is ever seen."""

import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optlearn import __version__

if TYPE_CHECKING:
    import xarray

_SIGNATURE = b"\x89HDF\r\n\x1a\n"  # a NetCDF-4 file is an HDF5 file


class DataFileError(OSError):
    """A file is not what it should be: cut short, or not NetCDF. Delete it and compute it anew."""


def save_dataset(
    dataset: "xarray.Dataset", path: str | Path, attributes: Mapping[str, str | int | float] | None = None
) -> Path:
    """Write a dataset as NetCDF-4, with provenance among its attributes.

    The file appears under its name only when it is complete; an older one stays until then.

    Args:
        dataset: what to write.
        path: where to; missing folders are made.
        attributes: further attributes, beside the dataset's own and ``provenance()``.
    """
    marked = dataset.assign_attrs({**dataset.attrs, **provenance(), **(attributes or {})})
    with atomic(path) as temporary:
        marked.to_netcdf(temporary, engine="h5netcdf")
    return Path(path)


def load_dataset(path: str | Path) -> "xarray.Dataset":
    """Read a dataset into memory.

    Raises:
        FileNotFoundError: there is no such file.
        DataFileError: it is not NetCDF-4, or it is cut short.
    """
    import xarray

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    with path.open("rb") as file:
        start = file.read(len(_SIGNATURE))
    if start != _SIGNATURE:
        raise DataFileError(f"{path} is not a NetCDF-4 file; it starts with {start!r}")
    try:
        with xarray.open_dataset(path, engine="h5netcdf") as dataset:
            return dataset.load()
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise DataFileError(f"{path} cannot be read, it may be cut short: {error}") from error


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its name if the block ends well."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The ending stays, since Matplotlib goes by it.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def provenance() -> dict[str, str]:
    """Time, versions and, in a checkout, the git revision."""
    return {"created": datetime.now(UTC).isoformat(timespec="seconds"), **_versions()}


@cache
def _versions() -> dict[str, str]:
    found = {"optlearn_version": __version__, "python_version": platform.python_version()}
    for name in ("jax", "casadi", "numpy"):
        with suppress(PackageNotFoundError):
            found[f"{name}_version"] = version(name)
    revision = _revision()
    return found if revision is None else {**found, "git_revision": revision}


def _revision() -> str | None:
    """Revision of the checkout that this file belongs to; None if git does not know this file."""

    def git(*arguments: str) -> Any:
        return subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *arguments],
            capture_output=True, text=True, check=True, timeout=10,
        ).stdout.strip()  # fmt: skip

    try:
        # A package installed inside somebody else's repository is not part of it.
        git("ls-files", "--error-unmatch", "__init__.py")
        return str(git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"))
    except (OSError, subprocess.SubprocessError):
        return None
