"""Least squares with a spectrum: the exact recursion, its limit, and what others found."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import optlearn as ol
from optlearn._errors import SpecificationError

LINE = [1 - (k + 0.5) / 40 for k in range(40)]

# Half the excess risk at α = 10: easy and hard, under η = 0.2, η = 0.5 and a line from 1 to 0 (theory sheet,
# LIN).
ENDS = {
    (0.5, False): (0.0073079333722, 0.0173330497339, 0.0030618299237),
    (-0.3, False): (0.0712345983745, 0.0658390287133, 0.0414508898265),
    (0.5, True): (0.007556311035, 0.019892237507, 0.003191208456),
    (-0.3, True): (0.071735402493, 0.070227035044, 0.041732759100),
}


@pytest.mark.parametrize(("exponent", "recursion"), ENDS)
def test_reference_values(exponent, recursion):
    problem = ol.scenarios.power_law(teacher_exponent=exponent, recursion=recursion)
    grid = np.linspace(0, 10, 41)
    for rates, expected in zip(([0.2] * 40, [0.5] * 40, LINE), ENDS[exponent, recursion], strict=True):
        found = ol.evaluate(problem, ol.Schedule.piecewise(grid, {"learning_rate": rates}))
        assert found.objective == pytest.approx(expected, abs=1e-9)
    assert found["error"][0] == pytest.approx(0.5)


def small(recursion, noise=0.3, N=60, **more):
    spectrum = ol.Spectrum([3.0, 1.0, 0.2], [0.1, 0.4, 0.5])
    return ol.models.linear(spectrum, [0.4, 0.8, 2.0], noise=noise, N=N, recursion=recursion, **more)


def stepped(model, eta, batch, steps):
    """The recursion, written out."""
    c, share, N = model.spectrum.variance, model.spectrum.share, float(model.N)
    s, gamma, noise = model.teacher.copy(), eta / N, float(model.parameters["noise"])
    for _ in range(steps):
        fed = N * share * c * (c @ s + noise * model.noise_shape) / batch
        s = s - 2 * gamma * c * s + gamma**2 * (c**2 * s * (1 + 1 / batch) + fed)
    return s


@pytest.mark.parametrize("steps", [1, 7, 90])
@pytest.mark.parametrize("shape", [1.0, [0.5, 1.0, 2.0]])
def test_a_stretch_of_the_recursion_is_its_steps(steps, shape):
    model = small(True, noise_shape=shape)
    u = model.settings({"learning_rate": 0.7, "batch": 3.0})
    found = model.advance(model.start(), u, np.asarray(steps / 60))
    np.testing.assert_allclose(found["excess"], stepped(model, 0.7, 3.0, steps), rtol=1e-12)


def test_a_part_of_a_step_is_its_part():
    model = small(True)
    u = model.settings()
    before, after = (model.advance(model.start(), u, np.asarray(k / 60))["excess"] for k in (3, 4))
    between = model.advance(model.start(), u, np.asarray(3.25 / 60))["excess"]
    np.testing.assert_allclose(between, 0.75 * before + 0.25 * after, rtol=1e-12)


def test_the_limit_is_the_committee_of_one_linear_node():
    model = small(False)
    network = model.network
    schedule = ol.Schedule.piecewise([0, 1, 2.5], {"learning_rate": [0.8, 0.3]})
    theirs = ol.integrate(network, schedule, start=network.state())
    ours = ol.integrate(model, schedule, start=model.start())
    assert ours["error"][-1] == pytest.approx(theirs["error"][-1], rel=1e-10)
    x, u = model.start(), model.settings({"learning_rate": 0.8})
    moved = network.drift(network.state(), network.settings({"learning_rate": 0.8}))
    np.testing.assert_allclose(model.drift(x, u)["excess"], moved["Q11"] - 2 * moved["M11"], atol=1e-14)


def test_many_directions_go_step_by_step():
    spectrum = ol.Spectrum.power_law(80, 1.2, blocks=None)
    full = ol.models.linear(spectrum, 1.0, noise=0.1, N=80, recursion=True)
    assert full.spectrum.blocks > 64
    found = full.advance(full.start(), full.settings(), np.asarray(2.0))
    np.testing.assert_allclose(found["excess"], stepped(full, 0.5, 1.0, 160), rtol=1e-11)


def test_where_training_ends():
    for model in (small(True), small(False)):
        run = ol.integrate(model, ol.Schedule.constant(400, {"learning_rate": 0.6}), start=model.start())
        assert 2 * run["error"][-1] == pytest.approx(model.stationary_risk(learning_rate=0.6), rel=1e-8)
    assert small(True).stationary_risk(learning_rate=5.0) == np.inf
    # Mean variance c̄ = 0.8: R = η c̄ σ²/(2 − η c̄).
    assert small(False).stationary_risk(learning_rate=0.6) == pytest.approx(0.48 * 0.3 / (2 - 0.48))


def power_law(N=1000, blocks=None, **more):
    """λ ∝ i^−1.5, T ∝ i^−0.5, σ² = 0.1: the setting of the theory sheet's simulations of least squares."""
    c = np.arange(1.0, N + 1) ** -1.5
    c, T = c * N / c.sum(), np.arange(1.0, N + 1) ** -0.5
    reduced = ol.Spectrum.reduce(c, T / (c @ T), blocks, training=4.0)
    return ol.models.linear(reduced.spectrum, reduced.teacher, noise=0.1, N=N, **more)


