"""The gap of lanes is that of one-by-one solving, on controls that are far from optimal."""

from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import optlearn as ol
from optlearn._control.batched.gap import LaneHamiltonian
from optlearn._control.batched.solve import _Batch, _project, solve_many
from optlearn._control.batched.stack import stack
from optlearn._control.certificate import limits
from optlearn._control.compiled import Rollout, compile_problem
from optlearn._control.hamiltonian.gap import hamiltonian_gap
from optlearn._control.hamiltonian.interval import IntervalHamiltonian
from optlearn._control.hamiltonian.minimise import PointwiseMinimiser
from optlearn._engine.lanes import Lanes, run

INTERVALS, STEPS = 4, 4


class Rates(ol.System):
    """An error that two rates and a difficulty bring down, and disturb."""

    names = ("e",)
    parameters = MappingProxyType({"first": 0.5, "second": 0.5, "hard": 1.0, "noise": 0.25})

    def drift(self, x, u):
        p, q, e = u["first"], u["second"], x["e"]
        noise = u["noise"] * (p**2 + q**2 + 1.5 * p * q) + 0.1 * u["hard"] * e**2
        return {"e": -2 * p * e + p**2 * e - q * (1 - 0.5 * u["hard"]) * e + noise}

    def error(self, x, u):
        return x["e"]


class Valley(ol.System):
    """A narrow valley that no axis follows."""

    names = ("e",)
    parameters = MappingProxyType({"a": 0.5, "b": 0.5, "c": 0.13, "k": 1e3})

    def drift(self, x, u):
        a, b = u["a"], u["b"]
        return {"e": -x["e"] + u["k"] * (a - 0.7 * b - u["c"]) ** 2 + (a + b - 1.1) ** 2 + 0.05}

    def error(self, x, u):
        return x["e"]


FIRST, SECOND = {"first": ol.Continuous(0.0, 1.5)}, {"second": ol.Continuous(0.1, 2.0)}
HARD = {"hard": ol.Discrete((0.0, 0.4, 1.0))}
CASES = {
    "three values, two shares": (HARD, (ol.Budget("hard", mean=0.35),)),
    "one rate": (FIRST, ()),
    "one rate, its mean": (FIRST, (ol.Budget("first", mean=0.4),)),
    "two rates": (FIRST | SECOND, ()),
    "two rates, a mean at most": (FIRST | SECOND, (ol.Budget("second", mean=0.4, sense="at most"),)),
    "two rates, two means": (
        FIRST | SECOND,
        (ol.Budget("first", mean=0.4), ol.Budget("second", mean=0.4, sense="at most")),
    ),
}


def posed(controls, budgets, noise):
    return ol.Problem(
        model=Rates(), start={"e": 1.0}, horizon=3.0, parameters={"noise": noise}, controls=controls,
        budgets=budgets, intervals=INTERVALS,
    )  # fmt: skip


def valley(c):
    controls = {"a": ol.Continuous(0.0, 1.0), "b": ol.Continuous(0.0, 1.0)}
    return ol.Problem(
        model=Valley(), start={"e": 1.0}, horizon=3.0, parameters={"c": c}, controls=controls,
        intervals=INTERVALS,
    )  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_lanes_have_the_gap_of_one_by_one_solving(name):
    problems = [posed(*CASES[name], noise) for noise in (0.1, 0.2, 0.3)]
    structure, lanes = stack(problems)
    anything = np.random.default_rng(1).uniform(-0.2, 1.2, size=(3, INTERVALS, structure.size))
    v = np.asarray(_project(structure, lanes, anything))
    gaps, _ = _Batch(structure, lanes, 1, 0, 1, 1e-7).gaps(v, np.full(3, STEPS))
    for lane, problem in enumerate(problems):
        compiled, w = compile_problem(problem), lanes.lower[lane] + lanes.width[lane] * v[lane]
        rolled = Rollout(compiled, INTERVALS, STEPS).run(w, np.zeros(0))
        alone, _, _ = hamiltonian_gap(compiled, rolled, w, np.zeros(0), STEPS)
        assert alone > 1e-3  # not optimal
        # A multiplier meets its budget to 1e-8, and the gap feels the square of that; several, found by a
        # linear program one by one, are accurate to a hundredth of the gap.
        assert gaps[lane] == pytest.approx(alone, rel=1e-9 if len(problem.budgets) < 2 else 0.02)


