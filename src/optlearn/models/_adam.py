"""Adam: a rate for each weight, from running means of its gradients, for any model of plain SGD.

The gradient of weight i of unit k is g_k x_i/√N. If the axes of the weights are those of the inputs'
covariance, its mean square is c_b V_k/N for all weights of block b, with one scalar V_k = E[g_k²] per unit,
so Adam's memory of each weight is known. Weights change by −(η/√N) m̂/(√v̂ + ε/√N), so the rate of unit k in
block b is η P_kb with P_kb = 1/(√(c_b V_k) + ε): one factor in the drift, and one on each side of E[g gᵀ] in
the noise.

Time scales. The memory of squares is c = N(1 − β₂): V̇_k = c (E[g_k²] − V_k), and V_k = E[g_k²] for a memory
that is long compared to a step and short compared to training (c → ∞). A constant β₁ forgets within a few
steps, which are negligible in high dimension; since m̂ is a mean, not a sum, it changes no rate either.

Away from the axes. A random rotation of the covariance relative to the axes makes the squares of all weights
equal: Adam then has one scale for all, and is SGD with an adaptive rate. Between these limits, and for ε = 0,
v_i = C_ii V_k/N with C_ii the variance of input i. In terms of inputs x_i/C_ii^¼ and weights w_i C_ii^¼,
which have the same fields, Adam again has one scale for all. So any covariance C is described by the spectrum
of D^½ C D^½, D = diag(C)^−½.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Float, Settings, float64
from optlearn._engine.tracing.trace import trace
from optlearn._errors import SpecificationError, UnphysicalStateError
from optlearn._pytrees import field
from optlearn._signatures import checked
from optlearn._theory.checks import check_data, check_loss
from optlearn._theory.drift import mean_squares
from optlearn._theory.model import ClosedMoments, LearningModel, Recurrence
from optlearn._theory.order import OrderParameters
from optlearn._theory.sample import Fields, Latent
from optlearn.models._averages import diagonal
from optlearn.models._memory import Around, surroundings

SEEN = "seen"
# Initial value of ``seen`` in the corrected mean of squares: less than one step at any N.
BEFORE = 1e-4


class Adam(Around):
    """A model trained by Adam. Built by ``adam``.

    With a finite memory the running scalars ``V1``, ``V2``, … are V_k, and with bias correction ``seen`` is
    1 − e^(−cα), by which they are divided. Further parameters (settings): ``memory`` c, if finite;
    ``epsilon`` ε; ``decay``, the decoupled weight decay. ``learning_rate`` is η: in a step a weight changes
    by about η/√N.

    Attributes:
        remembers: whether the memory is finite, so that V_k are order parameters.
        aligned: whether the axes of the weights are those of the covariance.
        bias_correction: whether squares are divided by ``seen``.
        momentum: β₁ in simulations on weights.
    """

    limits = MappingProxyType(
        {**LearningModel.limits, **dict.fromkeys(("memory", "epsilon", "decay"), (0.0, np.inf))}
    )

    remembers: bool = field(static=True, kw_only=True)
    aligned: bool = field(static=True, kw_only=True)
    bias_correction: bool = field(static=True, kw_only=True)
    momentum: float = field(static=True, kw_only=True)

    def recurrence(self, x: OrderParameters, u: Settings) -> Recurrence:
        """Gradients, scaled by ``scales``, and the decoupled weight decay."""
        eye = np.eye(self.students)
        return Recurrence(u["learning_rate"] * eye, -u["learning_rate"] * u["decay"] * eye)

    def scales(self, x: OrderParameters, u: Settings, squares: Array | None) -> Float[Array, "*B K"]:
        """P_kb = 1/(√(c_b V_k) + ε)."""
        if self.remembers:
            # Divided by ``seen``, the sum of the running mean's weights.
            V = self._known(x) / (x.extras[SEEN] if self.bias_correction else 1.0)
        elif squares is None:
            V = self._squares(x, u) / u.get("batch", 1.0)
        else:
            V = squares if self.spectrum is None else squares[0] / self.spectrum.variance[0]
        size = V if self.spectrum is None else self._axes[:, None] * V[None]
        return 1 / (jnp.sqrt(size) + u["epsilon"])

    def statistics(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> dict[str, Array]:
        """V_k relax towards the squares of the sample's gradients, each with its share of the batch."""
        rule = self._gradient(fields, x, latent, u)
        squares = self.variances(latent, u) @ rule**2 / u.get("batch", 1.0)
        return super().statistics(fields, x, latent, u) | self._followed(squares, x, u)

    def closed_statistics(self, moments: ClosedMoments, x: OrderParameters, u: Settings) -> dict[str, Array]:
        """V_k relax towards the mean squares."""
        return self._followed(diagonal(moments.spread) / u.get("batch", 1.0), x, u)

    def _followed(self, squares: Float[Array, " K"], x: OrderParameters, u: Settings) -> dict[str, Array]:
        if not self.remembers:
            return {}
        moves = u["memory"] * (squares - self._known(x))
        further = {SEEN: u["memory"] * (1 - x.extras[SEEN])} if self.bias_correction else {}
        return {name: moves[k] for k, name in enumerate(self._names)} | further

    def _gradient(self, fields: Fields, x: OrderParameters, latent: Latent, u: Settings) -> Array:
        return self.base.update(self.inner_fields(fields), self.inner(x), latent, u)

    @property
    def _names(self) -> tuple[str, ...]:
        return scalar_names(self.students)

    def _known(self, x: OrderParameters) -> Float[Array, " K"]:
        return jnp.stack([jnp.asarray(x.extras[name]) for name in self._names])

    @property
    def _axes(self) -> Float[Array, " B"]:
        """(B,) variance of the inputs along the axes of each block's weights."""
        assert self.spectrum is not None
        c, share = jnp.asarray(self.spectrum.variance), jnp.asarray(self.spectrum.share)
        # Shares of a reduced spectrum need not sum to 1; those of variance, Σ c ρ, are kept.
        return c if self.aligned else jnp.ones_like(c) * jnp.sum(c * share)

    def _squares(self, x: OrderParameters, u: Settings) -> Float[Array, " K"]:
        """E[g_k²] of one sample in a given state."""
        state = self.inner(x)
        moments = None if self.centroids else self.base.closed("closed_moments", state, u)
        if moments is not None:
            return diagonal(moments.spread)
        squares = mean_squares(self.base, state, u, self.drift_quadrature)
        return squares if self.spectrum is None else squares[0] / self.spectrum.variance[0]

    # --- true Adam, on weights --------------------------------------------------------------------

    def weight_memory(
        self, x: OrderParameters, variance: Float[Array, " N"], N: int, u: Settings
    ) -> dict[str, Array]:
        """Running means m of gradients and v of their squares, and the weights' sums that correct them.

        Without a finite memory 1 − β₂ = 1/√N: a memory that is long compared to a step and short compared to
        N.
        """
        if not self.aligned:
            raise SpecificationError(
                "simulate: mode must be 'overlaps' where the axes of the weights are not those of the "
                "spectrum (aligned=False), got 'weights'"
            )
        shape = (self.students, N)
        memory = {"m": np.zeros(shape), "summed": np.zeros(())}
        if not self.remembers:
            return memory | {"v": np.zeros(shape), SEEN: np.zeros(())}
        seen = x.extras[SEEN] if self.bias_correction else np.ones(())
        return memory | {"v": np.asarray(self._known(x))[:, None] * variance / N, SEEN: np.asarray(seen)}

    def weight_steps(
        self, gradients: Float[Array, "K N"], memory: dict[str, Array], u: Settings
    ) -> tuple[Float[Array, "K N"], dict[str, Array]]:
        """A step of Adam with β₁, β₂ and ε, in units of 1/√N."""
        N, dtype = gradients.shape[1], gradients.dtype
        replaced = jnp.asarray(u["memory"] / N if self.remembers else 1 / np.sqrt(N)).astype(dtype)
        first = 1 - self.momentum
        m = memory["m"] + first * (gradients - memory["m"])
        v = memory["v"] + replaced * (gradients**2 - memory["v"])
        summed = memory["summed"] + first * (1 - memory["summed"])
        seen = memory[SEEN] + replaced * (1 - memory[SEEN])
        size = jnp.sqrt(v / seen) + jnp.asarray(u["epsilon"] / np.sqrt(N)).astype(dtype)
        moves = -jnp.asarray(u["learning_rate"] / np.sqrt(N)).astype(dtype) * m / summed / size
        return moves, {**memory, "m": m, "v": v, "summed": summed, SEEN: seen}

    # --- starts -----------------------------------------------------------------------------------

    def start(self, squares: Array | None = None, **values: Array) -> OrderParameters:
        """A state from entries of ``base``; V_k are ``squares`` (K,), or by default E[g_k²] there."""
        return self._with_squares(self.base.state(**values), squares)

    def around(self, x: OrderParameters) -> OrderParameters:
        """With V_k = E[g_k²], under the model's own settings."""
        return self._with_squares(x, None)

    @float64
    def _with_squares(self, x: OrderParameters, squares: Array | None) -> OrderParameters:
        check = Arguments("start")
        if not self.remembers:
            if squares is not None:
                check.fail("squares", squares, "must be left out: with an infinite memory, V follows at once")
            return x
        if squares is None:
            u = self.settings()
            traced = trace(lambda model, x, u: model._squares(x, u), self, x, u)
            mean = np.asarray(traced.expressions(self, x, u), float) / np.asarray(u.get("batch", 1.0))
        else:
            mean = check.numbers("squares", squares, (self.students,), lowest=0.0)
        if not np.all(mean > 0):
            impossible = self.base.check(x)
            if impossible:
                raise UnphysicalStateError(f"start: {impossible}")
            check.fail("squares", mean.tolist(), "must be above 0: no gradients have been seen")
        before = BEFORE if self.bias_correction else 1.0
        extras = {name: np.asarray(before * mean[k]) for k, name in enumerate(self._names)}
        further = {SEEN: np.asarray(before)} if self.bias_correction else {}
        return replace(x, extras={**x.extras, **extras, **further})

    def initial_state(self, start: Any) -> OrderParameters:
        """The start of a problem: a state, or entries of ``base``, optionally with ``V1``, …."""
        if isinstance(start, Mapping) and set(start) & {*self.running}:
            start = self.state(**start)
        return super().initial_state(start)

    def check_specification(self, x: OrderParameters, u: Settings) -> None:
        """Raise if data, losses or rules are invalid.

        Adam's steps are alike in all directions, so one with much of the variance needs no warning.
        """
        check_data(self, u)
        check_loss(self, x, u)


