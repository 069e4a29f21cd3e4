"""Problems with wide quadratures: rate, adjoint and Hamiltonian as programs that XLA compiles.

A drift of thousands of quadrature points is too large for an expression graph, but XLA sums it in about a
millisecond. The functions here take and give columns of numbers as the traced ones do (``Functions``), so
that sweeps, minimisers and certificates cannot tell them apart. Loops over steps and columns have a length
that is known at run time only, inside programs of a fixed shape: nothing is compiled again for another grid.
"""

import os
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import casadi
import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array
from optlearn._precision import float64

# Columns, or steps, in one call of a compiled program, at most.
BLOCK = 256
# Programs compiled, and columns computed, at the same time, at most: XLA sums one quadrature on one core.
THREADS = 8

NODES = np.array([0.0, 0.5, 0.5, 1.0])  # position of a Runge-Kutta stage in its step
WEIGHTS = np.array([1 / 6, 1 / 3, 1 / 3, 1 / 6])


@dataclass(frozen=True)
class WideFunctions:
    """Functions of a problem under XLA; arguments and results are columns of numbers.

    Attributes:
        slope: (constants, x, w, θ) → dx/dα (n,), running cost (), in ``jax.numpy`` on vectors.
        cost: (constants, x, θ) → final cost ().
        sizes: lengths of x, w, θ.
        constants: how many.
        key: identifies the structure.
    """

    slope: Callable[..., tuple[Array, Array]]
    cost: Callable[..., Array]
    sizes: tuple[int, int, int]
    constants: int
    key: Hashable

    def prepare(self) -> None:
        """Begin to compile what a solver needs, in the background."""
        H, expansion, _ = self.hamiltonians
        # In the order of their first use.
        for program in (self._forward, self.final_gradient, self._backward, expansion, H):
            program.compile_ahead()

    @property
    def free_in_rate(self) -> bool:
        """Whether the rate may depend on free parameters; the structure of a program is not looked into."""
        return self.sizes[2] > 0

    @cached_property
    def rate(self) -> "Columns":
        """(constants, x, w, θ) → dx/dα, running cost."""
        return self._over_columns(self.slope, "cxwt")

    def final(self, constants: Any, x: Any, theta: Any) -> Any:
        """(constants, x, θ) → final cost."""
        # With its gradient: that is asked for later anyway, and one program compiles faster than two.
        return self.final_gradient(constants, x, theta)[0]

    @cached_property
    def final_gradient(self) -> "Columns":
        """(constants, x, θ) → final cost, its gradients in x and θ."""

        def gradient(c: Array, x: Array, theta: Array) -> tuple[Array, Array, Array]:
            cost, (by_x, by_theta) = jax.value_and_grad(self.cost, argnums=(1, 2))(c, x, theta)
            return cost, by_x, by_theta

        return self._over_columns(gradient, "cxt")

    @cached_property
    def step(self) -> "Columns":
        """(constants, x, w, θ, h) → x and cost after one classical Runge-Kutta step of length h."""
        return self._over_columns(self._step, "cxwth")

    @cached_property
    def rate_jacobian(self) -> "Columns":
        """(constants, x, w, θ) → dx/dα, running cost, and their Jacobians (n·q), (q) in (x, w, θ)."""

        def jacobian(c: Array, x: Array, w: Array, theta: Array) -> tuple[Array, ...]:
            def values(y: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
                found = self.slope(c, *self._split(y))
                return found, found

            blocks, found = jax.jacfwd(values, has_aux=True)(jnp.concatenate([x, w, theta]))
            return *found, blocks[0].reshape(-1), blocks[1]

        return self._over_columns(jacobian, "cxwt")

    @cached_property
    def rate_hessian(self) -> "Columns":
        """(constants, x, w, θ, μ, ν) → Hessian (q·q) of μ·dx/dα + ν·cost in (x, w, θ)."""

        def hessian(c: Array, x: Array, w: Array, theta: Array, mu: Array, nu: Array) -> Array:
            def total(y: Array) -> Array:
                slope, cost = self.slope(c, *self._split(y))
                return mu @ slope + nu[0] * cost

            return jax.hessian(total)(jnp.concatenate([x, w, theta])).reshape(-1)

        return self._over_columns(hessian, "cxwtlh")

    @cached_property
    def final_hessian(self) -> "Columns":
        """(constants, x, θ) → Hessian ((n + k)²) of the final cost in (x, θ)."""
        n = self.sizes[0]

        def hessian(c: Array, x: Array, theta: Array) -> Array:
            found = jax.hessian(lambda y: self.cost(c, y[:n], y[n:]))(jnp.concatenate([x, theta]))
            return found.reshape(-1)

        return self._over_columns(hessian, "cxt")

    def forward(
        self, start: Array, w: Array, h: Array, constants: Array, theta: Array
    ) -> tuple[np.ndarray, ...]:
        """States (n, S) and costs (1, S) of S steps under controls w (m, S), steps h (1, S)."""
        return self._forward(np.ravel(np.array(start)), (w, h), (constants[:, 0], theta[:, 0]))

    def backward(
        self, end: Array, x: Array, w: Array, h: Array, constants: Array, theta: Array
    ) -> tuple[np.ndarray, ...]:
        """Costates (n, S), gradients (m, S) in w and (k, S) in θ, from the last step to the first."""
        return self._backward(np.ravel(np.array(end)), (x, w, h), (constants[:, 0], theta[:, 0]))

    @cached_property
    def hamiltonians(self) -> "tuple[Columns, Columns, Columns]":
        """Functions of (constants, x, w, θ, λ), as those of ``interval_hamiltonian``.

        The first gives H; the second H, its gradient and the diagonal of its Hessian in w; the third H and
        its gradient in θ.
        """

        def H(c: Array, x: Array, w: Array, theta: Array, costate: Array) -> Array:
            slope, cost = self.slope(c, x, w, theta)
            return costate @ slope + cost

        def expansion(
            c: Array, x: Array, w: Array, theta: Array, costate: Array
        ) -> tuple[Array, Array, Array]:
            def along(direction: Array) -> tuple[Array, Array, Array]:
                def first(w: Array) -> tuple[Array, Array]:
                    return jax.jvp(lambda v: H(c, x, v, theta, costate), (w,), (direction,))

                (value, slope), (_, curvature) = jax.jvp(first, (w,), (direction,))
                return value, slope, curvature

            values, slopes, curvatures = jax.lax.map(along, jnp.eye(w.shape[0]))
            return values[0], slopes, curvatures

        def free(c: Array, x: Array, w: Array, theta: Array, costate: Array) -> tuple[Array, Array]:
            return jax.value_and_grad(H, argnums=3)(c, x, w, theta, costate)

        return (
            self._over_columns(H, "cxwtl"),
            self._over_columns(expansion, "cxwtl"),
            self._over_columns(free, "cxwtl"),
        )

    def _split(self, y: Array) -> tuple[Array, Array, Array]:
        n, m, _ = self.sizes
        return y[:n], y[n : n + m], y[n + m :]

    def _step(self, c: Array, x: Array, w: Array, theta: Array, h: Array) -> tuple[Array, Array]:
        h = jnp.reshape(h, ())

        def stage(carry: Any, table: Any) -> tuple[Any, None]:
            (slope, total, costs), (node, weight) = carry, table
            slope, cost = self.slope(c, x + node * h * slope, w, theta)
            return (slope, total + weight * slope, costs + weight * cost), None

        # A loop over the stages, so that the rate is compiled once and not four times.
        none = (jnp.zeros_like(x), jnp.zeros_like(x), jnp.zeros(()))
        (_, total, costs), _ = jax.lax.scan(stage, none, (jnp.asarray(NODES), jnp.asarray(WEIGHTS)))
        return x + h * total, h * costs

    @cached_property
    def _forward(self) -> "Chain":
        def step(x: Array, w: Array, h: Array, c: Array, theta: Array) -> tuple[Array, tuple[Array, ...]]:
            end, cost = self._step(c, x, w, theta, h)
            return end, (end, cost)

        return Chain(step, self._lengths("xwhct"), 2)

    @cached_property
    def _backward(self) -> "Chain":
        def back(
            costate: Array, x: Array, w: Array, h: Array, c: Array, theta: Array
        ) -> tuple[Array, tuple[Array, ...]]:
            _, pull = jax.vjp(lambda x, w, theta: self._step(c, x, w, theta, h), x, w, theta)
            gradients = pull((costate, jnp.ones(())))
            return gradients[0], gradients

        return Chain(back, self._lengths("xxwhct"), 3)

    def _over_columns(self, function: Callable[..., Any], arguments: str) -> "Columns":
        return Columns(function, self._lengths(arguments), [letter in "ct" for letter in arguments])

    def _lengths(self, arguments: str) -> list[int]:
        n, m, k = self.sizes
        lengths = {"c": self.constants, "x": n, "w": m, "t": k, "h": 1, "l": n}
        return [lengths[letter] for letter in arguments]


def unpacked(function: Callable[..., Any], constants: Any) -> Callable[..., Any]:
    """``function(constants, …)`` with its constants, a tree of numbers, packed into one vector."""
    leaves, structure = jax.tree.flatten(constants)
    shapes = [np.shape(leaf) for leaf in leaves]
    stops = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)]).tolist()

    def unpack(packed: Array, *rest: Array) -> Any:
        parts = [
            packed[start:stop].reshape(shape)
            for shape, start, stop in zip(shapes, stops[:-1], stops[1:], strict=True)
        ]
        return function(jax.tree.unflatten(structure, parts), *rest)

    return unpack


