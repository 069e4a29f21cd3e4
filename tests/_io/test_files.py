"""Datasets on disk: complete or not there, with provenance, and with clear errors."""

import errno
import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest
import xarray

import optlearn
from optlearn._errors import DataFileError
from optlearn._io.files import (
    load_dataset,
    read_file,
    read_json,
    remove_half_written,
    save_dataset,
    write_file,
)
from optlearn._io.provenance import _versions as versions
from optlearn._io.provenance import provenance


@pytest.fixture
def dataset():
    values = np.linspace(0, 1, 50_000)
    return xarray.Dataset(
        {"error": ("alpha", values), "converged": ("which", [True, False])},
        coords={"alpha": np.arange(len(values)), "which": ["a", "β"]},
        attrs={"title": "λ̄"},
    )


def test_what_is_saved_is_loaded(dataset, tmp_path):
    path = save_dataset(dataset, tmp_path / "new" / "data.nc", {"seconds": 1.5})
    found = load_dataset(path)
    xarray.testing.assert_equal(found, dataset)
    assert found.converged.dtype == bool
    assert found.attrs["title"] == "λ̄"
    assert found.attrs["seconds"] == 1.5
    assert found.attrs["optlearn_version"] == optlearn.__version__
    for name in ("created", "jax_version", "casadi_version", "numpy_version", "python_version"):
        assert found.attrs[name]
    assert [p.name for p in path.parent.iterdir()] == ["data.nc"]


def test_a_full_disk_leaves_the_older_file(dataset, tmp_path, full_disk):
    path = save_dataset(dataset, tmp_path / "data.nc")
    before = path.read_bytes()
    full_disk()
    with pytest.raises(OSError, match=r"No space left on device: .*data\.nc") as caught:
        save_dataset(dataset, path)
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["data.nc"]


@pytest.mark.skipif(os.name == "nt", reason="limits of processes")
def test_a_disk_that_is_really_full_does_not_end_the_process(tmp_path):
    """HDF5 ends it by a segmentation fault if it writes the file itself."""
    code = (
        "import resource, sys, numpy, xarray\n"
        "from optlearn._io.files import save_dataset\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    save_dataset(xarray.Dataset({'a': ('x', numpy.random.rand(100_000))}), sys.argv[1])\n"
        "except OSError as error:\n"
        "    print('refused', error.filename)\n"
    )
    path = tmp_path / "data.nc"
    path.write_bytes(b"older")
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"refused {path}\n"
    assert path.read_bytes() == b"older"
    assert [p.name for p in tmp_path.iterdir()] == ["data.nc"]


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "figure.png", b"half")
    assert list(tmp_path.iterdir()) == []


def test_threads_that_write_one_file_do_not_collide(tmp_path):
    path, count = tmp_path / "same.txt", 16
    barrier = threading.Barrier(count)

    def write(number):
        barrier.wait()
        for _ in range(10):
            write_file(path, str(number) * 10_000)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(write, range(count)))
    assert path.read_text() in {str(number) * 10_000 for number in range(count)}
    assert [p.name for p in tmp_path.iterdir()] == ["same.txt"]


@pytest.mark.skipif(os.name == "nt", reason="devices")
def test_a_device_is_written_to_and_not_replaced(tmp_path):
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write_file("/dev/full", "text")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_file(pipe, "text")
        assert os.read(reader, 10) == b"text"
    finally:
        os.close(reader)


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "file")
    write_file(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "file").read_text() == "text"


def test_half_written_files_of_a_dead_process_are_removed(tmp_path):
    for name in (".data.nc.77.abcd.tmp", ".data.nc.7.abcd.tmp", "data.nc"):
        (tmp_path / name).write_text("")
    remove_half_written(tmp_path, 7)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".data.nc.77.abcd.tmp", "data.nc"]
    remove_half_written(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["data.nc"]


class TestJson:
    def test_what_is_no_json_is_named(self, tmp_path):
        for name, content in {
            "cut.json": b'{"a": [1, ',
            "deep.json": b"[" * 100_000,
            "latin.json": b'{"a": "\xe9"}',
            "empty.json": b"",
        }.items():
            (tmp_path / name).write_bytes(content)
            with pytest.raises(DataFileError, match=f"{name} is not JSON"):
                read_json(tmp_path / name)

    @pytest.mark.skipif(os.name == "nt", reason="devices")
    def test_a_device_without_an_end_is_not_read(self):
        for device in ("/dev/full", "/dev/zero"):
            with pytest.raises(DataFileError, match=f"{device} is a device, not a file"):
                read_json(device)

    def test_a_file_that_is_too_long_is_not_read_whole(self, tmp_path):
        (tmp_path / "long").write_bytes(b"0" * 11)
        with pytest.raises(DataFileError, match="long has more than 10 bytes"):
            read_file(tmp_path / "long", most=10)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        load_dataset(tmp_path / "none.nc")


@pytest.mark.parametrize("content", [b"", b"alpha,error\n0,1\n"])
def test_a_file_of_another_kind(tmp_path, content):
    path = tmp_path / "data.nc"
    path.write_bytes(content)
    with pytest.raises(DataFileError, match="is not a NetCDF-4 file"):
        load_dataset(path)


@pytest.mark.parametrize("share", [0.001, 0.5, 0.99])
def test_a_truncated_file(dataset, tmp_path, share):
    path = save_dataset(dataset, tmp_path / "data.nc")
    content = path.read_bytes()
    path.write_bytes(content[: max(100, int(share * len(content)))])
    with pytest.raises(DataFileError, match="may be cut short"):
        load_dataset(path)


def test_forged_headers(dataset, tmp_path):
    """Whatever HDF5 makes of them, it is an error that names the file; such a file has no checksum."""
    content = bytes(dataset.to_netcdf(None, engine="h5netcdf"))
    refused = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        forged = bytearray(content)
        for place in rng.integers(8, 2000, 40):
            forged[place] = rng.integers(256)
        (tmp_path / "forged.nc").write_bytes(forged)
        try:
            load_dataset(tmp_path / "forged.nc")
        except DataFileError as error:
            refused += "forged.nc" in str(error)
    assert refused > 10


def test_damage_is_seen_before_hdf5_sees_it(dataset, tmp_path, monkeypatch):
    content = bytearray(save_dataset(dataset, tmp_path / "data.nc").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "data.nc").write_bytes(content)
    monkeypatch.setattr(h5py, "File", lambda *args: pytest.fail("HDF5 was asked"))
    with pytest.raises(DataFileError, match=r"data\.nc is damaged, .*\(checksum\)"):
        load_dataset(tmp_path / "data.nc")


def test_a_file_of_another_program_has_no_checksum(dataset, tmp_path):
    dataset.to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    xarray.testing.assert_equal(load_dataset(tmp_path / "other.nc"), dataset)


def test_a_file_that_claims_to_be_huge(tmp_path):
    with h5py.File(tmp_path / "bomb.nc", "w") as file:
        file.create_dataset("x", shape=(10**12,), dtype="f8", chunks=(1000,))
    with pytest.raises(DataFileError, match=r"bomb\.nc .*claims to have 8,000,000,000,000 bytes"):
        load_dataset(tmp_path / "bomb.nc")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(DataFileError, match="is not a file"):
        load_dataset(tmp_path)


def test_provenance_without_git(monkeypatch):
    def absent(*args, **kwargs):
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", absent)
    versions.cache_clear()
    try:
        assert "git_revision" not in provenance()
    finally:
        versions.cache_clear()
