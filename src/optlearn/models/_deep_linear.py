"""Deep linear networks under gradient flow: mode by mode for balanced starts, or as matrices.

A chain of L linear layers learns the correlations Σ of outputs with inputs. In the basis of singular vectors
of Σ, modes decouple; if all layers start alike, each has the weight b in a mode of strength a = b^L, and

    ḃ = η [G b^{L−1} (s − λ G b^L) − λ_w b],        that is    ȧ = L η a^{2−2/L} G (s − λ G a) − L η λ_w a,

where s is the mode's correlation, λ the variance of its input, λ_w a weight decay and G a gain on the
network's output. In terms of b the flow is polynomial at any depth. The gain models effort: it reduces the
error immediately and lets the layers learn faster, but has a cost.

Tasks that share their singular vectors differ in s and λ; the parameter ``task`` sets which one is trained.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Float, Settings
from optlearn._dynamics.system import System, as_floats
from optlearn._pytrees import field
from optlearn._signatures import checked

_SETTINGS = {"learning_rate": 1.0, "gain": 1.0, "weight_decay": 0.0}
_LIMITS = dict.fromkeys((*_SETTINGS, "task"), (0.0, np.inf))


class DeepLinear(System):
    """Modes of a balanced deep linear network. Built by ``deep_linear``.

    The state is ``weight``, b of every mode (n,). Parameters (settings): ``learning_rate`` η, ``gain`` G,
    ``weight_decay`` λ_w, and with several tasks ``task``: between two whole numbers the gradients of both are
    mixed. Observables are the strengths ``a1``, ``a2``, …, and with several tasks ``error1``, ….

    Attributes:
        correlations: (tasks, n) s.
        variances: (tasks, n) λ.
        test_share: (tasks,) weights of the tasks in the error.
        depth: L, layers.
    """

    limits = MappingProxyType(_LIMITS)

    correlations: Float[Array, "tasks n"]
    variances: Float[Array, "tasks n"]
    test_share: Float[Array, " tasks"]
    depth: int = field(static=True)
    parameters: dict[str, Array] = field(converter=as_floats)

    @property
    def names(self) -> dict[str, int]:
        """``weight``, a number for each mode."""
        return {"weight": self.correlations.shape[1]}

    def drift(self, x: Array, u: Settings) -> Array:
        """Gradient flow."""
        share, b, gain = task_shares(u, len(self.test_share)), jnp.asarray(x["weight"]), u["gain"]
        s, variance = share @ jnp.asarray(self.correlations), share @ jnp.asarray(self.variances)
        others = _power(b, self.depth - 1)
        pull = gain * others * (s - variance * gain * others * b) - u["weight_decay"] * b
        return {"weight": u["learning_rate"] * pull}

    def error(self, x: Array, u: Settings) -> Array:
        """Mean over the tasks of ½ Σ λ (G a − s/λ)²."""
        return jnp.asarray(self.test_share) @ self._errors(x, u)

    def _errors(self, x: Array, u: Settings) -> Float[Array, " tasks"]:
        output = u["gain"] * _power(jnp.asarray(x["weight"]), self.depth)
        s, variance = jnp.asarray(self.correlations), jnp.asarray(self.variances)
        missed = s - variance * output[None, :]
        # If a mode is absent from a task, its s and λ are 0.
        return jnp.sum(missed**2 / jnp.where(variance > 0, variance, 1.0), axis=1) / 2

    def observables(self, x: Array, u: Settings) -> dict[str, Array]:
        """Strengths of the modes, and with several tasks their errors."""
        strengths, errors = _power(jnp.asarray(x["weight"]), self.depth), self._errors(x, u)
        named = {f"a{i + 1}": strengths[i] for i in range(strengths.shape[0])}
        several = errors.shape[0] > 1
        return named | ({f"error{t + 1}": errors[t] for t in range(errors.shape[0])} if several else {})

    def start(self, strength: Array) -> dict[str, np.ndarray]:
        """A state of modes with these strengths a (n,), or one number for all."""
        size = self.correlations.shape[1]
        a = Arguments("start").numbers("strength", strength, (size,), lowest=0.0)
        return {"weight": a ** (1 / self.depth)}


class DeepMatrices(System):
    """All weights of a deep linear network. Built by ``deep_matrices``.

    The state holds the layers ``W1``, ``W2``, …, each (out · in) row by row. Parameters (settings) are those
    of ``DeepLinear``, for one task.

    Attributes:
        correlation: (outputs, inputs) E[y xᵀ].
        covariance: (inputs, inputs) E[x xᵀ].
        power: trace of E[y yᵀ]; an optimal network has zero error if labels are linear in the inputs.
        widths: widths of inputs, hidden layers and outputs.
    """

    limits = MappingProxyType(_LIMITS)

    correlation: Float[Array, "outputs inputs"]
    covariance: Float[Array, "inputs inputs"]
    power: Float[Array, ""]
    widths: tuple[int, ...] = field(static=True)
    parameters: dict[str, Array] = field(converter=as_floats)

    @property
    def names(self) -> dict[str, int]:
        """``W1``, ``W2``, …."""
        return {f"W{i + 1}": out * of for i, (of, out) in enumerate(self._shapes)}

    @property
    def _shapes(self) -> list[tuple[int, int]]:
        return list(zip(self.widths[:-1], self.widths[1:], strict=True))

    def layers(self, x: Array) -> list[Float[Array, "out in"]]:
        """The matrices of a state."""
        shapes = enumerate(self._shapes)
        return [jnp.reshape(jnp.asarray(x[f"W{i + 1}"]), (out, of)) for i, (of, out) in shapes]

    def drift(self, x: Array, u: Settings) -> Array:
        """Gradient flow of all layers."""
        layers, gain = self.layers(x), u["gain"]
        # Products of the layers below and above each.
        below: list[Array] = [jnp.eye(self.widths[0])]
        for layer in layers:
            below.append(layer @ below[-1])
        missing = gain * (self.correlation - gain * below[-1] @ self.covariance)
        above, moves = jnp.eye(self.widths[-1]), {}
        for i in reversed(range(len(layers))):
            pull = above.T @ missing @ below[i].T - u["weight_decay"] * layers[i]
            moves[f"W{i + 1}"] = u["learning_rate"] * jnp.reshape(pull, (-1,))
            above = above @ layers[i]
        return {name: moves[name] for name in self.names}

    def error(self, x: Array, u: Settings) -> Array:
        """½ E‖y − G W_L ⋯ W_1 x‖²."""
        product = jnp.eye(self.widths[0])
        for layer in self.layers(x):
            product = layer @ product
        output = u["gain"] * product
        explained = 2 * jnp.sum(output * self.correlation) - jnp.sum((output @ self.covariance) * output)
        return (self.power - explained) / 2

    def start(self, size: float, seed: int = 0) -> dict[str, np.ndarray]:
        """Independent normal weights of standard deviation size/√inputs of their layer."""
        rng = np.random.default_rng(Arguments("start").count("seed", seed, 0))
        width = Arguments("start").number("size", size, 0.0, open_below=True)
        layers = (width * rng.standard_normal(out * of) / np.sqrt(of) for of, out in self._shapes)
        return dict(zip(self.names, layers, strict=True))


def task_shares(u: Settings, tasks: int) -> Float[Array, " tasks"]:
    """(tasks,) training shares: one-hot at whole numbers, two shares between them."""
    if tasks == 1:
        return jnp.ones(1)
    return jnp.maximum(1 - jnp.abs(u["task"] - np.arange(float(tasks))), 0.0)


def _power(base: Array, exponent: int) -> Array:
    """By multiplication: base**0 at 0 would have no derivative."""
    result = jnp.ones_like(base)
    for _ in range(exponent):
        result = result * base
    return result


@checked
def deep_linear(
    depth: int = 2,
    modes: Array = (1.0,),
    variances: Array = 1.0,
    test_share: Array | None = None,
    eta: float = 1.0,
) -> DeepLinear:
    """A deep linear network, mode by mode; layers start alike.

    Args:
        depth: L, layers.
        modes: (n,) s, correlations of the modes; (tasks, n) for several tasks.
        variances: λ of the modes' inputs, in the shape of ``modes`` or one number; 0 if a mode is absent from
            a task, and then its s must be 0 there.
        test_share: (tasks,) weights of the tasks in the error; None for equal ones.
        eta: learning rate η: time is counted in steps of a rate of 1.
    """
    check = Arguments("deep_linear")
    shape = np.shape(modes)
    if len(shape) not in (1, 2) or 0 in shape:
        check.fail("modes", modes, "must be a number for each mode, or a row of them for each task")
    s = np.atleast_2d(check.numbers("modes", modes, shape, lowest=0.0))
    variance = np.atleast_2d(check.numbers("variances", variances, shape, lowest=0.0))
    if np.any((variance == 0) & (s > 0)):
        check.fail("variances", variances, "must be above 0 where a mode has a correlation")
    tasks = len(s)
    settings: dict[str, Array] = {**_SETTINGS, "learning_rate": check.number("eta", eta, 0.0)}
    if tasks > 1:
        settings["task"] = 0.0
    share = check.probabilities("test_share", test_share, tasks)
    return DeepLinear(s, variance, share, check.count("depth", depth, 1), settings)


@checked
def deep_matrices(
    correlation: Array, widths: Sequence[int] = (8,), covariance: Array | None = None, eta: float = 1.0
) -> DeepMatrices:
    """A deep linear network with all its weights, from any start.

    Args:
        correlation: (outputs, inputs) E[y xᵀ].
        widths: of the hidden layers, from the inputs on.
        covariance: (inputs, inputs) E[x xᵀ], positive definite; None for the identity.
        eta: learning rate η.
    """
    check = Arguments("deep_matrices")
    if len(np.shape(correlation)) != 2:
        check.fail("correlation", correlation, "must be a matrix of outputs by inputs")
    table = check.numbers("correlation", correlation, np.shape(correlation))
    if np.ndim(widths) != 1:
        check.fail("widths", widths, "must be a list of whole numbers, one for each hidden layer")
    hidden = tuple(check.count("widths", width) for width in widths)
    inputs = check.gram("covariance", 1.0 if covariance is None else covariance, table.shape[1])
    if np.linalg.eigvalsh(inputs)[0] <= 0:
        check.fail("covariance", covariance, "must be positive definite")
    # Labels linear in the inputs, so that the optimal error is zero.
    power = np.asarray(np.sum(np.linalg.solve(inputs, table.T).T * table))
    settings: dict[str, Any] = {**_SETTINGS, "learning_rate": check.number("eta", eta, 0.0)}
    return DeepMatrices(table, inputs, power, (table.shape[1], *hidden, table.shape[0]), settings)
