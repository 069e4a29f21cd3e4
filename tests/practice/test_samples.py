"""Arrays of .npz files: what was saved, read one by one, and nothing that is not what it says."""

import io
import struct
import zipfile

import numpy as np
import pytest

from optlearn._errors import DataFileError, SpecificationError
from optlearn.practice import samples
from optlearn.practice.samples import Archive

ARRAYS = {
    "X": np.arange(12.0).reshape(3, 4),
    "columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "words": np.array(["a", "bc"]),
    "one": np.array(2.5),
    "none": np.zeros((0, 3)),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_was_saved_is_read(tmp_path, save):
    save(tmp_path / "data.npz", **ARRAYS)
    archive = Archive(tmp_path / "data.npz")
    assert archive.names == list(ARRAYS)
    for name, array in ARRAYS.items():
        found = archive.read(name)
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)
    with pytest.raises(SpecificationError, match="has no array 'y'; it has X, columns"):
        archive.read("y")


def with_member(path, content, name="X.npy"):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return Archive(path)


def header(shape, dtype="<f8"):
    text = str({"descr": dtype, "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def test_only_what_is_asked_for_is_read(tmp_path):
    """Beside X lies an array of 512 MB, packed into a little: it is not touched."""
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        small = io.BytesIO()
        np.save(small, ARRAYS["X"])
        archive.writestr("X.npy", small.getvalue())
        with archive.open("bomb.npy", "w") as file:
            file.write(header((2**26,)))
            for _ in range(2**5):
                file.write(bytes(2**24))
    np.testing.assert_array_equal(Archive(path).read("X"), ARRAYS["X"])
    with pytest.raises(DataFileError, match=r"bomb\.npz cannot be read: bomb\.npy claims 536,870,912 bytes"):
        Archive(path).read("bomb")


def test_more_than_the_memory_holds_is_refused(tmp_path, monkeypatch):
    np.savez(tmp_path / "data.npz", **ARRAYS)
    monkeypatch.setattr(samples, "_memory", lambda: 8 * 20)
    with pytest.raises(DataFileError, match=r"X\.npy has 12 numbers, too many for the memory"):
        Archive(tmp_path / "data.npz").read("X")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header((10**6, 10**6)) + bytes(80), "claims 8,000,000,000,000 bytes, but has 80"),
        (header((10,)) + bytes(79), "claims 80 bytes, but has 79"),
        (header((-1,)), "claims"),
        (header((1,), "|O") + bytes(8), "Python objects"),
        (header((1,), "nonsense") + bytes(8), "cannot be read"),
        (b"\x93NUMPY\x09\x00" + bytes(80), "cannot be read"),
        (b"\x93NUMPY\x01\x00\xff\xff{", "cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_forged_headers(tmp_path, content, message):
    with pytest.raises(DataFileError, match=message) as caught:
        with_member(tmp_path / "forged.npz", content).read("X")
    assert "forged.npz" in str(caught.value)


def test_a_damaged_archive(tmp_path):
    path = tmp_path / "cut.npz"
    np.savez_compressed(path, X=np.random.default_rng(0).random(1000))
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes(100) + whole[200:])
    with pytest.raises(DataFileError, match=r"cut\.npz cannot be read"):
        Archive(path).read("X")
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataFileError, match=r"cut\.npz is not an \.npz file"):
        Archive(path)
    with pytest.raises(DataFileError, match="there is no such file"):
        Archive(tmp_path / "none.npz")
