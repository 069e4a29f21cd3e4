"""Lanes in lockstep, without waiting for the slowest: who has ended makes room for who waits.

Programs are compiled for a few numbers of lanes. While lanes wait, those that have ended are replaced; when
none waits any more, those that are left move together into a smaller program.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Any, TypeVar

import jax
import numpy as np

from optlearn._control.batched.lanes import Lanes
from optlearn._precision import float64

# Lanes of programs: as many as keep a core's caches, or a GPU, busy; and fewer.
_SIZES = {"cpu": (128, 16), "gpu": (8192, 1024, 64)}

# (lanes, state, fresh (B,), their first values, …) → state, which says in ``ended`` who has; a partial of a
# compiled function, by which its program is known.
Advance = partial[Any]
T = TypeVar("T")

# Programs that were called before, and so are compiled; threads do not compile the same one twice.
_CALLED: set[Any] = set()
_COMPILING = Lock()


def drain(advance: Advance, begin: Callable[[Any], Any], lanes: Lanes, first: Any, *options: Any) -> Any:
    """Where all lanes end.

    Args:
        advance: some work on a batch of lanes.
        begin: first values of a batch → its state.
        lanes: N lanes.
        first: tree of their first values, N rows each.
        options: further arguments of ``advance``.

    Returns:
        Their last states, as NumPy arrays with N rows.
    """
    count = len(lanes.horizon)
    workers = 1 if jax.default_backend() != "cpu" else min(_cores(), -(-count // _sizes()[-1]))
    # XLA runs a chain of small operations on one core: lanes are shared out between threads.
    shares = [np.arange(count)[part::workers] for part in range(workers)]

    @float64
    def work(own: np.ndarray) -> Any:
        return _drain(advance, begin, _rows(lanes, own), _rows(first, own), *options)

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
            found = jax.tree.map(lambda part, ended=ended: np.asarray(part[ended]), state)
            if results is None:
                results = jax.tree.map(lambda part: np.zeros((count, *part.shape[1:]), part.dtype), found)
            for table, part in zip(jax.tree.leaves(results), jax.tree.leaves(found), strict=True):
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
        found = function(*arguments)
        _CALLED.add(program)
        return found


def blocks(function: partial[T], lanes: Lanes, *columns: Any) -> T:
    """``function`` of lanes and columns, each with N rows, a batch at a time; NumPy arrays with N rows."""
    count = len(lanes.horizon)
    size = _fitting(count)

    @float64
    def piece(start: int) -> Any:
        own = np.minimum(np.arange(start, start + size), count - 1)
        found = _called(function, size, _rows(lanes, own), *(_rows(column, own) for column in columns))
        return jax.tree.map(lambda part: np.asarray(part)[: count - start], found)

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
    """Lanes of the smallest program that holds so many, or of the largest."""
    return next((size for size in reversed(_sizes()) if count <= size), _sizes()[0])


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
