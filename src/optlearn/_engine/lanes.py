"""Many problems of one structure as lanes: the shared structure is compiled, numbers are arguments.

Passes forward and backward through training take all lanes at once: lanes come last inside the loops, so that
every operation of a step is one vector instruction over all problems. The backward pass is the exact adjoint
of the steps, recomputed from the states at their beginnings.

Lanes run in lockstep without waiting for the slowest: programs are compiled for a few numbers of lanes.
Finished lanes are replaced by waiting ones; when none is waiting, the remaining lanes move to a smaller
program.
"""

import os
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Float, float64
from optlearn._engine.functions import Flat, Number, VectorFunctions
from optlearn._engine.steps import EXACT, step

# Numbers of lanes of programs: as many as keep a core's caches, or a GPU, busy; and smaller ones.
_SIZES = {"cpu": (128, 16), "gpu": (8192, 1024, 64)}

# (lanes, state, fresh (B,), first values, …) → state, whose ``ended`` flags finished lanes; a partial of a
# compiled function, which identifies its program.
Advance = partial[Any]
T = TypeVar("T")

# Programs called before, hence compiled; threads do not compile the same one twice.
_CALLED: set[Any] = set()
_COMPILING = Lock()


class Lanes(NamedTuple):
    """Numbers of B problems, each array with one row per problem; or those of one problem, without that axis.

    Attributes:
        constants: (c,) constants of the rate.
        start: (n,) state at α = 0.
        horizon: training time.
        lower, width: (m,) lowest value of each column of w, and its range.
        rows: (b, m) row a of each budget: the mean over training of a·v, v in [0, 1], is = or ≤ the target.
        targets: (b,) targets of the budgets.
        neutral: (m,) neutral controls, in [0, 1].
    """

    constants: Array
    start: Array
    horizon: Array
    lower: Array
    width: Array
    rows: Array
    targets: Array
    neutral: Array


@dataclass(frozen=True)
class LaneStructure:
    """The structure that all lanes share; equal structures share compiled programs.

    Attributes:
        key: equal for problems that differ only in numbers.
        functions: functions of one lane.
        intervals: number of equal intervals.
        size: number m of columns of w.
        curved: number of leading columns that are not shares.
        budgets: "equal" or "at most" for each; no two of them share a control.
        vertices: (values, m − curved) shares of each pure value of the discrete control; a single empty row
            without one.
        sum_limited: must the shares also add up to at most 1?
    """

    key: Hashable
    functions: VectorFunctions
    intervals: int
    size: int
    curved: int
    budgets: tuple[str, ...]
    vertices: Float[np.ndarray, "values shares"]
    sum_limited: bool

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LaneStructure) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def discrete(self) -> bool:
        """Is there a discrete control?"""
        return self.vertices.shape[1] > 0

    @property
    def exact(self) -> bool:
        """Are steps of any length exact?"""
        return self.functions.stages is EXACT

    def on(self, intervals: int) -> "LaneStructure":
        """The same structure with another number of intervals."""
        if intervals == self.intervals:
            return self
        return replace(self, key=(self.key, intervals), intervals=intervals)

    def controls(self, lane: Lanes, v: Float[Array, "I m"]) -> Float[Array, "I m"]:
        """Controls, from numbers in [0, 1]."""
        return lane.lower[None] + lane.width[None] * v

    def rate(self, lane: Lanes, x: Flat, w: Float[Array, " m"], h: Number) -> tuple[Flat, Float[Array, ""]]:
        """dx/dα and running cost."""
        return self.functions.rate(lane.constants, x, w, jnp.zeros(0), h)

    def final(self, constants: Float[Array, " c"], x: Float[Array, " n"]) -> Float[Array, ""]:
        """Cost of the final state."""
        return self.functions.final(constants, x, jnp.zeros(0))

    def step(self, lane: Lanes, x: Flat, w: Float[Array, " m"], h: Number) -> tuple[Flat, Float[Array, ""]]:
        """State and cost after a step of length h; unrolled, because small rates compile quickly."""
        return step(self.functions.stages, lambda y: self.rate(lane, y, w, h), x, h)


