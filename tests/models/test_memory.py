"""Momentum and averages as rows of memory: reference values, simulators, what they cannot do, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn.models import committee, with_memory

ONE = {"Q11": 0.5, "M11": 0.1}
TWO = {"Q": [[0.5, 0.1], [0.1, 0.4]], "M": [[0.2, 0.05], [0.02, 0.15]]}


def linear(**changes):
    return committee(1, 1, activation="linear", **{"sigma_n": 0.5, "eta": 0.0} | changes)


def final(model, horizon, rate, start, **changes):
    schedule = ol.Schedule.constant(horizon, {"learning_rate": rate})
    return ol.integrate(model, schedule, start=model.start(**start), record=2, **changes)


def ends(found, expected):
    return {name: found[name][-1] for name in expected} == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("rule", [None, ol.GaussHermite(6)], ids=["closed form", "quadrature"])
def test_reference_values_of_momentum(rule):
    found = final(with_memory(linear(), 2.0, 4.0), 5, 0.0, ONE, quadrature=rule)
    assert ends(
        found,
        {
            "Q11": 0.998123206,
            "M11": 0.941927696,
            "Q12": -0.011101014,
            "M21": -0.017008974,
            "Q22": 0.047574627,
        },
    )


def test_reference_values_of_a_committee_with_momentum():
    found = final(with_memory(committee(2, 2), 1.0, 2.0), 10, 0.0, TWO)
    assert ends(found, {"Q11": 0.597844235, "M11": 0.540972227, "Q33": 0.003210041, "error": 0.016495785})


def test_reference_values_of_averages():
    found = final(with_memory(linear(), averaging=1.0), 5, 0.8, ONE)
    assert ends(found, {"Q22": 0.997444593, "M21": 0.941836234})
    errors = 2 * found["error"][-1], 2 * found["weights_error"][-1]
    assert errors == pytest.approx((0.113772125, 0.175993713), abs=1e-9)


@pytest.mark.parametrize(
    "base",
    [
        pytest.param(
            committee(2, 2, sigma_n=0.3, weight_decay=0.2, batch=2), id="committee", marks=pytest.mark.slow
        ),
        pytest.param(
            committee(1, 1, sigma_n=0.3, spectrum=ol.Spectrum([3, 0.3], [0.25, 0.75]), weight_decay=0.1),
            id="spectrum",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_closed_forms_are_the_quadrature(base):
    model = with_memory(base, 1.5, 2.0, averaging=0.7)
    x = model.layout.unflatten(0.9 * np.asarray(model.probes(model.start(Q=np.eye(base.students)))[1]))
    u = model.settings({"learning_rate": 0.6})
    nodes = 14 if base.students == 2 else 24
    closed, integrated = (model.drift(x, u, quadrature=rule) for rule in (None, ol.GaussHermite(nodes)))
    for part in ("Q", "M"):
        np.testing.assert_allclose(getattr(closed, part), getattr(integrated, part), atol=1e-6)


def test_adjoints_are_finite_differences():
    model = with_memory(linear(batch=2, weight_decay=0.2), 1.5, 2.0, averaging=0.7)
    names = ("learning_rate", "velocity_rate", "friction", "averaging")

    @jax.jit
    def drift(numbers):
        state, given = numbers[: model.layout.size], numbers[model.layout.size :]
        settings = model.settings(dict(zip(names, given, strict=True)))
        return model.layout.flatten(model.drift(model.layout.unflatten(state), settings))

    start = model.probes(model.start(Q11=0.5, M11=0.1))[1]
    at, step = jnp.concatenate([jnp.asarray(start), jnp.array([0.6, 1.5, 2.0, 0.7])]), 1e-6
    jacobian = jax.jit(jax.jacrev(drift))(at)
    for i, shift in enumerate(step * jnp.eye(len(at))):
        difference = (drift(at + shift) - drift(at - shift)) / (2 * step)
        np.testing.assert_allclose(jacobian[:, i], difference, atol=1e-7)


def test_momentum_without_velocity_is_plain_sgd():
    base = committee(2, 2, sigma_n=0.3, weight_decay=0.1)
    model = with_memory(base, velocity_rate=0.0)
    x, u = model.start(**TWO), model.settings({"learning_rate": 0.7})
    whole, plain = model.drift(x, u), base.drift(base.state(**TWO), base.settings({"learning_rate": 0.7}))
    np.testing.assert_allclose(whole.Q[:2, :2], plain.Q, atol=1e-14)
    np.testing.assert_allclose(whole.M[:2], plain.M, atol=1e-14)


def test_much_friction_is_plain_sgd_at_the_ratio_of_rates():
    # Velocities that are forgotten at once hand every gradient on: w moves by −ζ/γ of it, and its noise too.
    found = final(with_memory(linear(), 0.5e4, 1e4), 2, 0.0, ONE)
    plain = ol.integrate(
        linear(), ol.Schedule.constant(2.0, {"learning_rate": 0.5}), start=linear().state(**ONE), record=2
    )
    for name in ("Q11", "M11"):
        assert found[name][-1] == pytest.approx(plain[name][-1], abs=1e-3)


def heavy_ball(beta, rate, N, steps, seeds):
    """(seeds, 2) Q and M of weights after SGD with momentum on noisy labels, written out."""
    random = np.random.default_rng(5)
    teacher = random.standard_normal((seeds, N))
    teacher *= np.sqrt(N) / np.linalg.norm(teacher, axis=1, keepdims=True)
    w, p = np.zeros((seeds, N)), np.zeros((seeds, N))
    for _ in range(steps):
        x = random.standard_normal((seeds, N))
        residual = np.sum((w - teacher) * x, axis=1) / np.sqrt(N) - 0.5 * random.standard_normal(seeds)
        p = beta * p + residual[:, None] * x / np.sqrt(N)
        w = w - rate * p
    return np.stack([np.sum(w * w, axis=1), np.sum(w * teacher, axis=1)], axis=1) / N


def test_a_constant_beta_is_plain_sgd_with_another_rate():
    runs = heavy_ball(beta=0.8, rate=0.1, N=400, steps=800, seeds=64)
    plain = ol.integrate(
        linear(), ol.Schedule.constant(2.0, {"learning_rate": 0.5}), start=linear().state(), record=2
    )
    for column, name in enumerate(("Q11", "M11")):
        error = runs[:, column].std(ddof=1) / 8
        # The first gradients are late by 1/(1 − β) = 5 of 800 steps.
        assert abs(runs[:, column].mean() - plain[name][-1]) < 4.5 * error + 0.006


def test_heavy_ball_in_weights_is_the_model():
    N = 400
    runs = heavy_ball(beta=1 - 4 / N, rate=2 / N, N=N, steps=2 * N, seeds=64)
    found = final(with_memory(linear(), 2.0, 4.0), 2, 0.0, {})
    for column, name in enumerate(("Q11", "M11")):
        error = runs[:, column].std(ddof=1) / 8
        assert abs(runs[:, column].mean() - found[name][-1]) < 4.5 * error + 0.003


def agree(model, rate, horizon, start, N, seeds, mode, slack):
    schedule = ol.Schedule.constant(horizon, {"learning_rate": rate})
    theory = ol.integrate(model, schedule, start=model.start(**start), record=3)
    runs = ol.simulate(
        model, schedule, start=model.start(**start), N=N, seeds=seeds, mode=mode, record=3, error=False
    )
    for name in theory.order_parameters:
        values = runs[name][:, 1:]
        errors = values.std(axis=0, ddof=1) / np.sqrt(seeds)
        assert np.all(np.abs(values.mean(axis=0) - theory[name][1:]) < 4.5 * errors + slack), name


@pytest.mark.parametrize("mode", ["overlaps", "weights"])
def test_sgd_follows_the_drift(mode):
    model = with_memory(linear(batch=2, weight_decay=0.2), 1.0, 2.0, averaging=1.0)
    agree(model, 0.4, 1.0, ONE, N=300, seeds=64, mode=mode, slack=0.004)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["overlaps", "weights"])
def test_large_networks_follow_the_drift(mode):
    agree(with_memory(linear(), 2.0, 4.0), 0.0, 5.0, ONE, N=1000, seeds=40, mode=mode, slack=0.001)
    model = with_memory(committee(2, 2), 1.0, 2.0, averaging=1.0)
    agree(model, 0.2, 5.0, TWO, N=1000, seeds=40, mode=mode, slack=0.001)


@pytest.mark.slow
def test_blocks_of_a_spectrum_remember_too():
    spectrum = ol.Spectrum([3, 0.3], [0.25, 0.75])
    model = with_memory(linear(spectrum=spectrum), 1.0, 2.0, averaging=1.0)
    agree(model, 0.2, 2.0, ONE, N=1000, seeds=40, mode="overlaps", slack=0.002)


def best(controls, model, **changes):
    problem = ol.Problem(model=model, start={}, horizon=5, controls=controls, intervals=60, **changes)
    return ol.solve(problem, starts=1)


@pytest.mark.slow
def test_no_schedule_of_momentum_beats_the_best_rate():
    rate = {"learning_rate": ol.Continuous(0, 1, guess=0.5)}
    alone = best(rate, linear())
    both = best(
        rate | {"velocity_rate": ol.Continuous(0, 4, guess=1.0), "friction": ol.Continuous(0, 10, guess=3.0)},
        with_memory(linear(), 1.0, 3.0),
    )
    # The error here is half the mean square, of a start at zero weights.
    # No schedule gets below the solution of f' = −f²/(f + σ²), which the rate e/(e + σ²) attains if it may
    # change at any time; pieces that are constant stay above it.
    least = brentq(lambda f: np.log(f) - 0.25 / f + 0.25 + 5, 0.01, 1)
    for solution in (alone, both):
        assert solution.certificate.converged
        assert 2 * solution.objective > least
        assert 2 * solution.objective == pytest.approx(0.0884943, abs=2e-7)


@pytest.mark.slow
def test_with_a_spectrum_momentum_beats_the_best_rate():
    """Two blocks; the best rate stays below its bound, so momentum wins by more than a higher rate."""
    spectrum = ol.Spectrum([3.0, 0.3], [0.25, 0.75])
    base = linear(sigma_n=np.sqrt(0.1), spectrum=spectrum)
    model = with_memory(base, velocity_rate=1.0, friction=2.0)
    rate = {"learning_rate": ol.Continuous(0.0, 1.5, guess=0.3)}
    memory = {
        "velocity_rate": ol.Continuous(0.0, 10.0, guess=0.5),
        "friction": ol.Continuous(0.0, 20.0, guess=3.0),
    }
    alone = ol.solve(ol.Problem(model=base, start={}, horizon=20.0, controls=rate, intervals=20), starts=1)
    problem = ol.Problem(model=model, start=model.start(), horizon=20.0, controls=rate | memory, intervals=20)
    both = ol.solve(problem, starts=1)
    assert alone.certificate.converged
    assert np.max(alone.schedule["learning_rate"]) < 1.2
    assert alone.objective == pytest.approx(0.005363006, abs=1e-8)
    assert both.objective < 0.95 * alone.objective


def test_a_guess_whose_steps_overshoot_gets_finer_ones():
    """Two steps in an interval end within 1e-8 of finer ones, but pass through negative norms."""
    c, share = [13.74, 3.75, 1.16, 0.38, 0.13], np.array([1, 2, 4, 8, 16]) / 31
    base = linear(sigma_n=np.sqrt(0.1), spectrum=ol.Spectrum(c, share), T=np.ones((5, 1, 1)) * 0.1)
    model = with_memory(base, velocity_rate=0.5, friction=3.0)
    rate = {"learning_rate": ol.Continuous(0.0, 1.5, guess=0.3)}
    problem = ol.Problem(model=model, start=model.start(), horizon=10.0, controls=rate, intervals=20)
    assert ol.solve(problem, starts=1).certificate.converged


def test_averages_help_at_a_constant_rate_and_nothing_helps_the_best_schedule():
    found = final(with_memory(linear(), averaging=1.0), 5, 0.8, ONE)
    assert found["error"][-1] < 0.65 * found["weights_error"][-1]
    assert 2 * found["error"][-1] > 0.0884943


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: with_memory(linear()), "velocity_rate or averaging must be a number, got None"),
        (lambda: with_memory(linear(), -1.0), "velocity_rate must be at least 0, got -1"),
        (lambda: with_memory(linear(), 1.0, friction=-1.0), "friction must be at least 0, got -1"),
        (lambda: with_memory(linear(), averaging=-1.0), "averaging must be at least 0, got -1"),
        (lambda: with_memory(with_memory(linear(), 1.0), 1.0), "model must move by plain SGD, got 'Memory'"),
        (lambda: with_memory("committee", 1.0), "model must be"),
        (lambda: with_memory(linear(), 1.0).start(Q22=1.0), "unknown order parameter 'Q22'"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(SpecificationError, match=message):
        make()
