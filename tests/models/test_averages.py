"""The Gaussian averages of each activation, against quadrature in the fields themselves."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optlearn.models import ACTIVATIONS

# Four correlated fields; small variances for erf, so that Gauss-Hermite converges.
ROOT = np.array([[0.4, 0, 0, 0], [0.1, 0.3, 0, 0], [-0.2, 0.1, 0.3, 0], [0.05, 0.2, -0.1, 0.25]])
GRAM = ROOT @ ROOT.T


def normals(dimension, nodes):
    """Points and weights of the tensor rule for independent standard normals."""
    line, mass = np.polynomial.hermite_e.hermegauss(nodes)
    points = np.array(list(itertools.product(line, repeat=dimension)))
    weights = np.prod(list(itertools.product(mass, repeat=dimension)), axis=1)
    return points, weights / weights.sum()


def average(function, nodes=14):
    points, weights = normals(4, nodes)
    return weights @ np.asarray(function(points @ ROOT.T))


@pytest.mark.parametrize("name", ["erf", "linear"])
def test_averages(name):
    act = ACTIVATIONS[name]
    g = act.function
    slope = jax.vmap(jax.grad(g))
    bend = jax.vmap(jax.grad(jax.grad(g)))
    i, n, j, k, m = 0, 1, 2, 1, 3
    every = np.arange(4)

    def column(fields, index):
        return jnp.asarray(fields[:, index])

    I2 = act.I2(GRAM, every[:, None], every[None, :])
    J2 = act.J2(GRAM, every[:, None], every[None, :])
    assert I2.shape == J2.shape == (4, 4)
    assert I2[i, j] == close(average(lambda f: g(column(f, i)) * g(column(f, j))))
    assert J2[i, j] == close(average(lambda f: slope(column(f, i)) * slope(column(f, j))))
    assert act.bend(GRAM, i, j) == close(average(lambda f: bend(column(f, i)) * g(column(f, j))))
    assert act.I3(GRAM, i, n, j) == close(average(lambda f: slope(column(f, i)) * f[:, n] * g(column(f, j))))
    I4 = act.I4(GRAM, (np.array([i, i]), np.array([k, i])), (np.array([j, j]), np.array([m, j])))
    for row, column_number, nodes in [(0, 0, (i, k, j, m)), (1, 1, (i, i, j, j))]:
        a, b, c, d = nodes
        expected = average(
            lambda f, a=a, b=b, c=c, d=d: (
                slope(column(f, a)) * slope(column(f, b)) * g(column(f, c)) * g(column(f, d))
            )
        )
        assert I4[row, column_number] == close(expected)


def close(value):
    return pytest.approx(float(value), rel=1e-9, abs=1e-12)


def half_line_average(function, root, nodes=60):
    """E[function(λ₁, λ₂)] for functions that bend where a field is zero: polar angle cut there."""
    # λ = root (r cos φ, r sin φ); a ReLU is homogeneous in r, so only angles need cutting.
    cuts = [np.arctan2(-row[0], row[1]) for row in root]
    edges = np.sort(np.mod([*cuts, *np.add(cuts, np.pi)], 2 * np.pi))
    edges = np.append(edges, edges[0] + 2 * np.pi)
    line, mass = np.polynomial.legendre.leggauss(nodes)
    total = 0.0
    for low, high in itertools.pairwise(edges):
        angles = (low + high) / 2 + (high - low) / 2 * line
        directions = np.stack([np.cos(angles), np.sin(angles)])
        total += (high - low) / 2 * mass @ function(*(root @ directions))
    return total / (2 * np.pi)


def test_relu_averages():
    act = ACTIVATIONS["relu"]
    root = np.array([[0.9, 0.0], [-0.4, 1.1]])
    gram = root @ root.T

    def relu(x):
        return np.maximum(x, 0)

    # E[r²] = 2 for the radius of two standard normals.
    assert float(act.I2(gram, 0, 1)) == close(2 * half_line_average(lambda a, b: relu(a) * relu(b), root))
    assert float(act.J2(gram, 0, 1)) == close(half_line_average(lambda a, b: (a > 0) * (b > 0) * 1.0, root))
    # I3(0, 1, 1) = E[θ(a) b relu(b)] and I3(0, 0, 1) = E[θ(a) a relu(b)]
    assert float(act.I3(gram, 0, 1, 1)) == close(
        2 * half_line_average(lambda a, b: (a > 0) * b * relu(b), root)
    )
    assert float(act.I3(gram, 0, 0, 1)) == close(
        2 * half_line_average(lambda a, b: (a > 0) * a * relu(b), root)
    )
    assert act.breaks == (0.0,)


def test_relu_has_no_fourth_average():
    pair = (np.array([0]), np.array([1]))
    with pytest.raises(NotImplementedError, match="I4 of 'relu'"):
        ACTIVATIONS["relu"].I4(GRAM, pair, pair)
