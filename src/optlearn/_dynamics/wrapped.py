"""Systems that wrap another one, with the same state and further settings."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from optlearn._arrays import Array, Settings
from optlearn._dynamics.layout import Layout
from optlearn._dynamics.system import Resolved, System
from optlearn._pytrees import field


class Wrapped(System):
    """A system with converted settings; everything that a subclass does not override is delegated.

    Attributes:
        inner: the system.
    """

    inner: System

    def inner_settings(self, u: Settings) -> dict[str, Array]:
        """The settings of the inner system, from those of this one."""
        return {name: u[name] for name in self.inner.parameters}

    def inner_state(self, x: Any) -> Any:
        """The state of the inner system."""
        return x

    def _flat(self, states: np.ndarray) -> np.ndarray:
        """Flat states (T, n) of the inner system."""
        return states[:, : self.inner.layout.size]

    @property
    @override
    def layout(self) -> Layout:
        return self.inner.layout

    @property
    @override
    def names(self) -> tuple[str, ...]:
        return self.layout.names

    @property
    @override
    def parameters(self) -> Mapping[str, Array]:
        return self.inner.parameters

    @override
    def drift(self, x: Any, u: Settings) -> Any:
        return self.inner.drift(self.inner_state(x), self.inner_settings(u))

    @override
    def advance(self, x: Any, u: Settings, length: Array) -> Any:
        return self.inner.advance(self.inner_state(x), self.inner_settings(u), length)

    @override
    def error(self, x: Any, u: Settings) -> Array:
        return self.inner.error(self.inner_state(x), self.inner_settings(u))

    @override
    def observables(self, x: Any, u: Settings) -> dict[str, Array]:
        return self.inner.observables(self.inner_state(x), self.inner_settings(u))

    @override
    def outputs(self, x: Any, u: Settings) -> dict[str, Array]:
        return self.inner.outputs(self.inner_state(x), self.inner_settings(u))

    @property
    @override
    def mean_weights(self) -> Array:
        return self.inner.mean_weights

    @property
    @override
    def advances(self) -> bool:
        return self.inner.advances

    @property
    @override
    def has_drift(self) -> bool:
        return self.inner.has_drift

    @property
    @override
    def longest(self) -> float:
        return self.inner.longest

    @override
    def reads(self, name: str) -> bool:
        return self.inner.reads(name)

    @override
    def check_parameter(self, name: str, value: Array) -> None:
        if name in self.inner.parameters:
            self.inner.check_parameter(name, value)

    @override
    def check(self, x: Any) -> str | None:
        return self.inner.check(self.inner_state(x))

    @override
    def first_impossible(self, states: np.ndarray, tolerance: float | None = None) -> tuple[int, str] | None:
        return self.inner.first_impossible(self._flat(states), tolerance)

    @override
    def initial_state(self, given: Any) -> Any:
        return self.inner.initial_state(given)

    @override
    def named_in(self, given: Any) -> np.ndarray:
        return self.inner.named_in(given)

    @override
    def check_specification(self, x: Any, u: Settings) -> None:
        self.inner.check_specification(self.inner_state(x), self.inner_settings(u))

    @override
    def current(self) -> Self:
        return replace(self, inner=self.inner.current())

    @override
    def round_off_guard(self) -> Callable[[np.ndarray], np.ndarray] | None:
        guard, size = self.inner.round_off_guard(), self.inner.layout.size
        return None if guard is None else lambda flat: np.concatenate([guard(flat[:size]), flat[size:]])

    @override
    def resolved(self, states: np.ndarray, u: Settings, quadrature: Any = None) -> Resolved:
        inner = self.inner.resolved(self._flat(states), self.inner_settings(u), quadrature)
        return _ResolvedWrapped(
            replace(self, inner=inner.system), inner.accuracy, inner.rtol, inner.info, inner, self
        )

    @override
    def probes(self, x: Any) -> np.ndarray:
        inner = self.inner.probes(self.inner_state(x))
        return np.hstack([inner, np.zeros((len(inner), self.layout.size - inner.shape[1]))])

    @override
    def coarser(self) -> Self | None:
        coarse = self.inner.coarser()
        return None if coarse is None else replace(self, inner=coarse)

    @override
    def refined(self) -> Self | None:
        finer = self.inner.refined()
        return None if finer is None else replace(self, inner=finer)


class _ResolvedWrapped(Resolved):
    """Errors are those of the inner system."""

    def __init__(
        self, system: System, accuracy: float | None, rtol: float, info: Any, inner: Resolved, outer: Wrapped
    ) -> None:
        super().__init__(system, accuracy, rtol, info)
        vars(self).update(_inner=inner, _outer=outer)  # past what is frozen

    @override
    def errors(self, states: np.ndarray, u: Settings) -> dict[str, float]:
        inner, outer = vars(self)["_inner"], vars(self)["_outer"]
        return dict(inner.errors(outer._flat(states), outer.inner_settings(u)))


class Switched(Wrapped):
    """A system in one of several modes, each of which sets some of its parameters.

    Attributes:
        tables: control → parameter → (n, …) values in the n modes, numbered from 0.
        controls: names of these controls.
    """

    tables: Mapping[str, Mapping[str, Array]]
    controls: tuple[str, ...] = field(static=True)

    @property
    @override
    def parameters(self) -> Mapping[str, Array]:
        switched = {name for table in self.tables.values() for name in table}
        kept = {name: value for name, value in self.inner.parameters.items() if name not in switched}
        return {**kept, **dict.fromkeys(self.controls, 0.0)}

    @override
    def inner_settings(self, u: Settings) -> dict[str, Array]:
        modes: dict[str, Array] = {}
        for control, table in self.tables.items():
            for name, values in table.items():
                number, value = jnp.asarray(u[control]), jnp.asarray(values[0])
                for k in range(1, len(values)):
                    value = jnp.where(number > k - 0.5, jnp.asarray(values[k]), value)
                modes[name] = value
        return {name: modes[name] if name in modes else u[name] for name in self.inner.parameters}

    @override
    def each(self, x: Any, u: Settings) -> list[tuple[System, Any, Settings]]:
        modes = {name: u[name] for name in self.controls}
        members = self.inner.each(x, self.inner_settings(u))
        return [(_Mode(member, self.controls), state, {**s, **modes}) for member, state, s in members]


class _Mode(Wrapped):
    """A member of a switched system: its settings already include those of the modes."""

    controls: tuple[str, ...] = field(static=True)

    @property
    @override
    def parameters(self) -> Mapping[str, Array]:
        return {**self.inner.parameters, **dict.fromkeys(self.controls, 0.0)}
