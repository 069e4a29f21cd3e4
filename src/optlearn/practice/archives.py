"""Arrays in NumPy's ``.npz`` files: only those that are asked for, none that is not what it says it is."""

import math
import os
import zipfile
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

from optlearn._errors import DataFileError, SpecificationError

# Arrays above this size that are packed more than so many times are not data, but a trap.
LARGE, PACKED = 2**28, 200


class Archive:
    """An ``.npz`` file, without ever unpickling.

    Args:
        path: the file.

    Raises:
        DataFileError: there is no such file, or it is of another kind.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise DataFileError(f"{path}: there is no such file")
        if not zipfile.is_zipfile(self.path):
            raise DataFileError(f"{path} is not an .npz file; write one by numpy.savez(file, X=…, y=…)")
        self.names = self._checked(lambda archive: [name.removesuffix(".npy") for name in archive.namelist()])

    def read(self, name: str) -> np.ndarray:
        """One array.

        Raises:
            SpecificationError: there is none of this name.
            DataFileError: it is damaged, too large for this machine, or not made of numbers or text.
        """
        if name not in self.names:
            raise SpecificationError(f"{self.path} has no array {name!r}; it has {', '.join(self.names)}")
        array: np.ndarray = self._checked(lambda archive: _read(archive, f"{name}.npy"))
        return array

    def _checked(self, use: Any) -> Any:
        try:
            with zipfile.ZipFile(self.path) as archive:
                return use(archive)
        except Exception as error:  # a forged archive comes out of zipfile, zlib and NumPy as almost anything
            raise DataFileError(f"{self.path} cannot be read: {error}") from error


def _read(archive: zipfile.ZipFile, member: str) -> np.ndarray:
    info = archive.getinfo(member)
    with archive.open(info) as file:
        shape, in_columns, dtype = _header(file)
        size, count = math.prod(shape) * dtype.itemsize, math.prod(shape)
        if dtype.hasobject:
            raise ValueError(f"{member} holds Python objects, which are never read")
        if info.file_size != file.tell() + size:
            raise ValueError(f"{member} claims {size:,} bytes, but has {info.file_size - file.tell():,}")
        if size > LARGE and size > PACKED * info.compress_size:
            raise ValueError(
                f"{member} claims {size:,} bytes out of {info.compress_size:,}; if these are data, write "
                "them by numpy.savez, which does not compress"
            )
        if 8 * count > _memory() / 2:
            raise ValueError(f"{member} has {count:,} numbers, too many for the memory of this machine")
        content = file.read(size)
    return np.frombuffer(content, dtype).reshape(shape, order="F" if in_columns else "C")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns lie together, and type of the array that begins here."""
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)
    if version not in read:
        raise ValueError(f"an array of format {version}")
    shape, in_columns, dtype = read[version](file)
    return shape, in_columns, dtype


def _memory() -> float:
    """Bytes of this machine's memory, where the system tells."""
    names = getattr(os, "sysconf_names", {})
    if not {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= set(names):
        return math.inf
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
