"""SGD that remembers: momentum, and averages of the weights, as further rows that no loss reads.

A row of memory moves linearly. A velocity p adds up gradients and fades, p ← (1 − γ/N) p + g x/√N, and the
weights follow it, w ← w − (η/√N) g x − (ζ/N) p. An average follows the weights, w̄ ← w̄ + (a/N)(w − w̄). So the
overlaps of all rows obey closed equations: the Gram matrix G of weights, velocities and averages has
Ġ = LG + GLᵀ + (what gradients do). Memory has to last for some N steps to be seen there: a constant β < 1
forgets within a few, and is plain SGD with the rate η/(1 − β).
"""

from dataclasses import replace
from types import MappingProxyType

import jax.numpy as jnp
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings
from optlearn._pytrees import field
from optlearn._signatures import checked
from optlearn._theory.model import Break, Latent, LearningModel, Recurrence
from optlearn._theory.order import OrderParameters
from optlearn._theory.sample import Fields
from optlearn.models._around import Around, new_parameters, surroundings


class Memory(Around):
    """A model whose weights have velocities or averages. Built by ``with_memory``.

    Rows of the overlaps are the weights (K of them), then the velocities, then the averages. Further
    parameters: ``velocity_rate`` ζ and ``friction`` γ; ``averaging`` a.

    Attributes:
        momentum: whether there are velocities.
        average: whether there are averages; the error is then theirs.
    """

    limits = MappingProxyType(
        {
            **LearningModel.limits,
            "velocity_rate": (0.0, np.inf),
            "friction": (0.0, np.inf),
            "averaging": (0.0, np.inf),
        }
    )

    momentum: bool = field(static=True, kw_only=True)
    average: bool = field(static=True, kw_only=True)

    def recurrence(self, x: OrderParameters, u: Settings) -> Recurrence:
        """Velocities take gradients; weights follow velocities, and averages follow weights."""
        del x
        weights, velocities, last = 0, 1, self.students // self.base.students - 1
        response = u["learning_rate"] * self._between(weights, weights)
        carry = jnp.zeros((self.students, self.students))
        if self.momentum:
            response = response - self._between(velocities, weights)
            carry = carry - u["velocity_rate"] * self._between(weights, velocities)
            carry = carry - u["friction"] * self._between(velocities, velocities)
        if self.average:
            follow = self._between(last, weights) - self._between(last, last)
            carry = carry + u["averaging"] * follow
        return Recurrence(response, carry)

    def _between(self, to: int, origin: int) -> np.ndarray:
        """(rows, rows) 1 from each row of one kind to the like row of another."""
        K, kinds = self.base.students, self.students // self.base.students
        kind = np.zeros((kinds, kinds))
        kind[to, origin] = 1.0
        return np.kron(kind, np.eye(K))

    @property
    def _tested(self) -> int:
        """First of the rows whose error counts."""
        return self.students - self.base.students if self.average else 0

    def metric(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """That of the averages, if there are any, else that of the weights."""
        first = self._tested
        return self.base.metric(self.inner_fields(fields, first), self.inner(x, first), latent, u)

    def closed_error(self, x: OrderParameters, u: Settings) -> Array | None:
        """That of the averages, if there are any, else that of the weights."""
        return self.base.closed_error(self.inner(x, self._tested), u)

    def observables(self, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """Those of ``base``; with averages also ``weights_error``, where the error has a closed form."""
        found = super().observables(x, u)
        of_weights = self.base.closed_error(self.inner(x), u) if self.average else None
        return found if of_weights is None else found | {"weights_error": of_weights}

    def around(self, x: OrderParameters) -> OrderParameters:
        """Velocities at zero, averages at the weights."""
        copies = np.ones((1, 1)) if not self.momentum else np.array([[1.0], [0.0]])
        copies = np.concatenate([copies, np.ones((1, 1))]) if self.average else copies
        spread = np.kron(copies, np.eye(self.base.students))
        return OrderParameters(
            Q=spread @ x.Q @ spread.T,
            M=spread @ x.M,
            R=spread @ x.R,
            v=np.concatenate([x.v, np.zeros((self.students - len(x.v), self.heads))]),
            extras=x.extras,
        )


@checked
def with_memory(
    model: LearningModel,
    velocity_rate: float | None = None,
    friction: float = 1.0,
    averaging: float | None = None,
) -> Memory:
    """The same model, trained with momentum, with averaged weights, or both.

    With momentum weights move by −(η/√N) g x − (ζ/N) p, and velocities p by −(γ/N) p + g x/√N: heavy ball
    with 1 − β = γ/N, whose memory spans the training as a whole. All rates are parameters and may be
    controls; ``learning_rate`` is η, that of the direct part: at 0 weights follow their velocities only.

    Args:
        model: what learns; its rows come first, then velocities, then averages.
        velocity_rate: ζ, how strongly weights follow their velocities; None: no momentum.
        friction: γ, N times the share of a velocity that a step takes away.
        averaging: a, N times the share of the average that a step replaces by the weights; None: no averages.
            With averages, ``error`` is theirs, and the observable ``weights_error`` that of the weights.

    Returns:
        A model; ``start(Q11=…, M11=…)`` is a state with velocities at zero and averages at the weights.
    """
    check = Arguments("with_memory")
    momentum, average = velocity_rate is not None, averaging is not None
    if not (momentum or average):
        check.fail("velocity_rate", None, "or averaging must be a number")
    if type(model).recurrence is not LearningModel.recurrence:
        check.fail("model", type(model).__name__, "must move by plain SGD")
    rates: dict[str, Array] = {}
    if momentum:
        rates["velocity_rate"] = check.number("velocity_rate", velocity_rate, 0.0)
        rates["friction"] = check.number("friction", friction, 0.0)
    if average:
        rates["averaging"] = check.number("averaging", averaging, 0.0)
    K, rows = model.students, (1 + momentum + average) * model.students
    names = replace(model.layout, students=rows).name_of
    readouts = {names("v", row, head) for row in range(K, rows) for head in range(model.heads)}
    lost = {name for name in model.untracked if not name.startswith("v")}
    if lost:
        check.fail("model", type(model).__name__, "must track all its overlaps")
    return Memory(
        **surroundings(
            model,
            students=rows,
            parameters=new_parameters(model, rates),
            untracked=model.untracked | readouts,
            breaks=model.breaks + _tested_breaks(model, rows - K if average else 0),
            momentum=momentum,
            average=average,
        )
    )


def _tested_breaks(model: LearningModel, first: int) -> tuple[Break, ...]:
    """Where the metric of averages jumps, if that of the weights does."""
    if not first:
        return ()
    return tuple(replace(b, node=b.node + first) for b in model.breaks if b.kind == "student")
