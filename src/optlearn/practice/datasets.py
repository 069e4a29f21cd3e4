"""MNIST and CIFAR-10 in their official binary files, from a folder or from a checked download.

Files are looked for in ``data_dir``, else in the folder named by the environment variable
``OPTLEARN_DATA``, in both cases also in the data set's subfolder (``DIR/mnist`` or ``DIR``). Without
either, they are downloaded once into the user's cache (or ``OPTLEARN_CACHE``). The content of every
official file is checked against its SHA-256 before use.
"""

import gzip
import hashlib
import io
import math
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal

import numpy as np

from optlearn._arrays import Float, UInt8
from optlearn._errors import DataFileError, SpecificationError
from optlearn._io.files import MOST_BYTES, cache_folder, read_file

ENVIRONMENT = "OPTLEARN_DATA"
TIMEOUT = 30  # seconds to wait for a mirror to answer
MOST_AXES = 32  # of an IDX file; NumPy has no more than 64

Split = Literal["train", "test", "all"]
FilePath = str | os.PathLike[str]


class MissingDataError(DataFileError):
    """A data set is not in the expected folder and could not be downloaded.

    The message names the folder, the files and what to do.
    """


@dataclass(frozen=True)
class ImageSet:
    """Images with labels.

    Attributes:
        images: (n, height, width), or (n, channels, height, width) in colour; from 0 to 255.
        labels: classes.
    """

    images: UInt8[np.ndarray, "n ..."]
    labels: UInt8[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.labels)

    def only(self, *labels: int) -> "ImageSet":
        """The images with one of the given labels, in their original order."""
        chosen = np.isin(self.labels, labels)
        return ImageSet(self.images[chosen], self.labels[chosen])

    def rows(self, scale: float = 255.0) -> Float[np.ndarray, "n N"]:
        """Pixels divided by ``scale``, one image per row."""
        return self.images.reshape(len(self), -1) / scale


@dataclass(frozen=True)
class DataSet:
    """The official files of a data set.

    Attributes:
        name: name of the data set for users.
        folder: subfolder of a data directory.
        digests: file name, without ``.gz`` → SHA-256 of its uncompressed content.
        download: downloads the missing files into a folder.
        size: size of the download, for messages.
    """

    name: str
    folder: str
    digests: dict[str, str]
    download: Callable[[Path], None]
    size: str

    def locate(self, data_dir: FilePath | None = None) -> Path:
        """The folder where the files are expected; they need not exist."""
        chosen = data_dir if data_dir is not None else os.environ.get(ENVIRONMENT) or None
        if chosen is None:
            return cache_folder() / self.folder
        inside = Path(chosen) / self.folder
        return inside if inside.is_dir() or not Path(chosen).is_dir() else Path(chosen)

    def missing(self, folder: Path) -> list[str]:
        """Names of the files that are not in ``folder``, with or without ``.gz``."""
        return [name for name in self.digests if _find(folder, name) is None]

    def file(self, folder: Path, name: str, verify: bool) -> tuple[Path, str | None]:
        """A file, gzipped or not, and the SHA-256 to check its content with, if any."""
        path = _find(folder, name)
        if path is None:
            raise MissingDataError(self.advice(folder))
        return path, self.digests[name] if verify else None

    def ensure(self, data_dir: FilePath | None = None) -> Path:
        """The folder that holds the files; without a named folder, they are downloaded into the cache."""
        folder = self.locate(data_dir)
        if not self.missing(folder):
            return folder
        if data_dir is not None or os.environ.get(ENVIRONMENT):
            raise MissingDataError(self.advice(folder))
        return fetch(self.name)

    def advice(self, folder: Path, reason: str = "") -> str:
        """A message about the missing files and how to get them."""
        files = ", ".join(self.missing(folder))
        because = f" and could not be fetched ({reason})" if reason else ""
        return (
            f"{self.name}: not in {folder}{because}. Expected there: {files} (gzipped or not). If you have "
            f"these files, name their folder by --data-dir DIR, data_dir=DIR or {ENVIRONMENT}=DIR; "
            f"with a network, fetch them ({self.size}) by\n"
            f'    python -c "from optlearn.practice import datasets; '
            f"datasets.fetch('{self.name}', 'DIR')\""
        )


