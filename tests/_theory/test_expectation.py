"""Quadrature rules on integrals that are known, and the choice of a rule for a model."""

import warnings
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats
from tests.marks import slow_but

from optlearn import scenarios
from optlearn._engine.integrate import integrate
from optlearn._errors import AccuracyWarning, SpecificationError
from optlearn._schedule import Schedule
from optlearn._theory.expectation import (
    AutoQuadrature,
    GaussHermite,
    Grid,
    QuasiMonteCarlo,
    Table,
    summed_over,
)
from optlearn._theory.model import LearningModel
from optlearn._theory.order import Overlaps
from optlearn._theory.quadrature import (
    _difference,
    _values,
    choose_quadrature,
    coarser,
    finer,
    probe_states,
    quadrature_error,
)
from optlearn._theory.sample import Break
from optlearn._theory.sampler import partial_cholesky
from optlearn.models._committee import committee
from optlearn.models._curriculum import curriculum


def laid(rule, smooth, *cut):
    """Points and weights as NumPy arrays: what follows compiles nothing."""
    points, weights = rule.points(smooth, *cut)
    return np.asarray(points), np.asarray(weights)


def cut_at(*places):
    """Cut coordinate j at places[j]: a number, several, or None."""

    def cut(j, prefix):
        if places[j] is None:
            return None
        return jnp.tile(jnp.atleast_1d(jnp.asarray(places[j]))[None], (prefix.shape[0], 1))

    return cut


def linear_cuts(factor):
    """Cut where the fields ``factor @ ξ`` cross 0, one after the other: nested cuts."""

    def cut(j, prefix):
        return -(prefix @ factor[j, :j])[:, None] / factor[j, j]

    return cut


@pytest.mark.parametrize("nodes", [1, 2, 5, 20, 64])
def test_gauss_hermite_integrates_polynomials_exactly(nodes):
    points, weights = laid(GaussHermite(nodes), (False,))
    assert weights.shape == (nodes,)
    for power in range(min(2 * nodes, 12)):
        exact = stats.norm.moment(power) if power else 1.0
        np.testing.assert_allclose(weights @ points[:, 0] ** power, exact, rtol=1e-12, atol=1e-12)


def test_tensor_product_and_noise_nodes():
    points, weights = laid(GaussHermite(7, noise_nodes=3), (False, False, True))
    assert points.shape == (7 * 7 * 3, 3)
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-14)
    values = points[:, 0] ** 4 * points[:, 1] ** 2 * points[:, 2] ** 4
    np.testing.assert_allclose(weights @ values, 3 * 1 * 3, rtol=1e-12)


def test_no_dimensions():
    for rule in (GaussHermite(5), QuasiMonteCarlo(4)):
        points, weights = laid(rule, ())
        assert points.shape == (1, 0)
        np.testing.assert_array_equal(weights, [1])


@pytest.mark.parametrize("at", [0.0, -0.7, 1.9, 50.0, -50.0])
def test_a_cut_makes_jumps_and_bends_exact(at):
    points, weights = laid(GaussHermite(48), (False,), cut_at(at))
    x = points[:, 0]
    density, above = stats.norm.pdf(at), stats.norm.sf(at)
    np.testing.assert_allclose(weights.sum(), 1, rtol=0, atol=1e-12)
    np.testing.assert_allclose(weights @ (x > at), above, rtol=0, atol=1e-12)
    np.testing.assert_allclose(weights @ np.sign(x - at), 2 * above - 1, rtol=0, atol=1e-12)
    mean_distance = 2 * density + at * (1 - 2 * above)
    np.testing.assert_allclose(weights @ np.abs(x - at), mean_distance, rtol=1e-12)
    np.testing.assert_allclose(weights @ x**2, 1, rtol=0, atol=1e-12)


@pytest.mark.parametrize("nodes", [2, 3, 5, 40, 400])
def test_half_a_line_is_exact_for_polynomials(nodes):
    points, weights = laid(GaussHermite(nodes), (False,), cut_at(0.0))
    for power in range(min(2 * nodes, 12)):
        # E[x^k; x > 0] = 2^(k/2 − 1) Γ((k + 1)/2) / √π
        known = 2 ** (power / 2 - 1) * special.gamma((power + 1) / 2) / np.sqrt(np.pi)
        above = np.where(points[:, 0] > 0, points[:, 0] ** power, 0.0)
        assert weights @ above == pytest.approx(known, rel=1e-11)


