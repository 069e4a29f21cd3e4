"""Small data of each figure, computed once, and a fake figure for the runner."""

import sys
import warnings
from types import ModuleType

import numpy as np
import pytest
import xarray

from optlearn import paper
from optlearn._control.solution import NotConvergedWarning
from optlearn._progress import Progress
from optlearn.paper import fig1, fig2, fig3, figS_curriculum, figS_sims
from optlearn.paper.shared import Claim

SMALL = {
    fig1: {"quick": True, "lambda_bars": (0.0, 0.3), "intervals": 120, "joint_intervals": 40, "starts": 1},
    fig2: {"quick": True, "sigmas": (0.1, 0.3), "intervals": 50},
    fig3: {
        "quick": True, "noises": (0.1, 0.25), "batch_noises": (0.5,), "inset_noises": (0.2, 0.6, 0.9),
        "intervals": 40, "batch_intervals": 24,
    },
    figS_curriculum: {"quick": True, "intervals": 120, "joint_intervals": 40},
}  # fmt: skip
_KEPT = {}


def like_simulations():
    """Data of figS_sims made up: smooth courses, and runs that scatter around them."""
    generator, found = np.random.default_rng(0), {}
    for name, (_, N, quantities) in figS_sims.CASES.items():
        axis = f"{name}_alpha"
        alpha = np.linspace(0, 1, figS_sims.TIMES)
        for quantity in quantities:
            walks = generator.normal(size=(9, len(alpha))).cumsum(axis=1)
            noise = (walks - walks[:, :1]) / np.sqrt(N)
            found[f"{name}_{quantity}_theory"] = (axis, np.exp(-alpha))
            found[f"{name}_{quantity}"] = (("seed", axis), np.exp(-alpha) + noise)
        found |= {f"{name}_N": N, axis: alpha}
    return xarray.Dataset(found)


@pytest.fixture
def computed():
    """Function of a figure's module → its small dataset, a copy."""

    def give(module):
        if module not in _KEPT:
            with warnings.catch_warnings():  # on grids as coarse as these
                warnings.simplefilter("ignore", NotConvergedWarning)
                _KEPT[module] = module.compute(**SMALL[module]) if module in SMALL else like_simulations()
        return _KEPT[module].copy(deep=True)

    return give


@pytest.fixture
def figure(monkeypatch):
    """A figure named "fake" that takes no time and counts its computations."""
    from optlearn.paper.shared import panels
    from optlearn.plotting.style import styled

    fake = ModuleType("optlearn.paper.fake")
    fake.TITLE, fake.calls, fake.error = "A fake", [], None

    def compute(quick=False, progress=None, data_dir=None, *, size=3):
        fake.calls.append({"quick": quick, "size": size, "data_dir": data_dir})
        if fake.error is not None:
            raise fake.error
        progress(Progress("counting", 0, 1))
        return xarray.Dataset({"x": ("i", np.arange(float(size)))})

    @styled
    def plot(data):
        drawn, axes = panels([["a"]], height=1, width=1)
        axes["a"].plot(data.x)
        return drawn

    def claims(data):
        return [
            Claim("sum", "The sum is 3", float(data.x.sum()), 3, float(data.x.sum()) == 3),
            Claim("size", "There is an element", len(data.x), "> 0", len(data.x) > 0),
        ]

    fake.compute, fake.plot, fake.claims = compute, plot, claims
    monkeypatch.setitem(sys.modules, "optlearn.paper.fake", fake)
    monkeypatch.setitem(paper._FIGURES, "fake", "a fake")
    return fake
