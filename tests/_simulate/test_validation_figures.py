"""Theory against SGD with the parameters of the paper's three validation figures.

The chain of overlaps runs at the paper's N, training of all weights, which takes N² random numbers, at a
tenth of it. Every order parameter at 10 times along the trajectory lies within 4 standard errors of the seed
mean, plus an explicit allowance for the 1/N bias: 5/N, relative to the larger of 1 and the value. A single
comparison fails by chance with probability 6e-5 for normal means (about 1e-3 with Student's t of 15 degrees
of freedom), and the three tests make 150 strongly correlated ones; seeds are fixed, so a test that passes
keeps passing.
"""

from collections.abc import Callable

import numpy as np
import pytest

import optlearn as ol

Case = tuple[ol.LearningModel, ol.OrderParameters, ol.Schedule]
DIMENSIONS = {"curriculum": 30_000, "dropout": 30_000, "autoencoder": 10_000}


def curriculum(N: int) -> Case:
    model = ol.models.curriculum(T=1.0)
    schedule = ol.Schedule.piecewise([0, 2.5, 5], {"difficulty": [2.0, 0.0]})
    return model, model.state(Q11=0.984, Q22=0.998, M11=0.01), schedule


def dropout(N: int) -> Case:
    model = ol.models.committee(K=2, M=1, sigma_n=0.3, dropout=True, rescaling=0.7)
    return model, model.state(), ol.Schedule.constant(5.0, {"activation": 0.7})


def autoencoder(N: int) -> Case:
    model = ol.models.autoencoder(
        Omega=ol.models.FIGS_OMEGA,
        N=N,
        eta=2.0,
        noise=0.8,
        test_noise=0.8,
        trained_skip=False,
        augmentation=True,
    )
    start = model.state(**ol.models.FIGS_START, b=ol.models.optimal_skip(0.8, 0.1))
    return model, start, ol.Schedule.constant(1.0, {"batch": 5.0})


def compare(make: Callable[[int], Case], N: int, mode: str, seeds: int) -> None:
    model, start, schedule = make(N)
    theory = ol.integrate(model, schedule, start=start, record=11)
    run = ol.simulate(model, schedule, start=start, N=N, seeds=seeds, mode=mode, record=11)
    for name in theory.order_parameters:
        value = theory[name][1:]
        allowance = 5 / N * np.maximum(1.0, np.abs(value))
        distance = np.abs(run.mean(name)[1:] - value)
        assert np.all(distance <= 4 * run.standard_error(name)[1:] + allowance), name


@pytest.mark.slow
@pytest.mark.parametrize("make", [curriculum, dropout, autoencoder])
def test_overlap_chain(make: Callable[[int], Case]) -> None:
    compare(make, DIMENSIONS[make.__name__], "overlaps", 16)


@pytest.mark.slow
@pytest.mark.parametrize("make", [curriculum, dropout, autoencoder])
def test_weights(make: Callable[[int], Case]) -> None:
    compare(make, DIMENSIONS[make.__name__] // 10, "weights", 8)
