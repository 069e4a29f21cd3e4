import functools
import gzip
import hashlib
import http.server
import struct
import tarfile
import threading

import numpy as np
import pytest

from optlearn._errors import DataFileError, SpecificationError
from optlearn.practice import datasets
from optlearn.practice.datasets import MissingDataError, cifar10, mnist, read_cifar, read_idx


def idx(array, code=0x08):
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def pixels(*shape):
    return (np.arange(np.prod(shape)) % 251).reshape(shape).astype(np.uint8)


TINY = {
    "train-images-idx3-ubyte": pixels(5, 4, 3),
    "train-labels-idx1-ubyte": np.array([0, 1, 2, 1, 0], np.uint8),
    "t10k-images-idx3-ubyte": pixels(2, 4, 3),
    "t10k-labels-idx1-ubyte": np.array([1, 7], np.uint8),
}


@pytest.fixture
def tiny_mnist(tmp_path):
    folder = tmp_path / "mnist"
    folder.mkdir()
    for i, (name, array) in enumerate(TINY.items()):
        if i % 2:
            (folder / name).write_bytes(idx(array))
        else:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    return tmp_path


@pytest.fixture
def tiny_cifar(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for i, name in enumerate(datasets.CIFAR10.digests):
        records = np.column_stack([np.array([i, 9], np.uint8), pixels(2, 3072)])
        (folder / name).write_bytes(records.tobytes())
    return tmp_path


class TestFolders:
    def test_subfolder_or_folder_itself(self, tiny_mnist):
        for folder in (tiny_mnist, tiny_mnist / "mnist", str(tiny_mnist)):
            data = mnist("train", folder, verify=False)
            np.testing.assert_array_equal(data.images, TINY["train-images-idx3-ubyte"])
            np.testing.assert_array_equal(data.labels, TINY["train-labels-idx1-ubyte"])

    def test_environment_variable(self, tiny_mnist, monkeypatch):
        monkeypatch.setenv("OPTLEARN_DATA", str(tiny_mnist))
        assert len(mnist("test", verify=False)) == 2

    def test_argument_goes_before_the_environment(self, tiny_mnist, monkeypatch, tmp_path):
        monkeypatch.setenv("OPTLEARN_DATA", str(tmp_path / "elsewhere"))
        assert len(mnist("test", tiny_mnist, verify=False)) == 2

    def test_splits(self, tiny_mnist, tiny_cifar):
        splits = ("train", "test", "all")
        assert [len(mnist(split, tiny_mnist, verify=False)) for split in splits] == [5, 2, 7]
        assert [len(cifar10(split, tiny_cifar, verify=False)) for split in splits] == [10, 2, 12]
        with pytest.raises(SpecificationError, match="split must be one of train, test, all, got 'valid"):
            mnist("validation", tiny_mnist)

    def test_cifar_records(self, tiny_cifar):
        data = cifar10("test", tiny_cifar, verify=False)
        assert data.images.shape == (2, 3, 32, 32)
        assert data.labels.tolist() == [5, 9]
        np.testing.assert_array_equal(data.images.ravel(), pixels(2, 3072).ravel())

    def test_selection_and_rows(self, tiny_mnist):
        data = mnist("all", tiny_mnist, verify=False).only(0, 7)
        assert data.labels.tolist() == [0, 0, 7]
        np.testing.assert_allclose(data.rows(510.0)[1], TINY["train-images-idx3-ubyte"][4].ravel() / 510)


class TestBadFiles:
    def test_missing(self, tmp_path, tiny_mnist):
        (tiny_mnist / "mnist" / "t10k-labels-idx1-ubyte").unlink()
        with pytest.raises(MissingDataError) as caught:
            mnist("train", tiny_mnist)
        text = str(caught.value)
        assert str(tiny_mnist / "mnist") in text
        assert "Expected there: t10k-labels-idx1-ubyte (" in text
        assert "--data-dir" in text
        assert "OPTLEARN_DATA" in text
        assert "datasets.fetch('mnist'" in text
        with pytest.raises(MissingDataError, match=r"nowhere.*data_batch_1\.bin"):
            cifar10("test", tmp_path / "nowhere")

    @pytest.mark.parametrize(
        "header",
        [
            struct.pack(">BBBB3I", 0, 0, 8, 3, 2**31, 2**31, 4),  # its product overflows to 0
            struct.pack(">BBBB2I", 0, 0, 8, 2, 2**32 - 1, 2**32 - 1),
            bytes([0, 0, 8, 255]) + struct.pack(">255I", *[1] * 255) + b"x",
            bytes([0, 0, 8, 3, 0]),
        ],
    )
    def test_a_forged_header(self, tmp_path, header):
        path = tmp_path / "forged"
        path.write_bytes(header)
        with pytest.raises(DataFileError, match="forged: "):
            read_idx(path)

    def test_a_file_that_unpacks_without_end(self, tmp_path, monkeypatch):
        monkeypatch.setattr(datasets, "MOST_BYTES", 1000)
        (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(10_000)))
        with pytest.raises(DataFileError, match=r"bomb\.gz: unpacks to more than 1,000 bytes"):
            read_idx(tmp_path / "bomb.gz")

    def test_not_the_official_file(self, tiny_mnist, tiny_cifar):
        with pytest.raises(DataFileError, match=r"train-images-idx3-ubyte\.gz: not the official file"):
            mnist("train", tiny_mnist)
        with pytest.raises(DataFileError, match=r"test_batch\.bin: not the official file"):
            cifar10("test", tiny_cifar)

    @pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (idx(pixels(2, 3))[:-1], "truncated, 17 bytes where 18 are expected"),
            (idx(pixels(2, 3)) + b"x", "too long, 19 bytes"),
            (idx(pixels(2, 3))[:9], "truncated, 9 bytes"),
            (idx(pixels(2, 3), code=0x0D), "magic number 0x00000d02 where 0x00000802"),
            (idx(pixels(6)), "magic number 0x00000801 where 0x00000802"),
            (b"<html>not found</html>", "magic number 0x3c68746d"),
            (b"", "magic number"),
        ],
    )
    def test_idx(self, tmp_path, compress, content, message):
        path = tmp_path / "data-idx2-ubyte"
        path.write_bytes(compress(content))
        with pytest.raises(DataFileError, match=message) as caught:
            read_idx(path, dimensions=2)
        assert str(path) in str(caught.value)

    def test_truncated_gzip(self, tmp_path):
        path = tmp_path / "a.gz"
        path.write_bytes(gzip.compress(idx(pixels(40, 40)))[:-20])
        with pytest.raises(DataFileError, match=r"a\.gz: truncated or damaged gzip"):
            read_idx(path)

    def test_unreadable(self, tmp_path):
        with pytest.raises(DataFileError, match="nothing: cannot be read"):
            read_idx(tmp_path / "nothing")

    def test_cifar(self, tmp_path):
        path = tmp_path / "batch.bin"
        wrong = {b"\1" * 3072: "truncated", b"": "truncated", b"\x0b" * 3073: "label 11"}
        for content, message in wrong.items():
            path.write_bytes(content)
            with pytest.raises(DataFileError, match=message):
                read_cifar(path)

    def test_images_and_labels_must_match(self, tiny_mnist):
        (tiny_mnist / "mnist" / "train-labels-idx1-ubyte").write_bytes(idx(pixels(4)))
        with pytest.raises(DataFileError, match="5 train images, but 4 labels"):
            mnist("train", tiny_mnist, verify=False)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A mirror on this machine that has the tiny files; the checksums are those of its files."""
    root = tmp_path / "mirror"
    root.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(root))
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *args: None)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{listening.server_port}/"
        monkeypatch.setattr(datasets, "MNIST_MIRRORS", (address + "gone/", address))
        monkeypatch.setattr(datasets, "CIFAR10_MIRRORS", (address,))
        monkeypatch.setenv("OPTLEARN_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("OPTLEARN_DATA", raising=False)
        yield root
        listening.shutdown()
        thread.join()


class TestDownload:
    def test_mnist_is_fetched_once_and_checked(self, server, tmp_path, monkeypatch):
        for name, array in TINY.items():
            archive = gzip.compress(idx(array))
            (server / f"{name}.gz").write_bytes(archive)
            monkeypatch.setitem(datasets.MNIST_ARCHIVES, name, hashlib.md5(archive).hexdigest())
            monkeypatch.setitem(datasets.MNIST.digests, name, hashlib.sha256(idx(array)).hexdigest())
        assert len(mnist("all")) == 7
        for path in server.iterdir():
            path.unlink()
        assert len(mnist("all")) == 7
        assert sorted(p.name for p in (tmp_path / "cache" / "mnist").iterdir()) == sorted(
            f"{name}.gz" for name in TINY
        )

    def test_a_wrong_checksum_leaves_nothing_behind(self, server, tmp_path):
        for name, array in TINY.items():
            (server / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        with pytest.raises(MissingDataError, match=r"could not be fetched.*hash"):
            mnist("train")
        assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]

    def test_cifar_archive(self, server, tmp_path, tiny_cifar, monkeypatch):
        with tarfile.open(server / "cifar-10-binary.tar.gz", "w:gz") as archive:
            archive.add(tiny_cifar / "cifar-10-batches-bin", "cifar-10-batches-bin")
        digest = hashlib.sha256((server / "cifar-10-binary.tar.gz").read_bytes()).hexdigest()
        monkeypatch.setattr(datasets, "CIFAR10_ARCHIVE", digest)
        assert datasets.fetch("cifar10", tmp_path / "here") == tmp_path / "here" / "cifar-10-batches-bin"
        assert len(cifar10("all", tmp_path / "here", verify=False)) == 12

    def test_offline(self, server, monkeypatch, tmp_path):
        monkeypatch.setattr(datasets, "MNIST_MIRRORS", ("http://127.0.0.1:9/",))
        with pytest.raises(MissingDataError) as caught:
            mnist("train")
        text = str(caught.value)
        assert "could not be fetched" in text
        assert str(tmp_path / "cache" / "mnist") in text
        assert "train-images-idx3-ubyte" in text
        assert "--data-dir DIR" in text

    def test_unknown_name(self):
        with pytest.raises(SpecificationError, match="name must be one of mnist, cifar10, got 'imagenet'"):
            datasets.fetch("imagenet")


def test_real_mnist(real_mnist):
    data = mnist("all", real_mnist)
    assert data.images.shape == (70_000, 28, 28)
    assert np.sum(data.labels == 0) == 6903
    assert np.sum(data.labels == 1) == 7877
