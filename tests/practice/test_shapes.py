"""Simple shapes in place of schedules, and schedules as one line of text."""

import numpy as np
import pytest

from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn.practice.shapes import SHAPES, fall

GRID = np.arange(0, 1001, 10.0)
SHARE = (np.arange(90) + 0.5) / 90
RISE = np.linspace(0.05, 0.95, 10)


def shaped(values):
    """A warm-up of a tenth of training, then ``values``."""
    return Schedule.piecewise(GRID, {"learning_rate": 0.01 * np.append(RISE, values)})


@pytest.mark.parametrize(
    ("shape", "form", "settings"),
    [
        ("linear", None, {}),
        ("cosine", None, {}),
        ("power", 2.5, {"power": 2.5}),
        ("wsd", 0.4, {"decay_share": 0.4}),
    ],
)
def test_a_schedule_of_the_shape_is_found_exactly(shape, form, settings):
    schedule = shaped(0.05 + 0.95 * fall(shape, SHARE, form))
    found = schedule.nearest(shape)
    assert found.distance < 2e-3
    assert found.settings["end"] == pytest.approx(0.0005, rel=0.2)
    for name, value in settings.items():
        assert found.settings[name] == pytest.approx(value, rel=0.03)
    np.testing.assert_array_equal(found.schedule["learning_rate"][:10], schedule["learning_rate"][:10])
    assert found.cost is None


def test_every_shape_falls_from_one_to_zero():
    for shape in SHAPES:
        assert fall(shape, np.array([0.0, 1.0])).tolist() == pytest.approx([1.0, 0.0], abs=1e-12)
    with pytest.raises(
        SpecificationError, match="shape must be one of linear, cosine, power, wsd, got 'step'"
    ):
        shaped(np.ones(90)).nearest("step")


def test_the_lowest_loss_rather_than_the_smallest_distance():
    schedule = shaped(np.where(SHARE < 0.8, 1.0, 0.3))

    def loss(candidate):
        # Nothing but the mean rate counts.
        return float((candidate["learning_rate"].mean() - 0.004) ** 2) + 1.0

    found = schedule.nearest("linear", loss=loss)
    assert found.cost == pytest.approx(loss(found.schedule) - loss(schedule))
    assert loss(found.schedule) < loss(schedule.nearest("linear").schedule)
    assert found.settings["peak"] <= 0.01


def test_thresholds():
    schedule = Schedule.piecewise(
        [0, 1, 2, 4], {"batch": [768, 768, 1536], "learning_rate": [3e-4, 1e-4, 1e-5]}
    )
    assert schedule.to_thresholds("batch", steps=400) == "0:768 200:1536"
    assert schedule.to_thresholds(N=100) == "0:0.0003 100:0.0001 200:1e-05"
    tokens = schedule.to_thresholds("batch", unit="tokens", steps=400, tokens_per_step=2_000_000)
    assert tokens == "0:768 400000000:1536"
    with pytest.raises(SpecificationError, match="tokens_per_sample must be given with unit='tokens'"):
        schedule.to_thresholds("batch", unit="tokens", steps=400)
    with pytest.raises(SpecificationError, match="unit must be one of steps, tokens, got 'epochs'"):
        schedule.to_thresholds("batch", unit="epochs", steps=400)
