"""Fit the law to loss curves: units, expectations, and least squares weighted by the noise."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from optlearn._arguments import Arguments
from optlearn._errors import SpecificationError, warn
from optlearn._signatures import checked
from optlearn.laws._curves import Curve, LawWarning, check_prior_unit
from optlearn.laws._expectations import FALLEN, LOSSES, expectations
from optlearn.laws._fitted_law import LawFit
from optlearn.laws._law import fixed_parameters
from optlearn.laws._least_squares import Data, Fitter, Scale
from optlearn.laws._mixture_curves import read_mixtures
from optlearn.laws._mixture_fit import fit_mixture
from optlearn.laws._noise import OUTLYING, robust_size
from optlearn.laws._readers import read_curves

Prior = LawFit | str | Path

# No law is more accurate than this share of the loss. Curves that are less noisy count, beside what runs of
# the same family say, as if they had this noise.
LAW_ERROR = 2e-3


@checked
def fit(
    curves: Any,
    *,
    warmup: float | None = None,
    peak: float | None = None,
    law: str = "general",
    fixed: Mapping[str, float] | None = None,
    prior: Prior | Sequence[Prior] | None = None,
    sizes: Mapping[str, float] | None = None,
    same_unit: bool = False,
    rates: Mapping[str, Any] | None = None,
    first_step: float | None = None,
    starts: int = 3,
    seed: int = 0,
    alone: bool = False,
) -> LawFit:
    """Fit a law to loss curves of one network, or of networks of several sizes.

    Args:
        curves: a folder, a list of files, or a mapping from names to files, pandas frames or mappings of
            columns (step, lr, loss; and batch, if it varies). CSV, exports of Weights & Biases, TensorBoard
            events, logs of Hugging Face and Lightning, plain text.
        warmup: steps of a linear warm-up from 0, where the logs begin after it (default: none).
        peak: learning rate that counts as 1 (default: the highest).
        law: "general"; or "multi-power", "sgd", "momentum": known laws, as special cases.
        fixed: parameters to keep, by name.
        prior: fits of smaller networks, of shorter runs or of an earlier round, or folders of their logs;
            their exponents, paces and noise are expected here, give or take the spread within a family of
            networks. A single curve is then enough.
        sizes: parameters of the network of each curve, by its name; floor and amplitude are then powers of
            that number.
        same_unit: losses are known to be of one kind and in one unit, however different they look.
        rates: for logs without rates, by name of the run: a rate for every step, or a function of steps done.
        first_step: losses before it are left out (default: those in the warm-up or in the first 5 % of the
            shortest run, which follow no law).
        starts: first guesses to optimise.
        seed: of the random starts.
        alone: fit a single curve without a prior: its noise, which it does not show, is then taken to be that
            of most networks, within a factor of three.
    """
    check = Arguments("fit")
    check.number("warmup", warmup or 0.0, 0.0)
    check.count("starts", starts)
    check.count("seed", seed, 0)
    if peak is not None:
        check.number("peak", peak, 0.0, open_below=True)
    if first_step is not None:
        check.number("first_step", first_step, 0.0)
    known = as_fits(prior, warmup=warmup, same_unit=same_unit, seed=seed)
    if (mixtures := read_mixtures(curves)) is not None:
        special = None if law == "general" else law
        if rates:
            check.fail("rates", list(rates), "must be left out: logs of mixtures must have a column lr")
        for name, value in (("prior", prior), ("sizes", sizes), ("law", special)):
            if value:
                check.fail(name, value, "must be left out: a mixture law is fitted to its own curves")
        return fit_mixture(mixtures, warmup or 0.0, peak, fixed, first_step, starts, seed)
    read = read_curves(curves, same_unit or sizes is not None, rates)
    if len(read) < 2 and not known and not alone:
        raise SpecificationError(
            f"curves must be at least 2 with different rates, got 1 ({read[0].name!r}): with a single one, "
            "what the rate does (noise, speed, shape, and the powers) cannot be told from what time does. "
            "Log a second run, such as one whose rate drops halfway; or give fits of other runs, prior=…; or "
            "say alone=True, for what most networks have in common"
        )
    if not same_unit and sizes is None:
        for each in known:
            check_prior_unit(read[0], each.data.curves[0])
    highest = max(float(curve.known[1].max()) for curve in read)
    if highest <= 0:
        raise SpecificationError("curves: rates must not all be 0")
    name, asked = ("warmup", warmup) if first_step is None else ("first_step", first_step)
    if short := [curve for curve in read if curve.from_step(asked or 0.0).sum() < 3]:
        allowed = f"must leave at least 3 losses of every curve, but {short[0].name!r} ends at step"
        check.fail(name, asked, f"{allowed} {short[0].steps:g}")
    if first_step is None:
        first_step = max(
            [warmup or 0.0, *(curve.rise for curve in read), 0.05 * min(curve.steps for curve in read)]
        )
    after = np.concatenate([curve.rate[curve.from_step(first_step)] for curve in read])
    if not known and not alone and len(after) and np.ptp(after) < 0.01 * highest:
        raise SpecificationError(
            f"curves must differ in their rates, but all are {highest:g} from step {first_step:g} on: noise, "
            "speed, shape and the powers cannot be identified"
        )
    logged_from = max((float(c.known[0][0]) for c in read if not c.rise), default=0.0)
    if warmup is None and logged_from > 0.02 * max(curve.steps for curve in read):
        warn(
            f"the logs begin at step {logged_from:g}; before it the first rate is taken to have held. If "
            "there was a warm-up, give its steps, warmup=…; if there was none, warmup=0",
            LawWarning,
        )
    batches = [curve.batch for curve in read if curve.batch is not None]
    # A batch size that was used, even if half of the logs have a smaller one and half a larger one.
    usual_batch = float(np.quantile(np.concatenate(batches), 0.5, method="lower")) if batches else 1.0
    scale = Scale(
        float(peak or highest),
        max(curve.steps for curve in read),
        usual_batch,
        max((sizes or {"": 1.0}).values()),
    )
    data = Data(read, scale, float(warmup or 0.0), float(first_step), _sizes(read, sizes))
    last = float(np.median([np.median(curve.loss[-max(len(curve.loss) // 10, 1) :]) for curve in read]))
    decays = len(read) == 1 or np.sum(after <= FALLEN * highest) >= LOSSES
    expected = expectations(known, scale, last if len(read) == 1 else None, decays=bool(decays))
    constants = fixed_parameters(law, fixed, sizes is not None, data.several_batches)
    fitter = Fitter(data, constants, expected)
    first = fitter.from_starts(starts, seed)
    # The size of the noise defines outliers, and the weight of curves beside the expectations. Correlated
    # neighbours, as where the law misses the curves, count for less than as many independent points.
    fitter = fitter.informed(OUTLYING * robust_size(fitter.data.residuals(first.parameters[None])[0]))
    least = LAW_ERROR if known or alone else 0.0
    counts = max(least, LawFit(fitter, first, law, known).effective_noise)
    fitter = fitter.informed(fitter.outlier, counts)
    informed = LawFit(fitter, fitter.from_start(first.parameters), law, known)
    for message in informed.doubts:
        warn(message, LawWarning)
    return informed


def as_fits(prior: Any, **options: Any) -> tuple[LawFit, ...]:
    """Fits of other runs; logs are fitted with these options of ``fit``."""
    one = prior is None or isinstance(prior, LawFit | str | Path) or not isinstance(prior, Iterable)
    several = () if prior is None else (prior,) if one else tuple(prior)
    allowed = "must be a fit of laws.fit to curves of one loss, a folder of such curves, or several"
    for each in several:
        if isinstance(each, str | Path) and not (str(each) and Path(each).exists()):
            Arguments("fit").fail("prior", str(each), f"{allowed}; there is no such file or folder")
    fits = tuple(fit(each, **options) if isinstance(each, str | Path) else each for each in several)
    if not all(type(known) is LawFit for known in fits):  # a law of mixtures is a LawFit too
        kinds = [type(known).__name__ for known in fits]
        Arguments("fit").fail("prior", kinds, allowed)
    return fits


def _sizes(curves: Sequence[Curve], sizes: Mapping[str, float] | None) -> np.ndarray | None:
    """(curves,) sizes in units of the largest."""
    if sizes is None:
        return None
    missing = [curve.name for curve in curves if curve.name not in sizes]
    if missing:
        raise SpecificationError(
            f"sizes must hold a number of parameters for every curve; {missing} have none"
        )
    numbers = np.array([float(sizes[curve.name]) for curve in curves])
    if not np.all(np.isfinite(numbers) & (numbers > 0)):
        raise SpecificationError(f"sizes must be finite and above 0, got {dict(sizes)}")
    if np.ptp(numbers) == 0:
        raise SpecificationError(f"sizes must differ, but all are {numbers[0]:g}: leave them out")
    return numbers / max(sizes.values())
