"""Adam in order parameters: reference optima, closed forms, limits, and true Adam at finite N."""

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn.models import adagrad_norm, adam, committee, sign_sgd

TWO = ol.Spectrum([3.0, 0.3], [0.25, 0.75])
PAIR = {"Q": [[0.5, 0.1], [0.1, 0.4]], "M": [[0.2, 0.05], [0.02, 0.15]]}


def linear(spectrum=TWO, **changes):
    return committee(1, 1, activation="linear", **{"sigma_n": np.sqrt(0.1), "spectrum": spectrum} | changes)


def rate_problem(model, horizon):
    start = model.start() if isinstance(model, ol.models.Adam) else {}
    rate = {"learning_rate": ol.Continuous(0.0, 3.0, guess=0.3)}
    return ol.Problem(model=model, start=start, horizon=horizon, controls=rate, intervals=40)


@pytest.mark.parametrize(
    ("memory", "horizon", "constant", "optimum"),
    [
        (np.inf, 4.0, 0.039215060, 0.030190581),
        (None, 4.0, 0.073186164, 0.045870865),
        (5.0, 4.0, None, 0.030191015),
        pytest.param(np.inf, 20.0, 0.024414506, 0.003741389, marks=pytest.mark.slow),
        pytest.param(None, 20.0, 0.012581740, 0.005348981, marks=pytest.mark.slow),
        pytest.param(5.0, 20.0, None, 0.003741551, marks=pytest.mark.slow),
    ],
)
def test_reference_optima(memory, horizon, constant, optimum):
    """Least squares with two blocks, by Adam and by SGD, in a constant rate of 0.3 and at the best one."""
    problem = rate_problem(linear() if memory is None else adam(linear(), memory=memory), horizon)
    if constant is not None:
        schedule = ol.Schedule.constant(horizon, {"learning_rate": 0.3})
        assert ol.evaluate(problem, schedule, record=2).objective == pytest.approx(constant, abs=1e-9)
    solution = ol.solve(problem, starts=1)
    assert solution.certificate.converged
    assert solution.objective == pytest.approx(optimum, abs=1e-8)


def test_least_squares_in_three_lines():
    """ḋ_b = −2η√c_b d_b/√V + η²ρ²/V in directions of variance c_b, with V = ρ²."""
    model, eta = adam(linear()), 0.7
    x = model.start(Q11=[0.05, 0.2], M11=[0.1, 0.05])
    drift = jax.jit(lambda: model.drift(x, model.settings({"learning_rate": eta})))()
    c, share = np.asarray(TWO.variance), np.asarray(TWO.share)
    d = (np.asarray(x["Q11"]) - 2 * np.asarray(x["M11"]) + share) / share
    V = np.sum(share * c * d) + 0.1
    found = (np.asarray(drift["Q11"]) - 2 * np.asarray(drift["M11"])) / share
    np.testing.assert_allclose(found, -2 * eta * np.sqrt(c / V) * d + eta**2, rtol=1e-12)


@pytest.mark.parametrize(
    ("corrected", "expected"), [(False, (0.23113, 0.10720, 0.04079)), (True, (0.22979, 0.10663, 0.04071))]
)
def test_two_conventions_for_the_first_squares(corrected, expected):
    """V from ρ²(0), or from 0 and divided by 1 − e^(−cα): the equations written down again, by SciPy."""
    c, eta, times = 5.0, 0.3, (1.0, 2.0, 4.0)
    variance, share = np.array([3.077, 0.3077]), np.array([0.25, 0.75])

    def motion(time, state):
        d, squares = state[:2], share @ (variance * state[:2]) + 0.1
        weight = -np.expm1(-c * time) if corrected else 1.0
        V = state[2] / weight if weight > 0 else squares
        moves = -2 * eta * np.sqrt(variance / V) * d + eta**2 * squares / V
        return [*moves, c * (squares - state[2])]

    first = 0.0 if corrected else share @ variance + 0.1
    by_hand = solve_ivp(motion, (0, 4), [1, 1, first], t_eval=times, rtol=1e-10, atol=1e-13, max_step=0.02)
    errors = share @ (variance[:, None] * by_hand.y[:2]) / 2
    np.testing.assert_allclose(errors, expected, atol=1e-5)
    model = adam(linear(ol.Spectrum(variance, share)), memory=c, bias_correction=corrected)
    schedule = ol.Schedule.constant(4.0, {"learning_rate": eta})
    run = ol.integrate(model, schedule, start=model.start(), record=np.array([0.0, *times]))
    # What the model counts as seen before the first step, 1e-4, is left with a correction.
    np.testing.assert_allclose(run["error"][1:], errors, atol=2e-5 if corrected else 1e-8)