def test_where_training_ends_on_a_power_law():
    """η = 0.6: the limit is off by a fifth, since one direction has 39 % of the variance."""
    assert power_law(recursion=True).stationary_risk(learning_rate=0.6) == pytest.approx(0.052024, abs=1e-6)
    assert power_law(recursion=False).stationary_risk(learning_rate=0.6) == pytest.approx(0.042857, abs=1e-6)


@pytest.mark.parametrize(
    ("recursion", "risks"), [(True, (0.01232, 0.02186, 0.05318)), (False, (0.01221, 0.02053, 0.04402))]
)
def test_the_risk_after_8000_steps(recursion, risks):
    model = power_law(blocks=16, recursion=recursion)
    for rate, risk in zip((0.1, 0.3, 0.6), risks, strict=True):
        run = ol.integrate(model, ol.Schedule.constant(8, {"learning_rate": rate}), start=model.start())
        assert 2 * run["error"][-1] == pytest.approx(risk, rel=4e-3)


@pytest.mark.slow
def test_the_largest_stable_rate_of_power_laws():
    """2 in the limit at any N; much less in reality."""
    for exponent, threshold in ((1.2, 1.76), (1.5, 1.36), (2.0, 1.005)):
        spectrum = ol.Spectrum.power_law(100_000, exponent, 64)
        model = ol.models.linear(spectrum, noise=0.1, N=100_000, recursion=True)
        assert np.isfinite(model.stationary_risk(learning_rate=threshold - 0.02))
        assert model.stationary_risk(learning_rate=threshold + 0.02) == np.inf


def test_the_recursion_is_the_default_where_it_matters():
    narrow, wide = ol.Spectrum.power_law(1000, 1.5, 8), ol.Spectrum.power_law(1000, 0.3, 8)
    assert ol.models.linear(narrow, N=1000, eta=0.5).recursion
    assert not ol.models.linear(wide, N=1000, eta=0.5).recursion
    assert not ol.models.linear(narrow, N=1000, eta=0.01).recursion


@pytest.mark.parametrize(("b", "limit"), [(0.5, 1.167750), (0.25, 0.869834), (0.125, 0.483677)])
def test_the_greedy_rate_settles(b, limit):
    """Variances (1, b), half of the directions each, no noise: the locally best rate tends to a constant."""
    model = ol.models.linear(ol.Spectrum([1.0, b], [0.5, 0.5]), 1.0, N=1000, recursion=False)

    def greedy(s):
        slopes = [
            float(
                model.spectrum.variance
                @ model.drift({"excess": s}, model.settings({"learning_rate": eta}))["excess"]
            )
            for eta in (1.0, 2.0)
        ]
        curvature = (slopes[1] - 2 * slopes[0]) / 2
        return (curvature - slopes[0]) / (2 * curvature)

    def rate(_, s):
        size = s.sum()  # only the ratio matters, so the state is kept at size 1
        moved = np.asarray(
            model.drift({"excess": s / size}, model.settings({"learning_rate": greedy(s / size)}))["excess"]
        )
        return moved - moved.sum() * s / size

    end = solve_ivp(rate, (0, 60 / b), model.start()["excess"], method="LSODA", rtol=1e-10, atol=1e-12).y[
        :, -1
    ]
    assert greedy(end / end.sum()) == pytest.approx(limit, abs=2e-6)


@pytest.mark.parametrize(
    ("a", "b", "exponent", "times", "accuracy"),
    [
        (1.5, 0.5, 2 / 3, (0.01, 0.1), 0.02),
        (2.0, 0.5, 0.75, (0.01, 0.1), 0.02),
        # Late, before the smallest direction is learned; the last one comes no closer than 1.38 at this N.
        (2.0, 3.0, 1.5, (10.0, 32.0), 0.02),
        (1.5, 2.0, 4 / 3, (32.0, 100.0), 0.06),
    ],
)
def test_exponents_of_the_risk_at_a_constant_rate(a, b, exponent, times, accuracy):
    """R ~ t^−min((a + b − 1)/a, 2 − 1/a) (Paquette and others 2024)."""
    N = 100_000
    c = np.arange(1.0, N + 1) ** -a
    c, T = c * N / c.sum(), np.arange(1.0, N + 1) ** -b
    reduced = ol.Spectrum.reduce(c, T / (c @ T), 60, training=1e4)
    model = ol.models.linear(reduced.spectrum, reduced.teacher, N=N, recursion=True)
    schedule = ol.Schedule.constant(times[-1], {"learning_rate": 0.2})
    run = ol.integrate(model, schedule, start=model.start(), record=np.array(times))
    slope = np.diff(np.log(run["error"])) / np.diff(np.log(times))
    assert -slope[0] == pytest.approx(exponent, abs=accuracy)


