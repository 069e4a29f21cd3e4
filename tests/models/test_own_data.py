"""A linear student on given data: exact advances, few eigenvalues for many, and bad input."""

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn.models import FiniteData
from optlearn.models._finite_data import collocation, exponential_moments

SETTINGS = {"weight_decay": 0.05, "batch": 1.0, "input_noise": 0.1, "label_noise": 0.2}


def data(n=90, N=60, seed=0):
    """Inputs whose largest eigenvalue is some thirty times the mean, and noisy linear labels."""
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((N, N)) * np.exp(-np.arange(N) / 4)[:, None]
    X, X_test = (rng.standard_normal((m, N)) @ mixing for m in (n, 200))
    w = rng.standard_normal(N) / np.std(X)
    labels = [table @ w / np.sqrt(N) + 0.5 * rng.standard_normal(len(table)) for table in (X, X_test)]
    return X, labels[0], X_test, labels[1]


@pytest.fixture(scope="module")
def given():
    return data()


@pytest.fixture(scope="module")
def all_modes(given):
    return FiniteData.from_data(*given, nodes=None)


def run(model, horizon=3.0, Q=0.3, rate=0.7, settings=SETTINGS, record=2):
    schedule = ol.Schedule.constant(horizon, {"learning_rate": rate})
    return ol.integrate(model, schedule, start=model.start(Q=Q), parameters=settings, record=record)


def test_an_advance_by_hand_leaves_no_trace():
    """In single precision it once left a program behind that no longer fitted the next caller's."""
    model = FiniteData.from_data(*data(40, 24))
    with jax.enable_x64(False):
        model.advance(model.start(), model.settings(), 0.1)
    assert run(model)["error"][-1] > 0


def test_an_advance_is_the_stiff_ode():
    model = FiniteData.from_data(*data(40, 24), nodes=None)
    assert model.eigenvalues.max() > 5
    u = model.settings({**SETTINGS, "learning_rate": 0.7})
    slope = jax.jit(lambda flat: model.layout.flatten(model.drift(model.layout.unflatten(flat), u)))
    jacobian = jax.jit(jax.jacfwd(slope))
    times = [0.02, 0.4, 3.0]
    start = model.layout.flatten(model.start(Q=0.3))
    expected = solve_ivp(
        lambda _, flat: np.asarray(slope(flat)),
        (0, 3.0),
        start,
        method="Radau",
        t_eval=times,
        jac=lambda _, flat: np.asarray(jacobian(flat)),
        rtol=1e-11,
        atol=1e-13,
    ).y.T
    found = run(model, record=times)
    np.testing.assert_allclose(found.states, expected, atol=2e-9)


@pytest.mark.slow
@pytest.mark.parametrize("horizon", [0.1, 3.0, 30.0])
def test_a_few_eigenvalues_stand_for_all(given, all_modes, horizon):
    exact, few = run(all_modes, horizon), run(FiniteData.from_data(*given), horizon)
    assert len(few.order_parameters) == 80 < len(exact.order_parameters)
    for name in ("train_error", "test_error", "Q"):
        assert few[name][-1] == pytest.approx(exact[name][-1], abs=1e-9)


@pytest.mark.slow
def test_its_errors_are_those_of_the_weights(given, all_modes):
    # Without noise of SGD long training ends at ridge regression.
    X, y, X_test, y_test = given
    ridge = run(all_modes, 100, Q=0.0, rate=1.0, settings={"batch": 1e12, "weight_decay": 0.3})
    decay = 0.3 * all_modes.input_power / X.shape[1]
    w = np.linalg.solve(X.T @ X / len(y) + decay * np.eye(X.shape[1]), X.T @ y / len(y))
    assert ridge["train_error"][-1] == pytest.approx(np.mean((X @ w - y) ** 2), abs=1e-9)
    assert ridge["test_error"][-1] == pytest.approx(np.mean((X_test @ w - y_test) ** 2), abs=1e-9)
    assert ridge["Q"][-1] == pytest.approx(w @ w * all_modes.input_power / X.shape[1], abs=1e-9)


@pytest.mark.parametrize("z", [0.0, 1e-6, 0.3, 0.999, 1.001, 7.0, 300.0])
def test_moments_of_an_exponential(z):
    t, weights = np.polynomial.legendre.leggauss(200)
    t, weights = (t + 1) / 2, weights / 2
    factorials = [1, 1, 2, 6, 24, 120]
    expected = [np.sum(weights * np.exp(-z * (1 - t)) * t**k / factorials[k]) for k in range(6)]
    np.testing.assert_allclose(exponential_moments(np.asarray(z), 6), expected, rtol=1e-10, atol=1e-15)


def test_collocation_integrates_polynomials():
    ends, coefficients = collocation(4)
    # At z = 0 the moments are 1/(k + 1)!: plain integrals of Lagrange's polynomials.
    integrals = coefficients @ np.asarray(exponential_moments(np.asarray(0.0), 4))
    np.testing.assert_allclose(integrals @ ends[:-1] ** 3, ends**4 / 4, atol=1e-13)


@pytest.mark.slow
def test_an_optimal_rate_on_given_data_is_certified(given):
    model = FiniteData.from_data(*given, nodes=16)
    problem = ol.Problem(
        model=model,
        start=model.start(),
        horizon=15.0,
        controls={"learning_rate": ol.Continuous(0, 1, guess=0.3)},
        intervals=12,
    )
    direct, indirect = (ol.solve(problem, method=method, starts=1) for method in ("direct", "indirect"))
    assert direct.certificate.converged
    assert indirect.certificate.converged
    assert direct.objective == pytest.approx(indirect.objective, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({0: np.ones((1, 60)), 1: np.ones(1)}, "X must be .*at least 2 samples"),
        ({0: np.ones((90, 60))}, "X must .*not constant"),
        ({1: np.ones(89)}, "y must be 90 labels, one for each row of X"),
        ({1: np.full(90, np.nan)}, "y must be finite"),
        ({2: np.ones((200, 59))}, "X_test must .*60 features"),
        ({3: np.ones(3)}, "y_test must be 200 labels"),
    ],
)
def test_bad_data(given, changes, message):
    with pytest.raises(SpecificationError, match=message):
        FiniteData.from_data(*(changes.get(i, part) for i, part in enumerate(given)))
