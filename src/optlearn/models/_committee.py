"""Soft committee machines: K nodes learn the sum of M nodes, with dropout or trained heads.

The student's output is Σ_k r_k v_k g(λ_k), the label Σ_m v*_m g*(λ*_m) + σ_n z. Readouts are ones,
or trained (one head for each task). In training r_k ∈ {0, 1} are dropout masks with P(r_k = 1) = p;
at test time all nodes are on and the output is multiplied by p_f.

Continual learning. One network learns several tasks, each with a readout head of its own.
Task m is the teacher node w*_m: its label is g(λ*_m) + σ_n z. All tasks share the students' hidden
weights; head m, the column m of v, is trained on samples of task m only. Learning one task moves the
shared weights and so spoils the other heads: this is forgetting. Which task a sample is drawn from is
the parameter ``task``, which may be controlled.
"""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings
from optlearn._pytrees import field
from optlearn._signatures import checked
from optlearn._theory.model import ClosedMoments, LearningModel
from optlearn._theory.order import OrderParameters, Overlaps, field_covariance, order_parameters
from optlearn._theory.sample import Break, Fields, Latent, Latents
from optlearn._theory.spectrum import Spectrum
from optlearn.models._averages import ACTIVATIONS, Activation, cosine, entries


class Committee(LearningModel):
    """Two-layer student and teacher with square loss. Built by ``committee``.

    Parameters (settings): ``learning_rate`` η; ``batch`` (fresh samples a step); ``sigma_n``,
    standard deviation of the label noise; ``weight_decay`` λ, of the penalty λ/2 Σ_k Q_kk; with
    dropout ``activation`` p and ``rescaling`` p_f; with heads ``readout_rate`` η_v, ``task_share``
    (H,) and ``test_share`` (H,), the probabilities of the tasks in training and in the error.

    Attributes:
        activation, teacher_activation: g and g*.
        dropout: whether nodes are masked in training.
        teacher_readout: (M, max(H, 1)) the teachers' weights in each task.
    """

    reads_blocks = True

    activation: Activation = field(static=True, kw_only=True)
    teacher_activation: Activation = field(static=True, kw_only=True)
    dropout: bool = field(static=True, kw_only=True, default=False)
    teacher_readout: Array = field(kw_only=True)

    def loss(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """½ (label − output)² of the task, with masks and label noise."""
        active = self._readout(x) @ self._task(latent)
        if self.dropout:
            active = active * latent["mask"]
        output = active @ self.activation.function(fields.student[0])
        return (self._target(fields, latent) + u["sigma_n"] * fields.noise - output) ** 2 / 2

    def metric(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """½ (target − p_f Σ_k v_k g(λ_k))²: all nodes on, no label noise."""
        output = (self._readout(x) @ self._task(latent)) @ self.activation.function(fields.student[0])
        return (self._target(fields, latent) - u.get("rescaling", 1.0) * output) ** 2 / 2

    def penalty(self, x: OrderParameters, u: Settings) -> Array:
        """λ/2 Σ_k Q_kk; the readout is not penalised."""
        return u["weight_decay"] / 2 * jnp.sum(x.Q * np.eye(self.students))

    def latents(self, u: Settings) -> Latents:
        """Mask of the nodes (with dropout) and task (with heads)."""
        latents = self._tasks(u.get("task_share"))
        if self.dropout:
            latents = latents.times(Latents.masks("mask", self.students, u["activation"]))
        return latents

    def test_latents(self, u: Settings) -> Latents:
        """Task (with heads); no masks."""
        return self._tasks(u.get("test_share"))

    def closed_drift(self, x: OrderParameters, u: Settings) -> OrderParameters | None:
        """Saad-Solla equations with masks, heads, label noise and batches, where I₄ is known."""
        if not self._closed():
            return None
        K, eta, decay, blocks = self.students, u["learning_rate"], u["weight_decay"], self._gram(x)
        pulled, bent, spread, v = self._moments(x, u)
        if self.spectrum is None:
            towards = pulled @ blocks + bent[:, None] * blocks[:K]
        else:
            # E[∂D₂/∂field] is the same for all blocks; each has the field covariance c_b G_b.
            towards = jnp.einsum("b,kn,bnm->bkm", self.spectrum.variance, _add_diagonal(pulled, bent), blocks)
            power = jnp.asarray(self.spectrum.variance * self.spectrum.share)
            spread = power[:, None, None] * spread[None]
        turn = towards[..., :K] - decay * x.Q
        return order_parameters(
            Q=eta * (turn + jnp.swapaxes(turn, -1, -2)) + eta**2 / u["batch"] * spread,
            M=eta * (towards[..., K:] - decay * x.M),
            v=-u["readout_rate"] * v if self.heads else None,
        )

    def closed_moments(self, x: OrderParameters, u: Settings) -> ClosedMoments | None:
        """Moments of the closed drift."""
        if not self._closed():
            return None
        pulled, bent, spread, v = self._moments(x, u)
        return ClosedMoments(-_add_diagonal(pulled, bent), spread, v)

    def _moments(self, x: OrderParameters, u: Settings) -> tuple[Array, Array, Array, Array]:
        """−E[∂D₂/∂field] as a (K, K + M) table and what is added to its diagonal; E[D₂ D₂ᵀ]; E[D₄]."""
        K, gram = self.students, self._gram(x)
        if self.spectrum is not None:
            gram = field_covariance(gram, self.spectrum.variance)
        feedback, signed = self._feedback(x, u), self._signed(x)
        weighted = feedback * self._shares(u.get("task_share"))[None, :]
        together, four_together = self._coincidence(u)
        # D₂ of node i is −r_i F_i g'(λ_i) × (residual = Σ_j ± r_j v_j g(λ_j) + noise).
        pair = weighted @ signed.T * together
        pulled = pair * self.activation.J2(gram, *np.ogrid[:K, : len(gram)])
        bent = jnp.sum(pair * self.activation.bend(gram, *np.ogrid[:K, : len(gram)]), axis=1)
        first, second, twice = np.triu_indices(K), np.triu_indices(len(gram)), _multiplicity(len(gram))
        outer = entries(feedback, first[0]) * entries(weighted, first[1])
        inner = entries(signed, second[0]) * entries(signed, second[1]) * twice[:, None]
        quartic = outer @ inner.T * four_together * self.activation.I4(gram, first, second)
        both_on = entries(together, *first) if self.dropout else 1.0
        noise = jnp.sum(outer, axis=1) * both_on * self.activation.J2(gram, *first)
        spread = entries(jnp.sum(quartic, axis=1) + u["sigma_n"] ** 2 * noise, _pair_number(K))
        if not self.heads:
            return pulled, bent, spread, jnp.zeros((K, 0))
        overlap = together * self.activation.I2(gram, *np.ogrid[:K, : len(gram)])
        return pulled, bent, spread, -u["task_share"][None, :] * (overlap @ signed)

    def closed_error(self, x: OrderParameters, u: Settings) -> Array | None:
        """E[½ (target − p_f output)²], where I₂ is known for all pairs of nodes."""
        if self.activation != self.teacher_activation:
            return None
        gram = self._gram(x)
        if self.spectrum is not None:
            gram = field_covariance(gram, self.spectrum.variance)
        signed = self._signed(x, u.get("rescaling", 1.0))
        first, second = np.triu_indices(len(gram))
        products = entries(signed, first) * entries(signed, second) * _multiplicity(len(gram))[:, None]
        weights = products @ self._shares(u.get("test_share"))
        return weights @ self.activation.I2(gram, first, second) / 2

    def observables(self, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """``cosine`` of student 1 with teacher 1, ``correlation`` of students 1 and 2 beyond it.

        ``correlation`` is (Q₁₂ − M₁₁ M₂₁/T)/√(Q₁₁ Q₂₂), for K ≥ 2 and M = 1. At zero weights these
        are the limits at the start of training: 0, and p.
        """
        T, x = self.summed.overlaps.T, self.total(x)
        cosines = {"cosine": cosine(x.M[0, 0], T[0, 0], x.Q[0, 0])}
        if self.students >= 2 and T.shape[0] == 1:
            start = u["activation"] if self.dropout else 1.0
            cosines["correlation"] = cosine(
                x.Q[0, 1] - x.M[0, 0] * x.M[1, 0] / T[0, 0], x.Q[0, 0], x.Q[1, 1], at_zero=start
            )
        return cosines

    @classmethod
    def _like(cls, other: "Committee", parameters: dict[str, Array]) -> Self:
        """A model of this class with the fields of ``other``, except its parameters."""
        parts = {part.name: getattr(other, part.name) for part in dataclasses.fields(other)}
        return cls(**parts | {"parameters": parameters})

    # --- readouts and tasks -----------------------------------------------------------------------

    def _readout(self, x: OrderParameters) -> Array:
        """(K, max(H, 1)) the students' weights in each task."""
        return x.v if self.heads else jnp.ones((self.students, 1))

    def _feedback(self, x: OrderParameters, u: Settings) -> Array:
        """(K, max(H, 1)) F, the weights that propagate errors back to the students: the readout."""
        return self._readout(x)

    def _signed(self, x: OrderParameters, rescaling: Array = 1.0) -> Array:
        """(K + M, max(H, 1)) coefficients of all nodes in target minus output."""
        return jnp.concatenate([-rescaling * self._readout(x), self.teacher_readout])

    def _shares(self, share: Array | None) -> Array:
        """(max(H, 1),) probabilities of the tasks."""
        return jnp.ones(1) if share is None else jnp.asarray(share)

    def _tasks(self, share: Array | None) -> Latents:
        probabilities = self._shares(share)
        return Latents.choice(probabilities, task=np.arange(len(probabilities), dtype=np.int32))

    def _task(self, latent: Latent) -> Array:
        """(max(H, 1),) one-hot."""
        numbers = jnp.arange(max(self.heads, 1), dtype=jnp.int32)
        return (numbers == latent["task"]).astype(float)

    def _target(self, fields: Fields, latent: Latent) -> Array:
        readout = jnp.asarray(self.teacher_readout) @ self._task(latent)
        return readout @ self.teacher_activation.function(fields.teacher[0])

    # --- parts of the closed forms ----------------------------------------------------------------

    def _closed(self) -> bool:
        same = self.activation == self.teacher_activation
        return same and self.activation.fourth is not None

    def _gram(self, x: OrderParameters) -> Array:
        """(K + M, K + M) Gram matrix of all vectors; (B, K + M, K + M) under a spectrum."""
        top = jnp.concatenate([x.Q, x.M], axis=-1)
        bottom = jnp.concatenate([jnp.swapaxes(jnp.asarray(x.M), -1, -2), self.block_overlaps.T], axis=-1)
        return jnp.concatenate([top, bottom], axis=-2)

    def _coincidence(self, u: Settings) -> tuple[Array, Array]:
        """Probability that all nodes of a group are on: p to the number of distinct students.

        For {i, j}: (K, K + M); for {i, k, j, l}: (pairs of students, pairs of nodes). Teachers are
        always on.
        """
        if not self.dropout:
            return 1.0, 1.0
        two, four = _distinct_students(self.students, self.students + self.teachers)
        # A running product: p**0 at p = 0 would have no derivative.
        powers = [jnp.ones(())]
        for _ in range(int(four.max())):
            powers.append(powers[-1] * u["activation"])
        table = jnp.stack(powers)
        return entries(table, two), entries(table, four)


@checked
def committee(
    K: int = 2,
    M: int = 1,
    T: Array | None = None,
    activation: str = "erf",
    teacher_activation: str | None = None,
    sigma_n: float = 0.0,
    eta: float = 1.0,
    batch: float = 1.0,
    weight_decay: float = 0.0,
    dropout: bool = False,
    activation_probability: float = 1.0,
    rescaling: float | None = None,
    heads: int = 0,
    teacher_readout: Array | None = None,
    task_share: Array | None = None,
    test_share: Array | None = None,
    readout_rate: float | None = None,
    spectrum: Spectrum | None = None,
) -> Committee:
    """A soft committee machine, plain (the defaults), with dropout, or with trained readout heads.

    Args:
        K: hidden nodes of the student.
        M: hidden nodes of the teacher.
        T: (M, M) teachers' overlaps; a number for a multiple of the identity; None for the
            identity. Under a spectrum (B, M, M), or (M, M) for teachers in random directions.
        activation: "erf" (erf(λ/√2)), "relu" or "linear".
        teacher_activation: the same names; None for that of the student. Drift and error have
            closed forms if both agree (the drift not for "relu").
        sigma_n: standard deviation of the label noise.
        eta: learning rate η.
        batch: fresh samples in each step.
        weight_decay: λ of the penalty λ/2 Σ_k Q_kk: the drift gets −2ηλQ and −ηλM.
        dropout: mask the student's nodes in training.
        activation_probability: p, with which a node is on in training (parameter ``activation``).
        rescaling: p_f, factor of the output at test time; None for p.
        heads: H, trained readout heads, one for each task; 0 for a readout of ones.
        teacher_readout: (M, max(H, 1)) teachers' weights in each task; None for ones, or for the
            identity if H = M > 1.
        task_share: (H,) probabilities of the tasks in training; None for equal ones.
        test_share: (H,) their weights in the error; None for equal ones.
        readout_rate: η_v; None for η.
        spectrum: spectrum of the inputs; None: isotropic inputs.

    Returns:
        A model with order parameters Q, M and, with heads, v.
    """
    check = Arguments("committee")
    K, M = check.count("K", K), check.count("M", M)
    student = ACTIVATIONS[check.one_of("activation", activation, ACTIVATIONS)]
    teacher = student
    if teacher_activation is not None:
        teacher = ACTIVATIONS[check.one_of("teacher_activation", teacher_activation, ACTIVATIONS)]
    eta = check.number("eta", eta, 0.0)
    parameters: dict[str, Array] = {
        "learning_rate": eta,
        "batch": check.number("batch", batch, 1.0),
        "sigma_n": check.number("sigma_n", sigma_n, 0.0),
        "weight_decay": check.number("weight_decay", weight_decay, 0.0),
    }
    parameters |= _dropout_parameters(check, dropout, activation_probability, rescaling)
    heads = check.count("heads", heads, lowest=0)
    parameters |= _head_parameters(check, heads, eta, readout_rate, task_share, test_share)
    return Committee(
        students=K,
        overlaps=Overlaps(T=check.gram("T", 1.0 if T is None else T, M, check.blocks(spectrum))),
        parameters=parameters,
        spectrum=spectrum,
        heads=heads,
        breaks=_breaks("student", student, K) + _breaks("teacher", teacher, M),
        activation=student,
        teacher_activation=teacher,
        dropout=dropout,
        teacher_readout=_teacher_readout(check, teacher_readout, M, heads),
    )


class Continual(Committee):
    """A committee with one teacher and one trained head per task. Built by ``continual``.

    Parameters (settings): ``task``, from 0 to M − 1, the task of the training samples; a value between
    two whole numbers draws from both tasks, 0.3 with 30 % of the samples from task 1. The others are
    those of ``Committee`` with heads, but for ``task_share``, which follows from ``task``; and the
    heads learn at the rate η where there is no ``readout_rate``. With ``own_rates`` samples of each task
    have a rate of their own, ``learning_rate1``, ``learning_rate2``, …, and ``learning_rate`` is a factor.
    """

    @property
    def own_rates(self) -> bool:
        """Whether each task has a learning rate of its own."""
        return "learning_rate1" in self.parameters

    def latents(self, u: Settings) -> Latents:
        """The task of a training sample."""
        return super().latents(self._as_committee(u))

    def closed_drift(self, x: OrderParameters, u: Settings) -> OrderParameters | None:
        """The committee's drift, trained on the present task; with own rates, a mean over tasks."""
        if not self.own_rates or not self._closed():
            return super().closed_drift(x, self._as_committee(u))
        drifts = []
        for task, share in enumerate(np.eye(self.heads)):
            rate = u["learning_rate"] * u[f"learning_rate{task + 1}"]
            alone = {**u, "learning_rate": rate, "readout_rate": rate, "task_share": share}
            drifts.append(super().closed_drift(x, alone))
        shares = self._as_committee(u)["task_share"]
        return jax.tree.map(lambda *each: sum(s * d for s, d in zip(shares, each, strict=True)), *drifts)

    def loss(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """The committee's gradient; with own rates, times the rate of the sample's task."""
        loss = super().loss(fields, x, latent, u)
        if not self.own_rates:
            return loss
        rates = jnp.stack([u[f"learning_rate{task + 1}"] for task in range(self.heads)])
        return loss * (self._task(latent) @ rates)

    def observables(self, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """``error1``, ``error2``, …: the generalisation error of each task; and the committee's own."""
        each = np.eye(self.heads)
        errors: Array = jax.vmap(lambda share: self.closed_error(x, {**u, "test_share": share}))(each)
        named = {f"error{task + 1}": errors[task] for task in range(self.heads)}
        return {**named, **super().observables(x, u)}

    def _as_committee(self, u: Settings) -> Settings:
        """The settings as ``Committee`` reads them, with the probabilities (H,) of the tasks."""
        distance = jnp.abs(u["task"] - np.arange(self.heads, dtype=float))
        share = jnp.maximum(1 - distance, 0.0)
        return {"readout_rate": u["learning_rate"], **u, "task_share": share}


@checked
def continual(
    tasks: int = 2,
    similarity: float = 0.5,
    K: int | None = None,
    activation: str = "erf",
    sigma_n: float = 0.0,
    eta: float = 1.0,
    readout_rate: float | None = None,
    batch: float = 1.0,
    weight_decay: float = 0.0,
    test_share: Array | None = None,
    own_rates: bool = False,
) -> Continual:
    """A student with one head for each of several tasks.

    Args:
        tasks: M, tasks; each is a teacher of one node.
        similarity: overlap T_mm' of any two teachers, which have norm 1; from 0 (nothing in common) to 1
            (the same task).
        K: hidden nodes of the student; None for one per task.
        activation: of all nodes, "erf" (erf(λ/√2)), "relu" or "linear".
        sigma_n: standard deviation of the label noise.
        eta: learning rate η.
        readout_rate: η_v of the heads; None for η, also where that is controlled.
        batch: fresh samples in each step.
        weight_decay: λ of the penalty λ/2 Σ_k Q_kk.
        test_share: (M,) weights of the tasks in the error; None for equal ones.
        own_rates: samples of each task have a learning rate of their own, ``learning_rate1``,
            ``learning_rate2``, …, by default η; ``learning_rate`` multiplies them all.

    Returns:
        A model with order parameters Q, M and v; training starts with task 0.
    """
    check = Arguments("continual")
    tasks = check.count("tasks", tasks, lowest=2)
    similarity = check.number("similarity", similarity, 0.0, 1.0)
    made = committee(
        K=tasks if K is None else check.count("K", K),
        M=tasks,
        T=similarity + (1 - similarity) * np.eye(tasks),
        activation=activation,
        sigma_n=sigma_n,
        eta=eta,
        batch=batch,
        weight_decay=weight_decay,
        heads=tasks,
        readout_rate=readout_rate,
        test_share=test_share,
    )
    replaced = {"task_share"} if readout_rate is not None else {"task_share", "readout_rate"}
    parameters = {name: value for name, value in made.parameters.items() if name not in replaced}
    if check.flag("own_rates", own_rates):
        if readout_rate is not None:
            check.fail("readout_rate", readout_rate, "must be None with own_rates: heads learn at these too")
        rates = {f"learning_rate{task + 1}": eta for task in range(tasks)}
        parameters |= {**rates, "learning_rate": 1.0}
    return Continual._like(made, {**parameters, "task": 0.0})


def _dropout_parameters(
    check: Arguments, dropout: bool, activation_probability: float, rescaling: float | None
) -> dict[str, Array]:
    p = check.number("activation_probability", activation_probability, 0.0, 1.0)
    if check.flag("dropout", dropout):
        p_f = p if rescaling is None else check.number("rescaling", rescaling, 0.0)
        return {"activation": p, "rescaling": p_f}
    if p != 1:
        check.fail("activation_probability", p, "has an effect only with dropout=True")
    if rescaling is not None:
        check.fail("rescaling", rescaling, "has an effect only with dropout=True")
    return {}


def _head_parameters(
    check: Arguments,
    heads: int,
    eta: float,
    readout_rate: float | None,
    task_share: Array | None,
    test_share: Array | None,
) -> dict[str, Array]:
    if heads:
        rate = eta if readout_rate is None else check.number("readout_rate", readout_rate, 0.0)
        return {
            "readout_rate": rate,
            "task_share": check.probabilities("task_share", task_share, heads),
            "test_share": check.probabilities("test_share", test_share, heads),
        }
    unused = {"readout_rate": readout_rate, "task_share": task_share, "test_share": test_share}
    for name, value in unused.items():
        if value is not None:
            check.fail(name, value, "has an effect only with heads of at least 1")
    return {}


def _teacher_readout(check: Arguments, value: Array | None, M: int, heads: int) -> np.ndarray:
    if value is not None:
        return check.numbers("teacher_readout", value, (M, max(heads, 1)))
    if heads <= 1:
        return np.ones((M, 1))
    if heads != M:
        check.fail(
            "teacher_readout",
            None,
            f"must be a {M} by {heads} matrix where there are {heads} heads and {M} teachers",
        )
    return np.eye(M)


def _breaks(kind: str, activation: Activation, nodes: int) -> tuple[Break, ...]:
    return tuple(Break(kind, 0, node, at) for node in range(nodes) for at in activation.breaks)


def _add_diagonal(table: Array, diagonal: Array) -> Array:
    """A (K, n) table with K numbers added to its first diagonal."""
    K, n = table.shape
    return table + diagonal[:, None] * np.eye(K, n)


def _multiplicity(nodes: int) -> np.ndarray:
    """Number of ordered pairs for each unordered one: 1 or 2."""
    first, second = np.triu_indices(nodes)
    return np.where(first == second, 1.0, 2.0)


def _pair_number(nodes: int) -> np.ndarray:
    """(nodes, nodes) position of each pair among the unordered ones."""
    first, second = np.triu_indices(nodes)
    table = np.empty((nodes, nodes), dtype=int)
    table[first, second] = table[second, first] = np.arange(len(first))
    return table


def _distinct_students(K: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Distinct students among {i, j} and among {i, k, j, l}; nodes from K on are teachers."""

    def occupied(*indices: np.ndarray) -> np.ndarray:
        return np.stack([(np.stack(indices) == k).any(axis=0) for k in range(K)])

    two = occupied(*np.broadcast_arrays(*np.ogrid[:K, :nodes])).sum(axis=0)
    students, others = occupied(*np.triu_indices(K)), occupied(*np.triu_indices(nodes))
    four = (students[:, :, None] | others[:, None, :]).sum(axis=0)
    return two, four