def test_random_features():
    full = ol.models.random_features(60, 30, activation="erf", sigma_n=0.0, blocks=None)
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(61, 30))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    from scipy.special import erf

    fields = erf(rng.normal(size=(200_000, 30)) @ vectors.T / np.sqrt(2))
    data = ol.models.measured(fields[:, :60], fields[:, 60], centre=False)
    assert float(full.parameters["noise"]) == pytest.approx(data.noise, rel=0.02)
    np.testing.assert_allclose(full.spectrum.largest, data.largest, rtol=0.02)
    risk = 2 * float(full.error(full.start(), {}))
    assert risk == pytest.approx(np.mean(fields[:, 60] ** 2) - data.noise, rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"spectrum": None}, "must be a Spectrum"),
        ({"noise": -0.1}, "at least 0"),
        ({"teacher": [1.0, 2.0]}, "3 numbers"),
        ({"N": 2}, "fewer directions"),
        ({"batch": 0.5}, "at least 1"),
        ({"recursion": "yes"}, "True or False"),
    ],
)
def test_bad_input(arguments, message):
    spectrum = ol.Spectrum([3.0, 1.0, 0.2], [0.1, 0.4, 0.5])
    with pytest.raises(SpecificationError, match=message):
        ol.models.linear(**{"spectrum": spectrum, **arguments})


@pytest.mark.slow
def test_theory_and_sgd_of_least_squares():
    model = small(True, N=60)
    schedule = ol.Schedule.piecewise([0, 2, 4], {"learning_rate": [0.8, 0.2]})
    runs = ol.simulate(model, schedule, N=60, seeds=4000, record=[0, 1, 2, 4])
    theory = ol.integrate(model, schedule, start=model.start(), record=runs.alpha)
    for name in (*model.layout.names, "error"):
        scores = runs.z_scores(name, theory[name])[1:]
        assert np.all(np.abs(scores) < 4), (name, scores)


class ScalingLaw(ol.System):
    """J = 1/T + ∫ K(T − τ) η dτ with K(t) = (1 + t)^−3/2, in modes of K; T = ∫ η dt (Li and others 2026)."""

    rates: np.ndarray
    masses: np.ndarray
    parameters = {"learning_rate": 0.01}  # noqa: RUF012

    @property
    def names(self):
        return {"time": None, "noise": len(self.rates)}

    def advance(self, x, u, length):
        # Exactly: the fastest mode relaxes thousands of times in an interval.
        eta = u["learning_rate"]
        left = jnp.exp(-eta * self.rates * length)
        noise = left * x["noise"] + eta * self.masses / self.rates * (1 - left)
        return {"time": x["time"] + eta * length, "noise": noise}

    def error(self, x, u):
        return 1 / x["time"] + x["noise"].sum()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["direct", "indirect"])
def test_the_optimum_of_the_functional_scaling_law(method):
    """s = 1, β = 2, σ² = 1, 10⁵ steps: T = 624, η(0) = 0.02, J = 0.00416, η ∝ (5 − 4t/N)³."""
    # (1 + t)^−3/2 = ∫ √c e^−c e^−ct dc / Γ(3/2), equally spaced in log c.
    c = np.geomspace(1e-5, 40, 32)
    step = np.log(c[1] / c[0])
    masses = c**1.5 * np.exp(-c) * step / (np.sqrt(np.pi) / 2)
    N = 1e5
    problem = ol.Problem(
        model=ScalingLaw(rates=c, masses=masses),
        start={"time": 1e-3, "noise": 0.0},
        horizon=N,
        controls={"learning_rate": ol.Continuous(1e-5, 0.1, guess=0.006)},
        intervals=60,
    )
    solution = ol.solve(problem, method=method)
    assert solution.objective == pytest.approx(0.00416, rel=2e-3)
    middles = (np.arange(60) + 0.5) / 60
    expected = 4 * 4 / N * (5 - 4 * middles) ** 3
    np.testing.assert_allclose(solution.schedule["learning_rate"], expected, rtol=0.05)
    assert solution.trajectory["time"][-1] == pytest.approx(624, rel=0.01)