def scalar_names(students: int) -> tuple[str, ...]:
    """``V1``, ``V2``, …."""
    return tuple(f"V{k + 1}" for k in range(students))


@checked
def adam(
    model: LearningModel,
    memory: Any = float("inf"),
    epsilon: float = 0.0,
    weight_decay: float = 0.0,
    aligned: bool = True,
    bias_correction: bool = False,
    momentum: float = 0.9,
) -> Adam:
    """The same model, trained by Adam (AdamW, with a weight decay).

    In a step a weight changes by −(η/√N) m̂/(√v̂ + ε/√N) − (η λ/N) w. Blocks of the model's spectrum lie
    along the axes of the weights; without a spectrum every unit has one scale. Readouts and weights behind
    the first layer, of which there is a finite number, follow plain SGD with rates of their own.

    Args:
        model: the learning model, trained by plain SGD otherwise; without redrawn slots.
        memory: c = N(1 − β₂), how often per unit of training time the squares are renewed; infinite: they are
            always up to date.
        epsilon: ε, in units of 1/√N.
        weight_decay: λ of the decoupled decay, the parameter ``decay``.
        aligned: False: Adam has one scale for all weights of a unit. This holds if the axes of the weights
            are rotated at random relative to the spectrum's; and for any axes, with ε and λ of 0, if the
            spectrum is that of inputs divided by the fourth roots of their variances.
        bias_correction: squares begin at zero and are divided by the sum of their weights, as in Adam.
            Otherwise they begin at their mean, as if averaged before training starts. An infinite memory
            needs no correction in theory, but its simulation on weights applies it.
        momentum: β₁. It has no effect in high dimension; only simulations on weights use it.

    Returns:
        A model; ``start(Q11=…, M11=…)`` is a state with V_k = E[g_k²].
    """
    check = Arguments("adam")
    if type(model).recurrence is not LearningModel.recurrence or model.redrawn:
        check.fail("model", type(model).__name__, "must move by plain SGD, on fresh samples")
    if model.spectrum is not None and model.spectrum.variance.ndim != 1:
        check.fail("model", type(model).__name__, "must have one spectrum for all clusters")
    if model.spectrum is not None and not np.all(np.asarray(model.spectrum.variance) > 0):
        check.fail("model", type(model).__name__, "must have variance in all blocks: Adam divides by it")
    remembers = not (isinstance(memory, float) and memory == np.inf)
    if remembers:
        memory = check.number("memory", memory, 0.0, open_below=True)
    if bias_correction and not remembers:
        check.fail("bias_correction", True, "has an effect only with a finite memory")
    settings: dict[str, Array] = {"memory": memory} if remembers else {}
    settings["epsilon"] = check.number("epsilon", epsilon, 0.0)
    settings["decay"] = check.number("weight_decay", weight_decay, 0.0)
    for name in settings:
        if name in model.parameters:
            raise SpecificationError(f"model must not have a parameter {name!r} of its own already")
    beta = check.number("momentum", momentum, 0.0, 1.0)
    if beta == 1:
        check.fail("momentum", momentum, "must be below 1")
    scalars = (*scalar_names(model.students), *((SEEN,) if bias_correction else ())) if remembers else ()
    return Adam(
        **surroundings(
            model, parameters={**model.parameters, **settings}, running=(*model.running, *scalars)
        ),
        remembers=remembers,
        aligned=check.flag("aligned", aligned),
        bias_correction=check.flag("bias_correction", bias_correction),
        momentum=beta,
    )
