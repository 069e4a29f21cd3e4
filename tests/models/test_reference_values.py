"""Trajectories end where the theory sheet says (two independent integrators agreed to 1e-13 there).

Integrated here with SciPy: nothing of optlearn but the closed forms is in play.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from optlearn.models import FIG3_START, autoencoder, committee, curriculum, optimal_skip

EASY, HARD, HORIZON = {"difficulty": 0.0}, {"difficulty": 2.0}, 12.0

# λ̄ = λη: (curriculum, anti-curriculum, 50/50 mix, best two switches, its first easy phase)
CURRICULUM = {
    0.0: (0.155861767207, 0.162820122204, 0.152777477165, 0.146850711861, 2.802341),
    0.05: (0.165077510581, 0.158974582015, 0.156496937816, 0.148615093372, 2.152741),
    0.2: (0.192473127927, 0.157057657528, 0.178035964032, 0.155995997867, 0.712268),
    0.5: (0.233272904503, 0.170127511996, 0.217846620425, 0.170127511996, 0.0),
}


@pytest.fixture(scope="module")
def easy_and_hard(tools):
    runner = tools.Runner(curriculum())
    return runner, runner.model.state(Q11=1, Q22=1)


@pytest.mark.parametrize("decay", CURRICULUM)
def test_curriculum(decay, easy_and_hard):
    runner, start = easy_and_hard
    easy, hard = ({**value, "weight_decay": decay / 3} for value in (EASY, HARD))
    first, anti, mixed, best, a = CURRICULUM[decay]
    schedules = {
        first: [(6, easy), (6, hard)],
        anti: [(6, hard), (6, easy)],
        best: [(a, easy), (6, hard), (6 - a, easy)],
    }
    for value, phases in schedules.items():
        assert runner.error(runner.state(start, phases)) == pytest.approx(value, abs=1e-9)
    mix = runner.state(start, [(HORIZON, easy)], share=0.5, other=hard)
    assert runner.error(mix) == pytest.approx(mixed, abs=1e-9)


# σ_n: p=p_f=1, best p=p_f (p), best p with free p_f (p, p_f). The optimal p and p_f are known to
# five digits only, but the error is stationary there: it is right to 1e-9 all the same.
DROPOUT = {
    0.1: (0.0165711895, (0.0154113559, 0.89040), (0.0151374373, 0.96286, 0.89921)),
    0.2: (0.0348561505, (0.0253333083, 0.76639), (0.0252980294, 0.74148, 0.76722)),
    0.3: (0.0631696099, (0.0364315111, 0.68760), (0.0363595799, 0.65906, 0.69347)),
}


@pytest.fixture(scope="module")
def dropout(tools):
    runner = tools.Runner(committee(2, 1, dropout=True))
    return runner, runner.model.state()


def after_dropout(dropout, sigma_n, p, p_f):
    runner, start = dropout
    u = {"sigma_n": sigma_n, "activation": p, "rescaling": p_f}
    state = runner.state(start, [(5.0, u)])
    return runner.error(state, u), state


@pytest.mark.parametrize("sigma_n", DROPOUT)
def test_dropout(sigma_n, dropout):
    without, (tied, p), (free, p_free, p_f) = DROPOUT[sigma_n]
    assert after_dropout(dropout, sigma_n, 1.0, 1.0)[0] == pytest.approx(without, abs=1e-10)
    assert after_dropout(dropout, sigma_n, p, p)[0] == pytest.approx(tied, abs=1e-9)
    assert after_dropout(dropout, sigma_n, p_free, p_f)[0] == pytest.approx(free, abs=1e-9)


def test_dropout_state(dropout):
    error, state = after_dropout(dropout, 0.3, 0.68, 0.68)
    assert error == pytest.approx(0.036448895717, abs=1e-11)
    named = dict(zip(dropout[0].model.layout.names, state, strict=True))
    assert named["Q11"] == pytest.approx(0.32881912, abs=5e-9)
    assert named["Q12"] == pytest.approx(0.22987646, abs=5e-9)
    assert named["M11"] == pytest.approx(0.47324347, abs=5e-9)
    assert named["Q22"] == pytest.approx(named["Q11"], rel=1e-12)


def test_correlation_starts_at_p(dropout):
    """The value reported at zero weights is the limit along the trajectory."""
    runner, start = dropout
    u = runner.model.settings({"sigma_n": 0.2, "activation": 0.6})
    flat = runner.state(start, [(1e-7, {"sigma_n": 0.2, "activation": 0.6})])
    early = runner.model.observables(runner.model.layout.unflatten(jnp.asarray(flat)), u)
    assert float(early["correlation"]) == pytest.approx(0.6, abs=1e-5)
    assert 0 < float(early["cosine"]) < 1e-3


def test_dropout_starts_at_one_sixth(dropout):
    runner, start = dropout
    assert runner.error(runner.model.layout.flatten(start)) == pytest.approx(1 / 6, abs=1e-15)


# Δ = Δ_F: (MSE at α = 0.8, at the start), and with augmentation, b = b*, B = 5 at α = 1.2
DENOISING = {
    0.1: (8.8867355133, 9.9830605316, 8.5587060786),
    0.3: (9.5197451679, 10.0111269843, 9.3529263153),
    0.5: (9.8421690460, 10.0398108060, 9.6780193570),
}


@pytest.fixture(scope="module")
def denoising(tools):
    return tools.Runner(autoencoder())


@pytest.fixture(scope="module")
def augmentation(tools):
    return tools.Runner(autoencoder(trained_skip=False, augmentation=True, batch=5))


@pytest.mark.parametrize("noise", DENOISING)
def test_constant_noise(noise, denoising):
    u = {"noise": noise, "test_noise": noise}
    start = denoising.model.state(**FIG3_START, b=0.0)
    final, initial, _ = DENOISING[noise]
    first = denoising.model.layout.flatten(start)
    assert denoising.error(first, u) == pytest.approx(initial, rel=1e-9)
    assert denoising.error(denoising.state(start, [(0.8, u)]), u) == pytest.approx(final, rel=1e-9)


@pytest.mark.parametrize("noise", DENOISING)
def test_augmentation(noise, augmentation):
    u = {"noise": noise, "test_noise": noise}
    start = augmentation.model.state(**FIG3_START, b=optimal_skip(noise, 0.1))
    state = augmentation.state(start, [(1.2, u)])
    assert augmentation.error(state, u) == pytest.approx(DENOISING[noise][2], rel=1e-9)
    assert state[-1] == pytest.approx(optimal_skip(noise, 0.1), abs=0)


def test_the_skip_settles_at_its_optimum(tools):
    model = autoencoder(sigma=(0.2, 0.4), cluster_probabilities=(0.3, 0.7), noise=0.4)
    b = optimal_skip(0.4, (0.2, 0.4), (0.3, 0.7))
    flat = model.layout.flatten(model.state(**FIG3_START, b=b))
    assert tools.flat_drift(model)(flat, model.settings())[-1] == pytest.approx(0, abs=1e-15)
    assert b == pytest.approx(np.sqrt(0.6) * 0.124 / (0.6 * 0.124 + 0.4), rel=1e-14)
