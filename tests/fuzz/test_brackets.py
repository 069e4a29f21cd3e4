"""Random systems whose optimum a brute force knows: solvers come as low as they say, no bound is above it."""

import warnings
from functools import cache

import jax
import numpy as np
import pytest
from tests.fuzz.brute import least
from tests.fuzz.systems import KINDS, problem

import optlearn as ol
from optlearn._control.batched.solve import solve_many
from optlearn._control.certificate import Certificate
from optlearn._control.solution import NotConvergedWarning

INTEGRATED = 1e-6  # relative accuracy of the objectives that are compared


@pytest.fixture(autouse=True)
def compiled_quickly():
    """Programs here run for milliseconds, and take seconds to compile."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@cache
def achieved(kind: str, seed: int) -> float:
    """The objective of the best schedule that brute force finds, integrated accurately."""
    posed = problem(KINDS[kind], seed)
    value, w = least(posed, KINDS[kind].levels)
    grid = np.linspace(0, posed.horizon, len(w) + 1)
    schedule = ol.Schedule(grid, {name: w[:, i] for i, name in enumerate(posed.controls)})
    objective = ol.evaluate(posed, schedule).objective
    assert objective == pytest.approx(value, rel=1e-4, abs=1e-7), (kind, seed)
    return objective


def is_above(objective: float, certificate: Certificate, brute: float) -> bool:
    """Is a result higher than brute force and its own gap allow?"""
    accuracy = INTEGRATED * abs(objective) + certificate.negligible
    return objective > brute + certificate.may_still_be_won + accuracy


def brackets(kind: str, count: int, thorough: bool = True) -> set[str]:
    """What is wrong with solutions and bounds of the first systems of a kind."""
    found, own, seeds = KINDS[kind], [problem(KINDS[kind], seed) for seed in range(count)], range(count)
    brute = [achieved(kind, seed) for seed in seeds]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        solutions = [ol.solve(posed) for posed in own]
    lowest = [min(pair) for pair in zip(brute, (s.objective for s in solutions), strict=True)]
    wrong = {
        f"{kind} {seed} solve"
        for seed, s in zip(seeds, solutions, strict=True)
        if is_above(s.objective, s.certificate, brute[seed])
    }
    if found.batched and thorough:
        many = solve_many(own)
        for seed, objective, certificate in zip(seeds, many.objective, many.certificates, strict=True):
            lowest[seed] = np.fmin(lowest[seed], objective)
            if certificate.converged and is_above(objective, certificate, brute[seed]):
                wrong.add(f"{kind} {seed} batch")
    for by in found.bounds if thorough else ():
        for seed in seeds if by == "convex" else seeds[:1]:
            bound = ol.bound(own[seed], by, times=4, nodes=8, solution=solutions[seed])
            if bound.lower > lowest[seed] + INTEGRATED * abs(lowest[seed]):
                wrong.add(f"{kind} {seed} {by}: {bound.lower} above {lowest[seed]}")
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_random_systems_are_bracketed(kind):
    assert not brackets(kind, KINDS[kind].systems)


def test_there_are_five_hundred():
    assert sum(kind.systems for kind in KINDS.values()) >= 500


@pytest.mark.parametrize("kind", ["waves", "choices-share"])
def test_a_few_random_systems_are_bracketed(kind):
    assert not brackets(kind, 2, thorough=False)
