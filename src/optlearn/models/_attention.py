"""One layer of dot-product attention: queries and keys of a student learn those of a teacher.

A sample is L tokens x_l of N Gaussian entries (variance σ²). A head with query w_Q and key w_K has the
scores s_{ll'} = β (x_l·w_Q)(x_l'·w_K)/N = β λ_Q^l λ_K^l' and the attention A = softmax(s) **over l**: the
columns of A add up to 1, so that output token l' of f = x A is the mean of the input tokens with weights
A_{·l'}. Heads are averaged (readout fixed at 1/heads). The loss ‖f − f*‖²/(2N) becomes
½ σ² Σ_{ll'} (A − A*)²_{ll'} in high dimension; entries x_l·x_l'/N with l ≠ l' vanish.

A softmax over l does not change if a constant is added to all scores of a column, so only differences of
queries between tokens matter. The slots of the model are therefore not the tokens themselves but an
orthogonal rotation of them: slot 0 is Σ_l x_l/√L, the others are contrasts. Rotated tokens are also
independent and Gaussian, and the query of slot 0 is never read: 2(2L − 1) fields per head instead of 4L.

With two tokens, changing the sign of all keys turns every A into 1 − A and leaves the loss unchanged. So if
queries and keys are orthogonal, in the teacher and at the start, they stay so, and their overlaps are not
tracked. With three tokens there is no such symmetry.

Two tokens and one head are simpler: all moments are integrals over one pair of fields, the queries of student
and teacher, of closed forms in the keys (``_two_tokens``).
"""

import dataclasses
from types import MappingProxyType
from typing import Literal, Self

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings
from optlearn._pytrees import field
from optlearn._signatures import checked
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters, OverlapLayout, Overlaps, order_parameters
from optlearn._theory.sample import Fields, Latent, Latents
from optlearn.models._averages import cosine
from optlearn.models._two_tokens import Fineness, Pair, key_means, mean_loss, query_points

Masked = Literal["nothing", "tokens", "heads"]
MASKED = ("nothing", "tokens", "heads")

# Subtracted from the scores of hidden tokens: their weights are then zero in double precision.
HIDDEN = 1e4

# Drifts are then accurate to 1e-5 for scores like the teacher's, and to 3e-4 for β = 5 and Q = 2 (measured).
FINENESS = Fineness(components=4, nodes=16)


