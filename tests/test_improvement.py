"""The two measures of how much better a schedule is."""

import numpy as np

from optlearn._trajectory import improvement, reduction


def test_improvement_is_relative_to_what_the_baseline_learned() -> None:
    constant, optimal = np.array([10.0, 9.0, 8.0]), np.array([10.0, 8.9, 7.5])
    np.testing.assert_allclose(improvement(constant, optimal), [np.nan, 10, 25])
    np.testing.assert_allclose(improvement([8.0], [7.5], start=10.0), [25])
    np.testing.assert_allclose(improvement([8.0], [7.5], start=8.0), [np.nan])
    both = improvement(np.stack([constant, 2 * constant]), np.stack([optimal, 2 * optimal]))
    np.testing.assert_allclose(both[:, 1:], [[10, 25], [10, 25]])


def test_reduction_is_relative_to_the_objective() -> None:
    np.testing.assert_allclose(reduction([4.0, -2.0, 0.0], [3.0, -3.0, 1.0]), [25, 50, np.nan])
