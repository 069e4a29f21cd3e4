"""Runs on mixtures of data: what was logged of rate, shares and losses, checked, and as intervals."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from optlearn._errors import SpecificationError
from optlearn._signatures import checked
from optlearn.laws._curves import Curve
from optlearn.laws._mixture_law import MixtureRun
from optlearn.laws._readers import SPELLINGS, _column, _named, _pick, read_table

SUM = 5e-3  # by how much logged shares, which are rounded, may miss 1
# Columns such as share_python, val/loss_python or train_loss_python.
_COLUMN = re.compile(r"(?:.*/)?(?:(?:val|valid|validation|eval|test|train)_)?(share|loss)[_/](.+)")
# Rates that differ by less than this share of the largest count as one interval, or as two.
LEVEL, SLOW = 0.04, 0.25
MOST = 6  # domains: of each pair, two numbers are fitted
UNEVEN = 1e-3  # shares that differ by less are one


@checked
@dataclass(frozen=True)
class MixtureCurve:
    """One training run on a mixture of domains.

    Attributes:
        name: shown in tables.
        step: (n,) steps done when a row was logged, increasing.
        rate: (n,) learning rates then.
        shares: domain → (n,) its share of the samples since the row before; they add up to 1.
        losses: domain → (n,) its loss; NaN where it was not logged. Also of targets, which have no share.
    """

    name: str
    step: np.ndarray
    rate: np.ndarray
    shares: Mapping[str, np.ndarray]
    losses: Mapping[str, np.ndarray]

    def __post_init__(self) -> None:
        who = f"curve {self.name!r}"
        if len(self.shares) < 2:
            raise SpecificationError(
                f"{who} must have shares of at least two domains (columns share_NAME), got "
                f"{', '.join(self.shares) or 'none'}"
            )
        if len(self.shares) > MOST:
            raise SpecificationError(
                f"{who} must have shares of at most {MOST} domains, got {len(self.shares)}: join some of "
                "them, adding up their shares"
            )
        without = [name for name in self.shares if name not in self.losses]
        if without:
            raise SpecificationError(
                f"{who}: domain {without[0]!r} has a share but no loss: log a column loss_{without[0]}"
            )
        columns = {"step": self.step, "rate": self.rate}
        columns |= {f"share_{name}": share for name, share in self.shares.items()}
        for what, column in columns.items():
            if not np.all(np.isfinite(column)):
                row = int(np.flatnonzero(~np.isfinite(column))[0])
                at = f"row {row + 1}" if what == "step" else f"step {self.step[row]:g}"
                raise SpecificationError(f"{who}: {what} is missing at {at}; it is needed in every row")
        for name, share in self.shares.items():
            if np.any(share < 0):
                row = int(np.argmin(share))
                raise SpecificationError(
                    f"{who}: shares must be at least 0, but share_{name} is {share[row]:g} at step "
                    f"{self.step[row]:g}"
                )
        total = np.sum(list(self.shares.values()), axis=0)
        worst = int(np.argmax(np.abs(total - 1)))
        if abs(total[worst] - 1) > SUM:
            names = " + ".join(f"share_{name}" for name in self.shares)
            raise SpecificationError(
                f"{who}: shares must add up to 1, but {names} is {total[worst]:g} at step "
                f"{self.step[worst]:g}"
            )
        for name, loss in self.losses.items():
            if np.any(np.isinf(loss)):
                row = int(np.flatnonzero(np.isinf(loss))[0])
                raise SpecificationError(
                    f"{who}: the run diverged: loss_{name} is {loss[row]} at step {self.step[row]:g}; leave "
                    "out what follows, or the run"
                )
            if np.isfinite(loss).sum() < 3:
                raise SpecificationError(
                    f"{who}: loss_{name} must have at least 3 values, got {np.isfinite(loss).sum()}"
                )
            if np.any(loss <= 0):
                row = int(np.flatnonzero(loss <= 0)[0])
                raise SpecificationError(
                    f"{who}: losses must be above 0, but loss_{name} is {loss[row]:g} at step "
                    f"{self.step[row]:g}"
                )
        logged = np.flatnonzero(self.any_loss)
        silent = self.step[-1] - self.step[logged[-1]]
        if silent > 2 * np.max(np.diff(self.step[logged])):
            raise SpecificationError(
                f"{who}: no loss is finite after step {self.step[logged[-1]]:g} of {self.step[-1]:g}; if the "
                "run diverged, leave out what follows, or the run"
            )
        object.__setattr__(self, "shares", {name: share / total for name, share in self.shares.items()})
        _ = self.rates  # which checks steps and rates

    @property
    def any_loss(self) -> np.ndarray:
        """(n,) whether some loss was logged."""
        return np.any([np.isfinite(loss) for loss in self.losses.values()], axis=0)

    @property
    def known(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps and rates of all rows."""
        return self.step, self.rate

    @property
    def steps(self) -> float:
        """The last step."""
        return float(self.step[-1])

    @cached_property
    def rates(self) -> Curve:
        """The same run as one of a single loss: what is asked for is its rates, at the rows with a loss."""
        kept = self.any_loss
        between = (self.step[~kept], self.rate[~kept]) if np.any(~kept) else None
        return Curve(self.name, self.step[kept], self.rate[kept], np.ones(int(kept.sum())), None, between)

    def run(self, warmup: float, steps: float, peak: float) -> tuple[MixtureRun, np.ndarray]:
        """Intervals of constant settings in units of the fit, and those that end where losses were logged."""
        curve = self.rates
        edges = curve.edges(curve.step, warmup)
        lengths, rates, batches = curve.intervals(edges, warmup, 1.0)
        held = np.searchsorted(self.step, edges)  # the row that is logged next has the shares until then
        nodes = np.append(0.0, self.step)
        means = []
        for share in self.shares.values():
            integral = np.append(0.0, np.cumsum(np.diff(nodes) * share))
            total = np.diff(np.interp(edges, nodes, integral))
            at_edge = share[np.minimum(held[1:], len(share) - 1)]
            means.append(np.divide(total, lengths, out=at_edge.copy(), where=lengths > 0))
        shares = np.stack(means, axis=1)
        ends = curve.ends(curve.step, warmup)
        kept = merged(rates, shares, ends)
        total_length = np.add.reduceat(lengths, kept)
        weights = np.where(lengths > 0, lengths, 1e-9)
        weight = np.add.reduceat(weights, kept)

        def mean(column: np.ndarray) -> np.ndarray:
            return np.add.reduceat(column * weights, kept) / weight

        by_domain = np.stack([mean(share) for share in shares.T], axis=1)
        run = (total_length / steps, mean(rates) / peak, mean(batches), by_domain)
        return run, np.searchsorted(kept, ends, side="right") - 1


