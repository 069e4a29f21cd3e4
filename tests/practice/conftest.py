import os
from pathlib import Path

import pytest

from optlearn.practice import datasets

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def real_mnist():
    """Folder of the real files; never downloaded for a test."""
    folder = Path(os.environ.get(datasets.ENVIRONMENT) or SHARED)
    if datasets.MNIST.missing(datasets.MNIST.locate(folder)):
        pytest.skip(f"MNIST is not in {folder}; set {datasets.ENVIRONMENT} to the folder that has it")
    return folder


@pytest.fixture(scope="session")
def zeros_and_ones(real_mnist):
    return datasets.mnist("all", real_mnist).only(0, 1)
