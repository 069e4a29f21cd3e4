"""A model as plain functions of vectors: what integrators, solvers and executors work with.

Everything that may change between two calls (states, controls, parameters, overlaps) is an
argument, so a compiled or traced function is made once for each structure and serves all values.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Settings
from optlearn._schedule import Schedule
from optlearn._theory.expectation import AbstractRule, AutoRule
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters
from optlearn._theory.quadrature import choose_rule


@dataclass(frozen=True)
class FlatSystem:
    """Drift and outputs of a model on its flat state.

    Attributes:
        model: the learning model.
        controls: names of the parameters that vary in time, in the order of control vectors.
        rule: quadrature for the drift; None: closed form.
        error_rule: quadrature for the error; None: closed form.
    """

    model: LearningModel
    controls: tuple[str, ...]
    rule: AbstractRule | None = None
    error_rule: AbstractRule | None = None

    @property
    def key(self) -> Hashable:
        """Equal for systems that differ in numbers only."""
        leaves, structure = jax.tree.flatten(self.model)
        shapes = tuple(np.shape(leaf) for leaf in leaves)
        return structure, shapes, self.controls, self.rule, self.error_rule

    def drift(self, model: LearningModel, settings: Mapping[str, Array], flat: Array, u: Array) -> Array:
        """(n,) dx/dα at the flat state (n,) under the control vector ``u`` (c,)."""
        x = model.layout.unflatten(flat)
        return model.layout.flatten(model.drift(x, self.merge(settings, u), self.rule))

    def mixed_drift(
        self,
        model: LearningModel,
        settings: Mapping[str, Array],
        flat: Array,
        u: Array,
        shares: Array,
    ) -> Array:
        """Drift averaged over control vectors ``u`` (m, c) drawn with ``shares`` (m,)."""
        if u.shape[0] == 1:
            return self.drift(model, settings, flat, u[0])
        return shares @ jax.vmap(lambda v: self.drift(model, settings, flat, v))(u)

    def outputs(
        self, model: LearningModel, settings: Mapping[str, Array], flat: Array, u: Array
    ) -> dict[str, Array]:
        """``error`` and the model's observables, scalars."""
        x = model.layout.unflatten(flat)
        merged = self.merge(settings, u)
        return {"error": model.error(x, merged, self.error_rule), **model.observables(x, merged)}

    def merge(self, settings: Mapping[str, Array], u: Array) -> dict[str, Array]:
        """The settings with the controls' values from the vector ``u`` (c,)."""
        return {**settings, **{name: u[i] for i, name in enumerate(self.controls)}}


def flat_system(
    model: LearningModel,
    controls: tuple[str, ...],
    states: np.ndarray,
    u: Settings,
    rule: AbstractRule | AutoRule | None = None,
) -> tuple[FlatSystem, dict[str, Any]]:
    """The flat system of a model, and what is known of the accuracy of its expectations.

    Without a ``rule``, closed forms are used where the model has them, and elsewhere a rule with
    the accuracy of ``AutoRule()`` at the given flat ``states`` (S, n).
    """
    if isinstance(rule, AbstractRule):
        return FlatSystem(model, controls, rule, rule), {"rule": repr(rule)}
    x = model.layout.unflatten(states[0])
    closed_drift = rule is None and _exists(model.closed_drift, x, u)
    closed_error = rule is None and _exists(model.closed_error, x, u)
    if closed_drift and closed_error:
        return FlatSystem(model, controls), {"rule": "closed form"}
    wanted = rule or AutoRule()
    info: dict[str, Any] = {}
    drift_rule = error_rule = None
    if not closed_drift:
        drift_rule, info["rule_error"] = choose_rule(model, states, u, wanted)
        info["rule"] = repr(drift_rule)
    if not closed_error:
        error_rule, info["error_rule_error"] = choose_rule(model, states, u, wanted, "error", drift_rule)
        info["error_rule"] = repr(error_rule)
    return FlatSystem(model, controls, drift_rule, error_rule), info


_CLOSED: dict[Hashable, bool] = {}


def _exists(closed: Callable[..., Any], x: OrderParameters, u: Settings) -> bool:
    """Whether a model's method returns anything, which its structure decides; asked once for each."""
    model = closed.__self__  # type: ignore[attr-defined]
    leaves, structure = jax.tree.flatten((model, x, dict(u)))
    key = (closed.__name__, structure, tuple(np.shape(leaf) for leaf in leaves))
    if key not in _CLOSED:
        _CLOSED[key] = jax.eval_shape(closed, x, dict(u)) is not None
    return _CLOSED[key]


def control_tables(
    schedule: Schedule, controls: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shares (intervals, m), control vectors (intervals, m, c) and their means (intervals, c)."""
    variants = list(schedule.variants())
    shares = np.stack([share for share, _ in variants], axis=1)
    vectors = np.stack(
        [
            np.stack([values[name] for name in controls], axis=1)
            if controls
            else np.zeros((schedule.intervals, 0))
            for _, values in variants
        ],
        axis=1,
    )
    return shares, vectors, np.einsum("im,imc->ic", shares, vectors)


def as_jax(tree: Array) -> Array:
    """The same tree with JAX arrays at its leaves."""
    return jax.tree.map(jnp.asarray, tree)