def merged(rates: np.ndarray, shares: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """First intervals of groups that are one as far as the law can tell; none goes beyond ``ends``."""
    starts: list[int] = []
    first = 0
    for end in ends.tolist():
        block = np.arange(first, end + 1)
        spread = np.ptp(rates[block]) / max(float(rates[block].max()), 1e-300)
        even = np.ptp(shares[block], axis=0).max() < UNEVEN
        if first == 0 or not even or spread > SLOW:
            starts += block.tolist()
        elif spread > LEVEL:
            starts += [first, first + len(block) // 2]
        else:
            starts.append(first)
        first = end + 1
    return np.unique(starts + list(range(first, len(rates))))


# --- reading --------------------------------------------------------------------------------------


def read_mixtures(curves: Any) -> list[MixtureCurve] | None:
    """Curves on mixtures from what a user has, as in ``read_curves``; None if there are no shares in it."""
    if isinstance(curves, Sequence) and any(isinstance(curve, MixtureCurve) for curve in curves):
        return list(curves)
    if isinstance(curves, MixtureCurve):
        return [curves]
    read: list[MixtureCurve] = []
    others: list[str] = []
    for name, source in _named(curves):
        if isinstance(source, MixtureCurve):
            read.append(source)
        elif isinstance(source, Curve):
            others.append(name)
        else:
            table = read_table(name, source)
            if _kinds(table, "share"):
                read += _mixture_runs(name, table)
            else:
                others.append(name)
    if not read:
        return None
    if others:
        raise SpecificationError(f"curve {others[0]!r} must have columns share_NAME, as others have")
    names = [curve.name for curve in read]
    if len(set(names)) < len(names):
        raise SpecificationError(f"curves must have different names, got {', '.join(names)}")
    for curve in read[1:]:
        for what, own, first in (
            ("shares", curve.shares, read[0].shares),
            ("losses", curve.losses, read[0].losses),
        ):
            if set(own) != set(first):
                raise SpecificationError(
                    f"curves must be of the same domains, but {names[0]!r} has {what} of {', '.join(first)} "
                    f"and {curve.name!r} of {', '.join(own)}"
                )
    return read


def _kinds(table: Mapping[str, Any], kind: str) -> dict[str, str]:
    """Domain → column, of all columns of a kind: "share" or "loss"."""
    matches = {column: _COLUMN.fullmatch(column.strip().rpartition(" - ")[2]) for column in table}
    return {m.group(2): column for column, m in matches.items() if m is not None and m.group(1) == kind}


def _mixture_runs(name: str, table: Mapping[str, np.ndarray]) -> Iterator[MixtureCurve]:
    """The runs in a table: one, one for each value of a column run, or one for each prefix RUN - ."""
    of_run = _column(table, "run", "")
    if of_run is not None:
        for run in dict.fromkeys(of_run.tolist()):
            rows = of_run == run
            yield from _mixture_runs(str(run), {c: v[rows] for c, v in table.items() if v is not of_run})
        return
    prefixes = dict.fromkeys(
        c.strip().rpartition(" - ")[0] for c in table if _kinds({c: 0}, "share") or _kinds({c: 0}, "loss")
    )
    for prefix in prefixes:
        run = name if len(prefixes) == 1 else prefix
        own = {c: v for c, v in table.items() if c.strip().rpartition(" - ")[0] in (prefix, "")}
        step, rate = (_pick(run, own, what, prefix) for what in ("step", "rate"))
        for what, column in (("step", step), ("rate", rate)):
            if column is None:
                spellings = " or ".join(SPELLINGS[what][:3])
                raise SpecificationError(
                    f"curve {run!r} must have a column {spellings}, got {', '.join(own)}"
                )
        numbers = {
            kind: {domain: _numbers(run, column, own[column]) for domain, column in _kinds(own, kind).items()}
            for kind in ("share", "loss")
        }
        assert step is not None
        assert rate is not None
        # A logger writes rows of other quantities in between.
        known = np.isfinite(rate) & np.all([np.isfinite(s) for s in numbers["share"].values()], axis=0)
        any_loss = np.any([~np.isnan(x) for x in numbers["loss"].values()], axis=0)
        kept = known | any_loss
        following = np.minimum(np.searchsorted(step[known], step), int(known.sum()) - 1)
        if known.any():  # losses may have rows of their own
            rate = np.where(np.isnan(rate) & any_loss, np.interp(step, step[known], rate[known]), rate)
        yield MixtureCurve(
            run, step[kept], rate[kept],
            {
                domain: (np.where(known, share, share[known][following]) if known.any() else share)[kept]
                for domain, share in numbers["share"].items()
            },
            {domain: loss[kept] for domain, loss in numbers["loss"].items()},
        )  # fmt: skip


def _numbers(run: str, column: str, raw: np.ndarray) -> np.ndarray:
    """Numbers of a column; blanks, and NaN in a frame, are missing, but a written nan is a divergence."""
    if raw.dtype.kind in "US":
        written = [i for i, x in enumerate(raw.tolist()) if x.strip().lower() == "nan"]
        if written:
            raise SpecificationError(
                f"curve {run!r}: the run diverged: {column} is nan in row {written[0] + 1}; leave out what "
                "follows, or the run (a value that was not logged is left blank)"
            )
    try:
        return np.array([float(x) if str(x).strip() else np.nan for x in raw])
    except (TypeError, ValueError) as error:
        raise SpecificationError(f"curve {run!r}: {column} must be numbers: {error}") from error
