"""SGD with memory: momentum, averages of the weights, and AdaGrad, for any model of plain SGD.

A row of memory evolves linearly. A velocity p accumulates gradients and decays, p ← (1 − γ/N) p + g x/√N, and
the weights follow it, w ← w − (η/√N) g x − (ζ/N) p. An average follows the weights, w̄ ← w̄ + (a/N)(w − w̄).
So the overlaps of all rows obey closed equations: the Gram matrix G of weights, velocities and averages has
Ġ = LG + GLᵀ + (terms of gradients). Memory must last for about N steps to matter there: a constant β < 1
forgets within a few steps, and is plain SGD with the rate η/(1 − β).

AdaGrad-norm has one scale for all weights: steps shrink with the accumulated gradients.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Settings
from optlearn._errors import SpecificationError
from optlearn._pytrees import field
from optlearn._signatures import checked
from optlearn._theory.drift import rows_drift
from optlearn._theory.model import ClosedMoments, LearningModel, Recurrence
from optlearn._theory.order import OrderParameters, gram_matrix
from optlearn._theory.sample import Fields, Latent

SQUARES = "squares"


def _of_base(name: str) -> Any:
    """A method that delegates to ``base``, converting the state and the fields for it."""

    def forward(self: "Around", *arguments: Any) -> Any:
        converters: dict[type, Any] = {OrderParameters: self.inner, Fields: self.inner_fields}
        converted = [converters[type(a)](a) if type(a) in converters else a for a in arguments]
        return getattr(self.base, name)(*converted)

    forward.__name__, forward.__doc__ = name, getattr(LearningModel, name).__doc__
    return forward


class Around(LearningModel):
    """Learns the task of ``base`` with further rows or scalars, whose dynamics subclasses define.

    The first rows of all overlaps are those of ``base``, whose data, loss and metric are kept.
    """

    base: LearningModel = field(kw_only=True)

    def inner(self, x: OrderParameters, first: int = 0) -> OrderParameters:
        """The state for ``base``, whose rows begin at ``first``."""
        K = self.base.students
        rows = slice(first, first + K)
        return OrderParameters(
            Q=x.Q[..., rows, rows],
            M=x.M[..., rows, :],
            R=x.R[..., rows, :],
            v=x.v[..., :K, :],
            extras={name: x.extras[name] for name in self.base.layout.extras},
            trained=x.trained,
        )

    def inner_fields(self, fields: Fields, first: int = 0) -> Fields:
        """The fields for ``base``, whose rows begin at ``first``."""
        return replace(fields, student=fields.student[:, first : first + self.base.students])

    loss = _of_base("loss")
    metric = _of_base("metric")
    trained_rate = _of_base("trained_rate")
    statistics = _of_base("statistics")
    penalty = _of_base("penalty")
    bulk = _of_base("bulk")
    latents = _of_base("latents")
    variances = _of_base("variances")
    test_settings = _of_base("test_settings")
    test_latents = _of_base("test_latents")
    closed_error = _of_base("closed_error")
    observables = _of_base("observables")

    def update(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """The rule of ``base``; zero for further rows."""
        rule = self.base.update(self.inner_fields(fields), self.inner(x), latent, u)
        return jnp.pad(rule, ((0, 0), (0, self.students - self.base.students)))

    def closed_drift(self, x: OrderParameters, u: Settings) -> OrderParameters | None:
        """From the closed moments of ``base``: further fields are jointly normal with its own."""
        plain = not (self.centroids or self.base.layout.extras or self.trained)
        moments = self.base.closed_moments(self.inner(x), u) if plain else None
        if moments is None:
            return None
        K, rows = self.base.students, self.students
        read = np.concatenate([np.arange(K), rows + np.arange(self.teachers)])
        towards = gram_matrix(x, self.block_overlaps)[..., read] @ moments.slope.T
        spread = moments.spread / u.get("batch", 1.0)
        if self.spectrum is not None:
            variance, share = (p[:, None, None] for p in (self.spectrum.variance, self.spectrum.share))
            towards, spread = variance * towards, variance * share * spread[None]
        # Further rows have no gradient of their own; they change only by the recurrence.
        towards, spread = _padded(towards, 0, rows - K), _padded(spread, rows - K, rows - K)
        pull = jax.grad(self.summed.penalty)(self.total(x), u)
        dQ, dM, dR = rows_drift(self, x, u, towards, spread, (pull.Q + pull.Q.T) / 2)
        dv = -u.get("readout_rate", u["learning_rate"]) * (_padded(moments.v, rows - K, 0) + pull.v)
        return OrderParameters(dQ, dM, dR, dv, self.closed_statistics(moments, x, u))

    def closed_statistics(self, moments: ClosedMoments, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """Drift of the added running scalars."""
        return {}

    @property
    @override
    def has_rule(self) -> bool:
        return self.base.has_rule

    @property
    def reads_blocks(self) -> bool:  # type: ignore[override]
        """Whether closed forms and observables of ``base`` accept blocks."""
        return self.base.reads_blocks

    @property
    def summed(self) -> Self:
        """With overlaps summed over blocks, also those of ``base``."""
        if self.spectrum is None or not self.overlaps.by_block:
            return self
        return replace(super().summed, base=self.base.summed)

    def start(self, **values: Array) -> OrderParameters:
        """A state from entries of ``base``, as in ``state``; added entries begin at rest."""
        return self.around(self.base.state(**values))

    def around(self, x: OrderParameters) -> OrderParameters:
        """A state of ``base`` with the added entries at rest."""
        raise NotImplementedError

    def initial_state(self, start: Any) -> OrderParameters:
        """The start of a problem: a state, or entries of ``base`` as ``start`` takes them."""
        return super().initial_state(self.start(**start) if isinstance(start, Mapping) else start)


class Memory(Around):
    """A model whose weights have velocities or averages. Built by ``with_memory``.

    Rows of the overlaps are the weights (K of them), then the velocities, then the averages. Further
    parameters: ``velocity_rate`` ζ and ``friction`` γ; ``averaging`` a.

    Attributes:
        momentum: whether there are velocities.
        average: whether there are averages; the error is then that of the averages.
    """

    limits = MappingProxyType(
        {**LearningModel.limits, **dict.fromkeys(("velocity_rate", "friction", "averaging"), (0.0, np.inf))}
    )

    momentum: bool = field(static=True, kw_only=True)
    average: bool = field(static=True, kw_only=True)

    def recurrence(self, x: OrderParameters, u: Settings) -> Recurrence:
        """Velocities take gradients; weights follow velocities, and averages follow weights."""
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
        """(rows, rows) with 1 from each row of one kind to the matching row of another."""
        K, kinds = self.base.students, self.students // self.base.students
        kind = np.zeros((kinds, kinds))
        kind[to, origin] = 1.0
        return np.kron(kind, np.eye(K))

    @property
    def _tested(self) -> int:
        """First of the rows whose error counts."""
        return self.students - self.base.students if self.average else 0

    def metric(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        """The base metric of the averages, if there are any, else of the weights."""
        first = self._tested
        return self.base.metric(self.inner_fields(fields, first), self.inner(x, first), latent, u)

    def closed_error(self, x: OrderParameters, u: Settings) -> Array | None:
        """The closed error of the averages, if there are any, else of the weights."""
        return self.base.closed_error(self.inner(x, self._tested), u)

    def observables(self, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """Observables of ``base``; with averages also ``weights_error``, if the error has a closed form."""
        of_base = super().observables(x, u)
        weights_error = self.base.closed_error(self.inner(x), u) if self.average else None
        return of_base if weights_error is None else of_base | {"weights_error": weights_error}

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
            trained=x.trained,
        )


@checked
def with_memory(
    model: LearningModel,
    velocity_rate: float | None = None,
    friction: float | None = None,
    averaging: float | None = None,
) -> Memory:
    """The same model, trained with momentum, with averaged weights, or both.

    With momentum, weights change by −(η/√N) g x − (ζ/N) p, and velocities p by −(γ/N) p + g x/√N: heavy ball
    with 1 − β = γ/N, whose memory spans the whole of training. All rates are parameters and may be controls;
    ``learning_rate`` is η, the rate of the direct part: at 0 weights follow only their velocities.

    Args:
        model: the learning model; its rows come first, then velocities, then averages.
        velocity_rate: ζ, how strongly weights follow their velocities; None: no momentum.
        friction: γ, N times the share of a velocity that decays in a step; 1 by default, with momentum.
        averaging: a, N times the share of the average that a step replaces by the weights; None: no averages.
            With averages, ``error`` is that of the averages, and the observable ``weights_error`` that of the
            weights.

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
        rates["friction"] = check.number("friction", 1.0 if friction is None else friction, 0.0)
    elif friction is not None:
        check.fail("friction", friction, "must be left out without a velocity_rate: nothing has a velocity")
    if average:
        rates["averaging"] = check.number("averaging", averaging, 0.0)
    K, rows = model.students, (1 + momentum + average) * model.students
    names = replace(model.layout, students=rows).name_of
    readouts = {names("v", row, head) for row in range(K, rows) for head in range(model.heads)}
    lost = {name for name in model.untracked if not name.startswith("v")}
    if lost:
        check.fail("model", type(model).__name__, "must track all its overlaps")
    for name in rates:
        if name in model.parameters:
            raise SpecificationError(f"model must not have a parameter {name!r} of its own already")
    # The metric of the averages jumps at the same places as that of the weights.
    shifted = {b: b.shifted(rows - K) for b in model.breaks if average}
    jumps = [later for earlier, later in shifted.items() if later != earlier]
    return Memory(
        **surroundings(
            model,
            students=rows,
            parameters={**model.parameters, **rates},
            untracked=model.untracked | readouts,
            breaks=(*model.breaks, *jumps),
            momentum=momentum,
            average=average,
        )
    )