MODELS = {
    "one unit": (lambda: linear(), {"Q11": 0.5, "M11": 0.1}),
    "no spectrum": (lambda: committee(1, 1, sigma_n=0.3, weight_decay=0.1), {"Q11": 0.5, "M11": 0.1}),
    "two units": (lambda: committee(2, 2, sigma_n=0.3, batch=2, weight_decay=0.1, spectrum=TWO), PAIR),
}
SETTINGS = {
    "infinite": {"epsilon": 0.05, "weight_decay": 0.2},
    "finite": {"memory": 5.0, "epsilon": 0.05},
    "corrected": {"memory": 5.0, "bias_correction": True},
}


@pytest.mark.parametrize(
    ("name", "setting", "nodes"),
    [
        ("one unit", "corrected", 8),
        ("no spectrum", "infinite", 40),
        pytest.param("no spectrum", "finite", 40, marks=pytest.mark.slow),
        pytest.param("two units", "infinite", 20, marks=pytest.mark.slow),
    ],
)
def test_closed_forms_are_the_quadrature(name, setting, nodes):
    make, values = MODELS[name]
    model = adam(make(), **SETTINGS[setting])
    x, u = model.start(**values), model.settings({"learning_rate": 0.4})
    rules = (None, ol.GaussHermite(nodes))
    drifts = jax.jit(lambda: [model.drift(x, u, quadrature=rule) for rule in rules])()
    closed, integrated = (model.layout.flatten(drift) for drift in drifts)
    np.testing.assert_allclose(closed, integrated, atol=1e-10 if name == "one unit" else 2e-5)


def test_squares_start_where_the_gradients_are():
    make, values = MODELS["two units"]
    model = adam(make(), memory=3.0)
    drift = jax.jit(lambda: model.drift(model.start(**values), model.settings()))()
    assert np.max(np.abs([drift.extras[scalar] for scalar in model.running])) < 1e-12
    corrected = adam(linear(), memory=3.0, bias_correction=True).start(squares=[0.7])
    assert corrected["V1"] / corrected["seen"] == pytest.approx(0.7)


def test_without_closed_forms_squares_come_from_the_quadrature():
    model = adam(committee(1, 1, activation="relu", sigma_n=0.3, spectrum=TWO), memory=3.0)
    x = model.start(Q11=0.5, M11=0.1)
    u = model.settings()
    points = np.random.default_rng(0).standard_normal((2, 400_000))
    Q, M, T = (float(np.asarray(TWO.variance) @ part) for part in (x["Q11"], x["M11"], TWO.share))
    student = np.sqrt(Q) * points[0]
    teacher = M / Q * student + np.sqrt(T - M**2 / Q) * points[1]
    residual = np.maximum(student, 0) - np.maximum(teacher, 0)
    squares = np.where(student > 0, residual**2 + u["sigma_n"] ** 2, 0.0)
    assert x["V1"] == pytest.approx(squares.mean(), abs=5 * squares.std() / np.sqrt(squares.size))


def test_off_the_axes_adam_has_one_scale_for_all():
    model = adam(linear(), aligned=False)
    x = model.start(Q11=0.2, M11=0.1)
    u = model.settings({"learning_rate": 0.4})
    V = float(linear().closed_moments(x, u).spread[0, 0])
    power = float(np.sum(np.asarray(TWO.variance) * np.asarray(TWO.share)))
    plain = linear().drift(x, linear().settings({"learning_rate": 0.4 / np.sqrt(power * V)}))
    np.testing.assert_allclose(model.drift(x, u).Q, plain.Q, rtol=1e-12)
    np.testing.assert_allclose(model.drift(x, u).M, plain.M, rtol=1e-12)


def test_weights_off_the_axes_are_not_simulated():
    model, schedule = adam(linear(), aligned=False), ol.Schedule.constant(0.1, {"learning_rate": 0.1})
    with pytest.raises(SpecificationError, match="mode must be 'overlaps'"):
        ol.simulate(model, schedule, start=model.start(), N=100, mode="weights")


def test_any_covariance_is_a_spectrum():
    """True Adam's mean step on correlated inputs is that of one scale, in inputs over C_ii^¼."""
    rng = np.random.default_rng(0)
    root = rng.standard_normal((6, 6))
    C, w = root @ root.T, rng.standard_normal(6)
    V = w @ C @ w + 0.1
    step = C @ w / np.sqrt(np.diag(C) * V)
    fourth = np.diag(C) ** 0.25
    turned = (C / np.outer(fourth, fourth)) @ (w * fourth) / np.sqrt(V)
    np.testing.assert_allclose(step * fourth, turned, rtol=1e-12)


