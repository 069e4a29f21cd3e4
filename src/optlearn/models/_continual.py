"""Continual learning: one network learns several tasks, each with a readout head of its own.

Task m is the teacher node w*_m: its label is g(λ*_m) + σ_n z. All tasks share the students' hidden
weights; head m, the column m of v, is trained on samples of task m only. Learning one task moves the
shared weights and so spoils the other heads: this is forgetting. Which task a sample is drawn from is
the parameter ``task``, which may be controlled.
"""

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings
from optlearn._signatures import checked
from optlearn._theory.order import OrderParameters
from optlearn._theory.sample import Latents
from optlearn.models._committee import Committee, committee


class Continual(Committee):
    """A committee with one teacher and one trained head a task. Built by ``continual``.

    Parameters (settings): ``task``, from 0 to M − 1, the task of the training samples; a value between
    two whole numbers draws from both tasks, 0.3 with 30 % of the samples from task 1. The others are
    those of ``Committee`` with heads, but for ``task_share``, which follows from ``task``; and the
    heads learn at the rate η where there is no ``readout_rate``.
    """

    def latents(self, u: Settings) -> Latents:
        """The task of a training sample."""
        return super().latents(self._as_committee(u))

    def closed_drift(self, x: OrderParameters, u: Settings) -> OrderParameters | None:
        """That of the committee, trained on the present task."""
        return super().closed_drift(x, self._as_committee(u))

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
) -> Continual:
    """A student with one head for each of several tasks.

    Args:
        tasks: M, tasks; each is a teacher of one node.
        similarity: overlap T_mm' of any two teachers, which have norm 1; from 0 (nothing in common) to 1
            (the same task).
        K: hidden nodes of the student; None for one a task.
        activation: of all nodes, "erf" (erf(λ/√2)), "relu" or "linear".
        sigma_n: standard deviation of the label noise.
        eta: learning rate η.
        readout_rate: η_v of the heads; None for η, also where that is controlled.
        batch: fresh samples in each step.
        weight_decay: λ of the penalty λ/2 Σ_k Q_kk.
        test_share: (M,) weights of the tasks in the error; None for equal ones.

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
    return Continual.like(made, {**parameters, "task": 0.0})
