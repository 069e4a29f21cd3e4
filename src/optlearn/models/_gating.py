"""Gated networks: half of the nodes decide, sample by sample, whether the other half contributes.

The output of K nodes is Σ_k λ_{K/2+k} g(λ_k), k = 1…K/2: linear *values*, each times a *gate*
g(λ) = 1 − s + s Φ(γ(λ − θ)) with the normal distribution function Φ. γ is the gain (0: half open
everywhere, ∞: a step), θ the threshold, s the switch (0: the gate is open, the network linear).
The teacher is a network of the same kind, with a gain and a threshold of its own.
"""

import dataclasses
from types import MappingProxyType
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import block_diag

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings
from optlearn._pytrees import field
from optlearn._signatures import checked
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters, OverlapLayout, Overlaps, order_parameters
from optlearn._theory.sample import Fields, Latent
from optlearn._theory.sampler import partial_cholesky
from optlearn.models._averages import (
    Step,
    below,
    both_below,
    cosine,
    density,
    diagonal,
    sharpest,
    stretched_line,
)

# Meanings of the parameter ``gate``, with its lowest and highest value. A gain below 0 equals one
# above 0 with the opposite weights and threshold.
GATES = {"gain": (0.0, np.inf), "threshold": (-np.inf, np.inf), "switch": (0.0, 1.0)}
# Nodes in the field of each student gate, by the number of gates; for more, the generic quadrature is used.
NODES = {1: 31, 2: 21}
# Nodes of the bivariate normal law of the teacher's gates, of one and of two of them.
ANGLES, PAIR_ANGLES = 4, 8


