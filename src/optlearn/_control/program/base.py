"""A problem's functions of vectors, as solvers use them, whatever runs underneath.

Arguments come in this order: constants c, state x (n), relaxed controls w (m), free parameters θ (k), step
length h, costate λ (n). Kernels are called with numbers: each argument is a vector, or a matrix with one
column for each of P points, and so are the results. Only the direct method needs expressions
(``Derivatives``).

One step of training is the seam between a problem's dynamics and everything else: ``step`` for numbers,
``chains`` for many steps and their adjoints, ``step_expansion`` for its first and second derivatives.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, NamedTuple

from optlearn._control.program.stages import CLASSICAL, EXACT, Stages
from optlearn._control.program.steps import RungeKuttaExpansion, StepExpansion

Kernel = Callable[..., Any]


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
    """What CasADi expressions can be made of, q = n + m + k; whoever builds them must keep this alive.

    Attributes:
        rate: (c, x, w, θ, h) → dx/dα (n), running cost; what follows these is not read.
        first: (c, x, w, θ, h) → dx/dα (n), running cost, and their Jacobians (n, q), (1, q) in (x, w, θ).
        second: (c, x, w, θ, h, μ, ν) → Hessian (q, q) of μ·dx/dα + ν·cost.
        final: (c, x, θ) → final cost.
        final_gradient: (c, x, θ) → final cost, its gradients in x and θ.
        final_hessian: (c, x, θ) → Hessian (n + k, n + k) of the final cost.
    """

    rate: Any
    first: Any
    second: Any
    final: Any
    final_gradient: Any
    final_hessian: Any


class Program(ABC):
    """Rate, costs and steps of all problems that differ in numbers only.

    Args:
        sizes: lengths n, m, k of x, w, θ.
        curved: how many of w, the first ones, are no shares.
        constants: how many there are.
        key: equal for problems that share the program.
        stages: of a step.
    """

    def __init__(
        self,
        sizes: tuple[int, int, int],
        curved: int,
        constants: int,
        key: Hashable,
        stages: Stages = CLASSICAL,
    ) -> None:
        self.sizes, self.curved, self.constants = sizes, curved, constants
        self.key, self.stages = key, stages
        self._kept: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, made when it is first asked for: things that take long to build."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    @property
    def exact(self) -> bool:
        """Is a step exact, however long? Then an interval is one step."""
        return self.stages is EXACT

    @property
    @abstractmethod
    def costly(self) -> bool:
        """Does one rate take so long (about a millisecond) that solvers should ask for few?

        Its expectations are then wide quadratures, accurate to about 1e-7 and no better.
        """

    @property
    @abstractmethod
    def operations(self) -> int:
        """Scalar operations in one rate; each takes a few nanoseconds."""

    @property
    @abstractmethod
    def free_in_rate(self) -> bool:
        """Whether the rate, and not only the final cost, may read free parameters."""

    @abstractmethod
    def prepare(self) -> None:
        """Begin to make what a solver needs, in the background if that takes long."""

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
        """``total`` steps in a row, and their adjoints; x, w, h and results have a *row* a step.

        Forward: (start, w, h, c, θ) → states and costs after each step. Backward: (costate at the end, x,
        w, h, c, θ), from the last step to the first → costates before each, gradients in w and θ. Neither
        may be called by two threads at once.
        """

    @property
    @abstractmethod
    def hamiltonians(self) -> Hamiltonians:
        """Kernels for the minimum principle."""

    # --- expressions -----------------------------------------------------------------------------

    @property
    @abstractmethod
    def derivatives(self) -> Derivatives:
        """Functions for CasADi expressions."""

    @cached_property
    def step_expansion(self) -> StepExpansion:
        """One step and its derivatives as expressions."""
        return RungeKuttaExpansion(self.stages, *self.derivatives[:3])

    @abstractmethod
    def better_flat(self, steps: int) -> bool:
        """Is an interval of so many steps faster as one flat expression than with calls of the rate?"""
