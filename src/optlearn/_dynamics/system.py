"""Systems that can be controlled: any dynamics, as a few functions of a state and settings."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from types import FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import numpy as np

from optlearn._arguments import Arguments, as_numbers
from optlearn._arrays import Array, Derivatives, Settings, float64
from optlearn._dynamics.layout import Layout, NamedLayout
from optlearn._dynamics.own_code import Known, Part, digest, is_own, warn_of_misspelt
from optlearn._errors import SpecificationError
from optlearn._pytrees import Pytree
from optlearn._pytrees import field as pytree_field

# Name of the time in the state of a system whose drift depends on time.
CLOCK = "alpha"


class System(Pytree):
    """Dynamics under settings that may change in time. Subclass it and write ``drift`` and ``error``.

    Everything is written in ``jax.numpy``; gradients follow. A subclass names its state and gives default
    values of its parameters, any of which may be put under control::

        class Relaxation(ol.System):
            names = ("e",)
            parameters = {"learning_rate": 0.5, "noise": 0.25}

            def drift(self, x, u):
                eta, e = u["learning_rate"], x["e"]
                return {"e": -2 * eta * e + eta**2 * (e + u["noise"])}

            def error(self, x, u):
                return x["e"]

    Its own data, such as the eigenvalues of a spectrum, are fields (``spectrum: jax.Array``).

    Dynamics that depend on time take it as a third argument, ``drift(self, x, u, alpha)``. The state then has
    a clock as well, ``x["alpha"]``, which starts at 0 unless ``start`` says otherwise: ``error``, costs and
    limits read it there.

    Attributes:
        names: of the state's numbers; or a mapping from names to the lengths of vectors.
        parameters: name → default value of everything that the methods read from ``u``.
    """

    if TYPE_CHECKING:

        @property
        def names(self) -> tuple[str, ...] | Mapping[str, int | None]:
            """Names of the state's numbers, or a mapping from names to the lengths of vectors."""

        @property
        def parameters(self) -> Mapping[str, Array]:
            """Default value of everything that the methods read from ``u``."""

    else:
        names = ()
        parameters = MappingProxyType({})

    # --- what a system defines --------------------------------------------------------------------

    def drift(self, x: Array, u: Settings) -> Array:
        """dx/dα, in the shape of the state; ``drift(x, u, alpha)`` if it depends on time."""
        raise NotImplementedError

    @abstractmethod
    def error(self, x: Array, u: Settings) -> Array:
        """The error in state ``x``, a scalar."""

    def observables(self, x: Array, u: Settings) -> dict[str, Array]:
        """Further quantities worth plotting, scalars by name."""
        del x, u
        return {}

    def outputs(self, x: Array, u: Settings) -> dict[str, Array]:
        """``error`` and the observables, scalars by name."""
        return {"error": self.error(x, u), **self.observables(x, u)}

    def check(self, x: Array) -> str | None:
        """What is wrong with the state ``x`` (NumPy numbers), in a sentence; None if it is possible."""
        del x
        return None

    # Name of a parameter → its lowest and highest valid value.
    limits = MappingProxyType[str, tuple[float, float]]({})

    # Advice after an impossible state, at the start and along training.
    start_advice = ""
    run_advice = "Smaller controls usually keep the dynamics bounded."

    def advance(self, x: Array, u: Settings, length: Array) -> Array:
        """The exact state after ``length`` under constant settings; define it instead of ``drift``.

        For dynamics whose solution is known (a matrix exponential, a power of a map) or which are stiff.
        """
        raise NotImplementedError

    @property
    def longest(self) -> float:
        """The longest stretch that ``advance`` takes at once; longer ones are split, the remainder last."""
        return np.inf

    # --- what is derived from that ----------------------------------------------------------------

    # Whether ``drift`` takes the time, which is then part of the state.
    clocked: ClassVar[bool] = False

    # Digest of what a user's methods computed at the last check; part of the structure of programs.
    own_code: str = pytree_field(static=True, kw_only=True, default="", repr=False)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        drift = vars(cls).get("drift")
        if isinstance(drift, FunctionType) and drift.__code__.co_argcount > len(("self", "x", "u")):
            cls.clocked, cls.drift = True, with_clock(drift)  # type: ignore[method-assign]
        if is_own(cls):
            warn_of_misspelt(cls)

    def __check_init__(self) -> None:
        if not (self.has_drift or self.advances):
            raise SpecificationError(
                f"{type(self).__name__} must define drift(x, u) or advance(x, u, length)"
            )
        _ = self.layout
        if not isinstance(self.parameters, Mapping):
            raise SpecificationError(
                f"{type(self).__name__}.parameters must map names to numbers, got {self.parameters!r}"
            )

    @float64
    def current(self) -> Self:
        """The system with the current digest of its methods, which may read globals and closures."""
        cls = type(self)
        if not is_own(cls):
            return self
        return dataclasses.replace(self, own_code=digest(cls.__name__, self.parts()))

    def parts(self) -> Iterator[Part]:
        """Functions that a user may have written, with arguments to trace them."""
        x, u = self.state(), self.settings()
        moving = "advance" if self.advances else "drift"
        length = (np.zeros(()),) if self.advances else ()

        def explained(name: str) -> Callable[..., Any]:
            return lambda x, u, *length: getattr(self, name)(Known("x", x), Known("u", u), *length)

        yield moving, explained(moving), (x, u, *length)
        for name in ("error", "observables"):
            yield name, explained(name), (x, u)

    def reads(self, name: str) -> bool:
        """Whether the package itself reads a parameter."""
        del name
        return False

    @property
    def advances(self) -> bool:
        """Whether the system gives its own exact ``advance``."""
        return type(self).advance is not System.advance

    @property
    def has_drift(self) -> bool:
        """Whether the system gives a ``drift``."""
        return type(self).drift is not System.drift

    @cached_property
    def layout(self) -> Layout:
        """Names and flat form of the state."""
        layout = NamedLayout.of(type(self).__name__, self.names)
        if not self.clocked:
            return layout
        if CLOCK in dict(layout.lengths):
            raise SpecificationError(
                f"{type(self).__name__}: drift takes the time, which the state holds as {CLOCK!r}: leave "
                "that name out of names, or the third argument out of drift"
            )
        return NamedLayout(layout.owner, (*layout.lengths, (CLOCK, None)))

    def each(self, x: Any, u: Settings) -> "list[tuple[System, Any, Settings]]":
        """The member systems with their states and settings; a single system is its own member."""
        return [(self, x, u)]

    @property
    def mean_weights(self) -> Array:
        """Weights (M,) of the members of ``each`` in a mean."""
        return np.ones(1)

    def state(self, **values: Array) -> Any:
        """A state from named values; the rest is zero."""
        return self.layout.state(**values)

    def initial_state(self, given: Any) -> Any:
        """The initial state as NumPy numbers, from the user's input."""
        if not isinstance(given, Mapping):
            raise SpecificationError(
                f"start must be a dictionary of {type(self).__name__}'s state "
                f"({', '.join(self.layout.names)}), got {type(given).__name__}"
            )
        return self.state(**given)

    def named_in(self, given: Any) -> np.ndarray:
        """(n,) which entries of the flat state ``given`` holds, in the form that ``initial_state`` takes."""
        if not isinstance(given, Mapping):
            return np.ones(self.layout.size, dtype=bool)
        zero, one = (
            self.layout.flatten(self.state(**{n: np.full(np.shape(v), fill) for n, v in given.items()}))
            for fill in (0.0, 1.0)
        )
        return np.asarray(zero != one)

    def settings(self, overrides: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """The parameters with some overridden; an unknown name is an error."""
        defaults, overrides = as_floats(self.parameters), as_floats(overrides or {})
        unknown = sorted(set(overrides) - set(defaults))
        if unknown:
            raise SpecificationError(
                f"{type(self).__name__} has no parameter {', '.join(map(repr, unknown))}; "
                f"it has {', '.join(sorted(defaults)) or 'none'}"
            )
        for name, value in overrides.items():
            self.check_parameter(name, value)
            have, need = np.shape(value), np.shape(defaults[name])
            if have not in ((), need):
                raise SpecificationError(
                    f"parameter {name!r} must have shape {need} for {type(self).__name__}, got {have}"
                )
            defaults[name] = value if have == need else value * np.ones(need)
        return defaults

    def check_parameter(self, name: str, value: Array) -> None:
        """Raise if a parameter is not finite or outside its limits; traced values are not checked."""
        if isinstance(value, jax.core.Tracer):
            return
        lowest, highest = self.limits.get(name, (-np.inf, np.inf))
        check = Arguments(type(self).__name__)
        if np.shape(value):
            check.numbers(name, value, np.shape(value), lowest, highest)
        else:
            check.number(name, value, lowest, highest)

    def check_specification(self, x: Array, u: Settings) -> None:
        """Raise if the methods are inconsistent at state ``x`` under settings ``u``."""
        owner = type(self).__name__
        moved = self.advance(x, u, np.asarray(0.0)) if self.advances else self.drift(x, u)
        if np.shape(self.layout.flatten(moved)) != (self.layout.size,):
            raise SpecificationError(f"{owner}: what moves must have the shape of the state")
        error = self.error(x, u)
        if as_numbers(error) is None:
            raise SpecificationError(f"{owner}.error must return one number, got {error!r}")
        if np.shape(error) != ():
            raise SpecificationError(
                f"{owner}.error must return one number, got an array of shape {np.shape(error)}"
            )

    def first_impossible(self, states: np.ndarray, tolerance: float | None = None) -> tuple[int, str] | None:
        """Index of the first of flat states (T, n) that ``check`` rejects, and its message.

        ``tolerance`` is the relative error that a state may have (default: round-off), for systems that
        support it.
        """
        del tolerance
        for i, flat in enumerate(states):
            if (wrong := self.check(self.layout.unflatten(flat))) is not None:
                return i, wrong
        return None

    def round_off_guard(self) -> Callable[[np.ndarray], np.ndarray] | None:
        """A function that removes round-off from a flat state (n,) where it would grow; None if not needed.

        Integrators call it after every step. It is for states at the boundary of the possible ones, which the
        exact dynamics never cross.
        """
        return None

    # --- for systems with approximate expectations ------------------------------------------------

    def resolved(self, states: np.ndarray, u: Settings, quadrature: Any = None) -> "Resolved":
        """A copy whose expectations are accurate at flat states (S, n) under settings ``u``.

        Args:
            states: (S, n) where accuracy matters.
            u: settings there.
            quadrature: quadrature for expectations, or an accuracy; None: the system's own choice.
        """
        del states, u
        if quadrature is not None:
            raise SpecificationError(
                f"{type(self).__name__} computes no expectations: leave out {quadrature!r}"
            )
        return Resolved(self)

    def probes(self, x: Array) -> np.ndarray:
        """(S, n) flat states for testing a quadrature, including the start ``x``."""
        return np.asarray(self.layout.flatten(x))[None]

    def for_search(self, x: Array, u: Settings, horizon: float, quadrature: Any) -> tuple[np.ndarray, Any]:
        """Flat states where a search over this horizon needs a quadrature, and the requested quadrature."""
        del u, horizon
        return self.probes(x), quadrature

    def coarser(self) -> "System | None":
        """A copy of the same structure that is less accurate and much faster, if there is one."""
        return None

    def arranged(self, derivatives: Derivatives) -> "System":
        """A copy for programs with one kind of derivatives: forward-over-reverse by default."""
        return self

    def refined(self) -> "System | None":
        """A copy with a finer, independent quadrature; None if nothing is approximated."""
        return None


def with_clock(drift: Callable[..., Any]) -> Callable[..., Any]:
    """``drift(self, x, u, alpha)`` as a function of a state that has a clock."""

    @wraps(drift)
    def clocked(self: System, x: Any, u: Settings, alpha: Array | None = None) -> dict[str, Array]:
        moved = drift(self, x, u, x[CLOCK] if alpha is None else alpha)
        return {**moved, CLOCK: 1.0} if isinstance(moved, Mapping) else moved

    return clocked


@dataclass(frozen=True)
class Resolved:
    """A system that is ready to compute, and its accuracy.

    Attributes:
        system: the system.
        accuracy: accuracy for which its quadrature was chosen; None with closed forms or an explicit
            quadrature.
        rtol: suitable relative tolerance for integrating its drift, given the accuracy of its expectations.
        info: quadratures, and their measured errors.
    """

    system: System
    accuracy: float | None = None
    rtol: float = 1e-12
    info: Mapping[str, Any] = field(default_factory=lambda: {"quadrature": "closed form"})

    def errors(self, states: np.ndarray, u: Settings) -> dict[str, float]:
        """Errors of the quadratures, measured also at flat states (S, n)."""
        del states, u
        return {}


def resolved_for(
    system: System, states: np.ndarray, cases: Sequence[Settings], quadrature: Any = None
) -> Resolved:
    """The system with expectations that are accurate at states (S, n) under each of several settings.

    A quadrature is chosen under the first settings, and again under those where it is worst, if it is not
    accurate enough there.
    """
    resolved = system.resolved(states, cases[0], quadrature)
    if resolved.accuracy is None:
        return resolved
    errors = [max(resolved.errors(states, u).values(), default=0.0) for u in cases[1:]]
    if not errors or max(errors) <= resolved.accuracy:
        return resolved
    return system.resolved(states, cases[1 + int(np.argmax(errors))], quadrature)


def as_floats(parameters: Mapping[str, Any]) -> dict[str, Array]:
    """Numbers and arrays as float64 NumPy arrays; traced ones unchanged."""
    floats: dict[str, Array] = {}
    for name, value in parameters.items():
        floats[name] = value if isinstance(value, jax.core.Tracer) else as_numbers(value)
        if floats[name] is None:
            raise SpecificationError(f"parameter {name!r} must be numbers, got {value!r}")
    return floats