def test_batches_follow_the_square_root_rule():
    """A step's drift grows as √B and its noise stays: η√B per step is η/√B per sample."""
    x = adam(linear()).start(Q11=0.2, M11=0.1)

    def changes(batch, eta):
        model = adam(linear(batch=batch))
        drift = model.drift(x, model.settings({"learning_rate": eta}))
        noise = eta**2 * np.asarray(TWO.share)
        return np.asarray(drift["Q11"]) - noise, noise

    pull, noise = changes(1.0, 0.3)
    pull_of_9, noise_of_9 = changes(9.0, 0.3)
    np.testing.assert_allclose(pull_of_9, 3 * pull, rtol=1e-12)
    np.testing.assert_allclose(noise_of_9, noise, rtol=1e-12)
    # Nine times fewer steps: with three times the rate, each sample does what it did before.
    pull_of_9, noise_of_9 = changes(9.0, 0.9)
    np.testing.assert_allclose(pull_of_9 / 9, pull, rtol=1e-12)
    np.testing.assert_allclose(noise_of_9 / 9, noise, rtol=1e-12)


def test_adjoints_are_finite_differences():
    model = adam(linear(), **SETTINGS["corrected"])
    u = model.settings({"learning_rate": 0.4})

    @jax.jit
    def drift(flat):
        return model.layout.flatten(model.drift(model.layout.unflatten(flat), u))

    # What was seen before the first step is small: away from there derivatives are of order 1.
    flat = jax.numpy.maximum(jax.numpy.asarray(model.layout.flatten(model.start(Q11=0.5, M11=0.1))), 0.05)
    jacobian = jax.jit(jax.jacrev(drift))(flat)
    for i in range(len(flat)):
        shift = 1e-6 * np.eye(len(flat))[i]
        difference = (drift(flat + shift) - drift(flat - shift)) / 2e-6
        np.testing.assert_allclose(jacobian[:, i], difference, atol=1e-7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory": 0.0}, "memory must be above 0, got 0"),
        ({"memory": "long"}, "memory"),
        ({"epsilon": -1.0}, "epsilon must be"),
        ({"momentum": 1.0}, "momentum must be below 1"),
        ({"bias_correction": True}, "bias_correction has an effect only with a finite memory"),
        ({"model": adagrad_norm(linear())}, "model must move by plain SGD"),
        ({"model": linear(ol.Spectrum([1.0, 0.0], [0.5, 0.5]))}, "model must have variance in all blocks"),
    ],
)
def test_bad_input_names_the_argument(changes, message):
    with pytest.raises(SpecificationError, match=message):
        adam(**{"model": linear()} | changes)


def test_no_squares_no_scale():
    with pytest.raises(SpecificationError, match="squares must be left out"):
        adam(linear()).start(squares=[1.0])
    with pytest.raises(SpecificationError, match="squares must be above 0"):
        adam(committee(1, 1), memory=1.0).start(Q11=1.0, M11=1.0)


# --- signs, the limit of no memory ----------------------------------------------------------------


def test_signs_under_a_spectrum():
    model = sign_sgd(spectrum=TWO)
    x, u = model.state(Q11=0.5, M11=0.1), model.settings()
    rules = (None, ol.QuasiMonteCarlo(16))
    closed, integrated = jax.jit(lambda: [model.drift(x, u, quadrature=rule) for rule in rules])()
    np.testing.assert_allclose(closed.Q, integrated.Q, atol=1e-3)
    np.testing.assert_allclose(closed.M, integrated.M, atol=1e-3)
    # One block of variance 1 is no spectrum.
    single, plain = sign_sgd(spectrum=ol.Spectrum([1.0], [1.0])), sign_sgd()
    one, other = (m.drift(m.state(Q11=0.5, M11=0.1), m.settings()) for m in (single, plain))
    np.testing.assert_allclose([one.Q[0], one.M[0]], [other.Q, other.M], rtol=1e-12)


# --- at finite N ----------------------------------------------------------------------------------


def power_law_blocks():
    """λ_i ∝ i^−1.5 in 255 directions, dyadic blocks."""
    place = np.arange(1.0, 256)
    c = place**-1.5 * 255 / np.sum(place**-1.5)
    block = np.floor(np.log2(place) + 1e-12).astype(int)
    sizes = np.bincount(block)
    return ol.Spectrum(np.bincount(block, c) / sizes, sizes / 255, largest=0.0)


