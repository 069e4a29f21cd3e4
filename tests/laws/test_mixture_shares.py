"""Shares from controls: always within bounds, always adding up to one, and any of them can be reached."""

import numpy as np
import pytest

import optlearn as ol
from optlearn.laws._mixture_shares import ShareOrder

NAMES = tuple("abcdef")


def random_bounds(rng, count):
    """Bounds that some shares keep; some domains have none, or one side only."""
    inside = rng.dirichlet(np.ones(count))
    ends = {}
    for name, share in zip(NAMES, inside, strict=False):
        low = share * rng.uniform() if rng.uniform() < 0.5 else 0.0
        high = share + (1 - share) * rng.uniform() if rng.uniform() < 0.5 else 1.0
        if rng.uniform() < 0.7:
            ends[name] = (low, high)
    return ends, inside


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6])
def test_shares_keep_their_bounds_and_any_are_reached(count):
    rng = np.random.default_rng(count)
    for _ in range(200):
        bounds, inside = random_bounds(rng, count)
        order = ShareOrder.of(NAMES[:count], bounds, NAMES[: rng.integers(0, count)])
        controls = {
            name: rng.choice([low, high, rng.uniform(low, high)])
            for name, (low, high) in order.controls.items()
        }
        shares = order.shares(controls, np)
        assert sum(shares.values()) == pytest.approx(1.0)
        for name, share in shares.items():
            low, high = bounds.get(name, (0.0, 1.0))
            assert low - 1e-9 <= share <= high + 1e-9
        wanted = dict(zip(NAMES, inside, strict=False))
        near = order.near(wanted)
        for name, (low, high) in order.controls.items():
            assert low - 1e-9 <= near[name] <= high + 1e-9
        assert order.shares(near, np) == pytest.approx(wanted, abs=2e-9)


def test_budgets_are_linear_where_they_can_be():
    """Shares of their own: the first of scarce domains, and all whose bounds leave room for each other."""
    assert list(ShareOrder.of(NAMES[:4], {}, "c").controls) == ["share_c", "part_b", "part_d"]
    assert ShareOrder.of(NAMES[:3], {"b": (0.1, 0.4), "c": (0.0, 0.6)}).controls == {
        "share_b": (0.1, 0.4),
        "share_c": (0.0, 0.6),
    }
    fixed = ShareOrder.of(NAMES[:3], {"b": (0.2, 0.2)})
    assert fixed.controls == {"share_c": pytest.approx((0.0, 0.8))}
    assert fixed.shares({"share_c": 0.5}, np) == pytest.approx({"a": 0.3, "b": 0.2, "c": 0.5})


@pytest.mark.parametrize("bounds", [{"a": (0.7, 1.0), "b": (0.4, 1.0)}, {"a": (0.0, 0.4), "b": (0.0, 0.5)}])
def test_bounds_without_room_are_refused(bounds):
    with pytest.raises(ol.SpecificationError, match="must leave room for shares that add up to 1, got"):
        ShareOrder.of(("a", "b"), bounds)
