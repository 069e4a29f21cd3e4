"""Arrays in the user's files, ``.npz``, ``.npy`` and ``.csv``: read on request, never unpickled."""

import csv
import math
import os
import zipfile
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

from optlearn._errors import DataFileError, SpecificationError

# Arrays above this size in bytes and compressed by more than this factor are decompression bombs, not data.
LARGE, PACKED = 2**28, 200


class Archive:
    """An ``.npz`` file that is never unpickled.

    Args:
        path: the file.

    Raises:
        DataFileError: there is no such file, or it is of another kind.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        _must_exist(self.path)
        if not zipfile.is_zipfile(self.path):
            raise DataFileError(f"{path} is not an .npz file; write one by numpy.savez(file, X=…, y=…)")
        self.names = self._checked(lambda archive: [name.removesuffix(".npy") for name in archive.namelist()])

    def read(self, name: str) -> np.ndarray:
        """Read one array.

        Raises:
            SpecificationError: there is no array with this name.
            DataFileError: it is damaged, too large for this machine, or neither numbers nor text.
        """
        if name not in self.names:
            raise SpecificationError(f"{self.path} has no array {name!r}; it has {', '.join(self.names)}")
        array: np.ndarray = self._checked(lambda archive: _read(archive, f"{name}.npy"))
        return array

    def _checked(self, use: Any) -> Any:
        try:
            with zipfile.ZipFile(self.path) as archive:
                return use(archive)
        except Exception as error:  # a forged archive makes zipfile, zlib and NumPy raise almost anything
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
                f"{member} claims {size:,} bytes out of {info.compress_size:,}; if these are real data, "
                "write them with numpy.savez, which does not compress"
            )
        if 8 * count > _memory() / 2:
            raise ValueError(f"{member} has {count:,} numbers, too many for the memory of this machine")
        content = file.read(size)
    return np.frombuffer(content, dtype).reshape(shape, order="F" if in_columns else "C")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran order, and dtype of the array that begins here."""
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)
    if version not in read:
        raise ValueError(f"an array of format {version}")
    return read[version](file)


def _memory() -> float:
    """Bytes of memory of this machine, if the system reports it."""
    names = getattr(os, "sysconf_names", {})
    if not {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= set(names):
        return math.inf
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def read_samples(
    path: Path, x_key: str = "X", labels_key: str | None = None, labels_file: Path | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Samples and labels.

    Args:
        path: ``.npz`` with both arrays; ``.npy`` with the samples; ``.csv`` with a row of names and a row for
            each sample.
        x_key: name of the samples in an ``.npz`` file.
        labels_key: name of the labels in it, or of their column (default: y; in a table without y, the last
            column).
        labels_file: ``.npy`` file of the labels, where the samples are in one.
    """
    if path.suffix == ".csv":
        return _table(path, labels_key)
    if path.suffix == ".npy":
        if labels_file is None:
            raise SpecificationError(f"{path}: labels are missing; name their .npy file by --labels-file")
        return _array(path), _array(labels_file)
    archive = Archive(path)
    return archive.read(x_key), archive.read(labels_key or "y")


def _array(path: Path) -> np.ndarray:
    _must_exist(path)
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise DataFileError(f"{path} cannot be read: {error}") from error


def _table(path: Path, labels_key: str | None) -> tuple[np.ndarray, np.ndarray]:
    _must_exist(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            names, *rows = [row for row in csv.reader(file) if row]
        values = np.array([[float(entry) for entry in row] for row in rows])
    except (ValueError, UnicodeDecodeError) as error:
        raise DataFileError(f"{path}: a row of names, then rows of as many numbers: {error}") from error
    label = labels_key or ("y" if "y" in names else names[-1])
    if label not in names:
        raise SpecificationError(f"{path} has no column {label!r}; it has {', '.join(names)}")
    if values.ndim != 2 or values.shape[1] != len(names):
        raise DataFileError(f"{path}: {len(names)} names, but rows of other lengths")
    column = names.index(label)
    return np.delete(values, column, axis=1), values[:, column]


def _must_exist(path: Path) -> None:
    if not path.is_file():
        raise DataFileError(f"{path}: there is no such file")
