"""Supplementary figures: theory against simulation, for all three models.

The single trajectory of the paper is the first seed; the other seeds determine the spread, the unit of
its distance from the theory. The simulation is the exact chain of the overlaps at finite N, which has
the same law as SGD on N-dimensional weights.
"""

from collections.abc import Callable, Sequence

import numpy as np
import xarray
from matplotlib.figure import Figure

from optlearn._progress import Report
from optlearn._schedule import Schedule
from optlearn._simulate.run import simulate, theory_beside
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters
from optlearn.models._autoencoder import FIGS_OMEGA, FIGS_START, autoencoder, optimal_skip
from optlearn.models._committee import committee
from optlearn.models._curriculum import curriculum
from optlearn.paper.shared import Claim, Stages, panels, set_letter
from optlearn.plotting.style import BLUE, SKY, TIME, VERMILION, styled

TITLE = "Theory against simulation"

SEEDS, QUICK_SEEDS = 33, 9
TIMES = 41
# A trajectory with about twenty independent times deviates this far by chance in one of a hundred figures.
LIMIT = 4.0
# Bias of order 1/N that the mean over seeds may have, relative to the larger of 1 and the value.
BIAS = 5.0


Case = tuple[LearningModel, OrderParameters, Schedule]  # the start is one of the model


def _curriculum(N: int) -> Case:
    model = curriculum(T=1.0)
    schedule = Schedule.piecewise([0, 2.5, 5], {"difficulty": [2.0, 0.0]})
    return model, model.state(Q11=0.984, Q22=0.998, M11=0.01), schedule


def _dropout(N: int) -> Case:
    model = committee(K=2, M=1, sigma_n=0.3, dropout=True, rescaling=0.7)
    return model, model.state(), Schedule.constant(5.0, {"activation": 0.7})


def _autoencoder(N: int) -> Case:
    model = autoencoder(
        Omega=FIGS_OMEGA, N=N, eta=2.0, noise=0.8, test_noise=0.8, trained_skip=False, augmentation=True
    )
    start = model.state(**FIGS_START, b=optimal_skip(0.8, 0.1))
    return model, start, Schedule.constant(1.0, {"batch": 5.0})


LEARNED = {"error": "generalisation error", "M11": "$M_{11}$", "Q11": "$Q_{11}$", "Q22": "$Q_{22}$"}
DENOISED = {"improvement": r"MSE(0) − MSE(α)", "R11": "$R_{1,(1,1)}$", "Q11": "$Q_{11}$"}
# Model → how to make it, the paper's N, and its quantities with labels.
CASES: dict[str, tuple[Callable[[int], Case], int, dict[str, str]]] = {
    "curriculum": (_curriculum, 30_000, LEARNED),
    "dropout": (_dropout, 30_000, LEARNED),
    "autoencoder": (_autoencoder, 10_000, DENOISED),
}


def compute(
    quick: bool = False,
    progress: Report | None = None,
    *,
    seeds: int | None = None,
    dimensions: Sequence[int] | None = None,
    mode: str = "overlaps",
) -> xarray.Dataset:
    """Integrate and simulate.

    Args:
        quick: fewer seeds.
        progress: called at every stage.
        seeds: one trajectory and, for the spread, the others; at least 3.
        dimensions: N of the three models (default: the paper's).
        mode: "overlaps", or "weights" for SGD on the weights themselves (slow).
    """
    count = seeds or (QUICK_SEEDS if quick else SEEDS)
    sizes = tuple(dimensions or (N for _, N, _ in CASES.values()))
    tell = Stages(progress, len(CASES))
    courses: dict[str, xarray.DataArray] = {}
    for (name, (make, _, quantities)), N in zip(CASES.items(), sizes, strict=True):
        tell(f"{name}: {count} runs at N = {N}")
        model, start, schedule = make(N)
        run = simulate(model, schedule, start=start, N=N, seeds=count, mode=mode, record=TIMES)
        theory = theory_beside(run, model, schedule, start=start)
        axis = f"{name}_alpha"
        coords = {axis: run.alpha}
        for quantity in quantities:
            key = "error" if quantity == "improvement" else quantity
            expected, simulated = theory[key], run[key]
            if quantity == "improvement":
                expected, simulated = expected[0] - expected, simulated[:, :1] - simulated
            courses[f"{name}_{quantity}_theory"] = xarray.DataArray(expected, coords, (axis,))
            courses[f"{name}_{quantity}"] = xarray.DataArray(simulated, coords, ("seed", axis))
        courses[f"{name}_N"] = xarray.DataArray(N)
    return xarray.Dataset(courses, attrs={"mode": mode})


@styled
def plot(data: xarray.Dataset) -> Figure:
    """One row per model: theory as a line, the single trajectory as crosses."""
    letters = {name: [f"{name} {q}" for q in quantities] for name, (_, _, quantities) in CASES.items()}
    rows = [[*names, *["."] * (4 - len(names))] for names in letters.values()]
    figure, axes = panels(rows, height=7.2)
    for name, (_, _, quantities) in CASES.items():
        alpha = data[f"{name}_alpha"].values
        for letter, (quantity, label) in zip("abcd", quantities.items(), strict=False):
            panel = axes[f"{name} {quantity}"]
            runs = data[f"{name}_{quantity}"].values
            theory, spread = data[f"{name}_{quantity}_theory"].values, runs[1:].std(axis=0, ddof=1)
            band = (theory - 2 * spread, theory + 2 * spread)
            panel.fill_between(alpha, *band, color=SKY, alpha=0.5, linewidth=0, label="± 2 s.d. of a run")
            panel.plot(alpha, theory, color=BLUE, label="theory, N → ∞")
            one = f"one run, N = {int(data[f'{name}_N'])}"
            panel.plot(alpha, runs[0], "x", color=VERMILION, ms=4, mew=1, label=one)
            panel.set(xlabel="α = steps/N" if letter != "a" else TIME, ylabel=label)
            set_letter(panel, letter)
            if letter == "a":
                panel.set_title(name, fontsize=9)
                panel.legend()
    return figure


def claims(data: xarray.Dataset) -> list[Claim]:
    """Agreement, one model at a time."""
    return [claim for name in CASES for claim in _agreement(data, name)]


def _agreement(data: xarray.Dataset, name: str) -> list[Claim]:
    N = int(data[f"{name}_N"])
    single, mean = {}, {}
    for quantity in CASES[name][2]:
        theory, runs = data[f"{name}_{quantity}_theory"].values[1:], data[f"{name}_{quantity}"].values[:, 1:]
        first, others = runs[0], runs[1:]
        spread = others.std(axis=0, ddof=1)
        single[quantity] = float(np.max(np.abs(first - theory) / spread))
        allowed = LIMIT * spread / np.sqrt(len(others)) + BIAS / N * np.maximum(1, np.abs(theory))
        mean[quantity] = float(np.max(np.abs(others.mean(axis=0) - theory) / allowed))
    return [
        Claim(
            f"{name}-single-run",
            f"{name}: theory and a single trajectory at N = {N} agree",
            {"largest distance in standard deviations of a run": single},
            f"at most {LIMIT:g} at every time",
            max(single.values()) <= LIMIT,
        ),
        Claim(
            f"{name}-mean",
            f"(this work) {name}: theory and the mean over {data.sizes['seed'] - 1} further runs agree",
            {"largest distance over what is allowed": mean},
            f"at most 1, where {LIMIT:g} standard errors and a bias of {BIAS:g}/N are allowed",
            max(mean.values()) <= 1,
        ),
    ]