@pytest.mark.parametrize("nodes", [48, 96, 128, 156, 200, 1000])
def test_far_cuts_of_many_nodes_keep_all_weight(nodes):
    """Round-off in weights times exp(y²/2) became weight itself: 10 instead of 1 (156 nodes, a cut at 14)."""
    for at in np.arange(0.0, 26.0, 2.0):
        points, weights = laid(GaussHermite(nodes), (False,), cut_at(at))
        assert weights.sum() == pytest.approx(1, abs=2e-13)
        assert weights @ points[:, 0] ** 2 == pytest.approx(1, abs=2e-12)


@pytest.mark.parametrize("places", [(-0.4, 0.9), (0.9, -0.4), (0.9, 30.0, -0.4)])
def test_several_cuts_of_one_line(places):
    points, weights = laid(GaussHermite(48), (False,), cut_at(places))
    x = points[:, 0]
    inside = stats.norm.cdf(0.9) - stats.norm.cdf(-0.4)
    assert weights.shape == (48 * (len(places) + 1),)
    np.testing.assert_allclose(weights.sum(), 1, rtol=0, atol=1e-12)
    np.testing.assert_allclose(weights @ ((x > -0.4) & (x < 0.9)), inside, rtol=0, atol=1e-12)
    between = stats.norm.pdf(-0.4) - stats.norm.pdf(0.9)
    np.testing.assert_allclose(weights @ np.where((x > -0.4) & (x < 0.9), x, 0), between, rtol=0, atol=1e-12)


def test_a_jump_without_a_cut_costs_what_the_documentation_says():
    # About 1/n, and no better: the reason for cuts.
    errors = []
    for nodes in (20, 80):
        points, weights = laid(GaussHermite(nodes), (False,))
        errors.append(abs(float(weights @ (points[:, 0] > 0.3)) - stats.norm.sf(0.3)))
    assert min(errors) > 1e-4


def test_jumps_far_away_do_no_harm_with_few_nodes():
    # As for the second of two nearly parallel fields: the cut runs away to ±∞.
    for at in (9.5, -1e6, 1e300):
        points, weights = laid(GaussHermite(16), (False,), cut_at(at))
        # 16 nodes a side reach to 4.8 standard deviations; beyond lie 1.6e-6 of the mass.
        np.testing.assert_allclose(weights.sum(), 1, rtol=0, atol=3e-6)
        np.testing.assert_allclose(weights @ points[:, 0] ** 2, 1, rtol=0, atol=1e-4)


# Eight nodes are too few for four standard deviations, up to which they follow a cut all the same: a jump
# that passed nodes there would make an objective rough.
@pytest.mark.parametrize(("nodes", "allowed"), [(8, 1.1e-2), (12, 5e-5), (16, 2e-6), (24, 3e-9)])
def test_cuts_that_run_away_are_accurate_on_their_way(nodes, allowed):
    # Two bends around the middle, as those of a Huber loss where what is missed becomes small.
    for at in np.linspace(0, 1.2 * 2.4 * np.sqrt(nodes), 60):
        points, weights = laid(GaussHermite(nodes), (False,), cut_at((-at, at)))
        mean = float(weights @ (points[:, 0] * np.clip(points[:, 0], -at, at)))
        assert mean == pytest.approx(1 - 2 * stats.norm.sf(at), abs=allowed)


@pytest.mark.parametrize("correlation", [-0.9, 0.0, 0.3, 0.95])
def test_nested_cuts_give_the_arc_cosine_kernels(correlation):
    gram = jnp.array([[2.0, correlation * np.sqrt(3.0)], [correlation * np.sqrt(3.0), 1.5]])
    factor = partial_cholesky(gram, (0, 1))
    points, weights = laid(GaussHermite(48), (False, False), linear_cuts(factor))
    x, y = np.asarray(factor) @ points.T
    angle, scale = np.arccos(correlation), np.sqrt(3.0)
    signs = 1 - 2 * angle / np.pi
    relus = scale * (np.sin(angle) + (np.pi - angle) * correlation) / (2 * np.pi)
    np.testing.assert_allclose(weights.sum(), 1, rtol=0, atol=1e-12)
    # The inner integral of a jump is a smooth function that steepens as the fields align.
    tolerance = 1e-11 if abs(correlation) < 0.5 else 1e-5
    np.testing.assert_allclose(weights @ (np.sign(x) * np.sign(y)), signs, atol=tolerance)
    positive = np.maximum(x, 0) * np.maximum(y, 0)
    np.testing.assert_allclose(weights @ positive, relus, atol=tolerance)


