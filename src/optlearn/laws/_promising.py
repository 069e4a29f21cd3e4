"""Which of several unfinished runs will be best: successive halving by forecast."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from optlearn._arguments import Arguments
from optlearn._errors import SpecificationError
from optlearn._signatures import checked
from optlearn.laws._fit import as_fits
from optlearn.laws._forecast import Final, forecast
from optlearn.laws._readers import read_curves

DRAWN = 4000  # final losses of each run, from which it is counted how often it is best


class Prospect(NamedTuple):
    """An unfinished run: its final loss, and the probability that it is the lowest of all."""

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
    seed: int = 0,
) -> list[Prospect]:
    """Unfinished runs, the most promising first; to halve their number, go on with the first half.

    Args:
        runs: of networks of any kind, whose losses can be compared, each so far: as in ``fit``.
        steps: of the whole training.
        prior: fits of other runs, as in ``fit``.
        plans: (steps,) rates of the runs, by name (default: the decay that is best for each).
        warmup: steps of a linear warm-up that was not logged.
        same_unit: losses are in one unit, however different they look.
        seed: of the draws.
    """
    read = read_curves(runs, same_unit)
    if len(read) < 2:
        Arguments("promising").fail("runs", [run.name for run in read], "must be at least 2")
    unknown = set(plans or {}) - {run.name for run in read}
    if unknown:
        raise SpecificationError(f"plans must be of runs, got {', '.join(sorted(unknown))}")
    level, finals, fits = 0.95, [], as_fits(prior, warmup=warmup, same_unit=same_unit, seed=seed)
    for run in read:
        plan = (plans or {}).get(run.name)
        found = forecast(
            run, steps, prior=fits, plan=plan, warmup=warmup, same_unit=same_unit, level=level, seed=seed
        )
        finals.append(found.finals["wsd" if plan is None else "planned"])
    # Errors of runs are taken as independent, which leaves the order more open than it is: much of what is
    # not known, such as how noise relaxes, is the same for all.
    normal = np.random.default_rng(seed).standard_normal((DRAWN, len(read)))
    reach = norm.ppf((1 + level) / 2)
    middle, low, high = np.array(finals).T
    drawn = middle + normal * np.where(normal > 0, high - middle, middle - low) / reach
    share = np.bincount(drawn.argmin(axis=1), minlength=len(read)) / DRAWN
    prospects = [
        Prospect(run.name, final, float(best)) for run, final, best in zip(read, finals, share, strict=True)
    ]
    return sorted(prospects, key=lambda prospect: prospect.final.loss)
