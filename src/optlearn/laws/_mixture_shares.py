"""Shares of domains from independently bounded controls: shares add up to one whatever the controls are.

Domains take their shares one after the other, within their bounds l and u and those of the domains after
them; the last takes the rest::

    low_k  = max(l_k, left_k − Σ_{j>k} u_j)
    high_k = min(u_k, left_k − Σ_{j>k} l_j)          left_k = 1 − Σ_{j<k} share_j
    share_k = low_k + part_k (high_k − low_k)

Where ``low`` and ``high`` do not depend on the shares before, the share itself is the control, and budgets
are linear in it; otherwise ``part``, from 0 to 1, is. Every control within its bounds is then feasible, both
for a solver and for the certificate's search for better ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from optlearn._arrays import Array
from optlearn._errors import SpecificationError

# Bounds that are no further apart leave nothing to choose.
EQUAL = 1e-9


class _End(NamedTuple):
    """An end of the range of a share: a number, the rest less a number, or the stricter of both."""

    bound: float
    kept_back: float
    by_bound: bool
    by_left: bool

    def at(self, left: Array, stricter: Any) -> Array:
        if not self.by_left:
            return self.bound
        return stricter(self.bound, left - self.kept_back) if self.by_bound else left - self.kept_back


class _Turn(NamedTuple):
    """How a domain takes its share."""

    name: str
    low: _End
    high: _End

    @property
    def free(self) -> bool:
        """Whether its range is the same whatever the domains before take."""
        return not (self.low.by_left or self.high.by_left)

    @property
    def control(self) -> str | None:
        """The name of its control; None if there is nothing to choose."""
        if not self.free:
            return f"part_{self.name}"
        return None if self.high.bound - self.low.bound <= EQUAL else f"share_{self.name}"


@dataclass(frozen=True)
class ShareOrder:
    """Domains in the order in which they take their shares, with bounds.

    Attributes:
        bounds: (domain, lowest, highest share), including the last one.
    """

    bounds: tuple[tuple[str, float, float], ...]

    @classmethod
    def of(
        cls,
        domains: Sequence[str],
        bounds: Mapping[str, tuple[float, float]],
        scarce: Sequence[str] = (),
    ) -> "ShareOrder":
        """Domains with a highest share come first, then those with a budget, so that most are free.

        Of two domains, the one with a budget comes first: the bounds of both are bounds of one.

        Args:
            domains: all of them.
            bounds: domain → lowest and highest share; by default 0 and 1.
            scarce: domains that have a budget.
        """
        ends = {name: bounds.get(name, (0.0, 1.0)) for name in domains}
        every = [(name, float(low), float(high)) for name, (low, high) in ends.items()]
        if sum(low for _, low, _ in every) > 1 + EQUAL or sum(high for _, _, high in every) < 1 - EQUAL:
            raise SpecificationError(f"share_bounds must leave room for shares that add up to 1, got {ends}")
        every.sort(key=lambda turn: (turn[2] >= 1 and len(every) > 2, turn[0] not in scarce, turn[2] >= 1))
        # The first of the unbound domains takes what the others leave.
        unbound = [turn for turn in every if turn[2] >= 1 and turn[0] not in scarce]
        last = unbound[0] if unbound else every[-1]
        return cls((*(turn for turn in every if turn is not last), last))

    @cached_property
    def turns(self) -> tuple[_Turn, ...]:
        """How each domain but the last takes its share."""
        turns = []
        least, most = 1.0, 1.0  # what may be left
        for k, (name, lower, upper) in enumerate(self.bounds[:-1]):
            after = self.bounds[k + 1 :]
            needed, taken = sum(low for _, low, _ in after), sum(high for _, _, high in after)
            if most - least <= EQUAL:  # what is left is known
                low = _End(max(lower, most - taken), taken, by_bound=True, by_left=False)
                high = _End(min(upper, most - needed), needed, by_bound=True, by_left=False)
            else:
                low = _End(lower, taken, lower > least - taken, lower < most - taken - EQUAL)
                high = _End(upper, needed, upper < most - needed, upper > least - needed + EQUAL)
            turns.append(_Turn(name, low, high))
            ends = [max(lower, least - taken), min(upper, most - needed)]
            least, most = max(least - ends[1], needed), min(most - ends[0], taken)
        return tuple(turns)

    @property
    def last(self) -> str:
        """The domain that takes the rest."""
        return self.bounds[-1][0]

    @property
    def controls(self) -> dict[str, tuple[float, float]]:
        """The controls, with their bounds."""
        return {
            turn.control: (turn.low.bound, turn.high.bound) if turn.free else (0.0, 1.0)
            for turn in self.turns
            if turn.control is not None
        }

    def shares(self, controls: Mapping[str, Array], xp: Any) -> dict[str, Array]:
        """Domain → its share, from the values of the controls."""
        left, shares = 1.0, {}
        for turn in self.turns:
            low = turn.low.at(left, xp.maximum)
            if turn.free:
                shares[turn.name] = low if turn.control is None else controls[turn.control]
            else:
                high = turn.high.at(left, xp.minimum)
                shares[turn.name] = low + controls[f"part_{turn.name}"] * (high - low)
            left = left - shares[turn.name]
        return {**shares, self.last: left}

    def near(self, wanted: Mapping[str, float]) -> dict[str, float]:
        """Values of the controls whose shares are as near to those wanted as bounds allow."""
        left, values = 1.0, {}
        for turn in self.turns:
            low, high = turn.low.at(left, max), turn.high.at(left, min)
            share = min(max(wanted[turn.name], low), high)
            if turn.control is not None:
                values[turn.control] = share if turn.free else (share - low) / max(high - low, EQUAL)
            left = left - share
        return values
