"""Gating: when a network should be nearly linear, and when its gates should decide."""

from collections.abc import Sequence
from typing import Annotated, Literal, get_args

import numpy as np

import optlearn as ol
from optlearn._arguments import Arguments
from optlearn._arrays import Array
from optlearn._control.families import BestOf
from optlearn.scenarios._baselines import Baseline, Baselines, at, bounds_of, constant, line, phases
from optlearn.scenarios._catalogue import Example, scenario
from optlearn.scenarios._committee import random_overlaps

Gate = Literal["gain", "threshold", "switch"]


@scenario(
    citations=("mignacco2025nonlinear",),
    code_only={"T": "a matrix"},
    variants=({"control": "threshold"}, {"control": "switch"}),
    example=Example({"gate": [0.5, 2.0]}, 4, {"alpha_F": 5.0}),
)
def gating(
    teacher_gain: Annotated[float, (0.5, 4, 0.1)] = 2.0,
    teacher_threshold: Annotated[float, (-1, 1, 0.1)] = 0.0,
    sigma_n: float = 0.0,
    eta: float = 1.0,
    alpha_F: float = 20.0,
    control: Gate = "gain",
    max_gain: Annotated[float, (2, 12, 0.5)] = 4.0,
    threshold_range: Annotated[Sequence[float], (-4, -0.1, 0.1), (0.1, 4, 0.1)] = (-1.5, 2.0),
    start_norm: float = 1.0,
    K: Annotated[int, (2, 4, 2)] = 2,
    M: Annotated[int, (2, 4, 2)] = 2,
    T: Array | None = None,
    start_overlap: Annotated[float, (0, 0.3, 0.01)] = 0.0,
    seed: int = 0,
    batch: Annotated[float, (1, 10, 1)] = 1.0,
) -> "ol.Problem":
    """The sharpness of the gates during training that leaves a gated network with the lowest error.

    Control ``gate`` is one of three: the gain γ of the gates, from 0 to ``max_gain``; their threshold θ;
    or a switch with the values 0 (gates open: a linear network) and 1 (gated). At test time the gate is
    always the teacher's. Gates and values start as random vectors that are uncorrelated with the teacher.

    Args:
        teacher_gain: γ* of the teacher's gates Φ(γ*(λ − θ*)), above 0.
        teacher_threshold: threshold θ* of the teacher's gates.
        sigma_n: standard deviation of the label noise.
        eta: learning rate η.
        alpha_F: horizon, training steps divided by input dimension.
        control: what ``gate`` controls: "gain", "threshold" or "switch"; the others are the teacher's.
        max_gain: largest gain, at least the teacher's.
        threshold_range: lowest and highest threshold, minus the teacher's. Far below, the gates are open
            and the best schedule jumps; for such a jump "switch" is the better control.
        start_norm: squared norm Q_kk of every student's weights at the start, over N.
        K: nodes of the student, an even number: gates first, then values. With more than one
            gate, solving takes minutes.
        M: nodes of the teacher, likewise.
        T: (M, M) teachers' overlaps, none of a gate with a value; a number for a multiple of the identity;
            None for the identity.
        start_overlap: typical cosine of gates with gates and of values with values at the start. With more
            than one gate it must not be 0, or all gates stay equal.
        seed: seed of the random initial weights.
        batch: fresh samples in each step.
    """
    check = Arguments("gating")
    horizon = check.number("alpha_F", alpha_F, 0.0, open_below=True)
    sharp = check.number("teacher_gain", teacher_gain, 0.0, open_below=True)
    check.one_of("control", control, get_args(Gate))
    model = ol.models.gating(
        K, M, T, sharp, teacher_threshold, control=control, sigma_n=sigma_n, eta=eta, batch=batch
    )
    if np.any(model.overlaps.T[: M // 2, M // 2 :]):
        check.fail("T", T, "must have no overlap of a teacher's gate with a value")
    highest = check.number("max_gain", max_gain, 0.0, open_below=True)
    if highest < sharp:
        check.fail("max_gain", max_gain, f"must be at least teacher_gain = {sharp:g}")
    low, high = check.numbers("threshold_range", threshold_range, (2,))
    if not low < 0 < high:
        check.fail("threshold_range", threshold_range, "must be 2 numbers, one below 0 and one above")
    if K > 2 and start_overlap == 0:
        check.fail("start_overlap", start_overlap, f"must be above 0 with {K // 2} gates")
    theta = float(teacher_threshold)
    limits: dict[str, ol.Continuous | ol.Discrete] = {
        "gain": ol.Continuous(0.0, highest, guess=sharp),
        "threshold": ol.Continuous(theta + low, theta + high, guess=theta),
        "switch": ol.Discrete((0.0, 1.0)),
    }
    return ol.Problem(
        model=model,
        start=_start(check, model, start_norm, start_overlap, seed),
        horizon=horizon,
        controls={"gate": limits[control]},
        intervals=80 if control == "switch" else 40,
        baselines=_baselines(control),
        name="gating",
    )


def _start(
    check: Arguments, model: "ol.models.Gating", norm: float, overlap: float, seed: int
) -> "ol.OrderParameters":
    """Random gates and random values, which have no overlap with each other."""
    from scipy.linalg import block_diag

    T, seed = np.asarray(model.overlaps.T), check.count("seed", seed, lowest=0)
    half, theirs = model.students // 2, len(T) // 2
    parts = [
        random_overlaps(check, half, T[block, block], norm, overlap, seed + 1000003 * i)
        for i, block in enumerate((slice(None, theirs), slice(theirs, None)))
    ]
    return model.state(**{name: block_diag(*(part[name] for part in parts)) for name in ("Q", "M")})


def _baselines(control: str) -> Baselines:
    baselines: dict[str, Baseline] = {"teacher's gate": at("gate", _teachers)}
    if control != "switch":
        bounds = bounds_of("gate")
        baselines |= {
            "best constant": BestOf(constant("gate"), bounds),
            "best line": BestOf(line("gate"), bounds, bounds),
        }
    if control != "threshold":
        # A gain of 0 halves every value and a switch of 0 passes every value: both are linear.
        baselines |= {
            "linear network": at("gate", 0.0),
            "linear, then gated": BestOf(_opening, lambda problem: (0.0, problem.horizon), finish=_on_grid),
        }
    return baselines


def _opening(problem: "ol.Problem", intervals: int, a: float) -> "ol.Schedule":
    """Linear up to α = a, then gated."""
    early, late = {"gate": 0.0}, {"gate": _teachers(problem)}
    return phases(problem.horizon, (a, early), (problem.horizon - a, late))


def _on_grid(problem: "ol.Problem", intervals: int, best: "ol.Schedule") -> "ol.Schedule":
    """Round the moment of gating to the grid if the control is a switch, like its optimum."""
    if not problem.discrete or best.intervals == 1:
        return best
    step = problem.horizon / intervals
    below = int(best.grid[1] / step)
    around = [_opening(problem, intervals, count * step) for count in (below, below + 1)]
    return min(around, key=lambda schedule: ol.evaluate(problem, schedule, record=2).objective)


def _teachers(problem: "ol.Problem") -> float:
    return float(problem.settings["test_gate"])