def z_scores(model, start, sizes, seeds, mode, schedule=None):
    """Of all order parameters at the end, after extrapolation in the finite-size term: N^−1/2 or 1/N."""
    schedule = schedule or ol.Schedule.piecewise([0, 0.5, 1.0], {"learning_rate": [0.6, 0.3]})
    theory = ol.integrate(model, schedule, start=start, record=2)
    coarse, fine = (
        ol.simulate(model, schedule, start=start, N=N, seeds=seeds, seed=N, mode=mode, record=2, error=False)
        for N in sizes
    )
    x, y = (run.states[:, -1] for run in (coarse, fine))
    last = np.stack([theory[name][-1] for name in coarse.order_parameters])
    difference = 2 * y.mean(axis=0) - x.mean(axis=0) - last
    error = np.sqrt((4 * y.var(axis=0, ddof=1) + x.var(axis=0, ddof=1)) / seeds)
    # What was seen is the same in all runs.
    fluctuates = error > 1e-9
    assert np.all(np.abs(difference[~fluctuates]) < 1e-5)
    return difference[fluctuates] / error[fluctuates]


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["infinite", "finite"])
def test_the_chain_follows_the_drift(setting):
    model = adam(MODELS["two units"][0](), **SETTINGS[setting])
    z = z_scores(model, model.start(**PAIR), (200, 400), 400, "overlaps")
    assert np.max(np.abs(z)) < 4


@pytest.mark.slow
@pytest.mark.parametrize("spectrum", ["two blocks", "power law"])
@pytest.mark.parametrize("units", [1, 2])
@pytest.mark.parametrize("memory", [5.0, np.inf])
def test_true_adam_follows_the_drift(memory, units, spectrum):
    """On weights, with β₁ = 0.9. The memory ends after N/c steps: finite sizes matter as 1/N.

    An infinite memory is simulated by 1 − β₂ = 1/√N, and finite sizes matter as N^−1/2: hence 4N beside N.
    """
    blocks = TWO if spectrum == "two blocks" else power_law_blocks()
    base = linear(blocks) if units == 1 else committee(2, 2, sigma_n=0.3, spectrum=blocks)
    model = adam(base, memory=memory, epsilon=0.05, weight_decay=0.1)
    start = model.start(**{"Q11": 0.5, "M11": 0.1} if units == 1 else PAIR)
    sizes = (1020, 2040) if np.isfinite(memory) else (1020, 4080)
    z = z_scores(model, start, sizes, 16 if np.isfinite(memory) else 8, "weights")
    assert np.max(np.abs(z)) < 4


def test_short_memories_slow_a_linear_unit_down():
    """1 − 5δ/2 of the drift and 1 − 4δ of the noise are left, δ = 1 − β₂.

    A gradient g = r x has r and x normal and nearly independent; to first order in their correlation ⟨g/√v⟩
    is ⟨g²/√v⟩ of independent ones.
    """
    rng, delta, lanes = np.random.default_rng(0), 0.004, 4000
    v, drift, noise = np.ones(lanes), [], []
    for step in range(4000):
        squares = rng.standard_normal(lanes) ** 2 * rng.standard_normal(lanes) ** 2
        v += delta * (squares - v)
        if step >= 3 / delta:
            # Less the squares themselves, whose mean is 1 and whose scatter would hide the rest.
            drift.append(np.mean(squares / np.sqrt(v) - squares) / delta)
            noise.append(np.mean(squares / v - squares) / delta)
    # Terms of order δ² are 5 % of these, the scatter 3 %.
    assert np.mean(drift) == pytest.approx(-2.5, rel=0.12)
    assert np.mean(noise) == pytest.approx(-4.0, rel=0.12)


@pytest.mark.slow
def test_bias_correction_is_that_of_adam():
    """A state that has seen hardly anything, against Adam from nothing."""
    model = adam(linear(), memory=5.0, bias_correction=True)
    z = z_scores(model, model.start(), (1000, 2000), 16, "weights")
    assert np.max(np.abs(z)) < 4


@pytest.mark.slow
def test_batches_at_finite_size():
    """Batches of 4 at twice the rate, a quarter of the steps, end where single samples do."""
    single, batches = adam(linear(), memory=5.0), adam(linear(batch=4.0), memory=20.0)
    start = single.start()
    rates = (
        ol.Schedule.constant(2.0, {"learning_rate": 0.4}),
        ol.Schedule.constant(0.5, {"learning_rate": 0.8}),
    )
    ends = [
        ol.integrate(model, schedule, start=model.start(), record=2)["error"][-1]
        for model, schedule in zip((single, batches), rates, strict=True)
    ]
    assert ends[1] == pytest.approx(ends[0], rel=1e-9)
    z = z_scores(batches, batches.start(), (1000, 2000), 16, "weights", rates[1])
    assert np.max(np.abs(z)) < 4
    assert start["V1"] == pytest.approx(4 * batches.start()["V1"])


@pytest.mark.slow
def test_signs_at_finite_size():
    model = sign_sgd(spectrum=TWO)
    for mode in ("overlaps", "weights"):
        z = z_scores(model, model.state(), (500, 1000), 32, mode)
        assert np.max(np.abs(z)) < 4, mode
