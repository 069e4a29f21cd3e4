"""Several costs at once: the worst of an ensemble, or one cost with limits on others, all by weights.

With costs J (K,), the maximum of p·J over a set of weights p is minimised. For the M members of an ensemble
these add up to 1, each at most its cap: caps of 1 give the worst case, caps of weight/(1 − β) the mean of the
worst share 1 − β. A limit J ≤ b has a weight ≥ 0 on J − b, and J = b one of either sign. So every solver
needs only weighted sums of costs, and the maximum is never smoothed. Direct methods minimise an epigraph
variable, whose multipliers are the weights; indirect methods search for the weights themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optlearn._errors import SpecificationError
from optlearn._signatures import checked


@checked
@dataclass(frozen=True)
class CVaR:
    """Conditional value at risk: the mean over the worst part of an ensemble.

    Args:
        level: the share of the ensemble that is ignored, from 0 (the plain mean) to 1 (only the worst
            member).
    """

    level: float

    def __post_init__(self) -> None:
        if not 0 <= self.level <= 1:
            raise SpecificationError(f"CVaR: level must be from 0 to 1, got {self.level!r}")

    def caps(self, weights: np.ndarray) -> np.ndarray:
        """(M,) largest weight of each member, from its weight in the mean."""
        if self.level == 1:
            return np.ones(len(weights))
        return np.minimum(1.0, weights / (1 - self.level))


@dataclass(frozen=True)
class Fixed:
    """A weighted sum."""

    p: np.ndarray

    def value(self, J: np.ndarray) -> float:
        """p·J."""
        return float(self.p @ J)

    def weights(self, J: np.ndarray) -> np.ndarray:
        """The weights p."""
        del J
        return self.p


@dataclass(frozen=True)
class Weighing:
    """The largest weighted sum of the members' costs; limits are not part of its value."""

    caps: tuple[float, ...]  # (M,) largest weight of each member
    limits: tuple[float, ...] = ()  # (L,) upper limits of the costs that follow the members' costs
    equal: tuple[bool, ...] = ()  # (L,) which of these must be met exactly
    sizes: tuple[float, ...] = ()  # (L,) scales of violations

    def along(self, limits: Sequence[float], sizes: Sequence[float]) -> "Weighing":
        """With further limits, on values along training, which follow the costs."""
        return Weighing(
            self.caps,
            (*self.limits, *limits),
            (*self.equal, *[False] * len(limits)),
            (*self.sizes, *sizes),
        )

    @property
    def members(self) -> int:
        """The number M of members."""
        return len(self.caps)

    @property
    def size(self) -> int:
        """K = M + L."""
        return len(self.caps) + len(self.limits)

    def value(self, J: np.ndarray) -> float:
        """The cost of the members."""
        return float(self.weights(J) @ J)

    def weights(self, J: np.ndarray) -> np.ndarray:
        """(K,) the worst-case weights of the members, and zeros for limits."""
        p, left = np.zeros(len(J)), 1.0
        for i in np.argsort(-J[: self.members], kind="stable"):
            p[i] = min(self.caps[i], left)
            left -= p[i]
        return p

    def broken(self, J: np.ndarray) -> np.ndarray:
        """(L,) violations of limits; 0 where they are kept."""
        over = J[self.members :] - np.array(self.limits)
        return np.where(self.equal, np.abs(over), np.maximum(over, 0.0))

    def excess(self, J: np.ndarray) -> float:
        """The largest violation of a limit, as a share of its size; 0 if all are kept."""
        return float((self.broken(J) / np.array(self.sizes)).max(initial=0.0))

    def over(self, J: np.ndarray) -> np.ndarray:
        """(K,) the costs minus limits."""
        return np.asarray(J - np.concatenate([np.zeros(self.members), self.limits]))

    def slack(self, J: np.ndarray, p: np.ndarray) -> float:
        """The difference value − Σ p (J − limit); 0 where p are the optimal weights for J."""
        return self.value(J) - float(p @ self.over(J))

    def nearest(self, y: np.ndarray) -> np.ndarray:
        """(K,) the admissible weights nearest to y (K,)."""
        members, caps = y[: self.members], np.array(self.caps)
        # Σ clip(members − τ, 0, caps) falls piecewise linearly in τ, with a kink where a member meets a
        # bound.
        bends = np.sort(np.concatenate([members, members - caps]))
        sums = np.clip(members[None] - bends[:, None], 0.0, caps[None]).sum(axis=1)
        tau = np.interp(-1.0, -sums, bends)
        limits = y[self.members :]
        limits = np.where(self.equal, limits, np.maximum(limits, 0.0))
        return np.concatenate([np.clip(members - tau, 0.0, caps), limits])


@dataclass(frozen=True)
class Proximal:
    """The method of multipliers: the largest p'·(J − limits) − |p' − p|²/2ρ over admissible weights p'.

    It is smooth in J, with gradient p', and where p' = p it has the value and the minimisers of the exact
    cost: so p moves to p' after every minimisation, until it stays.
    """

    weighing: Weighing  # admissible weights
    p: np.ndarray  # (K,) weights so far
    rho: np.ndarray  # (K,) change of the weights per unit of cost

    def value(self, J: np.ndarray) -> float:
        """The largest value."""
        q = self.weights(J)
        return float(q @ self.weighing.over(J) - ((q - self.p) ** 2 / (2 * self.rho)).sum())

    def weights(self, J: np.ndarray) -> np.ndarray:
        """(K,) p'."""
        return self.weighing.nearest(self.p + self.rho * self.weighing.over(J))


@dataclass(frozen=True)
class Penalised:
    """The exact cost plus a price per unit of violation: for searches among a few values.

    If prices exceed the multipliers, no schedule that breaks a limit is better than the best that keeps it.
    """

    weighing: Weighing
    prices: np.ndarray  # (L,)

    def value(self, J: np.ndarray) -> float:
        """The cost with its penalty."""
        return self.weighing.value(J) + float(self.prices @ self.weighing.broken(J))

    def weights(self, J: np.ndarray) -> np.ndarray:
        """(K,) its gradient."""
        p = self.weighing.weights(J)
        over = self.weighing.over(J)[self.weighing.members :]
        p[self.weighing.members :] = self.prices * np.sign(over) * (self.weighing.broken(J) > 0)
        return p


@dataclass(frozen=True)
class Violation:
    """Only the violation of limits: Σ (violation/size)²/2."""

    weighing: Weighing

    def value(self, J: np.ndarray) -> float:
        """The sum; 0 if all limits hold."""
        return float(((self.weighing.broken(J) / np.array(self.weighing.sizes)) ** 2).sum() / 2)

    def weights(self, J: np.ndarray) -> np.ndarray:
        """(K,) its derivatives by the costs."""
        over = self.weighing.over(J)[self.weighing.members :]
        slopes = np.sign(over) * self.weighing.broken(J) / np.array(self.weighing.sizes) ** 2
        return np.concatenate([np.zeros(self.weighing.members), slopes])
