"""An engine for rates that are too large for expressions: programs that XLA compiles.

A drift with thousands of quadrature points is too large for an expression graph, but XLA sums it in about a
millisecond. Compilation takes seconds, so every program is compiled only once, for all grids
(``xla_kernels``).
"""

from collections.abc import Callable
from functools import cached_property
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, quick_jit
from optlearn._engine.base import (
    Derivatives,
    Engine,
    Hamiltonians,
    Kernel,
    PathDerivatives,
    PathKernels,
    Slope,
)
from optlearn._engine.functions import Functions
from optlearn._engine.xla_kernels import Chain, Columns


class XlaEngine(Engine):
    """An engine on functions in ``jax.numpy``."""

    name = "xla"

    def __init__(self, functions: Functions, size: int) -> None:
        super().__init__(functions, size)
        self._functions = functions.on_vectors

    def _slope(self, c: Array, x: Array, w: Array, theta: Array, h: Array) -> tuple[Array, Array]:
        """dx/dα (n,) and running cost (), on vectors."""
        # Kernels take a vector for every argument, including h.
        return self._functions.rate(c, x, w, theta, jnp.reshape(h, ()))

    def _step(self, c: Array, x: Array, w: Array, theta: Array, h: Array) -> tuple[Array, Array]:
        return self._functions.step(c, x, w, theta, jnp.reshape(h, ()))

    def _cost(self, c: Array, x: Array, theta: Array) -> Array:
        return self._functions.final(c, x, theta)

    @property
    def costly(self) -> bool:
        """Yes: each rate is a wide quadrature."""
        return True

    @property
    def operations(self) -> int:
        """Known from the trace."""
        return self.size

    @property
    def free_in_rate(self) -> bool:
        """True if there are any; the program's structure is not analysed."""
        return self.sizes[2] > 0

    def prepare(self) -> None:
        """Begin to compile what a solver needs, in the background."""
        H, expansion, _ = self._hamiltonians
        # In the order of their first use.
        for program in (self._forward, self.final_gradient, self._backward, expansion, H):
            program.compile_ahead()

    @cached_property
    def rate(self) -> Columns:
        """(c, x, w, θ, h) → dx/dα, running cost."""
        return self._over_columns(self._slope, "cxwth")

    @property
    def final(self) -> Kernel:
        """(c, x, θ) → final cost."""
        # With its gradient, if that was requested: one program compiles faster than two. Otherwise without,
        # which compiles in half the time.
        if "final_gradient" not in self.__dict__:
            return self._final_alone
        return lambda constants, x, theta: self.final_gradient(constants, x, theta)[0]

    @cached_property
    def _final_alone(self) -> Columns:
        return self._over_columns(self._cost, "cxt")

    @cached_property
    def final_gradient(self) -> Columns:
        """(c, x, θ) → final cost, its gradients in x and θ."""

        def gradient(c: Array, x: Array, theta: Array) -> tuple[Array, Array, Array]:
            cost, (by_x, by_theta) = jax.value_and_grad(self._cost, argnums=(1, 2))(c, x, theta)
            return cost, by_x, by_theta

        return self._over_columns(gradient, "cxt")

    @cached_property
    def step(self) -> Columns:
        """(c, x, w, θ, h) → x and cost after one step of length h."""
        return self._over_columns(self._step, "cxwth")

    @cached_property
    def rate_jacobian(self) -> Columns:
        """(c, x, w, θ, h) → dx/dα, running cost, and their Jacobians (n·q), (q) in (x, w, θ)."""
        m = self.sizes[1]

        def jacobian(c: Array, x: Array, w: Array, theta: Array, h: Array) -> tuple[Array, ...]:
            def values(x: Array, v: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
                rates = self._slope(c, x, v[:m], v[m:], h)
                return rates, rates

            # Settings may enter through a deep product, states linearly: differentiate separately, so that no
            # derivative in the states passes through the product.
            v = jnp.concatenate([w, theta])
            states, rates = jax.jacfwd(values, 0, has_aux=True)(x, v)
            settings, _ = jax.jacfwd(values, 1, has_aux=True)(x, v)
            slopes, costs = (jnp.concatenate(parts, -1) for parts in zip(states, settings, strict=True))
            return *rates, slopes.reshape(-1), costs

        return self._over_columns(jacobian, "cxwth", ahead=True)

    @cached_property
    def rate_hessian(self) -> Columns:
        """(c, x, w, θ, h, μ, ν) → Hessian (q·q) of μ·dx/dα + ν·cost in (x, w, θ)."""
        m = self.sizes[1]

        def hessian(c: Array, x: Array, w: Array, theta: Array, h: Array, mu: Array, nu: Array) -> Array:
            def total(x: Array, v: Array) -> Array:
                slope, cost = self._slope(c, x, v[:m], v[m:], h)
                return mu @ slope + nu[0] * cost

            # Separately, as above; mixed derivatives along the settings, of which there are few.
            v = jnp.concatenate([w, theta])
            states = jax.jacfwd(jax.grad(total))(x, v)
            mixed, settings = jax.jacfwd(jax.grad(total, (0, 1)), 1)(x, v)
            return jnp.block([[states, mixed], [mixed.T, settings]]).reshape(-1)

        return self._over_columns(hessian, "cxwthlh")

    @cached_property
    def final_hessian(self) -> Columns:
        """(c, x, θ) → Hessian ((n + k)²) of the final cost in (x, θ)."""
        n = self.sizes[0]

        def hessian(c: Array, x: Array, theta: Array) -> Array:
            curvatures = jax.hessian(lambda y: self._cost(c, y[:n], y[n:]))(jnp.concatenate([x, theta]))
            return curvatures.reshape(-1)

        return self._over_columns(hessian, "cxt")

    def chains(self, total: int) -> tuple[Kernel, Kernel]:
        """Steps and adjoints in sequence; compiled once for any number of them."""

        def forward(start: np.ndarray, w: np.ndarray, h: np.ndarray, *shared: np.ndarray) -> Any:
            return self._forward(start, (w, h[:, None]), shared)

        def backward(
            end: np.ndarray, x: np.ndarray, w: np.ndarray, h: np.ndarray, *others: np.ndarray
        ) -> Any:
            *jump, constants, theta = others
            return self._backward(end, (x, w, h[:, None], *jump), (constants, theta))

        return forward, backward

    @cached_property
    def _hamiltonians(self) -> tuple[Columns, Columns, Columns]:
        m = self.sizes[1]
        directions, how = _curvatures(m, self.curved)

        def H(c: Array, x: Array, w: Array, theta: Array, h: Array, costate: Array) -> Array:
            slope, cost = self._slope(c, x, w, theta, h)
            return costate @ slope + cost

        def expansion(
            c: Array, x: Array, w: Array, theta: Array, h: Array, costate: Array
        ) -> tuple[Array, Array, Array]:
            def along(direction: Array) -> tuple[Array, Array, Array]:
                def first(w: Array) -> tuple[Array, Array]:
                    return jax.jvp(lambda v: H(c, x, v, theta, h, costate), (w,), (direction,))

                (value, slope), (_, curvature) = jax.jvp(first, (w,), (direction,))
                return value, slope, curvature

            values, slopes, curvatures = jax.lax.map(along, directions)
            return values[0], slopes[:m], jnp.tensordot(curvatures, how, 1).reshape(-1)

        def free(c: Array, x: Array, w: Array, theta: Array, h: Array, costate: Array) -> tuple[Array, Array]:
            return jax.value_and_grad(H, argnums=3)(c, x, w, theta, h, costate)

        return (
            self._over_columns(H, "cxwthl", ahead=True),
            self._over_columns(expansion, "cxwthl", ahead=True),
            self._over_columns(free, "cxwthl"),
        )

    @property
    def hamiltonians(self) -> Hamiltonians:
        """Kernels for the minimum principle."""
        return Hamiltonians(*self._hamiltonians)

    @cached_property
    def path_kernels(self) -> PathKernels:
        """Kernels for quantities with path limits."""
        path, curved = self._path, self.curved

        def gradient(*arguments: Array) -> tuple[Array, ...]:
            return jax.grad(lambda c, x, w, theta, mu: mu @ path(c, x, w, theta), (1, 2, 3))(*arguments)

        def expansion(c: Array, x: Array, w: Array, theta: Array, mu: Array) -> tuple[Array, ...]:
            def total(w: Array) -> Array:
                return mu @ path(c, x, w, theta)

            return total(w), jax.grad(total)(w), jax.hessian(total)(w)[:curved, :curved].reshape(-1)

        return PathKernels(
            self._over_columns(path, "cxwt"),
            self._over_columns(gradient, "cxwtp"),
            self._over_columns(expansion, "cxwtp"),
        )

    @cached_property
    def path_derivatives(self) -> PathDerivatives:
        """Compiled programs behind callbacks."""
        from optlearn._engine.expansion import Callback

        n, m, k = self.sizes
        lengths, path = self._lengths("cxwtp"), self._path
        p, q = lengths[-1], n + m + k

        def first(c: Array, x: Array, w: Array, theta: Array) -> tuple[Array, Array]:
            jacobians = jax.jacfwd(path, (1, 2, 3))(c, x, w, theta)
            return path(c, x, w, theta), jnp.concatenate(jacobians, -1).reshape(-1)

        def second(c: Array, x: Array, w: Array, theta: Array, mu: Array) -> Array:
            def total(y: Array) -> Array:
                return mu @ path(c, y[:n], y[n : n + m], y[n + m :])

            return jax.hessian(total)(jnp.concatenate([x, w, theta])).reshape(-1)

        firsts = self._over_columns(first, "cxwt", ahead=True)
        seconds = self._over_columns(second, "cxwtp")
        return PathDerivatives(
            Callback("path_first", lengths[:-1], [(p, 1), (p, q)], firsts),
            Callback("path_second", lengths, [(q, q)], seconds),
        )

    @property
    def _path(self) -> Callable[..., Array]:
        assert self._functions.paths is not None
        return self._functions.paths

    @cached_property
    def derivatives(self) -> Derivatives:
        """Compiled programs behind callbacks."""
        # Imported here, so that everything without expressions also runs without CasADi.
        from optlearn._engine.expansion import Callback

        n, m, k = self.sizes
        c, q = self.constants, n + m + k
        everything, end = [c, n, m, k], [c, n, k]
        jacobians = [(n, 1), (1, 1), (n, q), (1, q)]
        gradients = [(1, 1), (n, 1), (k, 1)]
        first = Callback("first", [*everything, 1], jacobians, self.rate_jacobian)
        return Derivatives(
            first,  # a program without the Jacobians would require another compilation
            first,
            Callback("second", [*everything, 1, n, 1], [(q, q)], self.rate_hessian),
            Callback("final", end, [(1, 1)], self.final),
            Callback("final_gradient", end, gradients, self.final_gradient),
            Callback("final_hessian", end, [(n + k, n + k)], self.final_hessian),
        )

    def better_flat(self, steps: int) -> bool:
        """Callbacks cannot be flattened."""
        return False

    def slope(self, constants: np.ndarray) -> Callable[[np.ndarray], Slope]:
        """A program of the rate alone, for one state: it compiles faster than any program with a loop."""
        rate = self.once(
            "slope", lambda: quick_jit(lambda c, x, w: self._slope(c, x, w, np.zeros(0), 0.0)[0])
        )
        c = jax.device_put(self._functions.split_ahead(constants))

        def under(w: np.ndarray) -> Slope:
            controls = jax.device_put(w)
            return lambda x: np.asarray(rate(c, x, controls))

        return under

    @cached_property
    def _forward(self) -> Chain:
        def step(x: Array, w: Array, h: Array, c: Array, theta: Array) -> tuple[Array, tuple[Array, ...]]:
            end, cost = self._step(c, x, w, theta, h)
            return end, (end, cost)

        return Chain(step, self._lengths("xwhct"), 2, self._functions.split_ahead)

    @cached_property
    def _backward(self) -> Chain:
        def back(
            costate: Array, x: Array, w: Array, h: Array, *others: Array
        ) -> tuple[Array, tuple[Array, ...]]:
            *jump, c, theta = others
            _, pull = jax.vjp(lambda x, w, theta: self._step(c, x, w, theta, h), x, w, theta)
            before, *gradients = pull((costate, jnp.ones(())))
            before = sum(jump, before)
            return before, (before, *gradients)

        if self.paths is None:
            return Chain(back, self._lengths("xxwhct"), 3, self._functions.split)
        return Chain(back, self._lengths("xxwhxct"), 4, self._functions.split)

    def _over_columns(self, function: Callable[..., Any], arguments: str, *, ahead: bool = False) -> Columns:
        """A kernel; ``ahead``: the function uses only forward-mode derivatives."""
        shared = [letter in "ct" for letter in arguments]
        split = self._functions.split_ahead if ahead else self._functions.split
        return Columns(function, self._lengths(arguments), shared, split)

    def _lengths(self, arguments: str) -> list[int]:
        n, m, k = self.sizes
        p = 0 if self.paths is None else len(self.paths.read_controls)
        lengths = {"c": self.constants, "x": n, "w": m, "t": k, "h": 1, "l": n, "p": p}
        return [lengths[letter] for letter in arguments]


def _curvatures(m: int, curved: int) -> tuple[np.ndarray, np.ndarray]:
    """Directions (d, m) whose curvatures determine a Hessian, axes first; and weights (d, curved, curved).

    The curvature along the sum of two axes is the sum of both curvatures plus twice the mixed derivative.
    """
    pairs = list(combinations(range(curved), 2))
    directions = np.concatenate([np.eye(m), *(np.eye(m)[[i]] + np.eye(m)[[j]] for i, j in pairs)])
    how = np.zeros((len(directions), curved, curved))
    how[range(curved), range(curved), range(curved)] = 1.0
    for place, (i, j) in enumerate(pairs, m):
        for a, b in ((i, j), (j, i)):
            how[[place, i, j], a, b] = 0.5, -0.5, -0.5
    return directions, how