def test_the_minimum_is_never_above_the_present_value():
    """And lanes find the same minimum, wherever the present controls are."""
    problem = valley(0.13)
    structure, lanes = stack([problem])
    lane, compiled = Lanes(*(part[0] for part in lanes)), compile_problem(problem)

    @jax.jit
    def in_lane(v, slope):
        passed = run(structure, lanes, v[None], STEPS)
        along = (part[..., 0] for part in (passed.states, passed.costates))
        hamiltonian = LaneHamiltonian.along(structure, lane, v, passed.gradient[0], *along)
        minimiser = PointwiseMinimiser(hamiltonian, v)
        return minimiser.present(slope), *minimiser(slope)

    generator = np.random.default_rng(2)
    for _ in range(10):
        v, slope = generator.uniform(size=(INTERVALS, 2)), generator.normal(size=2)
        rolled = Rollout(compiled, INTERVALS, STEPS).run(v, np.zeros(0))
        along = IntervalHamiltonian.along(compiled, rolled, v, np.zeros(0), STEPS)
        alone = PointwiseMinimiser(along, v)
        found = [in_lane(v, slope), (alone.present(slope), *alone(slope))]
        size = 1e-9 * np.abs(found[1][0]).max()
        for present, w, least in found:
            assert np.all(least <= present)
            there = along.value(np.asarray(w), np.arange(INTERVALS)) + np.asarray(w) @ slope
            np.testing.assert_allclose(least, there, atol=size)
        np.testing.assert_allclose(found[0][2], found[1][2], atol=size)


@pytest.mark.slow
def test_a_tilted_valley_is_followed_to_its_end():
    """Coordinate by coordinate, the gap was 0 half-way, and ended the descent at 0.1125."""
    problem = valley(0.13)
    structure, lanes = stack([problem])
    best = _Batch(structure, lanes, 2, 0, 240, 1e-7).descend(np.arange(1), STEPS, None)
    alone = ol.solve(problem, steps=STEPS)
    assert alone.objective == pytest.approx(0.0973, abs=1e-4)
    won = min(best.ends[0]) - alone.objective
    assert not best.solved[0] or abs(won) <= limits(alone.objective)["hamiltonian_gap"]


@pytest.mark.slow
def test_what_a_batch_certifies_in_a_tilted_valley_is_the_optimum():
    problems = [valley(c) for c in (0.1, 0.13, 0.3)]
    solved = solve_many(problems)
    for problem, objective, certificate in zip(problems, solved.objective, solved.certificates, strict=True):
        alone = ol.solve(problem).objective
        assert not certificate.converged or objective == pytest.approx(alone, rel=1e-5)


def test_wells_that_a_grid_cannot_tell_apart_are_left_to_one_by_one_solving():
    class Wells(Valley):
        def drift(self, x, u):
            return {"e": -x["e"] + jnp.cos(u["k"] * u["a"]) + 0.1 * u["a"]}

    def gaps(k):
        problem = ol.Problem(
            model=Wells(), start={"e": 1.0}, horizon=3.0, controls={"a": ol.Continuous(0, 1)},
            parameters={"k": k}, intervals=INTERVALS,
        )  # fmt: skip
        structure, lanes = stack([problem])
        v = np.full((1, INTERVALS, 1), 0.4)
        return _Batch(structure, lanes, 1, 0, 1, 1e-7).gaps(v, np.full(1, STEPS))[0]

    assert np.isfinite(gaps(3.0)).all()
    assert np.isinf(gaps(30.0)).all()