class _Program:
    """A function that is compiled once, for arguments of given shapes, now or in the background."""

    def __init__(self, function: Callable[..., Any], shapes: Any) -> None:
        self._function, self._shapes = function, shapes
        self._compiled: Future[Any] | None = None

    def compile_ahead(self) -> None:
        """Begin to compile in the background."""
        if self._compiled is None:
            self._compiled = _threads().submit(self._compile)

    @property
    def compiled(self) -> Any:
        """The program."""
        if self._compiled is None:
            self._compiled = Future()
            self._compiled.set_result(self._compile())
        return self._compiled.result()

    @float64
    def _compile(self) -> Any:
        shapes = jax.tree.map(
            lambda shape: jax.ShapeDtypeStruct(shape, float), self._shapes, is_leaf=_is_shape
        )
        return jax.jit(self._function).lower(jax.ShapeDtypeStruct((), np.int64), *shapes).compile()


class Columns(_Program):
    """A function of vectors as one of columns.

    Args:
        function: vectors → array, or a tuple of arrays, of one dimension or none.
        lengths: of its arguments.
        shared: a flag for each argument: it is the same for all columns.
    """

    def __init__(self, function: Callable[..., Any], lengths: list[int], shared: list[bool]) -> None:
        self._shared = shared

        def block(count: Array, *given: Array) -> list[Array]:
            def one(i: Array) -> list[Array]:
                result = function(*(v if same else v[i] for v, same in zip(given, shared, strict=True)))
                return _vectors(result if isinstance(result, tuple) else (result,))

            def body(i: Array, found: list[Array]) -> list[Array]:
                return [table.at[i].set(part) for table, part in zip(found, one(i), strict=True)]

            shapes = jax.eval_shape(one, count)
            return jax.lax.fori_loop(0, count, body, [jnp.zeros((BLOCK, *shape.shape)) for shape in shapes])

        super().__init__(
            block, [(n,) if same else (BLOCK, n) for n, same in zip(lengths, shared, strict=True)]
        )

    def __call__(self, *given: Any) -> Any:
        """Results with one column each for every column of the arguments."""
        rows = [_as_rows(value) for value in given]
        total = max(len(r) for r, same in zip(rows, self._shared, strict=True) if not same)
        program = self.compiled
        size = min(BLOCK, -(-total // _workers()))

        @float64
        def piece(first: int) -> list[np.ndarray]:
            count = min(size, total - first)
            columns = [
                r[0] if same else _padded(r[first : first + count] if len(r) > 1 else r.repeat(count, 0))
                for r, same in zip(rows, self._shared, strict=True)
            ]
            return [np.asarray(part)[:count].T for part in program(np.int64(count), *columns)]

        starts = range(0, total, size)
        pieces = _threads().map(piece, starts) if len(starts) > 1 else map(piece, starts)
        found = tuple(casadi.DM(np.concatenate(parts, axis=1)) for parts in zip(*pieces, strict=True))
        return found if len(found) > 1 else found[0]


class Chain(_Program):
    """A function (carry, *column, *shared) → carry, results, run along columns.

    Args:
        function: of vectors; the results are a tuple of vectors or numbers.
        lengths: of its arguments.
        columns: how many arguments after the carry are columns.
    """

    def __init__(
        self, function: Callable[..., tuple[Array, tuple[Array, ...]]], lengths: list[int], columns: int
    ) -> None:
        def block(count: Array, carry: Array, tables: list[Array], shared: list[Array]) -> Any:
            def one(carry: Array, i: Array) -> tuple[Array, list[Array]]:
                end, results = function(carry, *(table[i] for table in tables), *shared)
                return end, _vectors(results)

            def body(i: Array, state: tuple[Array, list[Array]]) -> tuple[Array, list[Array]]:
                carry, results = one(state[0], i)
                return carry, [t.at[i].set(part) for t, part in zip(state[1], results, strict=True)]

            _, shapes = jax.eval_shape(one, carry, count)
            none = [jnp.zeros((BLOCK, *shape.shape)) for shape in shapes]
            return jax.lax.fori_loop(0, count, body, (carry, none))

        carry, *rest = lengths
        super().__init__(
            block, [(carry,), [(BLOCK, n) for n in rest[:columns]], [(n,) for n in rest[columns:]]]
        )

    @float64
    def __call__(self, carry: Any, given: Sequence[Any], shared: Sequence[Any]) -> tuple[np.ndarray, ...]:
        """Results (size, S) along the S columns of ``given``."""
        tables = [_as_rows(value) for value in given]
        total, pieces = len(tables[0]), []
        shared = [np.asarray(value, dtype=float) for value in shared]
        for first in range(0, total, BLOCK):
            count = min(BLOCK, total - first)
            columns = [_padded(table[first : first + count]) for table in tables]
            carry, results = self.compiled(np.int64(count), carry, columns, shared)
            pieces.append([np.asarray(part)[:count].T for part in results])
        return tuple(np.concatenate(parts, axis=1) for parts in zip(*pieces, strict=True))


def _workers() -> int:
    return min(THREADS, os.cpu_count() or 1)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_workers(), "optlearn")


def _vectors(results: Sequence[Array]) -> list[Array]:
    return [jnp.atleast_1d(part) for part in results]


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple)


def _as_rows(value: Any) -> np.ndarray:
    """(P, n) from n numbers or a matrix of columns (n, P)."""
    array = np.asarray(value, dtype=float)
    return array.reshape(1, -1) if array.ndim < 2 else np.ascontiguousarray(array.T)


def _padded(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([rows, np.zeros((BLOCK - len(rows), rows.shape[1]))])