class Gating(LearningModel):
    """Gated student and gated teacher with square loss. Built by ``gating``.

    The first half of the students (and of the teachers) are gates, the second half values.

    Parameters (settings): ``learning_rate`` η; ``batch`` (fresh samples a step); ``sigma_n``,
    standard deviation of the label noise; ``gate`` in training and ``test_gate`` in the error: the
    student's gain, threshold or switch, depending on ``control``; ``gain`` and ``threshold`` of the
    student, unless they are the gate; ``teacher_gain`` and ``teacher_threshold``.

    Attributes:
        control: "gain", "threshold" or "switch": the meaning of ``gate``.
        nodes: nodes in the field of each student gate; 0: use the generic quadrature.
        fineness: factor of the default number of nodes for the teacher's gates.
    """

    limits = MappingProxyType(
        {**LearningModel.limits, **dict.fromkeys(("gain", "teacher_gain"), GATES["gain"])}
    )

    control: str = field(static=True, kw_only=True)
    nodes: int = field(static=True, kw_only=True)
    fineness: int = field(static=True, kw_only=True, default=1)

    def loss(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """½ (label − output)² with label noise."""
        (gates, values), (their_gates, their_values) = map(_halves, (fields.student[0], fields.teacher[0]))
        target = _soft_step(their_gates, u["teacher_gain"], u["teacher_threshold"])[0] @ their_values
        output = self._gate(gates, u)[0] @ values
        return (target + u["sigma_n"] * fields.noise - output) ** 2 / 2

    def check_parameter(self, name: str, value: Array) -> None:
        """Limits of the gate, depending on its meaning."""
        super().check_parameter(name, value)
        if name in ("gate", "test_gate") and not isinstance(value, jax.core.Tracer):
            Arguments(type(self).__name__).number(name, value, *GATES[self.control])

    def test_settings(self, u: Settings) -> Settings:
        """The gate at test time is ``test_gate``."""
        return {**u, "gate": u["test_gate"]}

    def closed_drift(self, x: OrderParameters, u: Settings) -> OrderParameters | None:
        """Values and the teacher's gates in closed form, with a quadrature over the student's gates.

        Values a and b of student and teacher are independent of the gates, the residual is
        e = g*·b − g·a + σ_n z, and minus the gradient is e a_k g'_k for a gate, e g_k for a value.
        """
        if not self.nodes:
            return None
        gates = self._given_gates(x, u)
        w, g, slope = gates.weights[:, None], gates.openness, gates.slope
        (Q, M, T), eta = gates.values, u["learning_rate"]
        # E[e a] and E[e b] at each point.
        pull, their_pull = gates.their_openness @ M.T - g @ Q, gates.their_openness @ T - g @ M
        steps = (w * slope * pull).T
        # A teacher's gate is its projection on the student's gates plus a remainder (Stein's lemma).
        bound = gates.remainder @ (M * ((w * slope).T @ gates.their_slope)).T
        gates_Q, gates_M = steps @ gates.fields, steps @ gates.their_fields + bound.T
        values_Q, values_M = (w * g).T @ pull, (w * g).T @ their_pull
        square = (gates.weights * (self._square(gates) + u["sigma_n"] ** 2))[:, None]
        scatter = jnp.einsum("im,pmn,jn->pij", M, gates.their_scatter, M)
        pulls = pull[:, :, None] * pull[:, None, :] + scatter
        spread = (square * slope).T @ slope * Q
        spread = spread + 2 * jnp.einsum("p,pi,pj,pij->ij", gates.weights, slope, slope, pulls)
        noise = eta**2 / u["batch"]
        # Gates and values have no overlap.
        return order_parameters(
            Q=block_diag(
                eta * (gates_Q + gates_Q.T) + noise * spread,
                eta * (values_Q + values_Q.T) + noise * (square * g).T @ g,
            ),
            M=block_diag(eta * gates_M, eta * values_M),
        )

    def closed_error(self, x: OrderParameters, u: Settings) -> Array | None:
        """½ E[(target − output)²] with the gate at test time."""
        if not self.nodes:
            return None
        gates = self._given_gates(x, self.test_settings(u))
        return gates.weights @ self._square(gates) / 2

    def refined(self) -> Self | None:
        """Twice the nodes; only the outermost ones coincide."""
        if not self.nodes:
            return super().refined()
        return dataclasses.replace(self, nodes=2 * self.nodes + 1, fineness=2 * self.fineness)

    def observables(self, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """``cosine_gate``, ``cosine_value``: of the first gate and value with those of the teacher."""
        T = self.overlaps.T
        nodes = {"gate": (0, 0), "value": (self.students // 2, len(T) // 2)}
        return {f"cosine_{name}": cosine(x.M[k, m], T[m, m], x.Q[k, k]) for name, (k, m) in nodes.items()}

    def _gate(self, fields: Array, u: Settings) -> tuple[Array, Array]:
        """The gates and their slopes at the gates' fields."""
        gain, threshold, on = self._shape(u)
        value, slope = _soft_step(fields, gain, threshold)
        return 1 - on + on * value, on * slope

    def _shape(self, u: Settings) -> tuple[Array, Array, Array]:
        """Gain, threshold and switch of the student's gates."""
        setting = {"switch": jnp.ones(()), **u, self.control: u["gate"]}
        return setting["gain"], setting["threshold"], setting["switch"]

    def _given_gates(self, x: OrderParameters, u: Settings) -> "_GivenGates":
        half, their_half = self.students // 2, len(self.overlaps.T) // 2
        T = jnp.asarray(self.overlaps.T)
        gram = jnp.block(
            [
                [x.Q[:half, :half], x.M[:half, :their_half]],
                [x.M[:half, :their_half].T, T[:their_half, :their_half]],
            ]
        )
        factor = partial_cholesky(gram, tuple(range(half)))
        points, weights = self._points(gram, factor, u)
        fields = points @ factor.T
        g, slope = self._gate(fields[:, :half], u)
        remainder = gram[half:, half:] - factor[half:] @ factor[half:].T
        gain = u["teacher_gain"]
        narrowed = gain / jnp.sqrt(1 + gain**2 * diagonal(remainder))
        h = narrowed[None, :] * (fields[:, half:] - u["teacher_threshold"])
        mean = below(h)
        both = self._both_open(h, jnp.arcsin(narrowed[:, None] * narrowed[None, :] * remainder))
        return _GivenGates(
            weights=weights,
            fields=fields[:, :half],
            openness=g,
            slope=slope,
            their_fields=fields[:, half:],
            their_openness=mean,
            their_slope=narrowed[None, :] * density(h),
            their_scatter=both - mean[:, :, None] * mean[:, None, :],
            remainder=remainder,
            values=(x.Q[half:, half:], x.M[half:, their_half:], T[their_half:, their_half:]),
        )

    def _points(self, gram: Array, factor: Array, u: Settings) -> tuple[Array, Array]:
        """Points (P, K/2) and weights (P,) of the standard normals behind the student gates' fields.

        For the j-th of them, its own gate has its actual sharpness, and every later gate, of student or
        teacher, is smoothed by the mean over the remaining normals.
        """
        half, count = self.students // 2, gram.shape[0]
        gain, threshold, _ = self._shape(u)
        gains, thresholds = (
            jnp.concatenate([mine * jnp.ones(half), u[theirs] * jnp.ones(count - half)])
            for mine, theirs in ((gain, "teacher_gain"), (threshold, "teacher_threshold"))
        )
        points, weights = jnp.zeros((1, 0)), jnp.ones(1)
        for j in range(half):
            seen_so_far = factor[:, : j + 1]
            narrowed = gains / jnp.sqrt(1 + gains**2 * (diagonal(gram) - jnp.sum(seen_so_far**2, axis=1)))
            steps = Step(
                (narrowed * factor[:, j])[None, :] * jnp.ones((points.shape[0], 1)),
                narrowed[None, :] * (thresholds[None, :] - points @ factor[:, :j].T),
            )
            mine, others = (Step(*(part[:, which] for part in steps)) for which in (j, slice(j + 1, None)))
            line, mass = stretched_line(mine, sharpest(others), self.nodes)
            points = jnp.concatenate([jnp.repeat(points, self.nodes, axis=0), line.reshape(-1, 1)], axis=1)
            weights = (weights[:, None] * mass).reshape(-1)
        return points, weights

    def _both_open(self, h: Array, angle: Array) -> Array:
        """(P, M/2, M/2) mean of the product of two of the teacher's gates, each below h (P, M/2)."""
        count = h.shape[1]
        equal, pairs = self.fineness * ANGLES, self.fineness * PAIR_ANGLES
        rows = [
            [
                both_below(h[:, i], h[:, j], angle[i, j][None], equal if i == j else pairs)
                for j in range(i + 1)
            ]
            for i in range(count)
        ]
        return jnp.stack(
            [jnp.stack([rows[max(i, j)][min(i, j)] for j in range(count)], 1) for i in range(count)], 1
        )

    def _square(self, gates: "_GivenGates") -> Array:
        """(P,) E[e²] at each point, without label noise."""
        (Q, M, T), g, theirs = gates.values, gates.openness, gates.their_openness
        mean = jnp.sum(g * (g @ Q), axis=1) - 2 * jnp.sum(g * (theirs @ M.T), axis=1)
        return mean + jnp.sum(theirs * (theirs @ T), axis=1) + jnp.sum(gates.their_scatter * T[None], (1, 2))


class _GivenGates(NamedTuple):
    """Quantities at P points of the K/2 student gates' fields; the teacher's gates are averaged."""

    weights: Array  # (P,)
    fields: Array  # (P, K/2) fields of the student's gates
    openness: Array  # (P, K/2) g
    slope: Array  # (P, K/2) g'
    their_fields: Array  # (P, M/2) mean fields of the teacher's gates
    their_openness: Array  # (P, M/2) mean of g*
    their_slope: Array  # (P, M/2) mean of g*'
    their_scatter: Array  # (P, M/2, M/2) covariance of g*
    remainder: Array  # (M/2, M/2) covariance of the teacher's gates' fields
    values: tuple[Array, Array, Array]  # Q, M and T of the values


@checked
def gating(
    K: int = 2,
    M: int = 2,
    T: Array | None = None,
    teacher_gain: float = 1.5,
    teacher_threshold: float = 0.0,
    control: str = "gain",
    gate: float | None = None,
    test_gate: float | None = None,
    sigma_n: float = 0.0,
    eta: float = 1.0,
    batch: float = 1.0,
) -> Gating:
    """A gated student and a gated teacher; by default one gate and one value each.

    Args:
        K: nodes of the student, an even number: gates first, then values.
        M: nodes of the teacher, likewise.
        T: (M, M) teachers' overlaps; a number for a multiple of the identity; None for the
            identity.
        teacher_gain: γ* of the teacher's gates.
        teacher_threshold: θ* of the teacher's gates.
        control: the meaning of the parameter ``gate``: "gain", "threshold", or "switch" (0: open, 1:
            gated). Gain and threshold other than the gate are the teacher's.
        gate: its value in training; None for the teacher's.
        test_gate: its value in the error; None for the teacher's.
        sigma_n: standard deviation of the label noise.
        eta: learning rate η.
        batch: fresh samples in each step.

    Returns:
        A model with order parameters Q and M.
    """
    check = Arguments("gating")
    for name, count in (("K", K), ("M", M)):
        if check.count(name, count, lowest=2) % 2:
            check.fail(name, count, "must be even: one half gates, one half values")
    control = check.one_of("control", control, GATES)
    setting = {
        "gain": check.number("teacher_gain", teacher_gain, 0.0),
        "threshold": check.number("teacher_threshold", teacher_threshold),
        "switch": 1.0,
    }
    parameters: dict[str, Array] = {
        "learning_rate": check.number("eta", eta, 0.0),
        "batch": check.number("batch", batch, 1.0),
        "sigma_n": check.number("sigma_n", sigma_n, 0.0),
        "teacher_gain": setting["gain"],
        "teacher_threshold": setting["threshold"],
        **{name: setting[name] for name in ("gain", "threshold") if name != control},
    }
    for name, value in (("gate", gate), ("test_gate", test_gate)):
        parameters[name] = setting[control] if value is None else check.number(name, value, *GATES[control])
    overlaps = Overlaps(T=check.gram("T", 1.0 if T is None else T, M))
    untracked = _apart(K, overlaps)
    return Gating(
        students=K,
        overlaps=overlaps,
        parameters=parameters,
        untracked=untracked,
        control=control,
        nodes=NODES.get(K // 2, 0) if untracked else 0,
    )


def _apart(K: int, overlaps: Overlaps) -> frozenset[str]:
    """Overlaps of gates with values: they stay zero if the teacher has none.

    The loss does not change if all values change sign, so a gradient by a value is odd in them.
    """
    M = len(overlaps.T)
    if np.any(overlaps.T[: M // 2, M // 2 :]):
        return frozenset()
    layout = OverlapLayout(students=K, teachers=M)
    half = {"Q": (K // 2, K // 2), "M": (K // 2, M // 2)}
    return frozenset(
        layout.name_of(kind, row, column)
        for kind, row, column in layout.all_entries()
        if kind in half and (row < half[kind][0]) != (column < half[kind][1])
    )


def _halves(fields: Array) -> tuple[Array, Array]:
    """Gates' and values' fields."""
    half = fields.shape[0] // 2
    return fields[:half], fields[half:]


def _soft_step(fields: Array, gain: Array, threshold: Array) -> tuple[Array, Array]:
    """Φ(γ(λ − θ)) and its derivative."""
    z = gain * (fields - threshold)
    return below(z), gain * density(z)