def test_cuts_are_differentiable():
    def above(gram):
        factor = partial_cholesky(gram, (0, 1))
        points, weights = GaussHermite(40).points((False, False), linear_cuts(factor))
        x, y = factor @ points.T
        return weights @ (jax.nn.relu(x) * jax.nn.relu(y))

    # Price: ∂E[r(x) r(y)]/∂G₀₁ = P(x > 0, y > 0) = ¼ + arcsin(ρ)/2π.
    gram = jnp.array([[1.0, 0.4], [0.4, 1.0]])
    slope = jax.jit(jax.grad(above))(gram)
    quadrant = 0.25 + np.arcsin(0.4) / (2 * np.pi)
    np.testing.assert_allclose(slope[0, 1] + slope[1, 0], quadrant, rtol=1e-9)


@pytest.mark.parametrize("log2", [2, 9, 14])
@pytest.mark.parametrize("dimension", [1, 3, 8])
def test_quasi_monte_carlo_points(log2, dimension):
    points, weights = laid(QuasiMonteCarlo(log2), (False,) * dimension)
    assert points.shape == (2**log2, dimension)
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-13)
    # Mirrored pairs: odd moments vanish.
    np.testing.assert_allclose(weights @ points, np.zeros(dimension), atol=1e-14)
    np.testing.assert_allclose(weights @ points**3, np.zeros(dimension), atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_quasi_monte_carlo_error(seed):
    # Smooth in 4 dimensions: with 2¹⁴ points plain Monte Carlo would be at 5e-3. Bounds are twice
    # the largest error over 20 seeds.
    points, weights = laid(QuasiMonteCarlo(14, seed), (False,) * 4)
    exact = np.exp(0.5 * 4 * 0.3**2)
    assert abs(float(weights @ np.exp(0.3 * points.sum(axis=1))) - exact) < 5e-4
    # A jump costs accuracy, not correctness.
    assert abs(float(weights @ (points.sum(axis=1) > 0.5)) - stats.norm.sf(0.25)) < 5.3e-3


def test_seeds_differ():
    first, second = (laid(QuasiMonteCarlo(6, seed), (False,))[0] for seed in (0, 1))
    assert not np.allclose(first, second)


@pytest.mark.parametrize(
    "make",
    [
        partial(GaussHermite, 0),
        partial(GaussHermite, 2.5),
        partial(GaussHermite, 4, noise_nodes=0),
        partial(GaussHermite, 4, noise_nodes=-2),
        partial(QuasiMonteCarlo, 1),
        partial(QuasiMonteCarlo, 25),
        partial(QuasiMonteCarlo, 10.5),
        partial(AutoQuadrature, 0.0),
        partial(AutoQuadrature, 1.0),
        partial(AutoQuadrature, np.nan),
        partial(AutoQuadrature, points=255),
    ],
)
def test_wrong_arguments_of_rules(make):
    with pytest.raises(SpecificationError, match=r"\w+: \w+ must be .*, got "):
        make()


def problems():
    easy = curriculum(weight_decay=0.1)
    yield easy, easy.state(Q11=1, Q22=0.5, M11=0.7), {"difficulty": 1.5}, AutoQuadrature(1e-3)
    noisy = committee(K=1, M=1, sigma_n=0.3, weight_decay=0.05)
    yield noisy, noisy.state(Q11=0.5, M11=0.3), {}, AutoQuadrature(1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("problem", list(problems()), ids=lambda p: type(p[0]).__name__)
def test_the_chosen_rule_is_as_accurate_as_asked(problem):
    model, start, overrides, wanted = problem
    u = model.settings(overrides)
    states = probe_states(model, start)
    rule, error = choose_quadrature(model, states, u, wanted)
    assert error <= wanted.accuracy
    for flat in states:
        x = model.layout.unflatten(jnp.asarray(flat))
        closed = np.asarray(model.layout.flatten(model.closed_drift(x, u)))
        found = np.asarray(model.layout.flatten(jax.jit(partial(model.drift, quadrature=rule))(x, u)))
        scale = max(1.0, np.abs(closed).max())
        assert np.max(np.abs(found - closed)) <= wanted.accuracy * scale
    # And it is not needlessly fine: with 24 nodes, the next coarser choice, the committee's drift is off
    # by 2.6e-4 of itself, which is what the accuracy is relative to.
    assert np.max(rule.nodes) <= 48


@pytest.mark.slow
def test_too_few_points_warn():
    model, start, overrides, _ = next(problems())
    u, states = model.settings(overrides), probe_states(model, start)
    with pytest.warns(AccuracyWarning, match=r"Curriculum is only accurate to .* instead of 1.0e-03"):
        rule, error = choose_quadrature(model, states, u, AutoQuadrature(points=256))
    assert error > 1e-3
    # What it says of the error is honest within a factor 10.
    x = model.layout.unflatten(jnp.asarray(states[0]))
    drifts = (model.closed_drift(x, u), jax.jit(partial(model.drift, quadrature=rule))(x, u))
    closed, found = (np.asarray(model.layout.flatten(d)) for d in drifts)
    assert np.max(np.abs(found - closed)) < 10 * error


def test_a_grid_has_no_more_points_than_are_allowed():
    """Four nodes in each of ten dimensions are a million points, where 512 were allowed."""
    problem = scenarios.attention(control="token_mask", points=512)
    model, wanted = problem.model, problem.quadrature
    states = probe_states(model, problem.start)
    with pytest.warns(AccuracyWarning):
        rule, _ = choose_quadrature(model, states, problem.settings | {"mask": 1.0}, wanted)
    assert rule == QuasiMonteCarlo(9)


class Tempered(LearningModel):
    """Not a number where the temperature is 0."""

    def loss(self, fields, x, latent, u):
        heat = u["temperature"]
        return heat * jax.nn.softplus((fields.teacher[0, 0] - fields.student[0, 0]) / heat)


def test_a_drift_that_is_not_a_number_is_said_with_the_settings():
    model = Tempered(
        students=1, overlaps=Overlaps(T=1.0), parameters={"learning_rate": 0.5, "temperature": 1.0}
    )
    states = probe_states(model, model.state(Q11=1.0, M11=0.5))
    with pytest.warns(AccuracyWarning, match=r"drift of Tempered is not a number .* temperature = 0: check"):
        choose_quadrature(model, states, model.settings({"temperature": 0.0}), AutoQuadrature())


@pytest.mark.slow
def test_a_loose_accuracy_takes_few_points_and_no_warning():
    model, start, _, _ = list(problems())[1]
    states = probe_states(model, start)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rule, error = choose_quadrature(model, states, model.settings(), AutoQuadrature(1e-2))
    assert rule.nodes <= 12
    assert rule.noise_nodes == 3
    assert quadrature_error(model, states, model.settings(), rule) == pytest.approx(error, abs=1e-9)


class SignMetric(LearningModel):
    """A smooth loss, and a metric that jumps: a rule that suits the one does not suit the other."""

    def loss(self, fields, x, latent, u):
        return (fields.teacher[0, 0] - fields.student[0, 0]) ** 2 / 2

    def metric(self, fields, x, latent, u):
        return (1 - jnp.sign(fields.teacher[0, 0]) * jnp.sign(fields.student[0, 0])) / 2


@pytest.mark.slow
def test_the_error_has_a_rule_of_its_own():
    model = SignMetric(students=1, overlaps=Overlaps(T=1.0), parameters={"learning_rate": 0.5})
    start = model.state(Q11=1.0, M11=0.75)
    with pytest.warns(AccuracyWarning, match="error of SignMetric is only accurate to"):
        path = integrate(model, Schedule.constant(0.1, {}), start=start, record=2)
    exact = np.arccos(path["M11"] / np.sqrt(path["Q11"])) / np.pi
    # The warning states how far off it is; the rule that was chosen keeps to that, twice at most.
    assert np.all(np.abs(path["error"] - exact) <= 2 * path.info["error_quadrature_error"])
    # The larger of two comparisons: a jump that is not declared costs 1/n, one of them alone falls short.
    assert path.info["error_quadrature_error"] < 3e-3
    assert path.info["quadrature_error"] < 1e-7


# --- what a finer quadrature claims ---------------------------------------------------------------


class Threshold(LearningModel):
    """The label of a perceptron, which jumps."""

    def loss(self, fields, x, latent, u):
        return (1 - jnp.sign(fields.teacher[0, 0]) * jnp.tanh(fields.student[0, 0])) ** 2


class Hinge(LearningModel):
    """A loss that also bends, at a place that no ``breaks`` can name."""

    def loss(self, fields, x, latent, u):
        return jnp.maximum(0.0, 0.5 - jnp.sign(fields.teacher[0, 0]) * jnp.tanh(fields.student[0, 0])) ** 2


class TwoSlots(LearningModel):
    """Two slots, the first with two clusters, read by one student together."""

    def loss(self, fields, x, latent, u):
        return (
            jnp.tanh(fields.teacher[0, 0]) - jnp.tanh(fields.student[0, 0] + fields.student[1, 0])
        ) ** 2 / 2


def integrated():
    """Models without closed forms, a quadrature of each, one of ten times its points, and a factor.

    The claim may be too small by the factor: where fields are long, or a bend is not declared, errors fall
    slowly with the number of nodes, and a difference shows a part of them; sampling errors of two quadratures
    are independent.
    """
    one = {"students": 1, "parameters": {"learning_rate": 0.8}, "overlaps": Overlaps(T=1.0)}
    jumps = (Break("teacher", 0, 0),)
    means = Overlaps(T=1.0, S=[[0.3, -0.3]], Omega=[[1.0, 0.2], [0.2, 1.0]])
    slots = TwoSlots(**{**one, "overlaps": means}, slots=2, clusters=(2, 0))
    return {
        "relu": (
            committee(K=1, M=1, activation="relu", sigma_n=0.2),
            GaussHermite(8, 3),
            GaussHermite(60, 5),
            1.2,
        ),
        "threshold": (Threshold(**one, breaks=jumps), GaussHermite(12), GaussHermite(120), 1.2),
        "hinge": (Hinge(**one, breaks=jumps), GaussHermite(12), GaussHermite(200), 3.0),
        "slots": (slots, GaussHermite(12), GaussHermite(40), 1.5),
        "slots sampled": (slots, QuasiMonteCarlo(10), GaussHermite(40), 2.0),
    }


@pytest.mark.parametrize(
    "case", slow_but(["relu", "threshold"], ["relu", "threshold", "hinge", "slots", "slots sampled"])
)
def test_an_error_is_what_a_finer_quadrature_says(case):
    model, rule, reference, factor = integrated()[case]
    u, rng = model.settings(), np.random.default_rng(0)

    def drift(rule):
        return jax.jit(lambda flat: model.layout.flatten(model.drift(model.layout.unflatten(flat), u, rule)))

    coarse, fine, exact = (drift(r) for r in (rule, finer(rule), reference))
    errors = []
    for _ in range(6):
        Q, cosine = rng.uniform(0.1, 1.5), rng.uniform(-0.9, 0.9)
        entries = {"Q11": Q, "M11": cosine * np.sqrt(Q)}
        if model.clusters:
            entries |= {"R11": 0.3 * np.sqrt(Q) * cosine, "R12": -0.3 * np.sqrt(Q) * cosine}
        flat = model.layout.flatten(model.state(**entries))
        found, better, right = (np.asarray(f(flat)) for f in (coarse, fine, exact))
        error, claimed = np.abs(found - right).max(), np.abs(found - better).max()
        assert error <= factor * claimed + 1e-9
        errors.append((error, np.abs(better - right).max()))
    coarse_error, fine_error = np.max(errors, axis=0)
    assert fine_error <= max(coarse_error, 1e-9)


def test_a_finer_quadrature_has_other_points():
    for rule in (GaussHermite(8), GaussHermite(8, 3), QuasiMonteCarlo(6, 3)):
        smooth = (False, True)
        coarse, fine = (np.asarray(r.points(smooth)[0]) for r in (rule, finer(rule)))
        assert len(fine) >= 2 * len(coarse)
        assert np.abs(coarse[:, None, :] - fine[None, :, :]).max(axis=2).min() > 1e-6
    assert finer(QuasiMonteCarlo(24)) == QuasiMonteCarlo(24, 1)


def test_equal_steps_need_fewer_nodes_where_an_integrand_is_narrow():
    """E[exp(−3 ξ²)] = 1/√7: so narrow are squared slopes of steep units, and Gauss-Hermite is far off."""
    errors = []
    for rule in (Grid((24,)), GaussHermite(24)):
        points, weights = laid(rule, (False,))
        errors.append(abs(weights @ np.exp(-3 * points[:, 0] ** 2) * np.sqrt(7) - 1))
    assert errors[0] < 1e-6
    assert errors[0] < errors[1] / 100


@pytest.mark.parametrize("rule", [GaussHermite(6, 3), Grid((7, 5, 2)), QuasiMonteCarlo(8, 3)], ids=str)
def test_a_table_is_its_rule(rule):
    """Blocks, cuts that depend on the coordinate before, and blocks that are not used."""
    smooth, cut = (False, False, True), cut_at(0.3, (-0.4, 1.0), None)
    table = Table.of(rule, (2, 3, 0), block=50)
    larger = table.holding(finer(rule)).holding(rule)
    assert table.rule == larger.rule == rule
    assert len(larger.weights) > len(table.weights)
    assert larger.used == len(table.weights)

    def moments(quadrature):
        points, weights = quadrature.points(smooth, cut)
        return jnp.stack([weights.sum(), weights @ points[:, 0], weights @ jnp.exp(points[:, 1])])

    expected = np.asarray(moments(rule))
    for each in (table, larger):
        for derivatives in ("backwards", "forwards", "symbolic"):
            arranged = replace(each, derivatives=derivatives)
            assert arranged.holding(rule).derivatives == derivatives
            np.testing.assert_allclose(np.asarray(summed_over(arranged, moments)), expected, atol=1e-14)


def test_sums_over_a_table_have_the_derivatives_of_its_rule():
    """Backwards, forwards, and forwards over backwards, by what the integrand reads of its surroundings."""
    rule, smooth, cut = GaussHermite(6, 3), (False, False, True), cut_at(0.3, (-0.4, 1.0), None)
    table = Table.of(rule, (2, 3, 0), block=50)
    at, along = jnp.array([0.7, -0.3]), jnp.array([0.2, 1.0])

    def total(arranged):
        def of(parameters):
            def moment(quadrature):
                points, weights = quadrature.points(smooth, cut)
                return weights @ jnp.sin(points[:, :2] @ parameters + points[:, 2] ** 2)

            return summed_over(arranged, moment) * parameters[0]

        return of

    backwards, forwards = (replace(table, derivatives=each) for each in ("backwards", "forwards"))
    gradient = jax.grad(total(rule))
    np.testing.assert_allclose(jax.grad(total(backwards))(at), gradient(at), atol=1e-14)
    np.testing.assert_allclose(jax.jacfwd(total(forwards))(at), gradient(at), atol=1e-14)
    curved = jax.jvp(gradient, (at,), (along,))[1]
    np.testing.assert_allclose(jax.jvp(jax.grad(total(backwards)), (at,), (along,))[1], curved, atol=1e-14)


def test_half_of_a_table_is_enough_for_even_integrands():
    for rule in (GaussHermite(5), Grid((5, 4)), QuasiMonteCarlo(6)):
        half, whole = (Table.of(rule, (1, 1), mirrored=mirrored) for mirrored in (True, False))
        assert half.weights.size <= whole.weights.size / 2 + 1
        even = [np.sum(t.weights * np.cos(t.positions @ np.array([1.0, 2.0]))) for t in (half, whole)]
        assert abs(even[0] - even[1]) < 1e-14


@pytest.mark.parametrize("nodes", [(14, 9, 2), (8, 14, 2), (9, 11, 2)])
@pytest.mark.parametrize("mirrored", [False, True])
def test_two_nodes_of_label_noise_cost_nothing(nodes, mirrored):
    """Exact for squares of the noise; what is odd in it vanishes, on half of an even integrand's grid too."""
    rule = Grid(nodes)
    table = Table.of(rule, (1, 1, 0), mirrored=mirrored)
    free = any(count % 2 == 0 for count in nodes[:-1])
    assert rule.size((1, 1, 0)) == np.prod(nodes) / (2 if free else 1)
    x, weights = table.positions.reshape(-1, 3), table.weights.ravel()
    slope = np.tanh(x[:, 0] - 0.5 * x[:, 1])
    missed = slope + 0.1 * x[:, 2]
    fine = GaussHermite(40).grid((1, 1))
    expected = fine[1] @ np.tanh(fine[0][:, 0] - 0.5 * fine[0][:, 1]) ** 2 + 0.01
    assert weights @ missed**2 == pytest.approx(expected, abs=2e-3)
    assert weights @ (slope * x[:, 2]) == pytest.approx(0.0, abs=2e-3)


def test_a_coarser_table_has_the_same_shape():
    for rule in (GaussHermite(12), Grid((16, 12)), QuasiMonteCarlo(14)):
        table = Table.of(rule, (1, 1), block=64)
        coarse = coarser(table)
        assert coarse.positions.shape == table.positions.shape
        assert coarse.used <= table.used / 2
    assert coarser(Table.of(GaussHermite(12), (1, 1))) is None


def test_a_grid_says_how_many_dimensions_it_lacks():
    with pytest.raises(SpecificationError, match="has 3 dimensions"):
        Grid((4, 4)).points((False,) * 3)


def test_a_grid_for_the_drift_is_not_tried_for_an_error_of_fewer_dimensions():
    """A metric without label noise has one coordinate fewer than the loss."""
    model = committee(K=1, M=1, sigma_n=0.5)
    states, wanted = probe_states(model, model.state(Q=0.5)), AutoQuadrature(0.3)
    rule, error = choose_quadrature(model, states, model.settings(), wanted, "error", Grid((6, 6, 2)))
    assert rule == GaussHermite(6)
    assert error <= wanted.accuracy


class Drawn(LearningModel):
    """Squared sum of units of random steepness, smooth or bent where no break says so."""

    def loss(self, fields, x, latent, u):
        z = u["steepness"] * fields.student[0, 0] + u["shift"]
        bent = jnp.maximum(z, 0.0)
        return (u["weights"] @ jnp.where(u["bent"] > 0, bent, jnp.tanh(z)) - fields.teacher[0, 0]) ** 2 / 2


@pytest.mark.parametrize("bent", [0.0, 1.0], ids=["smooth", "bent"])
def test_errors_are_not_understated_by_much(bent):
    """Random units, large and nearly singular covariances, every kind of rule: at most by a factor of 3."""
    rng = np.random.default_rng(7)
    # Equal steps converge slowly where a squared slope jumps.
    reference, slack = (QuasiMonteCarlo(18, seed=9), 1e-3) if bent else (Grid((1200, 40)), 1e-7)
    with jax.enable_x64(True):
        for _ in range(6):
            numbers = {
                "steepness": 10 ** rng.uniform(-0.5, 0.7) * rng.standard_normal(3),
                "shift": rng.standard_normal(3),
                "weights": rng.standard_normal(3),
            }
            model = Drawn(
                students=1,
                overlaps=Overlaps(T=1.0),
                parameters={"learning_rate": 1.0, "bent": bent, **numbers},
            )
            length = 10 ** rng.uniform(-0.5, 0.5)
            start = model.state(Q11=length**2, M11=length * rng.choice([0.3, 1 - 1e-9]))
            states, u = probe_states(model, start), model.settings()
            known = _values(model, u, states, reference, "drift")
            rules = [GaussHermite(8), GaussHermite(20), Grid((9, 9)), Grid((30, 8)), QuasiMonteCarlo(12)]
            for rule in rules:
                true = _difference(_values(model, u, states, rule, "drift"), known)
                assert true <= 3 * quadrature_error(model, states, u, rule) + slack, (rule, numbers)
