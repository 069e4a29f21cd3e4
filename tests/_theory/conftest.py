"""Drifts of every kind, each compiled for a few evaluations."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _quick(quick_to_compile):
    """All of them."""
