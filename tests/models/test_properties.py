"""Symmetries and limits that hold at every state."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optlearn._theory.order import OrderParameters
from optlearn.models import FIG3_START, autoencoder, committee, curriculum
from optlearn.models._committee import _distinct_students, _multiplicity, _pair_number

SEEDS = st.integers(0, 2**32 - 1)
SHARES = st.floats(0.0, 1.0)


def swapped(x):
    """The same state with the students in reverse order."""
    return OrderParameters(x.Q[::-1, ::-1], x.M[::-1], x.R[::-1], x.v[::-1], x.extras)


SWAPPABLE = [
    committee(3, 2, sigma_n=0.2, dropout=True, activation_probability=0.6, weight_decay=0.1),
    committee(2, 2, heads=2, activation="linear"),
    autoencoder(3, augmentation=True, batch=4, sigma=(0.2, 0.4)),
]


@pytest.mark.parametrize("model", SWAPPABLE, ids=["dropout", "heads", "autoencoder"])
def test_renumbering_students_renumbers_the_drift(model, tools):
    layout = model.layout
    drift, error = tools.flat_drift(model), tools.flat_error(model)

    @tools.jit
    def both(flat):
        other = layout.flatten(swapped(layout.unflatten(flat)))
        u = model.settings()
        back = layout.flatten(swapped(layout.unflatten(drift(other, u))))
        return drift(flat, u), back, error(flat, u), error(other, u)

    @given(SEEDS)
    @settings(max_examples=15)
    def check(seed):
        ours, theirs, error, other_error = both(tools.random_states(model, 1, 1.0, seed)[0])
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(ours).max())
        np.testing.assert_allclose(error, other_error, rtol=1e-12)

    check()


def test_exchangeable_students_stay_exchangeable(tools):
    model = committee(2, 1, sigma_n=0.3, dropout=True)
    drift = tools.jit(tools.flat_drift(model))

    @given(st.floats(0.0, 2.0), SHARES, SHARES, SHARES)
    @settings(max_examples=25)
    def check(norm, alike, along, p):
        M = along * np.sqrt(norm)
        Q12 = norm * (2 * along**2 - 1 + 2 * (1 - along**2) * alike)
        flat = model.layout.flatten(model.state(Q=[[norm, Q12], [Q12, norm]], M=[[M], [M]]))
        rate = model.layout.unflatten(drift(flat, model.settings({"activation": p})))
        assert np.all(np.isfinite(rate.Q))
        assert float(rate.Q[0, 0]) == pytest.approx(float(rate.Q[1, 1]), rel=1e-12, abs=1e-14)
        assert float(rate.M[0, 0]) == pytest.approx(float(rate.M[1, 0]), rel=1e-12, abs=1e-14)

    check()


def test_perfect_students_rest(tools):
    """Without label noise, a student that equals the teacher is a fixed point with zero error."""
    T = [[1.0, 0.3], [0.3, 0.7]]
    for activation in ("erf", "linear"):
        model = committee(2, 2, T=T, activation=activation)
        flat = model.layout.flatten(model.state(Q=T, M=T))
        u = model.settings()
        np.testing.assert_allclose(tools.flat_drift(model)(flat, u), 0, atol=1e-14)
        assert float(tools.flat_error(model)(flat, u)) == pytest.approx(0, abs=1e-14)


@pytest.mark.slow
def test_dropout_that_drops_nothing_is_the_plain_model(tools):
    plain, masked = committee(3, 2, sigma_n=0.3), committee(3, 2, sigma_n=0.3, dropout=True)
    for flat in tools.random_states(plain, 3, 1.0):
        for function in (tools.flat_drift, tools.flat_error):
            ours, theirs = (function(m)(flat, m.settings()) for m in (plain, masked))
            np.testing.assert_allclose(ours, theirs, rtol=1e-13, atol=1e-15)


@pytest.mark.slow
def test_heads_of_ones_that_do_not_learn_are_the_plain_model(tools):
    plain, headed = committee(2, 1, sigma_n=0.3), committee(2, 1, sigma_n=0.3, heads=1)
    for flat in tools.random_states(plain, 3, 1.0):
        wide = np.concatenate([flat, np.ones(2)])
        ours = tools.flat_drift(plain)(flat, plain.settings())
        theirs = tools.flat_drift(headed)(wide, headed.settings({"readout_rate": 0.0}))
        np.testing.assert_allclose(ours, theirs[:-2], rtol=1e-13)
        np.testing.assert_allclose(theirs[-2:], 0, atol=0)


def test_one_view_is_no_augmentation(tools):
    plain, views = autoencoder(), autoencoder(augmentation=True)
    flat = plain.layout.flatten(plain.state(**FIG3_START, b=0.2))
    ours, theirs = (tools.flat_drift(m)(flat, m.settings()) for m in (plain, views))
    np.testing.assert_allclose(ours, theirs, rtol=1e-13)


@given(easy=SHARES, seed=SEEDS)
@settings(max_examples=25)
def test_misclassification_is_a_probability(easy, seed, tools):
    model = curriculum(easy_share=easy)
    error = tools.flat_error(model)(tools.random_states(model, 1, 3.0, seed)[0], model.settings())
    assert 0 <= error <= 1


@pytest.mark.parametrize(("K", "nodes"), [(1, 2), (2, 3), (3, 5)])
def test_index_tables(K, nodes):
    two, four = _distinct_students(K, nodes)
    for i in range(K):
        for j in range(nodes):
            assert two[i, j] == len({n for n in (i, j) if n < K})
    for a, (i, k) in enumerate(zip(*np.triu_indices(K), strict=True)):
        assert _pair_number(K)[i, k] == _pair_number(K)[k, i] == a
        for b, (j, m) in enumerate(zip(*np.triu_indices(nodes), strict=True)):
            assert four[a, b] == len({n for n in (i, k, j, m) if n < K})
    assert _multiplicity(nodes).sum() == nodes**2


def test_the_traced_drift_is_small(tools):
    """Each equation of the traced program costs compile time; K and M must not add any."""

    def equations(model):
        flat = model.layout.flatten(model.state())
        return len(jax.make_jaxpr(tools.flat_drift(model))(flat, model.settings()).jaxpr.eqns)

    assert equations(committee(8, 8)) == equations(committee(2, 1)) < 400
    assert equations(curriculum()) < 200
    assert equations(autoencoder(augmentation=True)) < 300
