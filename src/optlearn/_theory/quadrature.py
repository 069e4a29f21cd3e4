"""Choose a quadrature for a model, refine it, and measure how accurate it is there."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Settings
from optlearn._dynamics.system import Resolved
from optlearn._errors import AccuracyWarning, SpecificationError, explained
from optlearn._theory.drift import generic_drift, generic_error
from optlearn._theory.expectation import (
    MOST_LOG2_POINTS,
    AbstractRule,
    AutoRule,
    GaussHermite,
    QuasiMonteCarlo,
)
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters
from optlearn._theory.reads import fields_read
from optlearn._theory.sampler import Coordinates, coordinates
from optlearn._warn import warn

# Each rung doubles the last: a rung costs a compilation, so few and far between.
LADDER = (6, 12, 24, 48)
SOBOL = (13, 16, 18)

# Errors are relative to the largest drift, but to none smaller than this: at the end of learning all vanish.
SMALLEST_SCALE = 0.1

What = Literal["drift", "error"]

_CACHE: dict[Any, Any] = {}


def choose_rule(
    model: LearningModel,
    states: np.ndarray,
    u: Settings,
    wanted: AutoRule,
    what: What = "drift",
    first: AbstractRule | None = None,
) -> tuple[AbstractRule, float]:
    """The coarsest rule that meets ``wanted.accuracy`` at flat states (S, n), and its error.

    The error is the largest change of the drift (or of the generalisation error), relative to the largest at
    these states (at least 0.1), under a finer or independent quadrature. Warns when no rule within
    ``wanted.points`` is accurate enough.

    Args:
        model: the learning model.
        states: (S, n) where to measure.
        u: the settings there.
        wanted: accuracy, and points at most.
        what: the expectation that matters: a rule that suits a smooth loss may not suit a metric that jumps.
        first: a rule to try before all others.
    """
    best: tuple[float, AbstractRule] | None = None
    tried = [] if first is None else [first]
    for rule in [*tried, *_candidates(model, u, states, wanted, what)]:
        error = rule_error(model, states, u, rule, what)
        if best is None or error < best[0]:
            best = (error, rule)
        if error <= wanted.accuracy:
            return rule, error
    assert best is not None  # a quasi-Monte Carlo rule is always tried
    function = {"drift": "loss", "error": "metric"}[what]
    warn(
        f"the {what} of {type(model).__name__} is accurate to {best[0]:.1e} only ({best[1]}); "
        f"{wanted.accuracy:.1e} was asked for. Allow more points (AutoRule(points=…)), declare where the "
        f"{function} jumps (breaks), or ask for less (AutoRule(accuracy=…)). {explained('accuracy')}",
        AccuracyWarning,
    )
    return best[1], best[0]


@dataclass(frozen=True)
class ResolvedModel(Resolved):
    """A learning model with rules for its expectations, whose errors can be measured anywhere."""

    def errors(self, states: np.ndarray, u: Settings) -> dict[str, float]:
        """Errors of the rules, measured at flat states (S, n) as well."""
        model, found = self.system, {}
        assert isinstance(model, LearningModel)
        if model.drift_rule is not None:
            error = rule_error(model, states, u, model.drift_rule)
            found["rule_error"] = max(self.info["rule_error"], error)
        if model.error_rule is not None:
            error = rule_error(model, states, u, model.error_rule, "error")
            found["error_rule_error"] = max(self.info["error_rule_error"], error)
        return found


def resolve(
    model: LearningModel, states: np.ndarray, u: Settings, wanted: AbstractRule | AutoRule | None
) -> Resolved:
    """The model with rules for what it has no closed forms of, and their accuracy.

    Args:
        model: the learning model.
        states: (S, n) flat states at which a rule that is chosen must be accurate.
        u: the settings there.
        wanted: a rule for everything; an accuracy, for everything; None: closed forms where the model
            has them, elsewhere a rule with the accuracy of ``AutoRule()``.
    """
    if not isinstance(wanted, AbstractRule | AutoRule | None):
        raise SpecificationError(f"rule must be GaussHermite, QuasiMonteCarlo or AutoRule, got {wanted!r}")
    if isinstance(wanted, AbstractRule):
        return ResolvedModel(
            _with_rules(model, wanted, wanted), None, AutoRule.accuracy / 10, {"rule": repr(wanted)}
        )
    if wanted is None and (model.drift_rule or model.error_rule) is not None:
        return ResolvedModel(model, None, AutoRule.accuracy / 10, {"rule": repr(model.drift_rule)})
    x = model.layout.unflatten(states[0])
    closed_drift = wanted is None and _exists(model, "closed_drift", x, u)
    closed_error = wanted is None and _exists(model, "closed_error", x, u)
    if closed_drift and closed_error:
        return Resolved(model)
    wanted = wanted or AutoRule()
    info: dict[str, Any] = {}
    drift_rule = error_rule = None
    if not closed_drift:
        drift_rule, info["rule_error"] = choose_rule(model, states, u, wanted)
        info["rule"] = repr(drift_rule)
    if not closed_error:
        error_rule, info["error_rule_error"] = choose_rule(model, states, u, wanted, "error", drift_rule)
        info["error_rule"] = repr(error_rule)
    rtol = Resolved.rtol if closed_drift else wanted.accuracy / 10
    return ResolvedModel(_with_rules(model, drift_rule, error_rule), wanted.accuracy, rtol, info)


def _with_rules(
    model: LearningModel, drift_rule: AbstractRule | None, error_rule: AbstractRule | None
) -> LearningModel:
    return replace(model, drift_rule=drift_rule, error_rule=error_rule)


_CLOSED: dict[Hashable, bool] = {}


def _exists(model: LearningModel, form: str, x: OrderParameters, u: Settings) -> bool:
    """Whether a model has a closed form, which its structure decides; asked once for each."""
    leaves, structure = jax.tree.flatten((model, x, dict(u)))
    key = (form, structure, tuple(np.shape(leaf) for leaf in leaves))
    if key not in _CLOSED:
        _CLOSED[key] = jax.eval_shape(lambda x, u: model.closed(form, x, u), x, dict(u)) is not None
    return _CLOSED[key]


def rule_error(
    model: LearningModel, states: np.ndarray, u: Settings, rule: AbstractRule, what: What = "drift"
) -> float:
    """How much the drift, or the error, at flat states (S, n) changes under another quadrature."""
    return _difference(*(_values(model, u, states, r, what) for r in (rule, _another(rule))))


def finer(rule: AbstractRule) -> AbstractRule:
    """A finer quadrature that shares no points with ``rule``: the difference of both shows the error.

    Twice the nodes of a tensor product, or four times the points of another scrambling. The difference falls
    short of the error where that shrinks slowly: by up to a third for smooth losses, by more than half where
    a loss jumps or bends at places that ``breaks`` does not declare.
    """
    if isinstance(rule, GaussHermite):
        noise_nodes = None if rule.noise_nodes is None else rule.noise_nodes + 1
        return GaussHermite(2 * rule.nodes, noise_nodes)
    assert isinstance(rule, QuasiMonteCarlo)
    return QuasiMonteCarlo(min(rule.log2_points + 2, MOST_LOG2_POINTS), rule.seed + 1)


def _another(rule: AbstractRule) -> AbstractRule:
    """A quadrature that shows the error of ``rule`` at no more than twice the cost in each dimension."""
    if isinstance(rule, QuasiMonteCarlo):
        return QuasiMonteCarlo(rule.log2_points, rule.seed + 1)
    return finer(rule)


def _candidates(
    model: LearningModel, u: Settings, states: np.ndarray, wanted: AutoRule, what: What
) -> list[AbstractRule]:
    """Quadratures to try, cheapest first."""
    reads = fields_read(model, "loss" if what == "drift" else "metric")
    where = coordinates(model, reads, tuple(range(model.slots)))
    noise_nodes = None
    if where.noise:
        # A square loss holds the label noise squared: three nodes integrate it exactly.
        few, many = (_values(model, u, states, GaussHermite(4, n), what) for n in (3, 9))
        noise_nodes = 3 if _difference(few, many) < wanted.accuracy / 100 else None
    tensor = [GaussHermite(nodes, noise_nodes) for nodes in LADDER]
    sized: list[tuple[float, AbstractRule]] = [
        (_size(rule, where), rule) for rule in tensor if _size(finer(rule), where) <= wanted.points
    ]
    # Quasi-Monte Carlo also serves where tensor grids are fine but the loss bends along no axis.
    most = int(np.log2(wanted.points))
    sized += [(2.0**n, QuasiMonteCarlo(n)) for n in sorted({min(n, most) for n in SOBOL})]
    return [rule for _, rule in sorted(sized, key=lambda pair: pair[0])]


def _size(rule: AbstractRule, where: Coordinates) -> float:
    assert isinstance(rule, GaussHermite)
    size = 1.0
    for smooth, cuts in zip(where.smooth, where.cuts, strict=True):
        nodes = (rule.noise_nodes or rule.nodes) if smooth else rule.nodes
        size *= (len(cuts) + 1) * nodes
    return size


def _values(
    model: LearningModel, u: Settings, states: np.ndarray, rule: AbstractRule, what: What
) -> np.ndarray:
    """(S, n) drifts or (S, 1) errors at flat states (S, n)."""
    leaves, structure = jax.tree.flatten((model, dict(u)))
    key = (structure, tuple(np.shape(leaf) for leaf in leaves), rule, what)
    if key not in _CACHE:

        def values(model: LearningModel, u: Mapping[str, Array], flat: Array) -> Array:
            x = model.layout.unflatten(flat)
            if what == "error":
                return generic_error(model, x, u, rule)[None]
            return model.layout.flatten(generic_drift(model, x, u, rule))

        _CACHE[key] = jax.jit(values)
    # One state at a time: the program does not depend on how many there are.
    model, u = jax.tree.map(jnp.asarray, (model, dict(u)))
    return np.stack([np.asarray(_CACHE[key](model, u, jnp.asarray(state))) for state in states])


def _difference(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.abs(first - second).max() / max(SMALLEST_SCALE, np.abs(second).max()))


def probe_states(model: LearningModel, start: OrderParameters) -> np.ndarray:
    """(3, n) the start, and states in which students have grown towards teachers and centroids."""
    states = (start, _grown(model, start, 0.5), _grown(model, start, 1.0))
    return np.stack([np.asarray(model.layout.flatten(x)) for x in states])


def _grown(model: LearningModel, start: OrderParameters, length: float) -> OrderParameters:
    """Students that lean by ``length`` on one teacher or centroid each, and a little on all."""
    K, M = model.students, model.teachers
    overlaps = model.block_overlaps
    T, S, Omega = (np.asarray(p) for p in (overlaps.T, overlaps.S, overlaps.Omega))
    constants = np.block([[T, S], [np.swapaxes(S, -1, -2), Omega]])
    share = np.ones(()) if model.spectrum is None else np.asarray(model.spectrum.share)
    count = constants.shape[-1]
    lean = length * (np.eye(K, count) + 0.2) if count else np.zeros((K, 0))
    if count:
        # Unit squared norm along the constants at most, whatever their own scale is.
        norms = np.einsum("ki,bij,kj->k", lean, constants.reshape(-1, count, count), lean)
        lean = lean / np.sqrt(np.maximum(norms, 1.0))[:, None]
    along = lean @ constants
    return OrderParameters(
        Q=along @ lean.T + length / 2 * share[..., None, None] * np.eye(K),
        M=along[..., :M],
        R=along[..., M:],
        v=np.asarray(start.v) + 0.6 * length,
        extras={name: np.asarray(value) for name, value in start.extras.items()},
    )
