"""Dropout: when to switch hidden nodes off, and how to rescale the output at test time."""

from collections.abc import Mapping

from optlearn._arrays import Array
from optlearn._control.controls import Continuous, Free
from optlearn._control.problem import Baseline, Problem
from optlearn._control.scenario_call import scenario
from optlearn._schedule import Schedule
from optlearn.models._checks import Arguments
from optlearn.models._committee import committee
from optlearn.scenarios._search import best_of

# Where solvers start, for both the activation probability and the rescaling.
GUESS = 0.7


@scenario
def dropout(
    K: int = 2,
    M: int = 1,
    sigma_n: float = 0.3,
    eta: float = 1.0,
    alpha_F: float = 5.0,
    T: Array | None = None,
) -> Problem:
    """The activation probability of hidden nodes that leaves a committee with the lowest error.

    Control ``activation``, from 0 to 1, is the probability p with which a node is on; the free
    parameter ``rescaling``, from 0 to 1, is the factor p_f of the output at test time. The weights
    start at zero.

    Args:
        K: hidden nodes of the student.
        M: hidden nodes of the teacher.
        sigma_n: standard deviation of the label noise.
        eta: learning rate η.
        alpha_F: horizon, training steps divided by input dimension.
        T: (M, M) overlaps of the teacher's nodes; a number for a multiple of the identity; None for
            the identity.
    """
    check = Arguments("dropout")
    horizon = check.number("alpha_F", alpha_F, 0.0, open_below=True)
    model = committee(K, M, T=T, sigma_n=sigma_n, eta=eta, dropout=True)
    return Problem(
        model=model,
        start=model.state(),
        horizon=horizon,
        controls={"activation": Continuous(0.0, 1.0, guess=GUESS)},
        free={"rescaling": Free(0.0, 1.0, guess=GUESS)},
        intervals=50,
        baselines=_baselines(),
        name="dropout",
    )


def _baselines() -> Mapping[str, Baseline]:
    return {
        "no dropout": lambda problem, intervals: _constant(problem, 1.0, 1.0),
        "best constant p = p_f": _best_tied,
        "best constant p, free p_f": _best_free,
    }


def _constant(problem: Problem, p: float, rescaling: float) -> Schedule:
    schedule = Schedule.constant(problem.horizon, {"activation": p})
    return schedule.with_parameters(rescaling=rescaling)


def _best_tied(problem: Problem, intervals: int) -> Schedule:
    return best_of(problem, lambda p: _constant(problem, p, p), (0.0, 1.0))


def _best_free(problem: Problem, intervals: int) -> Schedule:
    return best_of(problem, lambda p, rescaling: _constant(problem, p, rescaling), (0.0, 1.0), (0.0, 1.0))
