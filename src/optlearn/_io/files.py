"""Complete files or none: NetCDF-4 through xarray."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from optlearn._io.provenance import provenance

if TYPE_CHECKING:
    import xarray

_SIGNATURE = b"\x89HDF\r\n\x1a\n"  # a NetCDF-4 file is an HDF5 file
_T = TypeVar("_T")


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

    def read(file: Path) -> "xarray.Dataset":
        with xarray.open_dataset(file, engine="h5netcdf") as dataset:
            return dataset.load()

    return read_checked(path, read)


def read_checked(path: str | Path, read: Callable[[Path], _T]) -> _T:
    """What ``read`` makes of a NetCDF file; what is wrong with the file is a ``DataFileError``."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    with path.open("rb") as file:
        start = file.read(len(_SIGNATURE))
    if start != _SIGNATURE:
        # Protocol 2 and later begin with this byte and their number.
        pickled = start[:1] == b"\x80" and start[1:2] in b"\x02\x03\x04\x05" and len(start) > 1
        looks = (
            "looks like a Python pickle, which is never read here" if pickled else f"starts with {start!r}"
        )
        raise DataFileError(f"{path} is not a NetCDF-4 file; it {looks}")
    try:
        return read(path)
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