def mnist(split: Split = "train", data_dir: FilePath | None = None, *, verify: bool = True) -> ImageSet:
    """Handwritten digits, 28 by 28: 60,000 for training, 10,000 for testing.

    Args:
        split: "train", "test", or "all" for both, training images first.
        data_dir: folder with the four IDX files, gzipped or not, or with a folder ``mnist`` that
            has them.
        verify: check the files against the official checksums. False for your own files with the same
            names.

    Raises:
        DataFileError: a file is missing, damaged or not the official one.
    """
    folder = MNIST.ensure(data_dir)
    parts = []
    for stem in _of_split(split, ["train"], ["t10k"]):
        images = read_idx(*MNIST.file(folder, f"{stem}-images-idx3-ubyte", verify), dimensions=3)
        labels = read_idx(*MNIST.file(folder, f"{stem}-labels-idx1-ubyte", verify), dimensions=1)
        if len(images) != len(labels):
            raise DataFileError(f"{folder}: {len(images)} {stem} images, but {len(labels)} labels")
        parts.append(ImageSet(images, labels))
    return _joined(parts)


def cifar10(split: Split = "train", data_dir: FilePath | None = None, *, verify: bool = True) -> ImageSet:
    """Colour photographs of ten classes, 3 by 32 by 32: 50,000 for training, 10,000 for testing.

    Args:
        split: "train", "test", or "all" for both, training images first.
        data_dir: folder ``cifar-10-batches-bin`` with the six binary files, or the folder above it.
        verify: compare the files with the official checksums.

    Raises:
        DataFileError: a file is missing, damaged or not the official one.
    """
    folder = CIFAR10.ensure(data_dir)
    stems = _of_split(split, [f"data_batch_{i}" for i in range(1, 6)], ["test_batch"])
    return _joined([read_cifar(*CIFAR10.file(folder, f"{stem}.bin", verify)) for stem in stems])


def read_idx(path: FilePath, sha256: str | None = None, *, dimensions: int | None = None) -> np.ndarray:
    """The array of unsigned bytes in an IDX file, gzipped or not.

    Args:
        path: the file.
        sha256: of the uncompressed content; None to skip this check.
        dimensions: how many axes it must have; None for any.
    """
    content = _content(path)
    axes = content[3] if len(content) >= 4 else 0
    if content[:3] != b"\0\0\x08" or not 1 <= axes <= MOST_AXES or dimensions not in (None, axes):
        expected = f"{0x0800 + dimensions:#010x}" if dimensions else "0x000008nn"
        raise DataFileError(
            f"{path}: magic number 0x{content[:4].hex()} where {expected} is expected (an IDX file of "
            f"unsigned bytes{f' with {dimensions} axes' if dimensions else ''})"
        )
    start = 4 + 4 * axes
    # As Python integers, since the product of a forged shape must not overflow.
    shape = np.frombuffer(content[4:start].ljust(4 * axes, b"\0"), ">u4").tolist()
    size = start + math.prod(shape)
    if len(content) != size:
        how = "truncated" if len(content) < size else "too long"
        raise DataFileError(f"{path}: {how}, {len(content):,} bytes where {size:,} are expected")
    _check_digest(path, content, sha256)
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_cifar(path: FilePath, sha256: str | None = None) -> ImageSet:
    """The images of one binary file of CIFAR-10: records of a label and 3 × 32 × 32 pixels.

    Args:
        path: the file, gzipped or not.
        sha256: of the uncompressed content; None to skip this check.
    """
    content = _content(path)
    record = 1 + 3 * 32 * 32
    if not content or len(content) % record:
        raise DataFileError(
            f"{path}: truncated or of another format, {len(content):,} bytes are not a whole number of "
            f"records of {record:,}"
        )
    table = np.frombuffer(content, np.uint8).reshape(-1, record)
    if table[:, 0].max() > 9:
        raise DataFileError(f"{path}: label {table[:, 0].max()} where 0 to 9 are expected")
    _check_digest(path, content, sha256)
    return ImageSet(table[:, 1:].reshape(-1, 3, 32, 32), table[:, 0].copy())


