"""The engine interface: functions of vectors, evaluated for numbers, whatever the backend.

Arguments come in this order: constants c, state x (n), controls w (m), free parameters θ (k), step length h,
costate λ (n). Kernels are called with numbers: each argument is a vector, or a matrix with one column for
each of P points, and so are the results. Only the direct method needs expressions (``Derivatives``).

One step of training is the interface between dynamics and everything else: ``step`` for numbers, ``chains``
for many steps and their adjoints, ``expansion`` for first and second derivatives.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from optlearn._arrays import Float
from optlearn._engine.functions import Constants, Functions, State, pack
from optlearn._engine.steps import EXACT, Stages

Kernel = Callable[..., Any]
# A CasADi expression or function; CasADi has no type annotations.
Expr: TypeAlias = Any
# state (n,) → its slope (n,)
Slope = Callable[[State], State]
# state (n,) and length of a step → the state after it and an error estimate
ControlledStep = Callable[[State, float], tuple[State, State]]


class Hamiltonians(NamedTuple):
    """Kernels of (c, x, w, θ, h, λ) around the Hamiltonian H = λ·dx/dα + running cost.

    Attributes:
        value: → H.
        expansion: → H, its gradient (m) in w, and its Hessian (c·c) in the first c = ``curved`` of w.
        free: → H and its gradient (k) in θ.
    """

    value: Kernel
    expansion: Kernel
    free: Kernel


class Derivatives(NamedTuple):
    """Functions for building CasADi expressions, q = n + m + k; their user must keep this object alive.

    Attributes:
        rate: (c, x, w, θ, h) → dx/dα (n), running cost; further outputs are not read.
        first: (c, x, w, θ, h) → dx/dα (n), running cost, and their Jacobians (n, q), (1, q) in (x, w, θ).
        second: (c, x, w, θ, h, μ, ν) → Hessian (q, q) of μ·dx/dα + ν·cost.
        final: (c, x, θ) → final cost.
        final_gradient: (c, x, θ) → final cost, its gradients in x and θ.
        final_hessian: (c, x, θ) → Hessian (n + k, n + k) of the final cost.
    """

    rate: Expr
    first: Expr
    second: Expr
    final: Expr
    final_gradient: Expr
    final_hessian: Expr


class PathKernels(NamedTuple):
    """Kernels of (c, x, w, θ) and multipliers μ (p) for quantities with path limits, g (p).

    Attributes:
        value: (c, x, w, θ) → g.
        gradient: (c, x, w, θ, μ) → gradients of μ·g in x, w and θ.
        expansion: (c, x, w, θ, μ) → μ·g, its gradient (m) in w, and its Hessian (c·c) in the first c of w.
    """

    value: Kernel
    gradient: Kernel
    expansion: Kernel


class PathDerivatives(NamedTuple):
    """The same for expressions, q = n + m + k; their user must keep this object alive.

    Attributes:
        first: (c, x, w, θ) → g (p) and its Jacobian (p, q) in (x, w, θ).
        second: (c, x, w, θ, μ) → Hessian (q, q) of μ·g.
    """

    first: Expr
    second: Expr


class Expressions(NamedTuple):
    """Everything as CasADi expressions of symbols, for proofs, which inspect the computation.

    Attributes:
        symbols: c, x, w, θ, h, λ.
        slope: dx/dα (n).
        cost: running cost.
        final: final cost.
    """

    symbols: tuple[Expr, ...]
    slope: Expr
    cost: Expr
    final: Expr


class Engine(ABC):
    """Rate, costs and steps of all systems or problems that differ only in numbers.

    Args:
        functions: functions of one of them.
        size: estimated scalar operations in one rate.

    Attributes:
        name: name of the backend.
        sizes: lengths n, m, k of x, w, θ.
        curved: number of leading entries of w that are not shares.
        constants: number of constants.
        key: equal for problems that share the engine.
        stages: stages of a step.
        paths: quantities with path limits, if any.
    """

    name: ClassVar[str]

    def __init__(self, functions: Functions, size: int) -> None:
        self.sizes, self.curved, self.size = functions.sizes, functions.curved, size
        self.constants = pack(functions.constants).size
        self.key: Hashable = functions.key
        self.stages: Stages = functions.stages
        self.paths = functions.paths
        self._made: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The cached result of ``make``, for objects that take long to build."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    @property
    def exact(self) -> bool:
        """Are steps of any length exact? Then an interval is one step."""
        return self.stages is EXACT

    @property
    @abstractmethod
    def costly(self) -> bool:
        """Does one rate take so long (about a millisecond) that solvers should use few?

        Its expectations are then wide quadratures, accurate only to about 1e-7.
        """

    @property
    @abstractmethod
    def operations(self) -> int:
        """Scalar operations in one rate; each takes a few nanoseconds."""

    @property
    @abstractmethod
    def free_in_rate(self) -> bool:
        """Whether the rate, and not only the final cost, may depend on free parameters."""

    @abstractmethod
    def prepare(self) -> None:
        """Begin to prepare what a solver needs, in the background if that takes long."""

    # --- numbers ---------------------------------------------------------------------------------

    @property
    @abstractmethod
    def rate(self) -> Kernel:
        """(c, x, w, θ, h) → dx/dα, running cost.

        Where steps are exact these are the means over a length h; the cost is that at x itself for h = 0.
        """

    @property
    @abstractmethod
    def final(self) -> Kernel:
        """(c, x, θ) → final cost."""

    @property
    @abstractmethod
    def final_gradient(self) -> Kernel:
        """(c, x, θ) → final cost, its gradients in x and θ."""

    @property
    @abstractmethod
    def step(self) -> Kernel:
        """(c, x, w, θ, h) → state and cost after one step of length h."""

    @abstractmethod
    def chains(self, total: int) -> tuple[Kernel, Kernel]:
        """``total`` steps in sequence, and their adjoints; x, w, h and results have one *row* per step.

        Forward: (start, w, h, c, θ) → states and costs after each step. Backward: (costate at the end, x,
        w, h, c, θ), from the last step to the first → costates before each, gradients in w and θ. Neither
        may be called by two threads at once. With ``paths`` the backward one takes (…, h, jump, c, θ), where
        ``jump`` is added to the costate before each step.
        """

    def many_chains(self, total: int, lanes: int) -> tuple[Kernel, Kernel]:
        """``chains`` for several controls at once: rows of one lane after the other; c and θ are shared."""
        forward, backward = self.chains(total)

        def each(chain: Kernel, *arguments: np.ndarray) -> tuple[np.ndarray, ...]:
            *rows, constants, theta = arguments
            split = zip(*(np.split(row, lanes) for row in rows), strict=True)
            ends = [chain(first[0], *own, constants, theta) for first, *own in split]
            return tuple(np.concatenate([np.asarray(v) for v in part]) for part in zip(*ends, strict=True))

        return partial(each, forward), partial(each, backward)

    @property
    @abstractmethod
    def hamiltonians(self) -> Hamiltonians:
        """Kernels for the minimum principle."""

    @property
    @abstractmethod
    def path_kernels(self) -> PathKernels:
        """Kernels for ``paths``, which must not be empty."""

    # --- adaptive integration ----------------------------------------------------------------------

    @abstractmethod
    def slope(self, constants: Constants) -> Callable[[Float[np.ndarray, " m"]], Slope]:
        """Controls w → x → dx/dα, without free parameters; integrators call this thousands of times."""

    def controlled_step(
        self, constants: Constants
    ) -> Callable[[Float[np.ndarray, " m"]], ControlledStep] | None:
        """Controls w → (x, h) → a step and its error in one call; None if that gains nothing."""
        del constants
        return None

    # --- expressions -----------------------------------------------------------------------------

    @property
    @abstractmethod
    def derivatives(self) -> Derivatives:
        """Functions for CasADi expressions."""

    @property
    @abstractmethod
    def path_derivatives(self) -> PathDerivatives:
        """Functions for expressions of ``paths``, which must not be empty."""

    @property
    def expressions(self) -> Expressions | None:
        """The rate and the costs themselves, if they are expressions."""
        return None

    @abstractmethod
    def better_flat(self, steps: int) -> bool:
        """Is an interval with so many steps faster as one flat expression than with calls of the rate?"""
