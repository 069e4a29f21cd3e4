"""SGD on inputs with a spectrum: both simulators against each other and the theory, block by block."""

import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError

SPECTRUM = ol.Spectrum([4.0, 1.2, 0.4], [0.1, 0.3, 0.6])


def committee(**more):
    model = ol.models.committee(2, 2, spectrum=SPECTRUM, **more)
    return model, model.state(Q=0.25 * np.eye(2), M=0.05 * np.eye(2))


def scores(model, start, schedule, **options):
    runs = ol.simulate(model, schedule, start=start, error=False, **options)
    theory = ol.integrate(model, schedule, start=start, record=runs.alpha)
    found = np.concatenate([runs.z_scores(name, theory[name])[1:] for name in model.layout.names])
    return found[np.isfinite(found)]


@pytest.mark.slow
def test_both_simulators_follow_the_theory():
    model, start = committee(sigma_n=0.2)
    schedule = ol.Schedule.constant(2, {"learning_rate": 1.0})
    for mode, seeds in (("overlaps", 24), ("weights", 6)):
        z = scores(model, start, schedule, N=1500, seeds=seeds, mode=mode, record=[0, 1, 2])
        assert np.sqrt(np.mean(z**2)) < 1.6, mode
        assert np.abs(z).max() < 4.5, mode


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["overlaps", "weights"])
@pytest.mark.parametrize(
    ("settings", "rate", "horizon"),
    [({"sigma_n": 0.2}, 1.5, 24.0), ({"sigma_n": 0.3, "batch": 2.0, "weight_decay": 0.02}, 2.5, 12.0)],
)
def test_theory_against_sgd_at_size(mode, settings, rate, horizon):
    model, start = committee(**settings)
    schedule = ol.Schedule.constant(horizon, {"learning_rate": rate})
    # Biases fall like 1/N, standard errors like its root: as many seeds in a thousand of N keep their ratio.
    N, seeds = (3000, 16) if mode == "overlaps" else (1500, 8)
    z = scores(model, start, schedule, N=N, seeds=seeds, mode=mode, record=np.linspace(0, horizon, 13))
    assert np.sqrt(np.mean(z**2)) < 1.4
    assert np.abs(z).max() < 4.8


@pytest.mark.parametrize("seeds", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_the_chain_is_sgd_on_weights_at_any_size(seeds):
    """Blocks of 2, 6, 17 and 25 directions for 4 vectors: one has fewer than vectors, one hardly more."""
    share = np.array([2, 6, 17, 25]) / 50
    flat = np.stack([np.ones((2, 2)), np.eye(2), np.eye(2), np.eye(2)]) * share[:, None, None]
    model = ol.models.committee(
        2,
        2,
        T=flat,
        sigma_n=0.2,
        weight_decay=0.02,
        batch=2.0,
        spectrum=ol.Spectrum([4.0, 1.2, 0.4, 0.5], share),
    )
    start = model.state(Q=0.25 * flat, M=0.1 * flat)
    schedule = ol.Schedule.constant(1.0, {"learning_rate": 1.5})
    chain, weights = (
        ol.simulate(
            model,
            schedule,
            start=start,
            N=50,
            seeds=seeds,
            mode=mode,
            record=[0, 0.5, 1.0],
            dtype="float64",
            error=False,
        )
        for mode in ("overlaps", "weights")
    )
    for name in model.layout.names:
        a, b = chain[name][:, 1:], weights[name][:, 1:]
        apart = (a.mean(axis=0) - b.mean(axis=0)) / np.sqrt((a.var(axis=0) + b.var(axis=0)) / seeds)
        assert np.all(np.abs(apart) < 4.2), (name, apart)
        np.testing.assert_allclose(a.std(axis=0) / b.std(axis=0), 1, atol=6 / np.sqrt(seeds))


def test_weights_have_the_overlaps_of_the_start():
    model, start = committee()
    run = ol.simulate(
        model,
        ol.Schedule.constant(0.01, {}),
        start=start,
        N=200,
        seeds=2,
        mode="weights",
        record=[0],
        dtype="float64",
    )
    np.testing.assert_allclose(run.states[:, 0], np.tile(model.layout.flatten(start), (2, 1)), atol=1e-12)


def test_a_block_of_few_directions_cannot_hold_all_vectors():
    model = ol.models.committee(2, 2, spectrum=ol.Spectrum([4.0, 0.5], [0.02, 0.98]))
    start = model.state(Q=0.25 * np.eye(2))
    with pytest.raises(SpecificationError, match="block of 2 directions cannot hold 4 vectors"):
        ol.simulate(model, ol.Schedule.constant(0.1, {}), start=start, N=100, seeds=1, mode="weights")


@pytest.mark.slow
def test_clusters_of_an_autoencoder_with_a_spectrum():
    spectrum = ol.Spectrum([[2.0, 0.5], [0.4, 1.2]], [0.3, 0.7])
    model = ol.models.autoencoder(spectrum=spectrum, sigma=[0.3, 0.5], eta=1.0, skip_rate=1.0, N=2000)
    start = model.state(Q=0.2 * np.eye(2), R=[[0.1, 0.0], [0.0, 0.1]])
    schedule = ol.Schedule.constant(0.5, {"noise": 0.4})
    z = scores(model, start, schedule, N=2000, seeds=24, mode="overlaps", record=[0, 0.25, 0.5])
    assert np.sqrt(np.mean(z**2)) < 1.7
    assert np.abs(z).max() < 4.5
