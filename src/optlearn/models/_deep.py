"""Networks of several layers that learn a wave along one direction.

The first layer has K units erf(λ_k/√2) of the large input. Behind it come narrow layers of tanh units and a
linear output, all of them trained: layer 2 is (H, K), layer 3 (H, H), …, and the last one a vector. The label
is sin(ω λ*) plus noise, so that the direction w* and the wave have to be found together.

All functions are odd, so biases would stay at zero. Given the student's fields, the teacher's field is
normal, and the averages of its wave are known; only a quadrature over the student's K fields remains.
"""

from dataclasses import replace
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Float, Settings
from optlearn._pytrees import field
from optlearn._signatures import checked
from optlearn._theory.drift import rows_drift
from optlearn._theory.expectation import GaussHermite
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters, Overlaps, gram_matrix
from optlearn._theory.sample import Fields, Latent
from optlearn._theory.sampler import partial_cholesky
from optlearn.models._averages import ACTIVATIONS

# Nodes in each field, by K: rates are then accurate to about 1e-6 as long as Q stays below 10.
NODES = {1: 80, 2: 32}
FEWEST = 16


class Points(NamedTuple):
    """The fields of the student at P points, and means of the teacher's field and its wave given them."""

    weights: Float[Array, " P"]
    student: Float[Array, "P K"]
    teacher: Float[Array, " P"]  # E[λ*]
    wave: Float[Array, " P"]  # E[sin ωλ*]
    square: Float[Array, " P"]  # E[sin² ωλ*]
    product: Float[Array, " P"]  # E[λ* sin ωλ*]


