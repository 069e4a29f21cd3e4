"""Datasets on disk: complete or not there, with provenance, and with clear errors."""

import subprocess

import numpy as np
import pytest
import xarray

import optlearn
from optlearn import _io as io
from optlearn._io import DataFileError, atomic, load_dataset, provenance, save_dataset


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


def test_a_failed_write_leaves_the_older_file(dataset, tmp_path, monkeypatch):
    path = save_dataset(dataset, tmp_path / "data.nc")
    before = path.read_bytes()

    def half(self, target, **kwargs):
        target.write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(xarray.Dataset, "to_netcdf", half)
    with pytest.raises(OSError, match="no space left"):
        save_dataset(dataset, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["data.nc"]


def test_an_interrupted_write_leaves_nothing(tmp_path):
    def interrupted():
        with atomic(tmp_path / "figure.png") as temporary:
            assert temporary.suffix == ".png"
            temporary.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


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


def test_provenance_without_git(monkeypatch):
    def absent(*args, **kwargs):
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", absent)
    io._versions.cache_clear()
    try:
        assert "git_revision" not in provenance()
    finally:
        io._versions.cache_clear()
