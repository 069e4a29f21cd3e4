"""Choose a quadrature for a model, refine it, and measure how accurate it is there."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Float, Settings
from optlearn._dynamics.system import Resolved
from optlearn._errors import AccuracyWarning, SpecificationError, explained, warn
from optlearn._theory.drift import generic_drift, generic_error
from optlearn._theory.expectation import (
    MOST_LOG2_POINTS,
    AbstractQuadrature,
    AutoQuadrature,
    GaussHermite,
    QuasiMonteCarlo,
)
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters
from optlearn._theory.sampler import Coordinates, coordinates, fields_read

# Each rung doubles the last: a rung costs a compilation, so few and far between.
LADDER = (6, 12, 24, 48)
SOBOL = (13, 16, 18)

# Errors are relative to the largest drift, but to none smaller than this: at the end of learning all vanish.
SMALLEST_SCALE = 0.1

What = Literal["drift", "error"]
# Flat states.
States = Float[np.ndarray, "S n"]

_VALUES: dict[Hashable, Any] = {}
_CLOSED: dict[Hashable, bool] = {}


def choose_quadrature(
    model: LearningModel,
    states: States,
    u: Settings,
    wanted: AutoQuadrature,
    what: What = "drift",
    first: AbstractQuadrature | None = None,
) -> tuple[AbstractQuadrature, float]:
    """The coarsest quadrature that meets ``wanted.accuracy`` at flat states, and its error; tries ``first``.

    The error is the largest change of the drift (or of the generalisation error: what suits a smooth loss may
    not suit a metric that jumps), relative to the largest at these states (at least 0.1), under a finer or
    independent quadrature. Warns when no quadrature within ``wanted.points`` is accurate enough.
    """
    best: tuple[float, AbstractQuadrature] | None = None
    for quadrature in [*([first] if first else []), *_candidates(model, u, states, wanted, what)]:
        error = quadrature_error(model, states, u, quadrature, what)
        if best is None or error < best[0]:
            best = (error, quadrature)
        if error <= wanted.accuracy:
            return quadrature, error
    assert best is not None  # a quasi-Monte Carlo quadrature is always tried
    function = {"drift": "loss", "error": "metric"}[what]
    warn(
        f"the {what} of {type(model).__name__} is accurate to {best[0]:.1e} only ({best[1]}); "
        f"{wanted.accuracy:.1e} was asked for. Allow more points (AutoQuadrature(points=…)), say where the "
        f"{function} jumps (breaks), or ask for less (AutoQuadrature(accuracy=…)). {explained('accuracy')}",
        AccuracyWarning,
    )
    return best[1], best[0]


@dataclass(frozen=True)
class ResolvedModel(Resolved):
    """A learning model with quadratures for its expectations, whose errors can be measured anywhere."""

    def errors(self, states: States, u: Settings) -> dict[str, float]:
        """Errors of the quadratures, measured at flat states as well."""
        model, errors = self.system, {}
        assert isinstance(model, LearningModel)
        whats: tuple[What, What] = "drift", "error"
        for what, quadrature in zip(whats, (model.drift_quadrature, model.error_quadrature), strict=True):
            if quadrature is not None:
                name = "quadrature_error" if what == "drift" else "error_quadrature_error"
                errors[name] = max(self.info[name], quadrature_error(model, states, u, quadrature, what))
        return errors


def resolve(
    model: LearningModel, states: States, u: Settings, wanted: AbstractQuadrature | AutoQuadrature | None
) -> Resolved:
    """The model with quadratures for what it has no closed forms of, and their accuracy at flat states.

    ``wanted`` is a quadrature for everything, or an accuracy, for everything; None: closed forms where the
    model has them, elsewhere a quadrature with the accuracy of ``AutoQuadrature()``.
    """
    if not isinstance(wanted, AbstractQuadrature | AutoQuadrature | None):
        raise SpecificationError(
            f"quadrature must be GaussHermite, QuasiMonteCarlo or AutoQuadrature, got {wanted!r}"
        )
    if isinstance(wanted, AbstractQuadrature):
        model, wanted = replace(model, drift_quadrature=wanted, error_quadrature=wanted), None
    if wanted is None and (model.drift_quadrature or model.error_quadrature) is not None:
        return ResolvedModel(
            model, None, AutoQuadrature.accuracy / 10, {"quadrature": repr(model.drift_quadrature)}
        )
    x = model.layout.unflatten(states[0])
    closed_drift = wanted is None and _exists(model, "closed_drift", x, u)
    closed_error = wanted is None and _exists(model, "closed_error", x, u)
    if closed_drift and closed_error:
        return Resolved(model)
    wanted = wanted or AutoQuadrature()
    info: dict[str, Any] = {}
    drift_quadrature = error_quadrature = None
    if not closed_drift:
        drift_quadrature, info["quadrature_error"] = choose_quadrature(model, states, u, wanted)
        info["quadrature"] = repr(drift_quadrature)
    if not closed_error:
        error_quadrature, info["error_quadrature_error"] = choose_quadrature(
            model, states, u, wanted, "error", drift_quadrature
        )
        info["error_quadrature"] = repr(error_quadrature)
    rtol = Resolved.rtol if closed_drift else wanted.accuracy / 10
    model = replace(model, drift_quadrature=drift_quadrature, error_quadrature=error_quadrature)
    return ResolvedModel(model, wanted.accuracy, rtol, info)


def _exists(model: LearningModel, form: str, x: OrderParameters, u: Settings) -> bool:
    """Whether a model has a closed form, which its structure decides; asked once for each."""
    leaves, structure = jax.tree.flatten((model, x, dict(u)))
    key = (form, structure, tuple(np.shape(leaf) for leaf in leaves))
    if key not in _CLOSED:
        _CLOSED[key] = jax.eval_shape(lambda x, u: model.closed(form, x, u), x, dict(u)) is not None
    return _CLOSED[key]


def quadrature_error(
    model: LearningModel, states: States, u: Settings, quadrature: AbstractQuadrature, what: What = "drift"
) -> float:
    """How much the drift, or the error, at flat states changes under another quadrature."""
    # One that shows the error at no more than twice the cost in each dimension.
    if isinstance(quadrature, QuasiMonteCarlo):
        another: AbstractQuadrature = QuasiMonteCarlo(quadrature.log2_points, quadrature.seed + 1)
    else:
        another = finer(quadrature)
    return _difference(*(_values(model, u, states, rule, what) for rule in (quadrature, another)))


def finer(quadrature: AbstractQuadrature) -> AbstractQuadrature:
    """A finer quadrature that shares no points with ``quadrature``: the difference of both shows the error.

    Twice the nodes of a tensor product, or four times the points of another scrambling. The difference falls
    short of the error where that shrinks slowly: by up to a third for smooth losses, by more than half where
    a loss jumps or bends at places that ``breaks`` does not declare.
    """
    if isinstance(quadrature, GaussHermite):
        noise_nodes = None if quadrature.noise_nodes is None else quadrature.noise_nodes + 1
        return GaussHermite(2 * quadrature.nodes, noise_nodes)
    assert isinstance(quadrature, QuasiMonteCarlo)
    return QuasiMonteCarlo(min(quadrature.log2_points + 2, MOST_LOG2_POINTS), quadrature.seed + 1)


def _candidates(
    model: LearningModel, u: Settings, states: States, wanted: AutoQuadrature, what: What
) -> list[AbstractQuadrature]:
    """Quadratures to try, cheapest first."""
    reads = fields_read(model, "loss" if what == "drift" else "metric")
    where = coordinates(model, reads)
    noise_nodes = None
    if where.noise:
        # A square loss holds the label noise squared: three nodes integrate it exactly.
        few, many = (_values(model, u, states, GaussHermite(4, n), what) for n in (3, 9))
        noise_nodes = 3 if _difference(few, many) < wanted.accuracy / 100 else None
    tensor = [GaussHermite(nodes, noise_nodes) for nodes in LADDER]
    sized: list[tuple[float, AbstractQuadrature]] = [
        (_size(quadrature, where), quadrature)
        for quadrature in tensor
        if _size(finer(quadrature), where) <= wanted.points
    ]
    # Quasi-Monte Carlo also serves where tensor grids are fine but the loss bends along no axis.
    most = int(np.log2(wanted.points))
    sized += [(2.0**n, QuasiMonteCarlo(n)) for n in sorted({min(n, most) for n in SOBOL})]
    return [quadrature for _, quadrature in sorted(sized, key=lambda pair: pair[0])]


def _size(quadrature: AbstractQuadrature, where: Coordinates) -> float:
    assert isinstance(quadrature, GaussHermite)
    size = 1.0
    for smooth, cuts in zip(where.smooth, where.cuts, strict=True):
        nodes = (quadrature.noise_nodes or quadrature.nodes) if smooth else quadrature.nodes
        size *= (len(cuts) + 1) * nodes
    return size


def _values(
    model: LearningModel, u: Settings, states: States, quadrature: AbstractQuadrature, what: What
) -> np.ndarray:
    """(S, n) drifts or (S, 1) errors at flat states."""
    leaves, structure = jax.tree.flatten((model, dict(u)))
    key = (structure, tuple(np.shape(leaf) for leaf in leaves), quadrature, what)
    if key not in _VALUES:

        def values(model: LearningModel, u: Mapping[str, Array], flat: Array) -> Array:
            x = model.layout.unflatten(flat)
            if what == "error":
                return generic_error(model, x, u, quadrature)[None]
            return model.layout.flatten(generic_drift(model, x, u, quadrature))

        _VALUES[key] = jax.jit(values)
    # One state at a time: the program does not depend on how many there are.
    model, u = jax.tree.map(jnp.asarray, (model, dict(u)))
    return np.stack([np.asarray(_VALUES[key](model, u, jnp.asarray(state))) for state in states])


def _difference(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.abs(first - second).max() / max(SMALLEST_SCALE, np.abs(second).max()))


def probe_states(model: LearningModel, start: OrderParameters) -> Float[np.ndarray, "3 n"]:
    """The start, and two states in which students have grown towards teachers and centroids."""
    states = (start, _grown(model, start, 0.5), _grown(model, start, 1.0))
    return np.stack([np.asarray(model.layout.flatten(x)) for x in states])


def _grown(model: LearningModel, start: OrderParameters, length: float) -> OrderParameters:
    """Students that lean by ``length`` on one teacher or centroid each, and a little on all."""
    K, M, constants = model.students, model.teachers, model.block_overlaps.gram
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
        trained={name: np.asarray(weights) + 0.6 * length for name, weights in start.trained.items()},
    )
