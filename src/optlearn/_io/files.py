"""Atomic writing, reading with clear errors about damaged files, and the cache folder.

Content is built in memory and written by Python: HDF5 crashes the process on a full disk. And HDF5 may loop
for ever on a damaged file, so a checksum, which HDF5 never sees, follows the content and is checked first.
"""

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, TypeVar

from optlearn._errors import DataFileError
from optlearn._io.provenance import provenance
from optlearn._json import parse

if TYPE_CHECKING:
    import xarray

ENVIRONMENT = "OPTLEARN_CACHE"
_SIGNATURE = b"\x89HDF\r\n\x1a\n"  # a NetCDF-4 file is an HDF5 file
# The last bytes of a file are these and the hexadecimal digest of everything before them.
_CHECKSUM = b"\noptlearn sha256 "
# An attribute of such a file, stored as plain text: it reveals that a missing checksum is damage.
_SUMMED = "optlearn: the last line of the file is the SHA-256 of all before it"
MOST_BYTES = 2**30  # maximum size of a file that is read whole, such as JSON
_T = TypeVar("_T")


def cache_folder() -> Path:
    """The folder of this user's downloaded data sets and compiled programs.

    The environment variable ``OPTLEARN_CACHE`` names another folder.
    """
    import platformdirs

    named = os.environ.get(ENVIRONMENT)
    return Path(named) if named else platformdirs.user_cache_path("optlearn", appauthor=False)


def write_file(path: str | os.PathLike[str], content: "str | bytes | memoryview") -> Path:
    """Write a file that appears under its name only when complete; an older one stays until then.

    Non-regular files, such as a pipe or ``/dev/stdout``, are written directly.

    Args:
        path: file to write; missing folders are created.
        content: text is encoded as UTF-8.

    Raises:
        OSError: it cannot be written; names ``path``.
    """
    path = Path(path)
    target = Path(os.path.realpath(path))  # a link stays a link
    data = content.encode() if isinstance(content, str) else content
    try:
        if target.exists() and not target.is_file() and not target.is_dir():
            with target.open("wb") as file:
                file.write(data)
            return path
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{temporary_prefix(target.name)}{token_hex(4)}.tmp")
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # otherwise a power failure may leave an empty file under this name
            os.replace(temporary, target)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    return path


def temporary_prefix(name: str) -> str:
    """Prefix of the names of this process's temporary files for ``name``."""
    return f".{name}.{os.getpid()}."


def remove_half_written(folder: Path, pid: int | None = None) -> None:
    """Remove temporary files of processes that were killed during ``write_file``.

    Args:
        folder: the folder.
        pid: id of the process; None for all, if nobody else is writing.
    """
    for path in folder.glob(f".*.{'*' if pid is None else pid}.*.tmp"):
        path.unlink(missing_ok=True)


def save_dataset(
    dataset: "xarray.Dataset", path: str | Path, attributes: Mapping[str, str | int | float] | None = None
) -> Path:
    """Write a dataset as NetCDF-4, with provenance among its attributes.

    Args:
        dataset: the dataset.
        path: file to write; missing folders are created.
        attributes: attributes in addition to the dataset's own and ``provenance()``.
    """
    marked = dataset.assign_attrs({**dataset.attrs, **provenance(), **(attributes or {})})
    return write_file(path, as_netcdf(marked))


def as_netcdf(content: "xarray.Dataset | xarray.DataTree") -> bytes:
    """The bytes of a NetCDF-4 file, and their checksum."""
    marked = content.copy(deep=False)
    marked.attrs = {**content.attrs, "checksum": _SUMMED}
    with ExitStack() as stack:
        if "dask" in sys.modules:
            import dask

            # While a cluster client is open, xarray would lock the file on the cluster; a buffer has no name.
            stack.enter_context(dask.config.set(scheduler="synchronous"))
        data = bytes(marked.to_netcdf(None, engine="h5netcdf"))
    return data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    return _CHECKSUM + hashlib.sha256(data).hexdigest().encode()


def load_dataset(path: str | Path) -> "xarray.Dataset":
    """Read a dataset into memory.

    Raises:
        FileNotFoundError: there is no such file.
        DataFileError: it is not NetCDF-4, or it is truncated.
    """
    import xarray

    def read(file: Path) -> "xarray.Dataset":
        with xarray.open_dataset(file, engine="h5netcdf") as dataset:
            return dataset.load()

    return read_checked(path, read)


def read_checked(path: str | Path, read: Callable[[Path], _T]) -> _T:
    """The result of ``read`` for a NetCDF file; raises ``DataFileError`` for a damaged file."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file")
    if not path.is_file():
        raise DataFileError(f"{path} is not a file")
    with path.open("rb") as file:
        start = file.read(len(_SIGNATURE))
    if start != _SIGNATURE:
        # Protocol 2 and later begin with this byte and their number.
        pickled = start[:1] == b"\x80" and start[1:2] in b"\x02\x03\x04\x05" and len(start) > 1
        looks = (
            "looks like a Python pickle, which is never read here" if pickled else f"starts with {start!r}"
        )
        raise DataFileError(f"{path} is not a NetCDF-4 file; it {looks}")
    _check_sum(path)
    try:
        _touch_everything(path)
        return read(path)
    except Exception as error:  # a forged header makes HDF5 raise almost anything
        raise DataFileError(f"{path} cannot be read, it may be cut short: {error}") from error


def _check_sum(path: Path) -> None:
    """Raise unless the bytes match their checksum; files of older versions have none."""
    content = path.read_bytes()
    data, end = content[: -len(_checksum(b""))], content[-len(_checksum(b"")) :]
    summed = _SUMMED.encode() in content or _CHECKSUM in end
    if summed and end != _checksum(data):
        raise DataFileError(f"{path} is damaged, it may be cut short: it is not what was written (checksum)")


def _touch_everything(path: Path) -> None:
    """Raise if HDF5 cannot read a part: h5netcdf would leave a half-open file behind, which warns later."""
    import h5py

    most = 2**20 + 1000 * path.stat().st_size  # more than any compression can achieve

    def touch(name: str, item: "h5py.Group | h5py.Dataset") -> None:
        dict(item.attrs)
        if isinstance(item, h5py.Dataset):
            if item.nbytes > most:
                raise ValueError(f"{name!r} claims to have {item.nbytes:,} bytes")
            item[()]

    with h5py.File(path, "r") as file:
        touch("/", file)
        file.visititems(touch)


def read_file(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """The content of a file or pipe.

    Raises:
        OSError: it cannot be read; names ``path``.
        DataFileError: it is a device, which may have no end, or longer than ``most`` bytes.
    """
    with Path(path).open("rb") as file:
        if stat.S_ISCHR(os.fstat(file.fileno()).st_mode) and not file.isatty():
            raise DataFileError(f"{path} is a device, not a file")
        content = file.read(most + 1)
    if len(content) > most:
        raise DataFileError(f"{path} has more than {most:,} bytes, which is too much for such a file")
    return content


def read_json(path: str | os.PathLike[str]) -> Any:
    """The content of a JSON file.

    Raises:
        OSError: it cannot be read.
        DataFileError: it is not JSON.
    """
    try:
        return parse(read_file(path))
    except ValueError as error:
        raise DataFileError(f"{path} is not JSON: {error}") from error
