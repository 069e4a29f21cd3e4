"""Strict numerics for every test: 64 bits, no silent promotion of dtypes or ranks, shapes as said."""

import errno
import gc
import os

import jax
import pytest
from hypothesis import settings
from tests.shapes import check_shapes

# Before the package is imported, which else leaves shapes out.
check_shapes()
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
settings.register_profile("optlearn", derandomize=True, deadline=None)
settings.load_profile("optlearn")


def pytest_configure(config):
    """Programs of tests that are not slow run for milliseconds, and take seconds to compile."""
    quick = config.getoption("markexpr").startswith("not slow")
    jax.config.update("jax_disable_most_optimizations", quick)


def pytest_collection_finish():
    """JAX, PyTorch and all tests stay; to search them for cycles, again and again, is a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture
def full_disk(monkeypatch):
    """Call it, and from then on no file can be written to its end."""

    def no_space(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return lambda: monkeypatch.setattr(os, "fsync", no_space)
