"""Registry of control problems with known answers; every method is swept over those it applies to.

A test that asks for ``direct_case``, ``indirect_case`` or ``greedy_case`` runs once for each case with that
method; ``case`` runs for all. Adding an entry to ``CASES`` tests every method on it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import optlearn.models as models
from optlearn._control.budgets import Budget
from optlearn._control.compiled import CompiledProblem, Rollout, compile_problem
from optlearn._control.controls import Continuous, Discrete, Free
from optlearn._control.objective import Objective
from optlearn._control.problem import Problem
from optlearn._control.runs import Run, Start
from optlearn._control.solvers.direct import Direct
from optlearn._control.solvers.indirect import Indirect

METHODS = ("direct", "indirect", "greedy")


@dataclass(frozen=True)
class Case:
    """A problem, where to start, and what must come out.

    Attributes:
        name: of the case.
        build: makes the problem.
        intervals: of the grid.
        start: control name → where to start: a value, or one value for each interval. For a discrete
            control the share of its first value, or shares of all but the last.
        reference: the objective of the optimum on this grid.
        tolerance: by which methods may miss it.
        free: where free parameters start.
        parameters: free parameters of the optimum, to 1e-3.
        methods: that apply.
    """

    name: str
    build: Callable[[], Problem]
    intervals: int
    start: dict[str, Any]
    reference: float
    tolerance: float = 1e-6
    free: tuple[float, ...] = ()
    parameters: tuple[float, ...] = ()
    methods: tuple[str, ...] = METHODS

    def compiled(self) -> CompiledProblem:
        return compile_problem(self.build())

    def rollout(self, steps: int = 1) -> Rollout:
        return Rollout(self.compiled(), self.intervals, steps)

    def guess(self) -> tuple[np.ndarray, np.ndarray]:
        """Relaxed controls (I, m) and free parameters (k,) to start from."""
        relaxation = self.compiled().relaxation
        w = np.zeros((self.intervals, relaxation.size))
        for name, block in relaxation.blocks.items():
            given = np.asarray(self.start[name], dtype=float)
            w[:, block] = given[:, None] if len(given.shape) and len(given) == len(w) else given
        return w, np.array(self.free)


# --- problems ---------------------------------------------------------------------------------------

HALF_EASY = Budget("difficulty", share={0.0: 0.5})
EASY_OR_HARD = Discrete((0.0, 2.0))


def curriculum(
    controls: dict[str, Any],
    budgets: tuple[Budget, ...] = (HALF_EASY,),
    weight_decay: float = 0.0,
    **options: Any,
) -> Problem:
    model = models.curriculum(weight_decay=weight_decay)
    start = model.state(Q11=1.0, Q22=1.0)
    return Problem(model=model, start=start, horizon=12.0, controls=controls, budgets=budgets, **options)


def dropout(sigma_n: float, K: int = 2, M: int = 1) -> Problem:
    model = models.committee(K=K, M=M, sigma_n=sigma_n, dropout=True)
    return Problem(
        model=model,
        start=model.state(Q=0.0),
        horizon=5.0,
        controls={"activation": Continuous(0, 1)},
        free={"rescaling": Free(0, 1)},
    )


def denoising(noise: float) -> Problem:
    model = models.autoencoder(Omega=models.FIG3_OMEGA, test_noise=noise)
    return Problem(
        model=model,
        start=model.state(**models.FIG3_START, b=0.0),
        horizon=0.8,
        controls={"noise": Continuous(0.01, 0.99)},
    )


def denoising_batch(noise: float) -> Problem:
    model = models.autoencoder(
        Omega=models.FIG3_OMEGA,
        noise=noise,
        test_noise=noise,
        trained_skip=False,
        augmentation=True,
    )
    return Problem(
        model=model,
        start=model.state(**models.FIG3_START, b=models.optimal_skip(noise, 0.1)),
        horizon=1.2,
        controls={"batch": Continuous(1, 50)},
        budgets=(Budget("batch", mean=5.0),),
    )


def average_error(mean: float) -> Problem:
    """Learning rate whose mean is at most ``mean``; error at the end and on the way."""
    return curriculum(
        {"learning_rate": Continuous(0, 10)},
        (Budget("learning_rate", mean=mean, sense="at most"),),
        objective=Objective(final=0.5, average=1.0),
    )


def _double_well(x: Any, u: Any) -> Any:
    rate = u["learning_rate"]
    return (rate - 1) ** 2 * (rate - 3) ** 2 - 0.1 * rate


def double_well() -> Problem:
    """A running cost alone, with two minima in the control: the answer needs no dynamics."""
    return curriculum(
        {"learning_rate": Continuous(0, 4)}, (), objective=Objective(final=0.0, cost=_double_well)
    )


# Minimum of (r − 1)²(r − 3)² − r/10, near r = 3.
_RATES = np.linspace(2.9, 3.1, 2_000_001)
DOUBLE_WELL = float(np.min((_RATES - 1) ** 2 * (_RATES - 3) ** 2 - 0.1 * _RATES))

JOINT = {"difficulty": EASY_OR_HARD, "learning_rate": Continuous(0, 10)}
EASY_FIRST = np.repeat([1.0, 0.0], 60)

CASES = [
    Case(
        "curriculum",
        lambda: curriculum({"difficulty": EASY_OR_HARD}),
        240,
        {"difficulty": 0.5},
        0.1468413,
        1e-7,
    ),
    Case(
        "anti-curriculum",
        lambda: curriculum({"difficulty": EASY_OR_HARD}, weight_decay=0.1),
        240,
        {"difficulty": 0.5},
        0.1596957,
        1e-7,
    ),
    # Difficulty and learning rate together have several optima within 4e-6 of each other.
    Case(
        "joint",
        lambda: curriculum(JOINT),
        120,
        {"difficulty": EASY_FIRST, "learning_rate": 3.0},
        0.1083803,
        5e-6,
    ),
    Case(
        "joint, two budgets",
        lambda: curriculum(JOINT, (HALF_EASY, Budget("learning_rate", mean=2.0))),
        60,
        {"difficulty": EASY_FIRST[::2], "learning_rate": 2.0},
        0.10839694,
        1e-7,
    ),
    Case(
        "three difficulties",
        lambda: curriculum(
            {"difficulty": Discrete((0.0, 1.0, 2.0))},
            (Budget("difficulty", share={0.0: 0.4, 1.0: 0.2}),),
        ),
        60,
        {"difficulty": (0.4, 0.2)},
        0.14362884,
        1e-7,
    ),
    # A free parameter in the drift itself; in the others it stands in the final cost alone.
    Case(
        "free learning rate",
        lambda: curriculum({"difficulty": EASY_OR_HARD}, free={"learning_rate": Free(0, 10)}),
        60,
        {"difficulty": 0.5},
        0.12885784,
        1e-7,
        free=(3.0,),
        parameters=(1.2421,),
    ),
    Case("average error", lambda: average_error(2.0), 60, {"learning_rate": 2.0}, 0.24771149, 1e-7),
    Case(
        "average error, slack",
        lambda: average_error(9.0),
        60,
        {"learning_rate": 2.0},
        0.23552616,
        1e-7,
    ),
    Case(
        "double well",
        double_well,
        20,
        {"learning_rate": 0.9},
        DOUBLE_WELL,
        methods=("indirect", "greedy"),
    ),
    Case(
        "dropout, noise 0.3",
        lambda: dropout(0.3),
        50,
        {"activation": 0.7},
        0.0340887,
        1e-7,
        free=(0.7,),
        parameters=(0.678,),
    ),
    Case(
        "dropout, noise 0.1",
        lambda: dropout(0.1),
        50,
        {"activation": 0.7},
        0.0150166,
        1e-7,
        free=(0.7,),
        parameters=(0.8948,),
    ),
    Case(
        "dropout, K=4, M=2",
        lambda: dropout(0.3, 4, 2),
        20,
        {"activation": 0.7},
        0.0695234,
        1e-7,
        free=(0.7,),
        parameters=(0.4918,),
    ),
    *(
        Case(
            f"denoising, noise {noise}, {intervals} intervals",
            lambda noise=noise: denoising(noise),
            intervals,
            {"noise": noise},
            reference,
            2e-6,
        )
        for noise, intervals, reference in (
            (0.1, 100, 8.793853),
            (0.3, 100, 9.426871),
            (0.1, 400, 8.793853),
            (0.3, 400, 9.426869),
        )
    ),
    Case("batch", lambda: denoising_batch(0.5), 120, {"batch": 5.0}, 9.6508365, 2e-6),
]


# --- fixtures ---------------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for method in ("", *METHODS):
        fixture = f"{method}_case" if method else "case"
        if fixture in metafunc.fixturenames:
            cases = [c for c in CASES if not method or method in c.methods]
            metafunc.parametrize(fixture, cases, ids=[c.name for c in cases])


@pytest.fixture(scope="session")
def cases() -> dict[str, Case]:
    """All cases by name."""
    return {case.name: case for case in CASES}


@pytest.fixture(scope="session")
def direct_solution() -> Callable[[Case], Run]:
    """Solves a case by the direct method, once."""
    found: dict[str, Run] = {}

    def solution(case: Case) -> Run:
        if case.name not in found:
            found[case.name] = Direct().shoot(case.rollout(), Start("guess", *case.guess()))
        return found[case.name]

    return solution


@pytest.fixture(scope="session")
def indirect_solution() -> Callable[[Case], Run]:
    """Solves a case by the indirect method, once."""
    found: dict[str, Run] = {}

    def solution(case: Case) -> Run:
        if case.name not in found:
            found[case.name] = Indirect().solve(case.rollout(), Start("guess", *case.guess()))
        return found[case.name]

    return solution
