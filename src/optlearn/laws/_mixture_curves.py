"""Runs on mixtures of data: logged rates, shares and losses, their checks, and intervals."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from optlearn._errors import SpecificationError
from optlearn._signatures import checked
from optlearn.laws._curves import BITS, Curve, best_and_last, check_steps, real
from optlearn.laws._mixture_law import MixtureRun
from optlearn.laws._readers import BLANKS, FEW, SPELLINGS, _column, _pick, named_sources, read_table

SUM = 5e-3  # tolerance of the sum of logged shares, which are rounded
# Columns such as share_python, val/loss_python or train_loss_python, but not the extremes that Weights &
# Biases exports, the scale of mixed precision, or Lightning's two forms of a single loss.
_COLUMN = re.compile(
    r"(?:.*/)?(?:(?:val|valid|validation|eval|test|train)_)?(share|loss)[_/]"
    r"(?!(?:scale|step|epoch)$)(.+)(?<!__MIN)(?<!__MAX)"
)
_VALIDATION = re.compile(r"(?:.*/)?(?:val|valid|validation|eval|test)[/_]")
# Intervals whose rates differ by less than this share of the largest are merged into one, or into two.
LEVEL, SLOW = 0.04, 0.25
MOST = 6  # domains; two numbers are fitted for each pair
UNEVEN = 1e-3  # shares that differ by less count as equal


@checked
@dataclass(frozen=True)
class MixtureCurve:
    """One training run on a mixture of domains.

    Attributes:
        name: shown in tables.
        step: (n,) steps done when a row was logged, increasing.
        rate: (n,) learning rates then.
        shares: domain → (n,) its share of the samples since the row before; they add up to 1.
        losses: domain → (n,) its loss; NaN where it was not logged. Includes targets, which have no share.
    """

    name: str
    step: np.ndarray
    rate: np.ndarray
    shares: Mapping[str, np.ndarray]
    losses: Mapping[str, np.ndarray]

    def __post_init__(self) -> None:
        who = f"curve {self.name!r}"
        for what in ("step", "rate"):
            object.__setattr__(self, what, real(who, what, getattr(self, what)))
        for what, own in (("share", self.shares), ("loss", self.losses)):
            by_domain = {name: real(who, f"{what}_{name}", column) for name, column in own.items()}
            object.__setattr__(self, "shares" if what == "share" else "losses", by_domain)
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
        for what, column in [*columns.items(), *((f"loss_{name}", x) for name, x in self.losses.items())]:
            if np.ndim(column) != 1 or len(column) != len(self.step):
                raise SpecificationError(
                    f"{who}: {what} must be one number for each step, got shape {np.shape(column)} for steps "
                    f"of shape {np.shape(self.step)}"
                )
        if not len(self.step):
            raise SpecificationError(f"{who} must have rows, got none")
        for what, column in columns.items():
            if not np.all(np.isfinite(column)):
                row = int(np.flatnonzero(~np.isfinite(column))[0])
                at = f"row {row + 1}" if what == "step" else f"step {self.step[row]:g}"
                raise SpecificationError(f"{who}: {what} is missing at {at}; it is needed in every row")
        # Settings and losses may have separate rows at one step.
        check_steps(who, self.step, np.diff(self.step) < 0)
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
            percent = abs(total[worst] / 100 - 1) <= SUM
            raise SpecificationError(
                f"{who}: shares must add up to 1, but {names} is {total[worst]:g} at step "
                f"{self.step[worst]:g}{': divide percent by 100' if percent else ''}"
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
        # The loss of whatever is shown falls: no order of data raises all losses.
        ends = {
            name: best_and_last(x[np.isfinite(x)]) for name, x in self.losses.items() if name in self.shares
        }
        if all(last > BITS * best for best, last in ends.values()):
            rises = ", ".join(
                f"loss_{name} was {best:.4g} and ends at {last:.4g}" for name, (best, last) in ends.items()
            )
            raise SpecificationError(
                f"{who}: the run diverged: {rises}; leave out what follows their lowest values, or the run"
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
        """The run as a curve of a single loss, for its rates at the rows with a loss."""
        kept = self.any_loss
        between = (self.step[~kept], self.rate[~kept]) if np.any(~kept) else None
        return Curve(self.name, self.step[kept], self.rate[kept], np.ones(int(kept.sum())), None, between)

    def run(
        self, domains: Sequence[str], warmup: float, steps: float, peak: float
    ) -> tuple[MixtureRun, np.ndarray]:
        """Intervals of constant settings in units of the fit, and which of them end at logged losses.

        Shares are in the order of ``domains``, whatever the order of the columns.
        """
        curve = self.rates
        edges = curve.edges(curve.step, warmup)
        lengths, rates, batches = curve.intervals(edges, warmup, 1.0)
        held = np.searchsorted(self.step, edges)  # the next logged row has the shares up to then
        nodes = np.append(0.0, self.step)
        means = []
        for share in (self.shares[name] for name in domains):
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
    """First intervals of groups that the law cannot distinguish; no group extends beyond one of ``ends``."""
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
    """Curves on mixtures from files or tables, as in ``read_curves``; None if they have no shares.

    If a domain has both kinds of loss, validation losses are read, unless a run has fewer than 8 of them.
    """
    runs = list(_runs(curves))
    with_shares = [
        isinstance(run, MixtureCurve) or (isinstance(run, Mapping) and bool(_columns(run, "share")))
        for _, run in runs
    ]
    if not any(with_shares):
        return None
    if not all(with_shares):
        without = runs[with_shares.index(False)][0]
        raise SpecificationError(f"curve {without!r} must have columns share_NAME, as others have")
    tables = [(name, run) for name, run in runs if isinstance(run, Mapping)]
    validated = _validated(tables)
    read = [
        run if isinstance(run, MixtureCurve) else _mixture_run(name, run, validated) for name, run in runs
    ]
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
    _check_batches(tables)
    return read


def _runs(curves: Any) -> Iterator[tuple[str, Any]]:
    """Names and runs: curves that were read before, or tables of one run each."""
    if isinstance(curves, MixtureCurve):
        yield curves.name, curves
    elif isinstance(curves, Sequence) and not isinstance(curves, str):
        for source in curves:
            yield from _runs(source)
    else:
        for name, source in named_sources(curves):
            if isinstance(source, MixtureCurve | Curve):
                yield source.name, source
            else:
                yield from _split(name, read_table(name, source))


def _split(name: str, table: Mapping[str, np.ndarray]) -> Iterator[tuple[str, Mapping[str, np.ndarray]]]:
    """The runs in a table: one, one for each value of a column run, or one for each prefix RUN - ."""
    of_run = _column(table, "run", "")
    if of_run is not None:
        for run in dict.fromkeys(of_run.tolist()):
            rows = of_run == run
            yield from _split(str(run), {c: v[rows] for c, v in table.items() if v is not of_run})
        return
    parts = {column: column.strip().rpartition(" - ") for column in table}
    prefixes = dict.fromkeys(prefix for prefix, _, end in parts.values() if _COLUMN.fullmatch(end))
    for prefix in prefixes or [""]:
        both = [{parts[c][2]: v for c, v in table.items() if parts[c][0] == p} for p in ("", prefix)]
        yield name if len(prefixes) < 2 else prefix, both[0] | both[1]


def _columns(table: Mapping[str, Any], kind: str) -> dict[str, dict[bool, str]]:
    """Domain → whether it is a validation column → column, for a kind: "share" or "loss"."""
    by_domain: dict[str, dict[bool, str]] = {}
    for column in table:
        match = _COLUMN.fullmatch(column.strip())
        if match is not None and match.group(1) == kind:
            by_domain.setdefault(match.group(2), {})[_VALIDATION.match(column.strip()) is not None] = column
    return by_domain


def _validated(tables: Sequence[tuple[str, Mapping[str, np.ndarray]]]) -> set[str]:
    """Domains whose validation losses are read: those with enough of them in all runs."""
    validated: list[set[str]] = []
    for run, table in tables:
        columns = {domain: by.get(True) for domain, by in _columns(table, "loss").items()}
        validated.append(
            {d for d, c in columns.items() if c and np.isfinite(_numbers(run, c, table[c])).sum() >= FEW}
        )
    return set.intersection(*validated) if validated else set()


def _mixture_run(run: str, table: Mapping[str, np.ndarray], validated: Collection[str]) -> MixtureCurve:
    step, rate = (_pick(run, table, what, "") for what in ("step", "rate"))
    for what, column in (("step", step), ("rate", rate)):
        if column is None:
            spellings = " or ".join(SPELLINGS[what][:3])
            raise SpecificationError(f"curve {run!r} must have a column {spellings}, got {', '.join(table)}")
    numbers = {}
    for kind in ("share", "loss"):
        chosen = {d: by.get(d in validated, [*by.values()][-1]) for d, by in _columns(table, kind).items()}
        numbers[kind] = {domain: _numbers(run, column, table[column]) for domain, column in chosen.items()}
    assert step is not None
    assert rate is not None
    step, (rate, *columns) = _one_row_a_step(step, [rate, *(c for k in numbers.values() for c in k.values())])
    numbers = {kind: {domain: columns.pop(0) for domain in by_domain} for kind, by_domain in numbers.items()}
    # Loggers also write rows of other quantities.
    known = np.isfinite(rate) & np.all([np.isfinite(s) for s in numbers["share"].values()], axis=0)
    any_loss = np.any([~np.isnan(x) for x in numbers["loss"].values()], axis=0)
    kept = known | any_loss
    following = np.minimum(np.searchsorted(step[known], step), int(known.sum()) - 1)
    if known.any():  # losses may have separate rows
        rate = np.where(np.isnan(rate) & any_loss, np.interp(step, step[known], rate[known]), rate)
    return MixtureCurve(
        run, step[kept], rate[kept],
        {
            domain: (np.where(known, share, share[known][following]) if known.any() else share)[kept]
            for domain, share in numbers["share"].items()
        },
        {domain: loss[kept] for domain, loss in numbers["loss"].items()},
    )  # fmt: skip


def _one_row_a_step(step: np.ndarray, columns: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Neighbouring rows of one step merged into one: trainers log each validation set in a separate row.

    Rows that contradict each other are kept, and rejected later.
    """
    if not len(step):
        return step, columns
    first = np.flatnonzero(np.append(True, np.diff(step) != 0))
    highest = [np.fmax.reduceat(column, first) for column in columns]
    lowest = [np.fmin.reduceat(column, first) for column in columns]
    if any(np.any(low < high) for low, high in zip(lowest, highest, strict=True)):
        return step, columns
    return step[first], highest