def fetch(name: str, data_dir: FilePath | None = None) -> Path:
    """Download a data set, unless its files are there already.

    Args:
        name: "mnist" or "cifar10".
        data_dir: target folder; None for the user's cache.

    Returns:
        The folder that holds the files.
    """
    if name not in DATA_SETS:
        raise SpecificationError(f"name must be one of {', '.join(DATA_SETS)}, got {name!r}")
    data = DATA_SETS[name]
    folder = (cache_folder() if data_dir is None else Path(data_dir)) / data.folder
    if data.missing(folder):
        try:
            data.download(folder)
        except (OSError, ValueError) as error:  # no network, no space; wrong checksum
            reason = shorten(f"{type(error).__name__}: {error}", 120, placeholder=" …")
            raise MissingDataError(data.advice(folder, reason)) from error
    return folder


# --- downloads -----------------------------------------------------------------------------------

MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
# MD5 of the gzipped files as distributed.
MNIST_ARCHIVES = {
    "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
}
CIFAR10_MIRRORS = ("https://www.cs.toronto.edu/~kriz/",)
CIFAR10_ARCHIVE = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"  # SHA-256


def _download_mnist(folder: Path) -> None:
    for name in MNIST.missing(folder):
        _retrieve(MNIST_MIRRORS, f"{name}.gz", f"md5:{MNIST_ARCHIVES[name]}", folder)


def _download_cifar10(folder: Path) -> None:
    import pooch

    unpack = pooch.Untar(extract_dir=".")  # the archive holds the folder itself
    name = "cifar-10-binary.tar.gz"
    _retrieve(CIFAR10_MIRRORS, name, f"sha256:{CIFAR10_ARCHIVE}", folder.parent, unpack)


def _retrieve(mirrors: tuple[str, ...], name: str, digest: str, folder: Path, unpack: Any = None) -> None:
    """Download a file from the first mirror that has it; pooch checks it before putting it in place."""
    import pooch

    ask = pooch.HTTPDownloader(timeout=TIMEOUT)
    for index, mirror in enumerate(mirrors, start=1):
        try:
            pooch.retrieve(mirror + name, digest, fname=name, path=folder, processor=unpack, downloader=ask)
        except (OSError, ValueError):
            if index == len(mirrors):
                raise
        else:
            return


MNIST = DataSet(
    name="mnist",
    folder="mnist",
    digests={
        "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    download=_download_mnist,
    size="11 MB",
)
CIFAR10 = DataSet(
    name="cifar10",
    folder="cifar-10-batches-bin",
    digests={
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    },
    download=_download_cifar10,
    size="162 MB",
)
DATA_SETS = {data.name: data for data in (MNIST, CIFAR10)}


# --- files ---------------------------------------------------------------------------------------


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _of_split(split: str, train: list[str], test: list[str]) -> list[str]:
    stems = {"train": train, "test": test, "all": train + test}
    if split not in stems:
        raise SpecificationError(f"split must be one of {', '.join(stems)}, got {split!r}")
    return stems[split]


def _content(path: FilePath) -> bytes:
    try:
        content = read_file(path)
    except DataFileError:
        raise
    except OSError as error:
        raise DataFileError(f"{path}: cannot be read ({error.strerror or error})") from error
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        with gzip.open(io.BytesIO(content)) as unpacked:
            whole = unpacked.read(MOST_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise DataFileError(f"{path}: truncated or damaged gzip file ({error})") from error
    if len(whole) > MOST_BYTES:
        raise DataFileError(f"{path}: unpacks to more than {MOST_BYTES:,} bytes")
    return whole


def _check_digest(path: FilePath, content: bytes, sha256: str | None) -> None:
    if sha256 is None:
        return
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise DataFileError(
            f"{path}: not the official file: SHA-256 of its content is {digest[:16]}… where "
            f"{sha256[:16]}… is expected. Remove it and fetch it again, or pass verify=False to use it as "
            "it is"
        )


def _joined(parts: list[ImageSet]) -> ImageSet:
    if len(parts) == 1:
        return parts[0]
    return ImageSet(
        np.concatenate([part.images for part in parts]), np.concatenate([part.labels for part in parts])
    )
