"""Many runs of the overlap chain at once: seeds × problems in one compiled program.

Problems of the same structure differ in numbers only, so they are lanes of one ``vmap``. All lanes see the
same random numbers: drawing them is half of a step's cost, and differences between lanes are then sharper
than those between independent runs. Each lane by itself is what ``simulate`` gives with the same seed.
"""

from collections.abc import Hashable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Float, Int, Key, float64
from optlearn._errors import SpecificationError
from optlearn._progress import Progress, Report
from optlearn._schedule import Schedule
from optlearn._simulate.normals import make_keys
from optlearn._simulate.overlaps import advance_overlaps, initial_overlaps
from optlearn._simulate.plan import Controls, Plan
from optlearn._simulate.record import check_cost, check_finite, count_steps, evaluate
from optlearn._simulate.run import Prepared, check_run, prepare
from optlearn._theory.order import OrderParameters

# Seeds in one call of the compiled program: more do not run faster on a CPU, where they leave the cache.
AT_ONCE = 2000
# The compiled program comes back this often, so that progress can be told and Ctrl-C is heard.
STOPS = 20
_NEVER = np.iinfo(np.int64).max


@float64
def simulate_many(
    problems: Sequence[Any],
    schedules: Sequence[Schedule],
    *,
    N: int,
    seeds: int,
    seed: int = 0,
    at_once: int = AT_ONCE,
    progress: Report | None = None,
) -> tuple[list[Float[np.ndarray, "seeds n"]], Float[np.ndarray, "problems seeds"]]:
    """Final states and errors of SGD in input dimension N, for many problems with a schedule each.

    Args:
        problems: with ``model``, ``start`` and ``parameters``; perhaps the same one several times.
        schedules: one for each problem, all with the same horizon.
        N: input dimension.
        seeds: runs of each problem.
        seed: of the random numbers, which are the same for all problems.
        at_once: seeds in one call of the compiled program, which bounds memory.
        progress: called with how many of all steps are done.

    Returns:
        (seeds, n) order parameters of each problem, and (problems, seeds) generalisation errors.
    """
    check_run(N, seeds, "overlaps", seed, None)
    if len(problems) != len(schedules) or not problems:
        raise SpecificationError(f"{len(problems)} problems and {len(schedules)} schedules: one for each")
    lanes = [
        prepare(problem, schedule, None, N, None)
        for problem, schedule in zip(problems, schedules, strict=True)
    ]
    steps = {count_steps(schedule, N) for schedule in schedules}
    if len(steps) > 1:
        raise SpecificationError(
            f"schedules of {min(steps)} and of {max(steps)} steps: all need the same horizon"
        )
    (total,) = steps
    check_cost("simulate", N=N, steps=total, seeds=seeds * len(problems))
    groups: dict[Hashable, list[int]] = {}
    for lane, prepared in enumerate(lanes):
        groups.setdefault((prepared.plan, _structure(prepared)), []).append(lane)
    tally = _Tally(f"simulating at N = {N}", len(groups) * -(-seeds // at_once), progress)
    keys = make_keys(seed, seeds)
    states: list[np.ndarray] = [np.empty(0)] * len(lanes)
    for members in groups.values():
        chosen = [lanes[lane] for lane in members]
        parts = [
            _run(chosen, N, total, keys[first : first + at_once], tally) for first in range(0, seeds, at_once)
        ]
        for place, lane in enumerate(members):
            states[lane] = np.concatenate([part[place] for part in parts])
    errors = np.empty((len(lanes), seeds))
    for lane, (prepared, schedule) in enumerate(zip(lanes, schedules, strict=True)):
        check_finite(states[lane], prepared.model.layout.names, schedule.horizon)
        end = np.array([schedule.horizon])
        quantities = evaluate(prepared.model, prepared.settings, schedule, end, states[lane][:, None, :])
        errors[lane] = quantities["error"][:, 0]
    return states, errors


@partial(jax.jit, static_argnames=("plan",))
def advance_lanes(
    plan: Plan,
    lanes: tuple[Any, Any, Controls],
    keys: Key[Array, " S"],
    N: Float[Array, ""],
    state: OrderParameters,
    begin: Int[Array, ""],
    end: Int[Array, ""],
) -> OrderParameters:
    """SGD steps ``begin`` to ``end`` of every seed of every lane.

    Args:
        plan: the structure that all lanes share.
        lanes: model, settings and controls, each with a leading axis of lanes.
        keys: (S,) of the seeds.
        N: input dimension.
        state: order parameters with axes of lanes and seeds.
        begin: number of the first step.
        end: number of the step after the last.
    """

    def advance_lane(lane: tuple[Any, Any, Controls], x: OrderParameters) -> OrderParameters:
        return advance_overlaps(plan, *lane, keys, N, x, begin, end)

    return jax.vmap(advance_lane)(lanes, state)


def stack_lanes(lanes: Sequence[Prepared]) -> tuple[Any, Any, Controls]:
    """Model, settings and controls of runs with one structure, with a leading axis of lanes."""
    longest = max(len(lane.controls.first) for lane in lanes)
    trees = [(lane.model, dict(lane.settings), _padded(lane.controls, longest)) for lane in lanes]
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)


def stack_starts(lanes: Sequence[Prepared], seeds: int) -> OrderParameters:
    """Order parameters at the start, with axes of lanes and seeds."""
    starts = [initial_overlaps(lane.start, seeds) for lane in lanes]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)


def _run(lanes: Sequence[Prepared], N: int, steps: int, keys: Array, tally: "_Tally") -> list[np.ndarray]:
    """(S, n) final states of each lane."""
    stacked, state = stack_lanes(lanes), stack_starts(lanes, len(keys))
    stops = np.unique(np.linspace(0, steps, STOPS + 1).astype(np.int64))
    for begin, end in pairwise(stops):
        state = jax.block_until_ready(
            advance_lanes(lanes[0].plan, stacked, keys, np.float64(N), state, begin, end)
        )
        tally.add((end - begin) / steps)
    flat = np.asarray(jax.vmap(lanes[0].model.layout.flatten)(state))
    return list(flat)


def _padded(controls: Controls, intervals: int) -> Controls:
    """The same controls with further intervals that no step reaches."""
    missing = intervals - len(controls.first)

    def longer(table: Array) -> np.ndarray:
        return np.concatenate([table, np.repeat(np.asarray(table)[-1:], missing, axis=0)])

    first = np.concatenate([controls.first, np.full(missing, _NEVER)])
    values = {name: longer(table) for name, table in controls.values.items()}
    cumulative = {name: longer(table) for name, table in controls.cumulative.items()}
    return Controls(first, values, dict(controls.choices), cumulative)


def _structure(lane: Prepared) -> Hashable:
    """What lanes of one program have in common: trees, shapes, but not the number of intervals."""
    bare = Controls(
        np.zeros(()),
        dict.fromkeys(lane.controls.values, 0.0),
        dict(lane.controls.choices),
        dict.fromkeys(lane.controls.cumulative, 0.0),
    )
    leaves, tree = jax.tree.flatten((lane.model, dict(lane.settings), bare, lane.start))
    return tree, tuple(np.shape(leaf) for leaf in leaves)


class _Tally:
    """How much of all calls of the compiled program is done."""

    def __init__(self, text: str, calls: int, tell: Report | None) -> None:
        self._text, self._calls, self._tell, self._done = text, calls, tell, 0.0

    def add(self, share: float) -> None:
        self._done += share
        if self._tell is not None:
            self._tell(Progress(self._text, self._done, self._calls))
