"""Tables of samples and labels in files: ``.npz``, ``.npy`` and ``.csv``, without ever unpickling."""

import csv
from pathlib import Path

import numpy as np

from optlearn._errors import DataFileError, SpecificationError
from optlearn.practice.archives import Archive


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
    if not path.is_file():
        raise DataFileError(f"{path}: there is no such file")
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise DataFileError(f"{path} cannot be read: {error}") from error


def _table(path: Path, labels_key: str | None) -> tuple[np.ndarray, np.ndarray]:
    if not path.is_file():
        raise DataFileError(f"{path}: there is no such file")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            names, *rows = [row for row in csv.reader(file) if row]
        values = np.array([[float(entry) for entry in row] for row in rows])
    except (ValueError, UnicodeDecodeError) as error:
        raise DataFileError(f"{path}: a row of names, then rows of as many numbers: {error}") from error
    wanted = labels_key or ("y" if "y" in names else names[-1])
    if wanted not in names:
        raise SpecificationError(f"{path} has no column {wanted!r}; it has {', '.join(names)}")
    if values.ndim != 2 or values.shape[1] != len(names):
        raise DataFileError(f"{path}: {len(names)} names, but rows of other lengths")
    column = names.index(wanted)
    return np.delete(values, column, axis=1), values[:, column]
