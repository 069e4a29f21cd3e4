"""What fits of other runs say about a new one: expectations, with spreads.

Smaller networks, shorter runs and earlier rounds have roughly the same exponents, paces and noise as the new
run. Their floor and amplitude are no evidence. Rates are in units of each fit's own peak, since larger
networks are trained with smaller rates; paces and progress are counted in steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from optlearn.laws._law import ONE_BATCH, PARAMETERS, Parameter

if TYPE_CHECKING:
    from optlearn.laws._fitted_law import LawFit
    from optlearn.laws._least_squares import Scale

# Standard deviations, between networks of one family, of the fitted numbers (logarithms where a parameter is
# above 0).
DIFFER: Mapping[str, float] = {
    "exponent": 0.1,
    "head_start": 1.0,
    "progress_power": 0.05,
    "noise": 0.2,
    "speed": 0.25,
    "shape": 0.1,
    "noise_power": 0.05,
    "relaxation_power": 0.05,
    "noise_fall": 0.03,
    "critical_batch": 0.5,
    "batch_power": 0.1,
}


# In a single run the pace is confounded with the head start, so it is held half as tightly.
ALONE_DIFFER = {**DIFFER, "speed": 2 * DIFFER["speed"]}

# Noise relaxes in this many steps at the peak rate, however long a run is: 15 to 150 in fits of the public
# curves of language models. In units of a run, which the law uses, long runs relax faster.
RELAXED = 80.0

# Noise at the peak rate, as a share of the loss, in most networks, and its spread in the logarithm: values
# from less than 1 % to more than 10 % were seen.
NOISE_SHARE, NOISE_DIFFERS = 0.03, 1.1


# With fewer losses than this at rates below this share of the peak, curves do not separate noise, which
# vanishes at small rates, from progress that hardly depends on the rate. Progress is then expected to be
# proportional to the rate.
FALLEN, LOSSES = 0.25, 5
PROPORTIONAL = replace(PARAMETERS["progress_power"], start=1.0, spread=0.05)


def expectations(
    fits: "Sequence[LawFit]", scale: "Scale", alone: float | None = None, *, decays: bool = True
) -> Mapping[str, Parameter]:
    """Parameters with their expected values and spreads, in the units of a new fit.

    Args:
        fits: of other runs; without any, the expectations are those for any network.
        scale: units of the new fit.
        alone: the last loss of a single curve, which does not show its noise; None: there are more curves.
        decays: whether losses were logged at small rates, or there is one curve alone.
    """
    pace = PARAMETERS["speed"]
    start = float(np.clip(scale.steps / RELAXED, pace.lower, pace.upper))
    expected = {**PARAMETERS, "speed": replace(pace, start=start)}
    if not decays:
        expected["progress_power"] = PROPORTIONAL
    between_networks = DIFFER if alone is None else ALONE_DIFFER
    for name, differ in between_networks.items() if fits else ():
        parameter = PARAMETERS[name]
        # A fit to runs of one batch size does not show the effect of the batch.
        fitted = [_told(fit, name, scale) for fit in fits if name not in ONE_BATCH or fit.several_batches]
        if not fitted:
            continue
        numbers = np.array([number for number, _ in fitted])
        errors = np.array([min(error, parameter.spread) for _, error in fitted])
        # The spread between fits, and the uncertainty within one.
        between = float(numbers.var(ddof=1)) if len(fitted) > 1 else 0.0
        spread = float(np.sqrt(between + np.mean(errors**2) / len(fitted) + differ**2))
        start = float(np.clip(parameter.decode(numbers.mean()), parameter.lower, parameter.upper))
        expected[name] = replace(parameter, start=start, spread=min(spread, parameter.spread))
    if alone is not None:
        usual = replace(PARAMETERS["noise"], start=NOISE_SHARE * alone, spread=NOISE_DIFFERS)
        expected["noise"] = _both(expected["noise"], usual) if fits else usual
    return expected


def _both(fitted: Parameter, usual: Parameter) -> Parameter:
    """Other runs and the usual value combined; the less the runs agree, the more the usual value counts.

    A single run does not show its noise. Where fits differ on how noise falls, their noise at another time
    differs too, and may be absurd.
    """
    weights = np.array([each.spread**-2.0 for each in (fitted, usual)])
    numbers = np.array([float(each.encode(each.start)) for each in (fitted, usual)])
    start = float(np.clip(fitted.decode(weights @ numbers / weights.sum()), fitted.lower, fitted.upper))
    return replace(fitted, start=start, spread=float(weights.sum() ** -0.5))


def _told(fit: "LawFit", name: str, scale: "Scale") -> tuple[float, float]:
    """The fitted number of a parameter, in the units of ``scale``, and its standard error."""
    value, longer = fit.parameters, np.log(scale.steps / fit.data.scale.steps)
    number = float(PARAMETERS[name].encode(value[name]))
    if name == "critical_batch":  # in units of the new fit's usual batch
        number += float(np.log(fit.data.scale.batch / scale.batch))
    fall = value["noise_fall"]  # the longer a run, the smaller its gradients and the faster its paces
    number += longer * {"speed": 1.0 + fall, "head_start": -1.0, "noise": -fall}.get(name, 0.0)
    error = 0.0
    if name in fit.fitter.free:
        variance = float(fit.covariance[(i := fit.fitter.free.index(name)), i])
        error = np.sqrt(variance) if variance >= 0 else np.inf
    return number, float(error)
