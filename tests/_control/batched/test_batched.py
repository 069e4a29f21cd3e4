"""Lanes: a continuous control against one-by-one solving, and compaction by itself."""

from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import optlearn as ol
from optlearn._control.batched import compaction
from optlearn._control.batched.lanes import Lanes
from optlearn._control.batched.solve import solve_many
from optlearn._control.certificate import limits


class Relaxation(ol.System):
    names = ("e",)
    parameters = MappingProxyType({"learning_rate": 0.5, "noise": 0.25})

    def drift(self, x, u):
        eta, e = u["learning_rate"], x["e"]
        return {"e": -2 * eta * e + eta**2 * (e + u["noise"])}

    def error(self, x, u):
        return x["e"]


def relaxation(noise, budgets=()):
    return ol.Problem(
        model=Relaxation(), start={"e": 1.0}, horizon=5.0, parameters={"noise": noise}, budgets=budgets,
        controls={"learning_rate": ol.Continuous(0.0, 1.0)}, intervals=20,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("budgets", [(), (ol.Budget("learning_rate", mean=0.3),)])
def test_a_continuous_control_is_optimised_as_one_by_one(budgets):
    problems = [relaxation(noise, budgets) for noise in (0.1, 0.3)]
    found = solve_many(problems, steps=2)
    for i, problem in enumerate(problems):
        alone = ol.solve(problem, steps=2)
        assert found.certificates[i].converged == alone.certificate.converged
        assert abs(found.objective[i] - alone.objective) <= limits(alone.objective)["hamiltonian_gap"]
        assert found.schedule(i)["learning_rate"] == pytest.approx(alone.schedule["learning_rate"], abs=0.02)


class Count(NamedTuple):
    left: Any
    steps: Any
    ended: Any


def begin(left):
    return Count(jnp.asarray(left), jnp.zeros(len(left), dtype=int), jnp.zeros(len(left), dtype=bool))


def test_lanes_make_room_for_each_other_and_move_together(monkeypatch):
    monkeypatch.setattr(compaction, "_SIZES", {"cpu": (8, 2), "gpu": (8, 2)})
    monkeypatch.setattr(compaction, "_cores", lambda: 1)
    sizes = []

    def advance(lanes, state, fresh, first):
        sizes.append(len(fresh))
        left, steps = (jnp.where(fresh, a, b) for a, b in zip(begin(first)[:2], state[:2], strict=True))
        going = (left > 0).astype(int)
        return Count(left - going, steps + going, left - going <= 0)

    waits = np.array([1, 2, 1, 30, 1, 1, 2, 1, 1, 3, 1, 1, 1])
    lanes = Lanes(*(np.zeros(len(waits)) for _ in Lanes._fields))
    found = compaction.drain(partial(advance), begin, lanes, waits)
    assert found.steps.tolist() == waits.tolist()
    assert set(sizes) == {8, 2}
    assert sizes.count(8) < 6  # the slowest goes on in the small program
