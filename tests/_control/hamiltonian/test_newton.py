"""Many small minimisations at once."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optlearn._control.hamiltonian.newton import eigen, lowest_in_box, stationary


def found_in_box(function, centres, start, precision=1e-9):
    """Minimisers (P, 2) of function(x, centre) from one start, and how many expansions they took."""
    expansions = []

    @jax.jit
    def derivatives(x, centre):
        return function(x, centre), jax.grad(function)(x, centre), jax.hessian(function)(x, centre)

    def expand(x, which):
        expansions.append(len(which))
        with jax.enable_x64(True):
            parts = [derivatives(jnp.asarray(row), c) for row, c in zip(x, centres[which], strict=True)]
        return tuple(np.array(part) for part in zip(*parts, strict=True))

    begin = np.tile(start, (len(centres), 1))
    size = np.full(len(centres), 1.0)
    return lowest_in_box(
        expand, begin, reach=np.full(len(begin), 0.2), precision=precision, size=size
    ), expansions


def bent_valley(x, centre):
    return 100 * (x[0] ** 2 - x[1]) ** 2 + (x[0] - centre) ** 2


def test_a_bent_valley_is_followed_to_its_end():
    """Where it leaves the box, to the bound; every function stops when it is done."""
    centres = np.array([0.05, 0.4, 0.7, 1.5])
    found, expansions = found_in_box(bent_valley, centres, [0.2, 0.9])
    np.testing.assert_allclose(found[:, 0], np.minimum(centres, 1.0), atol=1e-8)
    np.testing.assert_allclose(found[:, 1], np.minimum(centres, 1.0) ** 2, atol=1e-8)
    assert len(expansions) < 50
    assert expansions[-1] < len(centres)


def test_a_rate_and_a_batch_size():
    """−η g + η²/B + νB: η = gB/2 and B from there, unless the rate reaches its bound of 1 (here x₀)."""

    def hamiltonian(x, price):
        eta, batch = x[0], 1 + 15 * x[1]
        return -0.2 * eta + eta**2 / batch + price * batch

    prices = np.array([0.003, 0.03, 0.2])
    found, expansions = found_in_box(hamiltonian, prices, [0.5, 0.5])
    grid = np.stack(np.meshgrid(np.linspace(0, 1, 401), np.linspace(0, 1, 401)), axis=-1).reshape(-1, 2)
    for x, price in zip(found, prices, strict=True):
        assert hamiltonian(x, price) <= hamiltonian(grid.T, price).min() + 1e-12
    assert len(expansions) < 20


def test_a_saddle_is_left_downhill():
    found, _ = found_in_box(lambda x, _: x[1] ** 2 - (x[0] - 0.5) ** 2, np.zeros(1), [0.51, 0.3])
    np.testing.assert_allclose(found[0], [1.0, 0.0], atol=1e-9)


@pytest.mark.parametrize("start", [[0.0, 0.0], [1.0, 1.0], [0.3, 0.6]])
def test_a_flat_function_stays_where_it_is(start):
    found, expansions = found_in_box(lambda x, _: 0.0 * x[0] * x[1], np.zeros(2), start)
    np.testing.assert_array_equal(found, [start, start])
    assert len(expansions) == 1


@pytest.mark.parametrize("size", [2, 3, 6])
@pytest.mark.parametrize("xp", [np, jnp])
def test_rotations_find_eigenvalues_and_vectors(size, xp):
    matrices = np.random.default_rng(0).normal(size=(20, size, size))
    matrices = matrices + matrices.transpose(0, 2, 1)
    matrices[0], matrices[1], matrices[2, 0, 1:], matrices[2, 1:, 0] = 0.0, np.eye(size), 1e-300, 1e-300
    matrices[3] *= 10.0 ** np.add.outer(np.arange(size), np.arange(size))  # of very different sizes
    values, vectors = map(
        np.asarray, jax.jit(lambda a: eigen(a, xp))(matrices) if xp is jnp else eigen(matrices)
    )
    scale = np.abs(matrices).max(axis=(1, 2), initial=1e-300)[:, None]
    np.testing.assert_allclose(np.sort(values) / scale, np.linalg.eigvalsh(matrices) / scale, atol=1e-14)
    np.testing.assert_allclose(vectors.transpose(0, 2, 1) @ vectors, [np.eye(size)] * 20, atol=1e-14)
    again = np.einsum("pia,pa,pja->pij", vectors, values, vectors)
    np.testing.assert_allclose(again / scale[:, None], matrices / scale[:, None], atol=1e-14)


def test_brackets_follow_a_valley_under_xla_as_under_numpy():
    """Minima of (x − c)⁴ + x/10 from the other end of their range, or the bound towards which they fall."""
    centres = np.linspace(-0.5, 1.5, 9)

    def found(xp):
        def derivatives(x, rows):
            away = x - centres[rows]
            return 4 * away**3 + 0.1, 12 * away**2

        return stationary(
            derivatives, xp.full(9, 0.95), (0.0, 1.0), reach=xp.full(9, 0.1), precision=1e-10, xp=xp
        )

    (x, yields), lanes = found(np), found(jnp)
    np.testing.assert_allclose(x, np.clip(centres - 0.025 ** (1 / 3), 0.0, 1.0), atol=1e-12)
    np.testing.assert_allclose(lanes[0], x, atol=1e-15)
    np.testing.assert_allclose(lanes[1], yields, rtol=1e-12)


def lowest_by_enumeration(H, slope):
    """The minimum of ½x·Hx + slope·x over the unit box: each variable is free, or at one of its bounds."""
    lowest = np.inf
    for ends in product((0.0, 1.0, np.nan), repeat=len(slope)):
        x, free = np.nan_to_num(ends), np.isnan(ends)
        x[free] = np.linalg.solve(H[np.ix_(free, free)], -(slope + H @ x)[free])
        if np.all((x >= 0) & (x <= 1)):
            lowest = min(lowest, x @ H @ x / 2 + slope @ x)
    return lowest


@pytest.mark.parametrize("size", [2, 3])
def test_valleys_that_lead_out_of_the_box(size):
    """A clipped step leads up the side of a valley at an angle: one in 100 of these was left half-way."""
    rng, count = np.random.default_rng(0), 300
    axes = np.linalg.qr(rng.normal(size=(count, size, size)))[0]
    bends = 10 ** rng.uniform(0, 5, size=(count, size))
    H = np.einsum("pia,pa,pja->pij", axes, bends, axes)
    slopes = -np.einsum("pij,pj->pi", H, rng.uniform(-0.5, 1.5, size=(count, size)))

    def expand(x, rows):
        bent = np.einsum("pij,pj->pi", H[rows], x)
        return np.sum(x * (bent / 2 + slopes[rows]), axis=1), bent + slopes[rows], H[rows]

    start, every = rng.uniform(size=(count, size)), np.arange(count)
    x = lowest_in_box(expand, start, reach=np.full(count, 0.2), precision=1e-7, size=np.ones(count))
    least = np.array([lowest_by_enumeration(*problem) for problem in zip(H, slopes, strict=True)])
    before, after = expand(start, every)[0], expand(x, every)[0]
    assert np.all(after - least <= 1e-9 * (before - least))
