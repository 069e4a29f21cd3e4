"""Which of several unfinished runs will be best: successive halving by forecast."""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from optlearn._arguments import Arguments
from optlearn._errors import SpecificationError, warn
from optlearn._signatures import checked
from optlearn.laws._curves import Curve, LawWarning
from optlearn.laws._fit import as_fits
from optlearn.laws._forecast import Final, forecast, planned_rates
from optlearn.laws._readers import named_sources, read_curves, read_table, runs_of

DRAWN = 4000  # final losses drawn of each run, to count how often it is the best


class Prospect(NamedTuple):
    """An unfinished run: its final loss (NaN: no forecast), and the probability that it is the lowest."""

    name: str
    final: Final
    best: float


@checked
def promising(
    runs: Any,
    steps: int,
    *,
    prior: Any = None,
    plans: Mapping[str, Any] | None = None,
    warmup: float | None = None,
    same_unit: bool = False,
    rates: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> list[Prospect]:
    """Unfinished runs, the most promising first; to halve their number, continue the first half.

    A finished run counts with its last loss. A run that cannot be forecast, because it diverged or is too
    short, say, comes last, with a warning that says why.

    Args:
        runs: of networks of any kind with comparable losses, each run so far, as in ``fit``.
        steps: of the whole training.
        prior: fits of other runs, as in ``fit``.
        plans: (steps,) rates of the runs, or schedules, by name (default: the best decay of each).
        warmup: steps of a linear warm-up that was not logged.
        same_unit: losses are known to be in one unit, however different they look.
        rates: for logs without rates, by name of the run, as in ``fit``.
        seed: of the draws.
    """
    check = Arguments("promising")
    check.count("steps", steps)
    check.count("seed", seed, 0)
    read, unknown = _read(runs, same_unit, rates)
    names = [*(run.name for run in read), *unknown]
    if len(names) < 2:
        check.fail("runs", names, "must be at least 2")
    plans = plans or {}
    if strange := set(plans) - set(names):
        raise SpecificationError(f"plans must be of runs, got {', '.join(sorted(strange))}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LawWarning)  # the forecast says it again
        for run in read:
            planned_rates(plans.get(run.name), steps, run)
    level, finals, fits = 0.95, {}, as_fits(prior, warmup=warmup, same_unit=same_unit, seed=seed)
    for run in read:
        plan, last = plans.get(run.name), float(run.loss[-1])
        if run.done >= steps:
            finals[run.name] = Final(last, last, last)
            continue
        try:
            prediction = forecast(
                run, steps, prior=fits, plan=plan, warmup=warmup, same_unit=same_unit, level=level, seed=seed
            )
        except SpecificationError as error:
            unknown[run.name] = error
        else:
            finals[run.name] = prediction.finals["wsd" if plan is None else "planned"]
    if not finals:
        raise next(iter(unknown.values()))
    for name, why in unknown.items():
        warn(f"no forecast of {name!r}, which comes last: {why}", LawWarning)
    # Errors of runs are taken as independent, which overstates the uncertainty of the order: much of it, such
    # as how noise relaxes, is common to all runs.
    normal = np.random.default_rng(seed).standard_normal((DRAWN, len(finals)))
    reach = norm.ppf((1 + level) / 2)
    middle, low, high = np.array(list(finals.values())).T
    drawn = middle + normal * np.where(normal > 0, high - middle, middle - low) / reach
    share = np.bincount(drawn.argmin(axis=1), minlength=len(finals)) / DRAWN
    prospects = [
        Prospect(name, final, float(best)) for (name, final), best in zip(finals.items(), share, strict=True)
    ]
    others = [Prospect(name, Final(np.nan, np.nan, np.nan), 0.0) for name in unknown]
    return sorted(prospects, key=lambda prospect: prospect.final.loss) + others


def _read(
    runs: Any, same_unit: bool, rates: Mapping[str, Any] | None
) -> tuple[list[Curve], dict[str, SpecificationError]]:
    """Runs, and the errors of those that cannot be read, by name."""
    good, wrong = [], {}
    for name, run in _each(runs):
        try:
            read_curves({name: run}, True, rates)
            good.append({name: run})
        except SpecificationError as error:
            wrong[name] = error
    if not good:
        raise next(iter(wrong.values()), SpecificationError(f"runs must be at least 2, got {runs!r}"))
    try:
        return read_curves(good, same_unit, rates), wrong
    except SpecificationError as error:  # networks of any kind may begin with different losses
        read = read_curves(good, True, rates)
        warn(str(error), LawWarning)
        return read, wrong


def _each(runs: Any) -> Iterator[tuple[str, Any]]:
    """Names and runs; a file may contain several."""
    for name, source in named_sources(runs):
        if isinstance(source, Curve):
            yield source.name, source
            continue
        for part in runs_of(name, read_table(name, source)):
            own = f"{part.prefix} - "
            columns = [c for c in part.table if " - " not in c or c.strip().startswith(own)]
            yield part.run, {column: part.table[column] for column in columns}
