"""One folder for everything that is kept between runs."""

import os
import sys

from optlearn._cli import keep_compiled_programs
from optlearn._io.files import cache_folder
from optlearn.practice.datasets import MNIST


def test_it_can_be_chosen(monkeypatch, tmp_path):
    monkeypatch.setenv("OPTLEARN_CACHE", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
    monkeypatch.delenv("OPTLEARN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform.startswith("linux"):
        assert cache_folder() == tmp_path / "optlearn"


def test_data_sets_and_compiled_programs_go_there(monkeypatch, tmp_path):
    monkeypatch.setenv("OPTLEARN_CACHE", str(tmp_path))
    monkeypatch.delenv("OPTLEARN_DATA", raising=False)
    assert MNIST.locate() == tmp_path / "mnist"
    for name in (
        "JAX_COMPILATION_CACHE_DIR",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",
        "TF_CPP_MIN_LOG_LEVEL",
    ):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    keep_compiled_programs()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"].startswith(str(tmp_path / "jax"))
