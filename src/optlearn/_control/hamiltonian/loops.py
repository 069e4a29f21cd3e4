"""Loops of numerical kernels that are written once, for NumPy and for XLA.

One problem is solved with NumPy: a Python loop, which leaves at once and works on pending rows only. Many
problems are lanes of one XLA program (``batched``), in which a loop goes on until the last lane has ended.
Kernels are written over an array namespace ``xp``, ``numpy`` or ``jax.numpy``, without writing into arrays,
and leave the difference to the functions here.
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
    """One of two trees of arrays, by a single flag, which may be traced."""
    if isinstance(condition, bool | np.bool_):
        return yes if condition else no
    chosen: T = jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
    return chosen


def pick_rows(flags: Array, yes: T, no: T, xp: ModuleType = jnp) -> T:
    """Rows of one of two trees of arrays, by a flag for each row."""

    def chosen(a: Array, b: Array) -> Array:
        return xp.where(flags.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    rows: T = jax.tree.map(chosen, yes, no)
    return rows


def dot(a: Array, b: Array) -> Array:
    """The product a @ b with a vector b.

    Under XLA by a sum: calls of a library inside a loop would break it into pieces, and wait for its threads.
    """
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a @ b
    return jnp.sum(a * jnp.broadcast_to(b, a.shape), axis=-1)


def repeat(xp: ModuleType, body: Callable[[T], tuple[T, Any]], state: T, most: int) -> T:
    """The state after ``body``, state → state and flag, until the flag is true, ``most`` times at most."""
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
    """The same for a named tuple of arrays with one row for each of P loops, which end one by one.

    Args:
        xp: array namespace.
        body: state of p rows, an index that tells which rows → state, (p,) flags of those that have ended.
        state: of all rows.
        most: calls of ``body``.
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