class Attention(LearningModel):
    """Dot-product attention, student and teacher of the same kind. Built by ``attention``.

    Parameters (settings): ``learning_rate`` η; ``temperature`` β, the inverse temperature that multiplies the
    student's scores in training, and ``test_temperature``, the one at test time; ``sigma``, standard
    deviation of the inputs; if something is masked, ``mask``, the share of training samples in which it is.

    Weights 1, 2 are query and key of the first head, 3, 4 those of the second, and so on, for the student and
    for the teacher; with ``tied`` weight h is both query and key of head h.

    Attributes:
        branches: number of heads.
        tied: whether a head's key is its query.
        masked: what ``mask`` hides in training. "tokens": every output token sees only itself and the next
            token, in student and teacher (a short context). "heads": the student has only its first head.
        fineness: resolution of the integrals for two tokens and one head.
    """

    limits = MappingProxyType(
        {**LearningModel.limits, **dict.fromkeys(("temperature", "test_temperature", "sigma"), (0.0, np.inf))}
    )

    branches: int = field(static=True, kw_only=True, default=1)
    tied: bool = field(static=True, kw_only=True, default=False)
    masked: Masked = field(static=True, kw_only=True, default="nothing")
    fineness: Fineness = field(static=True, kw_only=True, default=FINENESS)

    def loss(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """½ σ² Σ_{ll'} (A − A*)²_{ll'}."""
        hidden = latent["hidden"]
        short = hidden if self.masked == "tokens" else jnp.zeros(())
        student = self._heads(fields.student, u["temperature"], short)
        teacher = self._heads(fields.teacher, jnp.ones(()), short)
        share = np.full(self.branches, 1 / self.branches)
        student_share = jnp.asarray(share)
        if self.masked == "heads":
            student_share = student_share + hidden * (np.eye(self.branches)[0] - share)
        difference = jnp.tensordot(student_share, student, axes=1) - jnp.tensordot(share, teacher, axes=1)
        return u["sigma"] ** 2 * jnp.sum(difference**2) / 2

    def latents(self, u: Settings) -> Latents:
        """Whether something is hidden in a training sample."""
        if self.masked == "nothing":
            return Latents.single(hidden=np.zeros(()))
        share = jnp.asarray(u["mask"])
        return Latents.choice(jnp.stack([1 - share, share]), hidden=np.array([0.0, 1.0]))

    def test_latents(self, u: Settings) -> Latents:
        """Nothing is hidden in a test sample."""
        return Latents.single(hidden=np.zeros(()))

    def test_settings(self, u: Settings) -> Settings:
        """The temperature of the test."""
        return {**u, "temperature": u["test_temperature"]}

    def variances(self, latent: Latent, u: Settings) -> Array:
        """σ² in all slots."""
        return u["sigma"] ** 2 * jnp.ones(self.slots)

    @property
    def reduced(self) -> bool:
        """Whether drift and error are integrals over two pairs of fields."""
        return self.slots == 2 and self.branches == 1 and "Q12" in self.untracked

    def closed_drift(self, x: OrderParameters, u: Settings) -> OrderParameters | None:
        """The drift for two tokens and one head: closed over the keys, an integral over (q, q*)."""
        if not self.reduced:
            return None
        eta, variance, root = u["learning_rate"], u["sigma"] ** 2, np.sqrt(2) * u["temperature"]
        queries, keys = self._pairs(x, variance)
        q, q_star, weights = query_points(queries, keys, u["temperature"], self.fineness.nodes)
        means = key_means(root * q, np.sqrt(2) * q_star, keys, self.fineness.components)
        pull_q, pull_k = root * variance * means.pull, root * variance * means.their_pull
        square = (root * variance) ** 2
        # Both output tokens act on one query, each on its own key.
        spread_q = 2 * weights @ (square * means.key_square + pull_q**2)
        spread_k = 2 * weights @ (square * q**2 * means.square)
        along = -4 * eta * weights @ (q * pull_q)
        dQ = [along + eta**2 * variance * spread for spread in (spread_q, spread_k)]
        dM = [-2 * eta * weights @ (q_star * pull_q), -2 * eta * weights @ (q * pull_k)]
        return order_parameters(Q=jnp.diag(jnp.stack(dQ)), M=jnp.diag(jnp.stack(dM)))

    def closed_error(self, x: OrderParameters, u: Settings) -> Array | None:
        """The error for two tokens and one head, from the same integral."""
        if not self.reduced:
            return None
        variance, beta = u["sigma"] ** 2, u["test_temperature"]
        queries, keys = self._pairs(x, variance)
        q, q_star, weights = query_points(queries, keys, beta, self.fineness.nodes)
        loss = mean_loss(np.sqrt(2) * beta * q, np.sqrt(2) * q_star, keys, self.fineness.components)
        return 2 * variance * weights @ loss

    def refined(self) -> Self | None:
        """More components of the logistic function, and more points in the queries."""
        if not self.reduced:
            return super().refined()
        components, nodes = self.fineness
        # 1.5 times as many points, and an even number: mirror images are left out.
        return dataclasses.replace(self, fineness=Fineness(components + 3, 2 * (3 * nodes // 4)))

    def _pairs(self, x: OrderParameters, variance: Array) -> tuple[Pair, Pair]:
        """Variances and covariances of the queries' fields, and of the keys'."""
        T = jnp.asarray(self.overlaps.T)
        queries, keys = (Pair(variance * x.Q[i, i], variance * x.M[i, i], variance * T[i, i]) for i in (0, 1))
        return queries, keys

    def observables(self, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """Cosines of the first head's query and key with the teacher's, and its sharpness.

        ``sharpness`` is √(Q_qq Q_kk) over the teacher's: 1 where the student's scores, at β = 1, are as large
        as the teacher's.
        """
        T, key = self.overlaps.T, 0 if self.tied else 1
        norms = x.Q[0, 0] * x.Q[key, key] / (T[0, 0] * T[key, key])
        cosines = {"query_cosine": cosine(x.M[0, 0], T[0, 0], x.Q[0, 0])}
        if not self.tied:
            cosines["key_cosine"] = cosine(x.M[1, 1], T[1, 1], x.Q[1, 1])
        return {**cosines, "sharpness": jnp.sqrt(jnp.maximum(norms, 0.0))}

    def _heads(self, fields: Array, temperature: Array, short: Array) -> Array:
        """(heads, L, L) attention of each head from fields (L, K) of the slots."""
        rotation = token_rotation(self.slots)
        queries, keys = (fields, fields) if self.tied else (fields[:, 0::2], fields[:, 1::2])
        # The common part of the queries cancels in the softmax and is not read.
        q, k = rotation[:, 1:] @ queries[1:], rotation @ keys
        scores = temperature * (q.T[:, :, None] * k.T[:, None, :])
        if self.masked == "tokens":
            visible = np.eye(self.slots) + np.roll(np.eye(self.slots), 1, axis=0)
            scores = scores - short * HIDDEN * jnp.asarray(1 - visible)[None]
        if self.slots == 2:
            # An equivalent form with half the operations.
            first = jax.nn.sigmoid(scores[:, :1] - scores[:, 1:])
            return jnp.concatenate([first, 1 - first], axis=1)
        return jax.nn.softmax(scores, axis=1)


@checked
def attention(
    tokens: int = 2,
    heads: int = 1,
    T: Array = 1.0,
    eta: float = 1.0,
    temperature: float = 1.0,
    sigma: float = 1.0,
    tied: bool = False,
    masked: Masked = "nothing",
    mask: float = 0.0,
) -> Attention:
    """Attention model; student and teacher have the same number of heads.

    Args:
        tokens: L, tokens in a sample.
        heads: number of heads; their outputs are averaged.
        T: (M, M) overlaps of the teacher's weights, in the order query, key of head 1, 2, … (tied: one weight
            per head); a number for a multiple of the identity.
        eta: learning rate η.
        temperature: β, inverse temperature of the student in training; it is 1 at test time.
        sigma: standard deviation of the inputs.
        tied: the key of a head is its query.
        masked: what ``mask`` hides: "nothing", "tokens" (of three or more) or "heads" (of two or more).
        mask: share of training samples in which it is hidden.

    Returns:
        A model with order parameters Q (K, K) and M (K, K), K = 2 heads (tied: heads). With two tokens, and
        no overlap of the teacher's queries with its keys, overlaps of queries with keys are left out.
    """
    check = Arguments("attention")
    L, count = check.count("tokens", tokens, 2), check.count("heads", heads)
    units = count if check.flag("tied", tied) else 2 * count
    check.one_of("masked", masked, MASKED)
    if masked == "tokens" and L < 3:
        check.fail("tokens", tokens, "must be at least 3 where tokens are masked: two are always visible")
    if masked == "heads" and count < 2:
        check.fail("heads", heads, "must be at least 2 where heads are masked: the first stays")
    parameters = {
        "learning_rate": check.number("eta", eta, 0.0),
        "temperature": check.number("temperature", temperature, 0.0),
        "test_temperature": 1.0,
        "sigma": check.number("sigma", sigma, 0.0, open_below=True),
    }
    hidden = check.number("mask", mask, 0.0, 1.0)
    if masked != "nothing":
        parameters["mask"] = hidden
    gram = check.gram("T", T, units)
    across = np.add.outer(np.arange(units), np.arange(units)) % 2 == 1
    apart = L == 2 and not tied and not np.any(gram[across])
    # Overlaps of students' queries with keys, students' or teachers'.
    layout = OverlapLayout(students=units, teachers=units)
    crossing = (layout.name_of(*entry) for entry in layout.all_entries() if across[entry[1:]])
    return Attention(
        students=units,
        slots=L,
        overlaps=Overlaps(T=gram),
        untracked=frozenset(crossing if apart else ()),
        parameters=parameters,
        branches=count,
        tied=bool(tied),
        masked=masked,
        even=True,
    )


def token_rotation(tokens: int) -> np.ndarray:
    """(L, L) orthogonal matrix: tokens from slots. Column 0 is 1/√L, the others are Helmert contrasts."""
    columns = [np.full(tokens, 1 / np.sqrt(tokens))]
    for j in range(1, tokens):
        column = np.zeros(tokens)
        column[:j], column[j] = 1.0, -j
        columns.append(column / np.sqrt(j * (j + 1)))
    return np.stack(columns, axis=1)
