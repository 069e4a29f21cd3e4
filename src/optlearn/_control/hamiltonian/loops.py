"""Loops of numerical kernels, written once for both NumPy and XLA.

A single problem is solved with NumPy: a Python loop that stops early and works only on pending rows. Many
problems are lanes of one XLA program (``batched``), whose loop runs until the last lane has ended. Kernels
are written for an array namespace ``xp``, ``numpy`` or ``jax.numpy``, never write into arrays, and leave the
differences to the functions here.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array

T = TypeVar("T")
Rows = TypeVar("Rows", bound=NamedTuple)


def pick(condition: Any, yes: T, no: T) -> T:
    """One of two trees of arrays, chosen by a single flag, which may be traced."""
    if isinstance(condition, bool | np.bool_):
        return yes if condition else no
    chosen: T = jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
    return chosen


def pick_rows(flags: Array, yes: T, no: T, xp: ModuleType = jnp) -> T:
    """Rows from one of two trees of arrays, chosen by a flag for each row."""

    def chosen(a: Array, b: Array) -> Array:
        return xp.where(flags.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    rows: T = jax.tree.map(chosen, yes, no)
    return rows


def dot(a: Array, b: Array) -> Array:
    """The product a @ b with a vector b.

    Under XLA as a sum: library calls inside a loop would split it, and wait for the library's threads.
    """
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a @ b
    return jnp.sum(a * jnp.broadcast_to(b, a.shape), axis=-1)


def repeat(xp: ModuleType, body: Callable[[T], tuple[T, Any]], state: T, most: int) -> T:
    """Repeat ``body`` (state → state and flag) until the flag is true, at most ``most`` times."""
    if xp is np:
        for _ in range(most):
            state, ended = body(state)
            if ended:
                break
        return state

    def go_on(carry: tuple[T, Array, Array]) -> Array:
        return ~carry[1] & (carry[2] < most)

    def once(carry: tuple[T, Array, Array]) -> tuple[T, Array, Array]:
        return *body(carry[0]), carry[2] + 1

    return jax.lax.while_loop(go_on, once, (state, jnp.zeros((), bool), 0))[0]


def repeat_rows(
    xp: ModuleType, body: Callable[[Rows, Any], tuple[Rows, Array]], state: Rows, most: int
) -> Rows:
    """The same for P loops that end one by one; the state is a named tuple of arrays with a row for each.

    Args:
        xp: array namespace.
        body: state of p rows, index of these rows → state, (p,) flags of finished rows.
        state: state of all rows.
        most: maximum number of calls of ``body``.
    """
    if xp is np:
        return _shrinking(body, state, most)
    rows = slice(None)

    def once(carry: tuple[Rows, Array]) -> tuple[tuple[Rows, Array], Array]:
        old, over = carry
        new, ended = body(old, rows)
        ended = over | ended
        return (pick_rows(over, old, new), ended), ended.all()

    return repeat(xp, once, (state, jnp.zeros(len(state[0]), bool)), most)[0]


def _shrinking(body: Callable[[Rows, Any], tuple[Rows, Array]], state: Rows, most: int) -> Rows:
    pending = np.arange(len(state[0]))
    kind = type(state)._make
    finished: Rows = kind(map(np.empty_like, state))
    for _ in range(most):
        state, ended = body(state, pending)
        if ended.any():
            left = ~ended
            for table, part in zip(finished, state, strict=True):
                table[pending[ended]] = part[ended]
            state, pending = kind(part[left] for part in state), pending[left]
            if len(pending) == 0:
                break
    for table, part in zip(finished, state, strict=True):
        table[pending] = part
    return finished
