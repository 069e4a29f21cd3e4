"""Batches: which vectors are drawn, who reads them, and what a batch of 2.5 is."""

import jax.numpy as jnp
import numpy as np
import pytest

from optlearn._schedule import Schedule
from optlearn._simulate.plan import Views, make_controls, view_weights


def test_fresh_batch():
    views = Views(3, 2)
    assert views.inputs == 6
    assert views.samples == 3
    np.testing.assert_array_equal(views.slot_of, [[0, 1], [2, 3], [4, 5]])
    np.testing.assert_array_equal(views.origin, [[0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1]])


def test_augmentation():
    views = Views(2, 3, redrawn=(0, 2))
    assert views.inputs == 1 + 2 * 2
    assert views.samples == 1
    np.testing.assert_array_equal(views.slot_of, [[1, 0, 2], [3, 0, 4]])
    np.testing.assert_array_equal(views.origin, [[0] * 5, [1, 0, 2, 0, 2]])
    assert not views.together[1, 3]
    assert views.together[0].all()
    per_view = np.arange(12.0).reshape(2, 3, 2)
    expected = np.zeros((5, 2))
    np.add.at(expected, views.slot_of, per_view)
    np.testing.assert_array_equal(views.gather(jnp.asarray(per_view)), expected)


@pytest.mark.parametrize("batch", [1.0, 1.01, 2.0, 2.5, 3.9, 4.0])
def test_real_valued_batch_has_the_right_mean_of_its_inverse(batch):
    uniforms = (np.arange(1000) + 0.5) / 1000
    weights = np.array([view_weights(4, jnp.asarray(batch), jnp.asarray(r)) for r in uniforms])
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-14)
    views = (weights > 0).sum(axis=1)
    assert set(views) <= {int(np.floor(batch)), int(np.ceil(batch))}
    np.testing.assert_allclose(np.mean(1 / views), 1 / batch, atol=1e-3)
    # The noise of a mean over views, E[Σ weight²], is what the theory has.
    np.testing.assert_allclose(np.mean(np.sum(weights**2, axis=1)), 1 / batch, atol=1e-3)


def test_an_interval_begins_with_its_first_step():
    schedule = Schedule.piecewise([0, 0.3, 0.7, 1.1], {"rate": [1, 2, 3]})
    for N in (10, 1000, 99_990, 7):
        controls = make_controls(schedule, N)
        steps = np.arange(round(1.1 * N))
        found = [float(controls.at(step, jnp.zeros(0), {})["rate"]) for step in steps[:40]]
        edges = 1 + (10 * steps >= 3 * N) + (10 * steps >= 7 * N)  # in whole numbers
        np.testing.assert_array_equal(found, edges[:40])
        np.testing.assert_array_equal(controls.first, [0, -(-3 * N // 10), -(-7 * N // 10)])


def test_mixed_controls_follow_their_shares():
    mixture = {"difficulty": {0.0: [0.25, 1.0], 1.0: [0.25, 0.0], 5.0: [0.5, 0.0]}}
    controls = make_controls(Schedule.mixed([0, 1, 2], mixture), 10)
    draws = (np.arange(200) + 0.5) / 200
    for step, counts in ((3, [50, 50, 100]), (15, [200, 0, 0])):
        found = [float(controls.at(step, jnp.array([r]), {})["difficulty"]) for r in draws]
        assert [found.count(value) for value in (0.0, 1.0, 5.0)] == counts