class AdaGradNorm(Around):
    """A model with rate η/√b, where b is its start plus 1/N times the sum of squared gradient lengths.

    The running scalar ``squares`` is b; it starts at 1, or at the value given to ``start``.
    """

    def recurrence(self, x: OrderParameters, u: Settings) -> Recurrence:
        """Gradients over √b."""
        rate = u["learning_rate"] / jnp.sqrt(x.extras[SQUARES])
        return Recurrence(rate * np.eye(self.students), jnp.zeros((self.students, self.students)))

    def statistics(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> dict[str, Array]:
        """The squared length of the sample's gradient, with its share of the batch."""
        rule = self.base.update(fields, self.inner(x), latent, u)
        square = jnp.sum(self.input_power(latent, u)[:, None] * rule**2)
        return super().statistics(fields, x, latent, u) | {SQUARES: square / u.get("batch", 1.0)}

    def closed_statistics(self, moments: ClosedMoments, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """The mean squared length."""
        power = 1.0 if self.spectrum is None else jnp.sum(self.spectrum.variance * self.spectrum.share)
        return {SQUARES: power * jnp.trace(moments.spread) / u.get("batch", 1.0)}

    def start(self, squares: float = 1.0, **values: Array) -> OrderParameters:
        """A state from entries of ``base``, and b, which must be above 0."""
        b = Arguments("start").number(SQUARES, squares, 0.0, open_below=True)
        x = super().start(**values)
        return replace(x, extras={**x.extras, SQUARES: np.asarray(b)})

    def around(self, x: OrderParameters) -> OrderParameters:
        """With b = 1."""
        return replace(x, extras={**x.extras, SQUARES: np.ones(())})


@checked
def adagrad_norm(model: LearningModel) -> AdaGradNorm:
    """The same model, trained by AdaGrad-norm: rate η/√b, where db/dα is the mean squared gradient length.

    Args:
        model: the learning model, trained by plain SGD otherwise; without redrawn slots.

    Returns:
        A model with the further order parameter ``squares``, b; ``start(Q11=…, squares=1)`` is a state.
    """
    check = Arguments("adagrad_norm")
    if type(model).recurrence is not LearningModel.recurrence or model.redrawn:
        check.fail("model", type(model).__name__, "must move by plain SGD, on fresh samples")
    return AdaGradNorm(**surroundings(model, running=(*model.running, SQUARES)))


def _padded(table: Array, rows: int, columns: int) -> Array:
    """A table (…, a, b) with rows and columns of zeros added at its end."""
    return jnp.pad(table, [(0, 0)] * (table.ndim - 2) + [(0, rows), (0, columns)])


def surroundings(base: LearningModel, **changes: Any) -> dict[str, Any]:
    """Arguments of a model around ``base``: its description of the data, with changes."""
    shared = (
        "students overlaps parameters slots clusters heads trained extras running untracked normals redrawn "
        "breaks even finite_size spectrum"
    )
    return {name: getattr(base, name) for name in shared.split()} | {"base": base} | changes
