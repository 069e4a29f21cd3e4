"""One system composed of several that share the same controls: possible worlds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Settings
from optlearn._dynamics.layout import JoinedLayout
from optlearn._dynamics.system import Resolved, System
from optlearn._errors import SpecificationError


class Ensemble(System):
    """Members side by side: each has its own state and its own values of some parameters.

    Its state is a tuple of the members' states, with flat names ``Q11_1``, ``Q11_2`` and so on; its error is
    the members' mean, and ``error_1``, ``error_2``… are observables.

    Attributes:
        members: M systems.
        own: for each member, its own parameters; the others are common to all.
        weights: (M,) weights of the members in the mean, adding up to 1.
    """

    members: tuple[System, ...]
    own: tuple[dict[str, Array], ...]
    weights: Array

    @classmethod
    def of(
        cls,
        members: Sequence[System],
        own: Sequence[Mapping[str, Array]] | None = None,
        weights: Sequence[float] | np.ndarray | None = None,
    ) -> "Ensemble":
        """An ensemble of at least one member; equal weights by default."""
        count = len(members)
        if count == 0:
            raise SpecificationError("an ensemble must have at least one member, got none")
        shares = np.full(count, 1 / count) if weights is None else np.asarray(weights, dtype=float)
        if shares.shape != (count,) or not (np.all(shares >= 0) and abs(shares.sum() - 1) <= 1e-9):
            raise SpecificationError(
                f"weights must be {count} numbers of at least 0 that sum to 1, got {shares.tolist()}"
            )
        own = [{}] * count if own is None else own
        values = tuple({n: np.asarray(v, dtype=float) for n, v in mapping.items()} for mapping in own)
        return cls(tuple(members), values, shares)

    @cached_property
    def layout(self) -> JoinedLayout:
        """The members' states, one after the other."""
        numbers = range(1, len(self.members) + 1)
        return JoinedLayout(tuple(m.layout for m in self.members), tuple(f"_{i}" for i in numbers))

    @property
    def names(self) -> tuple[str, ...]:
        """Layout of the flat state."""
        return self.layout.names

    @property
    def parameters(self) -> Mapping[str, Array]:
        """Parameters common to the members."""
        common: dict[str, Array] = {}
        for member, own in zip(self.members, self.own, strict=True):
            common |= {name: value for name, value in member.parameters.items() if name not in own}
        return common

    def each(self, x: Any, u: Settings) -> list[tuple[System, Any, Settings]]:
        """The members with their states and their settings."""
        return [
            (member, state, {**{n: u[n] for n in member.parameters if n not in own}, **own})
            for member, own, state in zip(self.members, self.own, x, strict=True)
        ]

    @property
    def mean_weights(self) -> Array:
        """(M,) the weights."""
        return self.weights

    def drift(self, x: Any, u: Settings) -> Any:
        """The members' drifts."""
        return tuple(member.drift(state, settings) for member, state, settings in self.each(x, u))

    def advance(self, x: Any, u: Settings, length: Array) -> Any:
        """The members' states after ``length``."""
        return tuple(member.advance(state, settings, length) for member, state, settings in self.each(x, u))

    def errors(self, x: Any, u: Settings) -> list[Array]:
        """The members' errors."""
        return [member.error(state, settings) for member, state, settings in self.each(x, u)]

    def error(self, x: Any, u: Settings) -> Array:
        """The mean of the members' errors."""
        return jnp.stack([jnp.asarray(e) for e in self.errors(x, u)]) @ self.weights

    def observables(self, x: Any, u: Settings) -> dict[str, Array]:
        """The error of every member."""
        return {f"error_{i + 1}": error for i, error in enumerate(self.errors(x, u))}

    @property
    def advances(self) -> bool:
        """Whether all members give their own exact ``advance``."""
        return all(member.advances for member in self.members)

    @property
    def has_drift(self) -> bool:
        """Whether all members give a ``drift``."""
        return all(member.has_drift for member in self.members)

    @property
    def longest(self) -> float:
        """The shortest of the members' longest stretches."""
        return min(member.longest for member in self.members)

    def current(self) -> "Ensemble":
        """With the current versions of the members' methods."""
        return replace(self, members=tuple(member.current() for member in self.members))

    def initial_state(self, given: Any) -> tuple[Any, ...]:
        """A start for each member, or one for all."""
        return tuple(m.initial_state(start) for m, start in self._for_each(given))

    def named_in(self, given: Any) -> np.ndarray:
        """Flags of the members, one after the other."""
        return np.concatenate([member.named_in(state) for member, state in self._for_each(given)])

    def _for_each(self, starts: Any) -> "zip[tuple[System, Any]]":
        """The members, each with its given state."""
        states = starts if isinstance(starts, tuple | list) else [starts] * len(self.members)
        if len(states) != len(self.members):
            raise SpecificationError(
                f"start must be one for each of the {len(self.members)} members, got {len(states)}"
            )
        return zip(self.members, states, strict=True)

    def check_parameter(self, name: str, value: Array) -> None:
        """The check of the members that have the parameter."""
        for member in self.members:
            if name in member.parameters:
                member.check_parameter(name, value)

    def check(self, x: Any) -> str | None:
        """The problem of the first member with an impossible state."""
        for number, (member, state) in enumerate(zip(self.members, x, strict=True), 1):
            if (wrong := member.check(state)) is not None:
                return f"member {number}: {wrong}"
        return None

    def first_impossible(self, states: np.ndarray, tolerance: float | None = None) -> tuple[int, str] | None:
        """The earliest of flat states (T, n) that a member rejects."""
        impossible = [
            (*wrong, number)
            for number, (member, s) in enumerate(zip(self.members, self.layout.slices, strict=True), 1)
            if (wrong := member.first_impossible(states[:, s], tolerance)) is not None
        ]
        if not impossible:
            return None
        place, sentence, number = min(impossible)
        return place, f"member {number}: {sentence}"

    def check_specification(self, x: Any, u: Settings) -> None:
        """Check each member separately."""
        for member, state, settings in self.each(x, u):
            member.check_specification(state, settings)

    def round_off_guard(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """The members' guards, each on its own entries."""
        guards = [member.round_off_guard() for member in self.members]
        if all(guard is None for guard in guards):
            return None
        pairs = list(zip(guards, self.layout.slices, strict=True))
        return lambda flat: np.concatenate([flat[s] if g is None else g(flat[s]) for g, s in pairs])

    # --- quadratures: each member has its own ------------------------------------------------------

    def resolved(self, states: np.ndarray, u: Settings, quadrature: Any = None) -> Resolved:
        """Every member resolved on its part of flat states (S, n)."""
        places = zip(self.layout.slices, self.each(self.members, u), strict=True)
        parts = tuple(m.resolved(states[:, s], settings, quadrature) for s, (m, _, settings) in places)
        accuracies = [r.accuracy for r in parts if r.accuracy is not None]
        info: dict[str, Any] = dict(parts[0].info)
        for part in parts[1:]:
            info |= {n: max(v, info.get(n, v)) for n, v in part.info.items() if n.endswith("error")}
        system = replace(self, members=tuple(r.system for r in parts))
        rtol = max(r.rtol for r in parts)
        return _ResolvedEnsemble(system, min(accuracies, default=None), rtol, info, parts)

    def probes(self, x: Any) -> np.ndarray:
        """(S, n) the members' probes side by side; a member with fewer repeats its last."""
        probes = [member.probes(state) for member, state in zip(self.members, x, strict=True)]
        numbers = np.arange(max(map(len, probes)))
        return np.hstack([p[np.minimum(numbers, len(p) - 1)] for p in probes])

    def refined(self) -> "Ensemble | None":
        """With every refinable member refined; None if none is."""
        finer = [member.refined() for member in self.members]
        if all(member is None for member in finer):
            return None
        pairs = zip(finer, self.members, strict=True)
        return replace(self, members=tuple(m if f is None else f for f, m in pairs))


@dataclass(frozen=True)
class _ResolvedEnsemble(Resolved):
    """All members ready to compute."""

    parts: tuple[Resolved, ...] = ()

    def errors(self, states: np.ndarray, u: Settings) -> dict[str, float]:
        """The largest of the members' errors."""
        system, errors = self.system, dict[str, float]()
        assert isinstance(system, Ensemble)
        places = zip(self.parts, system.layout.slices, system.each(system.members, u), strict=True)
        for part, s, (_, _, settings) in places:
            for name, error in part.errors(states[:, s], settings).items():
                errors[name] = max(error, errors.get(name, 0.0))
        return errors