class Passes(NamedTuple):
    """A forward and a backward pass of B lanes on I intervals of s steps.

    Attributes:
        objective: (B,) objective of each lane.
        gradient: (B, I, m) derivative in the controls v.
        states: (I·s + 1, n, B) at the ends of all steps.
        costates: (I·s + 1, n, B) derivative of the objective in the states.
    """

    objective: Array
    gradient: Array
    states: Array
    costates: Array


def forward(
    structure: LaneStructure, lanes: Lanes, v: Float[Array, "B I m"], steps: int
) -> tuple[Float[Array, " B"], Float[Array, "points n B"]]:
    """Objectives, and states at the beginnings of steps and at the end."""
    last, w, h = _lanes_last(structure, lanes, v, steps)

    def advance(carry: tuple[Array, Array], t: Array) -> tuple[tuple[Array, Array], Array]:
        x, total = carry
        end, cost = jax.vmap(structure.step, in_axes=-1, out_axes=-1)(last, x, w[t // steps], h)
        return (end, total + cost), x

    begin = (last.start, jnp.zeros(len(h)))
    (end, total), states = jax.lax.scan(advance, begin, jnp.arange(structure.intervals * steps))
    final = jax.vmap(structure.final, in_axes=-1)(last.constants, end)
    return total + final, jnp.concatenate([states, end[None]])


def run(structure: LaneStructure, lanes: Lanes, v: Float[Array, "B I m"], steps: int) -> Passes:
    """A forward and a backward pass under controls v in [0, 1]."""
    objective, states = forward(structure, lanes, v, steps)
    last, w, h = _lanes_last(structure, lanes, v, steps)
    slope = jax.grad(structure.final, argnums=1)
    costate = jax.vmap(slope, in_axes=-1, out_axes=-1)(last.constants, states[-1])

    def one(lane: Lanes, x: Array, w: Array, h: Array, costate: Array) -> tuple[Array, Array]:
        _, pull = jax.vjp(lambda x, w: structure.step(lane, x, w, h), x, w)
        return pull((costate, jnp.ones(())))

    def back(costate: Array, t: Array) -> tuple[Array, tuple[Array, Array]]:
        before, by_w = jax.vmap(one, in_axes=-1, out_axes=-1)(last, states[t], w[t // steps], h, costate)
        return before, (before, by_w)

    total = structure.intervals * steps
    _, (costates, by_w) = jax.lax.scan(back, costate, jnp.arange(total), reverse=True)
    gradient = by_w.reshape(structure.intervals, steps, *by_w.shape[1:]).sum(axis=1) * last.width[None]
    return Passes(
        objective, jnp.moveaxis(gradient, -1, 0), states, jnp.concatenate([costates, costate[None]])
    )


def _lanes_last(structure: LaneStructure, lanes: Lanes, v: Array, steps: int) -> tuple[Lanes, Array, Array]:
    """The lanes, their controls (I, m, B) and the lengths (B,) of their steps."""
    w = jax.vmap(structure.controls)(lanes, v)
    last = Lanes(*(jnp.moveaxis(part, 0, -1) for part in lanes))
    return last, jnp.moveaxis(w, 0, -1), lanes.horizon / (structure.intervals * steps)


# --- lockstep -------------------------------------------------------------------------------------


def drain(advance: Advance, begin: Callable[[Any], Any], lanes: Lanes, first: Any, *options: Any) -> Any:
    """Run all lanes to their ends.

    Args:
        advance: advances a batch of lanes.
        begin: first values of a batch → its state.
        lanes: N lanes.
        first: tree of their first values, N rows each.
        options: further arguments of ``advance``.

    Returns:
        Their final states, as NumPy arrays with N rows.
    """
    count = len(lanes.horizon)
    workers = 1 if jax.default_backend() != "cpu" else min(_cores(), -(-count // _sizes()[-1]))
    # XLA runs a chain of small operations on one core, so lanes are distributed over threads.
    shares = [np.arange(count)[part::workers] for part in range(workers)]

    @float64
    def work(share: np.ndarray) -> Any:
        return _drain(advance, begin, _rows(lanes, share), _rows(first, share), *options)

    if workers == 1:
        return work(shares[0])
    with ThreadPoolExecutor(workers) as threads:
        parts = list(threads.map(work, shares))
    order = np.argsort(np.concatenate(shares))
    return jax.tree.map(lambda *pieces: np.concatenate(pieces)[order], *parts)


def _drain(advance: Advance, begin: Callable[[Any], Any], lanes: Lanes, first: Any, *options: Any) -> Any:
    count = len(lanes.horizon)
    size = _fitting(count)
    places = np.full(size, -1)
    waiting, results = 0, None
    state = begin(_rows(first, np.zeros(size, dtype=int)))
    while waiting < count or np.any(places >= 0):
        empty = np.flatnonzero(places < 0)
        new = np.arange(waiting, min(count, waiting + len(empty)))
        fresh = np.zeros(size, dtype=bool)
        fresh[empty[: len(new)]], places[empty[: len(new)]] = True, new
        waiting += len(new)
        held = np.maximum(places, 0)
        state = _called(advance, size, _rows(lanes, held), state, fresh, _rows(first, held), *options)
        ended = np.flatnonzero(np.asarray(state.ended) & (places >= 0))
        if len(ended):
            finished = jax.tree.map(lambda part, ended=ended: np.asarray(part[ended]), state)
            if results is None:
                results = jax.tree.map(lambda part: np.zeros((count, *part.shape[1:]), part.dtype), finished)
            for table, part in zip(jax.tree.leaves(results), jax.tree.leaves(finished), strict=True):
                table[places[ended]] = part
            places[ended] = -1
        left = np.flatnonzero(places >= 0)
        smaller = _fitting(len(left))
        if waiting == count and smaller < size:
            kept = np.concatenate([left, np.zeros(smaller - len(left), dtype=int)])
            state = _rows(state, kept)
            places = np.concatenate([places[left], np.full(smaller - len(left), -1)])
            size = smaller
    return results


def _called(function: partial[T], size: int, *arguments: Any) -> T:
    """The function of its arguments, of ``size`` rows; only one thread at a time compiles."""
    program = (function.func, function.args, size)
    if program in _CALLED:
        return function(*arguments)
    with _COMPILING:
        result = function(*arguments)
        _CALLED.add(program)
        return result


def blocks(function: partial[T], lanes: Lanes, *columns: Any) -> T:
    """``function`` of lanes and columns, each with N rows, batch by batch; NumPy arrays with N rows."""
    count = len(lanes.horizon)
    size = _fitting(count)

    @float64
    def piece(start: int) -> Any:
        taken = np.minimum(np.arange(start, start + size), count - 1)
        results = _called(function, size, _rows(lanes, taken), *(_rows(column, taken) for column in columns))
        return jax.tree.map(lambda part: np.asarray(part)[: count - start], results)

    starts = range(0, count, size)
    with ThreadPoolExecutor(1 if jax.default_backend() != "cpu" else _cores()) as threads:
        pieces = list(threads.map(piece, starts))
    return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)


def _rows(tree: Any, rows: np.ndarray) -> Any:
    return jax.tree.map(lambda part: part[rows], tree)


def _sizes() -> tuple[int, ...]:
    """From the largest to the smallest."""
    return _SIZES["cpu" if jax.default_backend() == "cpu" else "gpu"]


def _fitting(count: int) -> int:
    """Number of lanes of the smallest program that holds so many, or of the largest program."""
    return next((size for size in reversed(_sizes()) if count <= size), _sizes()[0])


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
