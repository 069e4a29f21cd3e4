"""A law that was fitted to losses of the weights knows what an average of the weights is worth."""

import numpy as np
import pytest

from optlearn import Schedule
from optlearn._errors import SpecificationError
from optlearn.laws import fit

STEPS, PEAK, NOISE = 6000, 0.3, 0.2
VARIANCE = np.arange(1, 513.0) ** -1.4
VARIANCE /= VARIANCE.sum()
SHARE = (np.arange(STEPS) + 0.5) / STEPS
PILOTS = {
    "constant": np.full(STEPS, PEAK),
    "half": np.full(STEPS, PEAK / 2),
    "cosine": PEAK * (0.1 + 0.45 * (1 + np.cos(np.pi * SHARE))),
    "drop": PEAK * np.where(SHARE < 0.5, 1.0, 0.2),
}


def trained(rates, memory):
    """Exact mean losses of least squares in 512 dimensions by SGD: of the weights, of their average.

    Mean squares of w − w*, of w̄ − w*, and of their product, along every eigenvector.
    """
    own = mixed = averaged = np.ones(len(VARIANCE))
    kept, losses = 1 - 1 / memory, []
    for rate in rates:
        noise = rate**2 * VARIANCE * (VARIANCE @ own + NOISE)
        own = own * (1 - 2 * rate * VARIANCE + 2 * (rate * VARIANCE) ** 2) + noise
        mixed = mixed * (1 - rate * VARIANCE)
        averaged = kept**2 * averaged + 2 * kept * (1 - kept) * mixed + (1 - kept) ** 2 * own
        mixed = kept * mixed + (1 - kept) * own
        losses.append([(VARIANCE @ each + NOISE) / 2 for each in (own, averaged)])
    return np.array(losses)


@pytest.fixture(scope="module")
def law():
    at = np.arange(20, STEPS + 1, 20)
    curves = {
        name: {"step": at, "lr": rates[19::20], "loss": trained(rates, 1)[19::20, 0]}
        for name, rates in PILOTS.items()
    }
    return fit(curves)


@pytest.mark.parametrize("memory", [50, 200, 800])
@pytest.mark.parametrize("name", ["constant", "drop"])
def test_the_gain_of_an_average_follows_from_losses_of_the_weights(law, name, memory):
    rates = PILOTS[name]
    gain = np.subtract(*trained(rates, memory).T)
    told = law.predict(rates) - law.predict(rates, averaged_over=memory)
    # The largest gain is 0.0155; no parameter is fitted to it.
    for step in (3000, 6000):
        assert told[step - 1] == pytest.approx(gain[step - 1], rel=0.1, abs=8e-4)


def test_a_memory_of_one_step_is_the_weights_themselves(law):
    np.testing.assert_allclose(
        law.predict(PILOTS["drop"], averaged_over=1), law.predict(PILOTS["drop"]), rtol=1e-12
    )


# Parts of an interval are a step, or a hundredth of a longer memory.
@pytest.mark.parametrize(("memory", "error"), [(20, 1e-10), (200, 1e-4)])
def test_intervals_of_a_schedule_are_followed_in_small_parts(law, memory, error):
    edges = np.array([0.0, 1500.0, 3000.0, 4001.0, 6000.0])
    values = np.array([PEAK, PEAK / 2, PEAK / 4, 0.0])
    every = np.repeat(values, np.diff(edges).astype(int))
    ends = law.predict(Schedule.piecewise(edges, {"learning_rate": values}), averaged_over=memory)
    stepwise = law.predict(every, averaged_over=memory)
    np.testing.assert_allclose(ends, stepwise[edges[1:].astype(int) - 1], rtol=error)


def test_a_memory_below_a_step_is_refused(law):
    with pytest.raises(SpecificationError, match=r"averaged_over must be at least 1, got 0\.5"):
        law.predict(PILOTS["drop"], averaged_over=0.5)
