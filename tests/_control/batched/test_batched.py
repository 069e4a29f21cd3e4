"""Lanes: a continuous control against one-by-one solving, and compaction by itself."""

import subprocess
import sys
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import optlearn as ol
from optlearn._control.batched.solve import _Batch, solve_many
from optlearn._control.batched.stack import stack
from optlearn._control.certificate import Starts, limits
from optlearn._engine import lanes as engine_lanes
from optlearn._engine.lanes import Lanes


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


class TwoRates(ol.System):
    """Two errors, learned at two rates that disturb each other."""

    names = ("a", "b")
    parameters = MappingProxyType({"first": 0.5, "second": 0.5, "noise": 0.25})

    def drift(self, x, u):
        p, q = u["first"], u["second"]
        noise = u["noise"] * (p**2 + q**2 + p * q)
        return {"a": -2 * p * x["a"] + p**2 * x["a"] + noise, "b": -q * x["b"] + noise}

    def error(self, x, u):
        return x["a"] + 2 * x["b"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "budgets", [(), (ol.Budget("first", mean=0.4), ol.Budget("second", mean=0.3, sense="at most"))]
)
def test_several_continuous_controls_are_optimised_as_one_by_one(budgets):
    problems = [
        ol.Problem(
            model=TwoRates(), start={"a": 1.0, "b": 1.0}, horizon=5.0, parameters={"noise": noise},
            controls={"first": ol.Continuous(0.0, 1.0), "second": ol.Continuous(0.0, 2.0)}, budgets=budgets,
            intervals=20,
        )
        for noise in (0.1, 0.3)
    ]  # fmt: skip
    found = solve_many(problems, steps=2)
    for i, problem in enumerate(problems):
        alone = ol.solve(problem, steps=2)
        assert found.certificates[i].converged
        assert alone.certificate.converged
        assert abs(found.objective[i] - alone.objective) <= limits(alone.objective)["hamiltonian_gap"]
        for control in problem.controls:
            assert found.schedule(i)[control] == pytest.approx(alone.schedule[control], abs=0.02)
    # The gap sees both controls: it is far from 0 where either of them is its mean all the time.
    structure, lanes = stack(problems)
    for control in range(2):
        v = (found.w - lanes.lower[:, None]) / lanes.width[:, None]
        v[:, :, control] = v[:, :, control].mean(axis=1, keepdims=True)
        gap, _ = _Batch(structure, lanes, 1, 0, 1, 1e-7).gaps(v, np.full(2, 2))
        assert np.all(gap > 1e-3)


class Ends(NamedTuple):
    v: Any
    objective: Any
    gap: Any
    passes: Any


def test_an_extra_start_that_beats_a_lone_best_one_is_taken(monkeypatch):
    """And all starts count in how many agree, as one by one."""
    structure, lanes = stack([relaxation(0.1), relaxation(0.3)])
    # Two of six agree, which is no majority, then five of nine.
    rounds = iter([([0.5, 0.6, 0.7], 2.0), ([0.3, 0.3, 0.4], 1.0), ([0.3, 0.3, 0.3], 3.0)])

    def descents(self, own, v, steps):
        values, level = next(rounds)
        # The first problem's starts differ, all those of the second agree.
        objective = np.where(own == 0, np.repeat(values, len(own) // len(values)), 0.9)
        return Ends(np.full_like(v, level), objective, np.zeros(len(v)), np.full(len(v), int(10 * level)))

    monkeypatch.setattr(_Batch, "_descents", descents)
    monkeypatch.setattr(_Batch, "neutral", np.zeros((2, 20, 1)))
    monkeypatch.setattr(
        _Batch, "_randoms", lambda self, own, count, seed: [np.zeros((len(own), 20, 1))] * count
    )
    found = _Batch(structure, lanes, 3, 0, 10, 1e-7).descend(np.arange(2), 1, None)
    assert found.ends == [[0.5, 0.6, 0.7, 0.3, 0.3, 0.4, 0.3, 0.3, 0.3], [0.9, 0.9, 0.9]]
    assert found.v[0, 0, 0] == 1.0
    assert found.v[1, 0, 0] == 2.0
    assert found.solved.tolist() == [True, True]
    assert Starts.of(found.ends[0]).agreeing == 5


class Count(NamedTuple):
    left: Any
    steps: Any
    ended: Any


def begin(left):
    return Count(jnp.asarray(left), jnp.zeros(len(left), dtype=int), jnp.zeros(len(left), dtype=bool))


def test_lanes_make_room_for_each_other_and_move_together(monkeypatch):
    monkeypatch.setattr(engine_lanes, "_SIZES", {"cpu": (8, 2), "gpu": (8, 2)})
    monkeypatch.setattr(engine_lanes, "_cores", lambda: 1)
    sizes = []

    def advance(lanes, state, fresh, first):
        sizes.append(len(fresh))
        left, steps = (jnp.where(fresh, a, b) for a, b in zip(begin(first)[:2], state[:2], strict=True))
        going = (left > 0).astype(int)
        return Count(left - going, steps + going, left - going <= 0)

    waits = np.array([1, 2, 1, 30, 1, 1, 2, 1, 1, 3, 1, 1, 1])
    lanes = Lanes(*(np.zeros(len(waits)) for _ in Lanes._fields))
    found = engine_lanes.drain(partial(advance), begin, lanes, waits)
    assert found.steps.tolist() == waits.tolist()
    assert set(sizes) == {8, 2}
    assert sizes.count(8) < 6  # the slowest goes on in the small program


def test_batches_need_no_casadi() -> None:
    """A machine with a GPU and JAX, on which nothing else can be installed, is enough."""
    program = "import sys; sys.modules['casadi'] = None; import optlearn._control.batched.solve"
    subprocess.run([sys.executable, "-c", program], check=True)
