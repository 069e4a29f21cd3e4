"""Many runs of the overlap chain together: seeds × problems in one compiled program.

Problems of the same structure differ only in numbers, so they are lanes of one ``vmap``. All lanes use the
same random numbers: drawing them is half of a step's cost, and differences between lanes are then more
precise than between independent runs. Each lane alone equals the result of ``simulate`` with the same seed.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from optlearn._arrays import Array, Float, Int, Key, float64
from optlearn._errors import SpecificationError
from optlearn._progress import Progress, Report
from optlearn._schedule import Schedule
from optlearn._simulate.normals import make_keys
from optlearn._simulate.overlaps import advance_overlaps, initial_overlaps
from optlearn._simulate.plan import Controls, Prepared
from optlearn._simulate.record import check_cost, check_finite, count_steps, evaluate
from optlearn._simulate.run import check_run, prepare
from optlearn._theory.order import OrderParameters

# Seeds in one call of the compiled program: more do not run faster on a CPU, since they exceed the cache.
AT_ONCE = 2000
# The compiled program returns this often, to report progress and to react to Ctrl-C.
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
    """Final order parameters of each problem, and all errors, of SGD in input dimension N.

    Each problem (repetitions are allowed) has its schedule, all with the same horizon, and sees the same
    random numbers. ``at_once`` seeds go into one call of the compiled program, which limits memory.
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
        groups.setdefault(_structure(prepared), []).append(lane)
    done, calls = 0.0, len(groups) * -(-seeds // at_once)

    def tell(share: float) -> None:
        nonlocal done
        done += share
        if progress is not None:
            progress(Progress(f"simulating at N = {N}", done, calls))

    keys = make_keys(seed, seeds)
    states: list[np.ndarray] = [np.empty(0)] * len(lanes)
    for members in groups.values():
        chosen = [lanes[lane] for lane in members]
        parts = [
            _run(chosen, N, total, keys[first : first + at_once], tell) for first in range(0, seeds, at_once)
        ]
        for place, lane in enumerate(members):
            states[lane] = np.concatenate([part[place] for part in parts])
    errors = np.empty((len(lanes), seeds))
    for lane, (prepared, schedule) in enumerate(zip(lanes, schedules, strict=True)):
        check_finite(states[lane], prepared.model.layout.names, schedule.horizon)
        end = np.array([schedule.horizon])
        quantities = evaluate(prepared, schedule, end, states[lane][:, None, :])
        errors[lane] = quantities["error"][:, 0]
    return states, errors


@jax.jit
def advance_lanes(
    lanes: Prepared,
    keys: Key[Array, " S"],
    N: Float[Array, ""],
    state: OrderParameters,
    begin: Int[Array, ""],
    end: Int[Array, ""],
) -> OrderParameters:
    """SGD steps ``begin`` to ``end`` of every seed of every lane; ``state`` has axes of lanes and seeds."""
    return jax.vmap(lambda lane, x: advance_overlaps(lane, keys, N, x, begin, end))(lanes, state)


def stack_lanes(lanes: Sequence[Prepared]) -> Prepared:
    """Runs with one structure stacked, with a leading axis of lanes."""
    longest = max(len(lane.controls.first) for lane in lanes)
    trees = [replace(lane, controls=_padded(lane.controls, longest)) for lane in lanes]
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *trees)


def _run(
    lanes: Sequence[Prepared], N: int, steps: int, keys: Array, tell: Callable[[float], None]
) -> list[np.ndarray]:
    """(S, n) final states of each lane; ``tell`` receives the finished share of steps."""
    stacked = stack_lanes(lanes)
    state = jax.vmap(lambda start: initial_overlaps(start, len(keys)))(stacked.start)
    stops = np.unique(np.linspace(0, steps, STOPS + 1).astype(np.int64))
    for begin, end in pairwise(stops):
        state = jax.block_until_ready(advance_lanes(stacked, keys, np.float64(N), state, begin, end))
        tell((end - begin) / steps)
    return list(np.asarray(jax.vmap(lanes[0].model.layout.flatten)(state)))


def _padded(controls: Controls, intervals: int) -> Controls:
    """The same controls, padded with intervals that no step reaches."""
    missing = intervals - len(controls.first)

    def longer(table: Array) -> np.ndarray:
        return np.concatenate([table, np.repeat(np.asarray(table)[-1:], missing, axis=0)])

    first = np.concatenate([controls.first, np.full(missing, _NEVER)])
    values = {name: longer(table) for name, table in controls.values.items()}
    cumulative = {name: longer(table) for name, table in controls.cumulative.items()}
    return replace(controls, first=first, values=values, cumulative=cumulative)


def _structure(lane: Prepared) -> Hashable:
    """The common structure of lanes in one program: trees and shapes, but not the number of intervals."""
    bare = replace(
        lane.controls,
        first=np.zeros(()),
        values=dict.fromkeys(lane.controls.values, 0.0),
        cumulative=dict.fromkeys(lane.controls.cumulative, 0.0),
    )
    leaves, tree = jax.tree.flatten(replace(lane, controls=bare))
    return tree, tuple(np.shape(leaf) for leaf in leaves)