def _check_batches(tables: Sequence[tuple[str, Mapping[str, np.ndarray]]]) -> None:
    """Raise if batch sizes differ: shares and budgets count samples by steps."""
    first: tuple[str, float] | None = None
    for run, table in tables:
        batch = _pick(run, table, "batch", "")
        for size in () if batch is None else np.unique(batch[np.isfinite(batch)]).tolist():
            first = first or (run, size)
            if size != first[1]:
                raise SpecificationError(
                    f"curves on mixtures must be of one batch size, but {first[0]!r} has {first[1]:g} and "
                    f"{run!r} has {size:g}"
                )


def _numbers(run: str, column: str, raw: np.ndarray) -> np.ndarray:
    """Numbers of a column; blanks, and NaN in a frame, are missing; a written nan means divergence."""
    if raw.dtype.kind in "US":
        written = [i for i, x in enumerate(raw.tolist()) if x.strip().lower() == "nan"]
        if written:
            raise SpecificationError(
                f"curve {run!r}: the run diverged: {column} is nan in row {written[0] + 1}; leave out what "
                "follows, or the run (a value that was not logged is left blank)"
            )
    try:
        return np.array([np.nan if str(x).strip() in (*BLANKS, "None") else float(x) for x in raw])
    except (TypeError, ValueError) as error:
        raise SpecificationError(f"curve {run!r}: {column} must be numbers: {error}") from error