class Deep(LearningModel):
    """A network of narrow layers, with one teacher. Built by ``deep``.

    Parameters: ``learning_rate`` of the first layer, ``layer2_rate``, … of the others or one ``head_rate``
    for all of them, ``frequency`` ω, ``sigma_n``, ``batch``.

    Attributes:
        nodes: nodes in each field of the student.
    """

    nodes: int = field(static=True, kw_only=True)

    def output(self, fields: Float[Array, " K"], trained: dict[str, Array]) -> Float[Array, ""]:
        """Output of the network, given the fields of its first layer."""
        *inner, last = (trained[name] for name in self.trained)
        units = ACTIVATIONS["erf"].function(fields)
        for layer in inner:
            units = jnp.tanh(layer @ units)
        return last @ units

    def loss(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """½ (label − output)² with label noise."""
        label = jnp.sin(u["frequency"] * fields.teacher[0, 0]) + u["sigma_n"] * fields.noise
        return (label - self.output(fields.student[0], x.trained)) ** 2 / 2

    def trained_rate(self, name: str, u: Settings) -> Array:
        """The common rate of all layers behind the first, if there is one."""
        return u["head_rate"] if "head_rate" in u else super().trained_rate(name, u)

    def closed_drift(self, x: OrderParameters, u: Settings) -> OrderParameters:
        """By a quadrature over the student's fields alone."""
        points = self._points(x, u)
        by_fields = jax.value_and_grad(self.output, argnums=(0, 1))
        output, (slope, by_trained) = jax.vmap(by_fields, (0, None))(points.student, x.trained)
        wrong = points.weights * (output - points.wave)
        towards = jnp.concatenate(
            [
                points.student.T @ (wrong[:, None] * slope),
                (points.weights * (output * points.teacher - points.product))[None] @ slope,
            ]
        )
        noisy = points.weights * (self._square(points, output) + u["sigma_n"] ** 2)
        spread = slope.T @ (noisy[:, None] * slope) / u["batch"]
        dQ, dM, dR = rows_drift(self, x, u, towards, spread, jnp.zeros((self.students, self.students)))
        pull = {name: jnp.tensordot(wrong, by, axes=1) for name, by in by_trained.items()}
        trained = {name: -self.trained_rate(name, u) * by for name, by in pull.items()}
        return OrderParameters(dQ, dM, dR, jnp.zeros_like(x.v), {}, trained)

    def closed_error(self, x: OrderParameters, u: Settings) -> Array:
        """½ E[(sin ωλ* − output)²]."""
        points = self._points(x, u)
        output = jax.vmap(self.output, (0, None))(points.student, x.trained)
        return points.weights @ self._square(points, output) / 2

    def refined(self) -> Self:
        """Twice the nodes."""
        return replace(self, nodes=2 * self.nodes)

    def observables(self, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """``cosine`` of the first layer's best combination of units with the teacher."""
        F = partial_cholesky(gram_matrix(x, self.overlaps), tuple(range(self.students + 1)))
        return {"cosine": jnp.linalg.norm(F[-1, :-1]) / jnp.sqrt(self.overlaps.T[0, 0])}

    def _square(self, points: Points, output: Array) -> Array:
        return output**2 - 2 * output * points.wave + points.square

    def _points(self, x: OrderParameters, u: Settings) -> Points:
        K, omega = self.students, u["frequency"]
        F = partial_cholesky(gram_matrix(x, self.overlaps), tuple(range(K + 1)))
        points, weights = GaussHermite(self.nodes).points((False,) * K)
        # Output and wave are odd: the other half of the points gives the same.
        half = points.shape[0] // 2
        points, weights = points[:half], 2 * weights[:half]
        mean, variance = points @ F[K, :K], F[K, K] ** 2
        kept = jnp.exp(-(omega**2) * variance / 2)
        sine, cosine = jnp.sin(omega * mean), jnp.cos(omega * mean)
        return Points(
            weights,
            points @ F[:K, :K].T,
            mean,
            kept * sine,
            (1 - kept**4 * jnp.cos(2 * omega * mean)) / 2,
            kept * (mean * sine + omega * variance * cosine),
        )


@checked
def deep(
    depth: int = 3,
    width: int = 3,
    K: int = 1,
    frequency: float = 1.5,
    sigma_n: float = 0.0,
    eta: float = 1.0,
    rates: Array | None = None,
    head_rate: float | None = None,
    batch: float = 1.0,
) -> Deep:
    """A network of ``depth`` layers, all trained, that learns sin(ωλ*) of one direction.

    Args:
        depth: number of weight layers, at least 2: input layer, tanh layers, linear output.
        width: H, units in each hidden layer but the first.
        K: units of the first layer, of the large input.
        frequency: ω of the wave.
        sigma_n: standard deviation of the label noise.
        eta: learning rate of the first layer.
        rates: (depth − 1,) learning rates of the other layers; None for η, also if η is controlled.
        head_rate: instead of ``rates``, one learning rate for all of them.
        batch: fresh samples in each step.

    Returns:
        A model with order parameters Q, M and the weights ``layer2``, ``layer3``, ….
    """
    check = Arguments("deep")
    depth, width, K = check.count("depth", depth, 2), check.count("width", width), check.count("K", K)
    sizes = [K, *[width] * (depth - 2)]
    shapes: list[tuple[int, ...]] = [*zip(sizes[1:], sizes[:-1], strict=True), (sizes[-1],)]
    names = [f"layer{layer}" for layer in range(2, depth + 1)]
    parameters: dict[str, Array] = {
        "learning_rate": check.number("eta", eta, 0.0),
        "frequency": check.number("frequency", frequency, 0.0, open_below=True),
        "sigma_n": check.number("sigma_n", sigma_n, 0.0),
        "batch": check.number("batch", batch, 1.0),
    }
    if rates is not None and head_rate is not None:
        check.fail("head_rate", head_rate, "must be None if there are rates of all layers")
    if rates is not None:
        own = check.numbers("rates", rates, (depth - 1,), 0.0)
        parameters |= {f"{name}_rate": rate for name, rate in zip(names, own, strict=True)}
    if head_rate is not None:
        parameters["head_rate"] = check.number("head_rate", head_rate, 0.0)
    return Deep(
        students=K,
        overlaps=Overlaps(T=1.0),
        parameters=parameters,
        trained=dict(zip(names, shapes, strict=True)),
        even=True,
        nodes=NODES.get(K, FEWEST),
    )
