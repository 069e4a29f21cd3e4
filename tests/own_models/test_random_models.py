"""Default calls on random models of one's own: none may end above the best simple schedule."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import erf

import optlearn as ol
from optlearn._control.baselines import baselines_of
from optlearn._control.certificate import limits
from optlearn._control.compiled import Rollout, compile_problem
from optlearn._errors import UnphysicalStateError

MODELS = 40
# Few intervals and points, since the search is what is tested. Losses and units are smooth: sixteen points of
# one that bends make a drift that jumps, which is no model.
INTERVALS, RULE = 3, ol.QuasiMonteCarlo(4)
FINE_STEPS = 128  # of an interval, by which accurate integrations agree wherever the drift is smooth


# Losses of an output and a target.
def square(output, target, u):
    return (output - target) ** 2 / 2


def logistic(output, target, u):
    return jax.nn.softplus(-jnp.tanh(3 * target) * output)


def huber(output, target, u):
    missed = output - target
    return jnp.where(jnp.abs(missed) < 1, missed**2 / 2, jnp.abs(missed) - 0.5)


def poisson(output, target, u):
    return jnp.exp(output / 2) - jnp.exp(target / 2) * output / 2


def quantile(output, target, u):
    missed = target - output
    return 0.8 * missed + jax.nn.softplus(-5 * missed) / 5


def log_cosh(output, target, u):
    return jnp.logaddexp(output - target, target - output)


def margin(output, target, u):
    return jax.nn.softplus(4 * (u["margin"] - jnp.tanh(2 * target) * output)) / 4


LOSSES = (square, logistic, huber, poisson, quantile, log_cosh, margin)
UNITS = (lambda f: f, lambda f: erf(f / np.sqrt(2)), jnp.tanh, jax.nn.softplus)


class Drawn(ol.LearningModel):
    """Units, their sum, and a loss of it; weight decay."""

    drawn = (0, 0)  # numbers of the loss and of the units

    def loss(self, fields, x, latent, u):
        unit = UNITS[self.drawn[1]]
        output, target = (jnp.sum(unit(f[0])) for f in (fields.student, fields.teacher))
        return LOSSES[self.drawn[0]](output, target + u["sigma_n"] * fields.noise, u)

    def penalty(self, x, u):
        return u["decay"] * jnp.trace(x.Q) / 2


def objective_of(problem, schedule):
    """What it ends at, by the higher of two integrations; infinite where it diverges.

    Where two units come to coincide, their fields no longer say how the teacher's splits between the normals
    of a rule. With sixteen points the drift jumps there, and round-off decides which side an integrator takes
    (number 12: .1756 with adaptive steps, .1776 with any number of equal ones).
    """
    try:
        adaptive = ol.evaluate(problem, schedule).objective
    except UnphysicalStateError:
        return np.inf
    compiled = compile_problem(problem)
    steps = Rollout(compiled, INTERVALS, FINE_STEPS)
    equal = steps.objective(compiled.relaxation.vectors(schedule, INTERVALS), np.zeros(0))
    return max(adaptive, equal)


def drawn_problem(number):
    """One of the problems, from its number alone."""
    rng = np.random.default_rng(number)
    K, M = (int(size) for size in rng.integers(1, 4, 2))
    kinds = int(rng.integers(len(LOSSES))), int(rng.integers(len(UNITS)))
    kind = type(f"Drawn{number}", (Drawn,), {"drawn": kinds})
    parameters = {"learning_rate": 0.5, "decay": 0.0, "sigma_n": float(rng.uniform(0, 0.5))}
    if LOSSES[kinds[0]] is margin:
        parameters["margin"] = 1.0
    model = kind(students=K, overlaps=ol.Overlaps(T=np.eye(M)), parameters=parameters)
    lean = rng.uniform(-0.2, 0.3, (K, M))
    start = model.state(Q=lean @ lean.T + rng.uniform(0.1, 0.8) * np.eye(K), M=lean)
    controls = {"learning_rate": ol.Continuous(0, float(rng.uniform(0.3, 3.0)))}
    further = ["", "decay", "margin" if LOSSES[kinds[0]] is margin else "sigma_n"][int(rng.integers(3))]
    if further:
        controls[further] = ol.Continuous(0, float(rng.uniform(0.2, 2.0)))
    horizon = float(rng.uniform(1, 4))
    return ol.Problem(
        model=model, start=start, horizon=horizon, controls=controls, intervals=INTERVALS, quadrature=RULE
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", range(MODELS))
def test_a_default_call_is_never_above_the_best_baseline(number):
    problem = drawn_problem(number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged is not what is asked here
        solution = ol.solve(problem)
        values = {
            name: objective_of(problem, make(problem, problem.intervals))
            for name, make in baselines_of(problem).items()
        }
    allowed = limits(solution.objective)["integration_error"]
    best = min(values, key=values.get)
    assert solution.objective <= values[best] + allowed, (best, values[best], solution.objective)
