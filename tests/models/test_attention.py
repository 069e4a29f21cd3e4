"""The attention model: its loss, what the rotation of tokens saves, its drift against SGD."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optlearn._engine.integrate import integrate
from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn._simulate.run import simulate
from optlearn._theory.expectation import QuasiMonteCarlo
from optlearn._theory.sample import Fields
from optlearn._theory.sampler import fields_read
from optlearn.models import attention
from optlearn.models._attention import token_rotation

# About 80 comparisons of means below, each |z| < 4.5 with probability 1 − 7e-6 (for the many seeds of a
# simulation): a correct program fails with probability 6e-4, once for all, since the seeds are fixed.
THRESHOLD = 4.5


def softmax_over_first(scores):
    weights = np.exp(scores)
    return weights / weights.sum(axis=0)


@pytest.mark.parametrize(("tokens", "heads", "tied"), [(2, 1, False), (3, 2, False), (3, 2, True)])
def test_the_loss_is_that_of_tokens_in_high_dimension(tokens, heads, tied):
    N = 200_000
    rng = np.random.default_rng(0)
    model = attention(tokens, heads, sigma=0.7, temperature=1.6, tied=tied)
    x = 0.7 * rng.standard_normal((N, tokens))
    w, w_star = rng.standard_normal((2, N, model.students))

    def output(w, beta):
        weights = 0.0
        for h in range(heads):
            query, key = (w[:, h], w[:, h]) if tied else (w[:, 2 * h], w[:, 2 * h + 1])
            weights = weights + softmax_over_first(beta * np.outer(x.T @ query, x.T @ key) / N) / heads
        return x @ weights

    expected = np.sum((output(w, 1.6) - output(w_star, 1.0)) ** 2) / (2 * N)
    slots = x @ token_rotation(tokens)
    fields = Fields(*(jnp.asarray(slots.T @ v / np.sqrt(N)) for v in (w, w_star)), jnp.zeros(()))
    found = model.loss(fields, None, {"hidden": jnp.zeros(())}, model.settings())
    # x_l·x_l'/N deviates from its limit by about 1/√N.
    np.testing.assert_allclose(found, expected, rtol=0.02)
    assert expected > 0.01


def test_slots_are_a_rotation_of_tokens():
    for tokens in (2, 3, 5):
        rotation = token_rotation(tokens)
        np.testing.assert_allclose(rotation @ rotation.T, np.eye(tokens), atol=1e-14)
        np.testing.assert_allclose(rotation[:, 0], 1 / np.sqrt(tokens))


def test_the_common_part_of_the_queries_is_not_read():
    reads = fields_read(attention(tokens=3, heads=2))
    expected = np.array([[False, True] * 2, [True] * 4, [True] * 4])
    np.testing.assert_array_equal(reads.student, expected)
    np.testing.assert_array_equal(reads.teacher, expected)


def states(model):
    # Students of some alignment each; signs differ, so that symmetries cannot hide errors.
    for Q, M in (((0.3, 0.2), (0.1, 0.05)), ((1.0, 0.8), (0.7, -0.3)), ((0.9, 1.1), (0.9, 1.0))):
        yield model.layout.flatten(model.state(Q=np.diag(Q), M=np.diag(M)))


class _Points(QuasiMonteCarlo):
    """Given points: one program for all of them."""

    def __init__(self, points):
        object.__setattr__(self, "given", points)

    def points(self, smooth, cut=None):
        return self.given, jnp.full(len(self.given), 1 / len(self.given))


def drift_under(model):
    """Compiled (points, flat state) → drift."""

    def drift(points, flat):
        found = model.drift(model.layout.unflatten(flat), model.settings(), _Points(points))
        return model.layout.flatten(found)

    return jax.jit(drift)


@pytest.mark.slow
def test_integrals_over_two_pairs_of_fields_are_those_over_six_fields():
    model = attention(eta=1.3, sigma=0.8, temperature=1.4)
    rules = [QuasiMonteCarlo(14, seed) for seed in range(12)]
    drift, u = drift_under(model), model.settings()
    closed = jax.jit(lambda x: model.layout.flatten(model.closed_drift(model.layout.unflatten(x), u)))
    for x in states(model):
        sampled = np.array([drift(rule.points((False,) * 6)[0], x) for rule in rules])
        error = sampled.std(axis=0, ddof=1) / np.sqrt(len(rules))
        # |t| < 6 with 11 degrees of freedom: 12 comparisons fail with probability 1e-3. 5e-4: see below.
        assert np.all(np.abs(sampled.mean(axis=0) - closed(x)) < 6 * error + 5e-4)
        assert np.all(6 * error < 0.005)


@pytest.mark.slow
def test_the_error_over_two_pairs_of_fields_is_that_over_six():
    model = attention(sigma=0.8)
    x = model.state(Q=np.diag([1.0, 0.8]), M=np.diag([0.7, -0.3]))
    error = jax.jit(lambda points: model.error(x, model.settings(), _Points(points)))
    sampled = np.array([error(QuasiMonteCarlo(14, seed).points((False,) * 6)[0]) for seed in range(12)])
    found = model.error(x, model.settings())
    assert abs(sampled.mean() - found) < 6 * sampled.std(ddof=1) / np.sqrt(12) + 5e-4


def test_queries_and_keys_of_two_tokens_stay_orthogonal():
    model = attention(temperature=1.7)
    everything = _tracking_all(model)
    assert set(model.layout.names) == {"Q11", "Q22", "M11", "M22"}
    x = everything.layout.flatten(everything.state(Q=np.diag([0.6, 0.9]), M=np.diag([0.3, 0.5])))
    # Every point also with the keys of both slots turned round: the symmetry is then exact.
    points = np.asarray(QuasiMonteCarlo(6).points((False,) * 6)[0])
    points = np.concatenate([points, points * [-1, -1, 1, -1, 1, -1]])
    found = dict(zip(everything.layout.names, drift_under(everything)(points, x), strict=True))
    np.testing.assert_allclose([found[name] for name in ("Q12", "M12", "M21")], 0.0, atol=1e-14)
    assert abs(found["M11"]) > 1e-3


def _tracking_all(model):
    fields = {part.name: getattr(model, part.name) for part in dataclasses.fields(model)}
    return type(model)(**{**fields, "untracked": frozenset(), "even": False})


@pytest.mark.slow
def test_half_the_points_are_enough_for_an_even_loss():
    model = attention(tokens=3)
    x = model.layout.flatten(model.state(Q=np.diag([0.5, 0.7]), M=[[0.2, 0.1], [-0.1, 0.4]]))
    points = QuasiMonteCarlo(6).points((False,) * 10)[0]
    found, expected = (drift_under(m)(points, x) for m in (model, _tracking_all(model)))
    np.testing.assert_allclose(found, expected, atol=1e-14)


def check_theory(found, theory, N):
    # Beside the statistical error a bias of order 1/N, as in the simulators' own tests; and 1e-3 for the
    # quadrature of the theory.
    for name in found.order_parameters:
        difference = np.abs(found.mean(name) - theory[name])[1:]
        allowed = THRESHOLD * found.standard_error(name)[1:] + 4 / N + 1e-3
        assert np.all(difference < allowed), (name, difference, allowed)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["overlaps", "weights"])
@pytest.mark.parametrize(
    ("model", "state", "rule"),
    [
        (attention(eta=2.0), {"Q": 0.5, "M": 0.2}, None),
        (attention(tokens=3, heads=2, eta=4.0), {"Q": 0.5, "M": 0.3}, QuasiMonteCarlo(12)),
    ],
    ids=["two tokens, one head", "three tokens, two heads"],
)
def test_sgd_follows_the_drift(model, state, rule, mode):
    K = model.students
    start = model.state(Q=state["Q"] * np.eye(K), M=state["M"] * np.eye(K))
    schedule = Schedule.piecewise([0, 0.5, 1.5], {"temperature": [2.0, 1.0]})
    theory = integrate(model, schedule, start=start, record=3, quadrature=rule, backend="xla", rtol=1e-6)
    N, seeds = 500, (400 if mode == "overlaps" else 40)
    found = simulate(model, schedule, start=start, N=N, seeds=seeds, mode=mode, record=3, error=False)
    check_theory(found, theory, N)
    moved = np.abs(theory.states[-1] - theory.states[0]).max()
    assert moved > 20 * 1e-3  # far more than what the test lets pass


def test_a_short_context_hides_the_same_tokens_from_both():
    model = attention(tokens=3, masked="tokens", mask=1.0)
    rng = np.random.default_rng(0)
    student = jnp.asarray(rng.standard_normal((3, 2)))
    weights = model._heads(student, jnp.ones(()), jnp.ones(()))[0]
    visible = np.eye(3) + np.roll(np.eye(3), 1, axis=0)
    np.testing.assert_allclose(weights.sum(axis=0), 1.0)
    assert np.all((np.asarray(weights) > 1e-6) == (visible == 1))
    fields = Fields(student, student, jnp.zeros(()))
    np.testing.assert_allclose(model.loss(fields, None, {"hidden": jnp.ones(())}, model.settings()), 0.0)


def test_a_masked_head_learns_nothing():
    model = attention(heads=2, masked="heads", mask=1.0)
    x = model.layout.flatten(model.state(Q=np.diag([0.5, 0.6, 0.7, 0.8]), M=0.2 * np.eye(4)))
    points = QuasiMonteCarlo(6).points((False,) * 12)[0]
    found = dict(zip(model.layout.names, drift_under(model)(points, x), strict=True))
    still = ["Q33", "Q44", "M31", "M33", "M42", "M44"]
    np.testing.assert_allclose([found[name] for name in still], 0.0, atol=1e-14)
    assert abs(found["M11"]) > 1e-3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tokens": 1}, r"attention: tokens must be a whole number of at least 2.*, got 1"),
        ({"heads": 0}, "heads must be a whole number of at least 1, got 0"),
        ({"temperature": -1.0}, r"temperature must be at least 0.*, got -1.0"),
        ({"T": np.eye(3)}, "2 by 2"),
        ({"masked": "all"}, "masked must be one of nothing, tokens, heads"),
        ({"masked": "tokens"}, "at least 3 where tokens are masked"),
        ({"masked": "heads"}, "at least 2 where heads are masked"),
        ({"tokens": 3, "masked": "tokens", "mask": 2.0}, "from 0 to 1"),
        ({"tied": 1}, "True or False"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(SpecificationError, match=message):
        attention(**arguments)
