"""Shapes of a control go where they say."""

import numpy as np
import pytest

import optlearn as ol
from optlearn import _time_courses as shapes
from optlearn._errors import SpecificationError


@pytest.mark.parametrize("shape", [shapes.linear, shapes.cosine, shapes.exponential])
def test_from_one_value_to_another(shape):
    curve = shape(4.0, 1.0, 8.0)
    times = np.linspace(0, 8, 33)
    values = np.array([curve(alpha) for alpha in times])
    assert values[0] == pytest.approx(4)
    assert values[-1] == pytest.approx(1)
    assert np.all(np.diff(values) <= 0)


def test_halfway():
    assert shapes.linear(4, 1, 8)(4) == 2.5
    assert shapes.cosine(4, 1, 8)(4) == pytest.approx(2.5)
    assert shapes.exponential(4, 1, 8)(4) == pytest.approx(2)


def test_warm_up_stable_decay():
    curve = shapes.warm_up_stable_decay(2.0, 10.0, warm_up=0.1, decay=0.4, last=0.5)
    assert [curve(alpha) for alpha in (0, 0.5, 1, 3, 6, 8, 10)] == pytest.approx([0, 1, 2, 2, 2, 1.25, 0.5])


def test_two_switches():
    curve = shapes.two_switch(0.0, 2.0, 1.0, a=2.0, b=5.0)
    assert [curve(alpha) for alpha in (0, 1.9, 2, 4.9, 5, 9)] == [0, 0, 2, 2, 1, 1]


def test_shapes_become_schedules():
    schedule = ol.Schedule.from_function(2.0, {"batch": shapes.linear(1, 3, 2.0)}, intervals=4)
    assert schedule["batch"] == pytest.approx([1.25, 1.75, 2.25, 2.75])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: shapes.linear(1, 2, 0), "horizon=0"),
        (lambda: shapes.exponential(0, 2, 1), "above 0"),
        (lambda: shapes.warm_up_stable_decay(1, 1, 0.7, 0.7), "together at most 1"),
        (lambda: shapes.two_switch(0, 1, 0, 3, 2), "0 ≤ a ≤ b"),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(SpecificationError, match=message):
        make()
