"""Many passes over the same samples: reference values, exact limits, and bad input."""

import jax.numpy as jnp
import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError, UnphysicalStateError
from optlearn._theory.spectrum import marchenko_pastur_nodes, marchenko_pastur_nodes_for
from optlearn.models import FiniteData, LargeBatch

NAMES = ("Q", "M", "train_error", "test_error")

# κ, Q at the start, settings, and the four numbers after ten passes at η = 0.5, σ² = 0.25.
REFERENCE = [
    (0.5, 1, {}, (1.094430983, 0.450833876, 0.032122344, 1.192763232)),
    (1, 1, {}, (1.136791664, 0.750903981, 0.085468512, 0.634983701)),
    (2, 1, {}, (1.195328767, 0.967095949, 0.170701249, 0.261136869)),
    (1, 1, {"weight_decay": 0.1}, (0.842950783, 0.678434918, 0.097574740, 0.486080947)),
    (1, 0, {"batch": 4}, (0.486267951, 0.523368909, 0.165918954, 0.439530133)),
    (1, 0, {"weight_decay": 0.1, "label_noise": 0.5}, (0.891586682, 0.678434918, 0.243301386, 0.534716845)),
]


def final(model, horizon, settings, Q=0.0, names=NAMES, rate=0.5):
    schedule = ol.Schedule.constant(horizon, {"learning_rate": rate})
    found = ol.integrate(model, schedule, start=model.start(Q=Q), parameters=settings, record=2)
    return [found[name][-1] for name in names]


@pytest.mark.parametrize(("kappa", "Q", "settings", "expected"), REFERENCE)
def test_reference_values(kappa, Q, settings, expected):
    horizon = 10 * kappa / settings.get("batch", 1)
    np.testing.assert_allclose(final(FiniteData(kappa), horizon, settings, Q), expected, atol=1e-9)


def test_reference_values_for_given_nodes():
    model = FiniteData(2, nodes=((0.2, 1, 1.8), (0.3, 0.4, 0.3)))
    expected = (0.831707539, 0.801713486, 0.199897701, 0.228280568)
    np.testing.assert_allclose(final(model, 10, {"weight_decay": 0.1}), expected, atol=1e-9)


def test_reference_values_of_large_batches():
    model = LargeBatch(FiniteData(2, nodes=40))
    expected = (1.188243438, 0.945879796, 0.220310946, 0.296483846)
    np.testing.assert_allclose(final(model, 24, {}, Q=1, rate=0.3), expected, atol=1e-9)


def test_gradient_descent_on_all_samples_has_no_noise_and_memorises():
    model = LargeBatch(FiniteData(0.5), distinct=True)
    schedule = ol.Schedule.constant(4000, {"learning_rate": 0.3})
    found = ol.integrate(model, schedule, start=model.start(), parameters={"batch": 0.5}, record=2)
    assert found["train_error"][-1] < 1e-12
    np.testing.assert_array_equal([found[f"variance{i}"][-1] for i in range(1, 33)], 0)


def test_many_samples_are_online_learning():
    # κ → ∞: all eigenvalues are 1, and the course is that of a linear committee on fresh samples.
    model = FiniteData(1e12, nodes=4)
    online = ol.models.committee(1, 1, sigma_n=0.5, activation="linear")
    schedule = ol.Schedule.piecewise([0, 2, 5], {"learning_rate": [0.8, 0.3]})
    found = ol.integrate(model, schedule, start=model.start(Q=0.5))
    known = ol.integrate(online, schedule, start=online.state(Q11=0.5))
    np.testing.assert_allclose(found["Q"], known["Q11"], atol=1e-10)
    np.testing.assert_allclose(found["M"], known["M11"], atol=1e-10)
    np.testing.assert_allclose(found["test_error"], 2 * known["error"], atol=1e-10)


@pytest.mark.parametrize(("eta", "batch"), [(0.5, 1), (1.5, 1), (3.0, 4)])
def test_the_stationary_state_is_the_known_one(eta, batch):
    kappa, noise = 3.0, 0.25
    train, test = final(
        FiniteData(kappa, noise), 400, {"batch": batch}, names=("train_error", "test_error"), rate=eta
    )
    floor = noise * (1 - 1 / kappa) / (1 - eta / (2 * batch))
    assert train == pytest.approx(floor, abs=1e-9)
    assert test == pytest.approx(noise / (kappa - 1) + eta / (2 * batch) * floor, abs=1e-9)


@pytest.mark.parametrize("kappa", [0.5, 1.0, 2.0])
def test_rates_below_twice_the_batch_are_stable(kappa):
    model = FiniteData(kappa)

    def growth(rate):
        # So far out that labels do not matter.
        x = {"response": np.zeros(32), "variance": np.full(32, 1e9)}
        drift = model.drift(x, model.settings({"learning_rate": rate, "batch": 2.0}))
        return float(jnp.sum(model.shares * drift["variance"]))

    assert growth(3.999) < 0 < growth(4.001)


