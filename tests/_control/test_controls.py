"""Controls answer for their own columns of w."""

import numpy as np
import pytest

from optlearn._control.controls import Continuous, Control, Discrete
from optlearn._schedule import Mixture, Schedule

CONTROLS = [Continuous(0.5, 2.0, guess=1.0), Discrete((1.0, 4.0)), Discrete((2.0, 0.0, 1.0))]


@pytest.mark.parametrize("control", CONTROLS, ids=repr)
def test_columns_fit_together(control: Control) -> None:
    low, high = control.bounds
    assert low.shape == high.shape == control.neutral.shape == (control.size,)
    assert np.all((low <= control.neutral) & (control.neutral <= high))
    assert control.vertices.shape == (len(control.values), control.size)
    assert control.lower <= control.start <= control.upper
    pairs = control.options(list(control.neutral), np.array(control.values))
    mean = sum(value * share for value, share in pairs)
    row, target = control.reduced(control.mean_row, mean)
    assert row @ control.neutral == pytest.approx(target)


@pytest.mark.parametrize("control", CONTROLS, ids=repr)
def test_schedules_and_back(control: Control) -> None:
    values = np.array(control.values or (0.5, 0.7, 2.0))
    schedule = Schedule.piecewise(np.arange(len(values) + 1.0), {"u": values})
    columns = control.encode("u", schedule)
    np.testing.assert_array_equal(control.decode(columns, rounded=True), values)
    np.testing.assert_array_equal(control.shares(columns), np.eye(len(values), len(control.values)))


def test_mixtures_and_back() -> None:
    control = CONTROLS[2]
    found = control.decode(np.array([[0.25, 0.5], [1.0, 0.0]]), rounded=False)
    assert isinstance(found, Mixture)
    np.testing.assert_allclose(found.shares, [[0.25, 0.5, 0.25], [1, 0, 0]])
    schedule = Schedule(np.array([0.0, 1.0, 2.0]), {}, {"u": found}, {})
    np.testing.assert_allclose(control.encode("u", schedule), [[0.25, 0.5], [1.0, 0.0]])


def test_only_three_shares_need_a_sum() -> None:
    assert [control.sum_limited for control in CONTROLS] == [False, False, True]
    assert [control.needs_rounding for control in CONTROLS] == [False, True, True]


def test_nearest_admissible_values() -> None:
    values = np.array([-1.0, 0.4, 0.6, 9.0])
    np.testing.assert_array_equal(CONTROLS[0].nearest(values), [0.5, 0.5, 0.6, 2.0])
    np.testing.assert_array_equal(CONTROLS[2].nearest(values), [0.0, 0.0, 1.0, 2.0])


def test_what_a_schedule_breaks() -> None:
    schedule = Schedule.piecewise([0.0, 1.0, 2.0], {"u": [1.0, 3.0]})
    assert CONTROLS[0].broken_bounds("u", schedule) == ["u goes from 1 to 3; its bounds are 0.5 and 2"]
    assert CONTROLS[1].broken_bounds("u", schedule) == ["u = 3 is not among its values 1, 4"]
    mixed = Schedule.mixed([0.0, 1.0], {"u": {1.0: 1.0, 3.0: 0.0}})
    assert CONTROLS[1].broken_bounds("u", mixed) == []