@pytest.mark.parametrize("kappa", [0.3, 1.0, 4.0])
def test_moments_of_the_spectrum(kappa):
    values, shares = marchenko_pastur_nodes(kappa, 12)
    c = 1 / kappa
    moments = [float(np.sum(shares * values**k)) for k in range(4)]
    np.testing.assert_allclose(moments, [1, 1, 1 + c, 1 + 3 * c + c**2], rtol=1e-12)
    assert np.all(values >= 0)
    if kappa < 1:
        assert shares[0] == 1 - kappa
        assert values[0] == 0


def test_nodes_converge_exponentially():
    errors = [final(FiniteData(1.0, nodes=J), 10, {}, names=("test_error",))[0] for J in (14, 16, 18, 64)]
    off = np.abs(np.array(errors[:3]) - errors[3])
    assert off[0] > 1e-9
    assert np.all(off[1:] < off[:-1] / 30)


@pytest.mark.parametrize(
    ("kappa", "time"),
    [
        (1.0, 100.0),
        pytest.param(1.0, 1500.0, marks=pytest.mark.slow),
        pytest.param(0.9, 900.0, marks=pytest.mark.slow),
        pytest.param(2.0, 2e4, marks=pytest.mark.slow),
    ],
)
def test_as_many_nodes_as_a_time_needs(kappa, time):
    nodes = marchenko_pastur_nodes_for(kappa, time)
    schedule = ol.Schedule.constant(time, {"learning_rate": 1.0})
    models = [FiniteData(kappa, nodes=count) for count in (nodes, 2 * nodes)]
    found = [ol.integrate(model, schedule, start=model.start(), record=2) for model in models]
    assert found[0]["test_error"][-1] == pytest.approx(found[1]["test_error"][-1], rel=1e-7)


@pytest.mark.parametrize("kappa", [0.9, 1.0, 1.1])
def test_training_for_longer_than_the_nodes_describe_is_an_error(kappa):
    def test_error(passes, nodes):
        model = FiniteData(kappa, nodes=nodes)
        schedule = ol.Schedule.constant(passes, {"learning_rate": 0.5})
        return ol.integrate(model, schedule, start=model.start(), record=3)["test_error"][-1]

    assert test_error(50, 32) == pytest.approx(test_error(50, 64), rel=1e-8)
    with pytest.raises(UnphysicalStateError, match=r"more than 16 nodes .*; use more nodes"):
        test_error(50, 16)


def test_the_bayes_error_is_that_of_the_best_ridge():
    model = FiniteData(2.0)
    # After long training with little noise of SGD the weights are those of ridge regression.
    errors = [
        final(model, 400, {"batch": 1e9, "weight_decay": decay}, names=("test_error",))[0]
        for decay in (0.12, 0.125, 0.13)
    ]
    assert errors[1] == pytest.approx(model.bayes_error, abs=1e-8)
    assert errors[1] < min(errors[0], errors[2])
    assert model.bayes_error == pytest.approx(0.175391, abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kappa": 0}, r"FiniteData: kappa must be above 0.*, got 0"),
        ({"kappa": -1.0}, "kappa"),
        ({"noise": -0.1}, "noise"),
        ({"nodes": 1}, "nodes"),
        ({"nodes": ((1.0, 2.0), (0.5, 0.6))}, "shares that sum to 1"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(SpecificationError, match=message):
        FiniteData(**arguments)


def test_batches_larger_than_the_data_are_refused():
    model = LargeBatch(FiniteData(1.0), distinct=True)
    with pytest.raises(SpecificationError, match="batch"):
        final(model, 2, {"batch": 1.5})


def test_an_interval_of_several_exact_steps_is_optimised_by_both_methods():
    # Twelve steps of a map in four intervals: a system that advances one step at a time.
    model = LargeBatch(FiniteData(1.0, nodes=8))
    problem = ol.Problem(
        model=model, start=model.start(), horizon=12, controls={"learning_rate": ol.Continuous(0.01, 0.6)}
    )
    direct, indirect = (ol.solve(problem, 4, method, starts=1) for method in ("direct", "indirect"))
    assert direct.objective == pytest.approx(indirect.objective, rel=1e-6)
    for solution in (direct, indirect):
        assert solution.certificate.converged
        values = solution.schedule["learning_rate"]
        for i in range(4):
            for shift in (-0.02, 0.02):
                other = np.clip(values + shift * (np.arange(4) == i), 0.01, 0.6)
                schedule = ol.Schedule.piecewise(solution.schedule.grid, {"learning_rate": other})
                assert ol.evaluate(problem, schedule, record=2).objective >= solution.objective - 1e-9
