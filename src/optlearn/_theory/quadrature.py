"""Choose a quadrature for a model, refine it, and measure its accuracy."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Derivatives, Float, Settings, quick_jit
from optlearn._dynamics.system import Resolved
from optlearn._errors import AccuracyWarning, SpecificationError, explained, warn
from optlearn._theory.drift import generic_drift, generic_error, loss_gradient
from optlearn._theory.expectation import (
    FEW,
    MANY_POINTS,
    MOST_LOG2_POINTS,
    AbstractQuadrature,
    AutoQuadrature,
    GaussHermite,
    Grid,
    GridRule,
    Quadrature,
    QuasiMonteCarlo,
    SearchQuadrature,
    Table,
)
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters, gram_matrix
from optlearn._theory.sample import Break, Fields
from optlearn._theory.sampler import Coordinates, coordinates, fields_read

LADDER = (6, 8, 12, 16, 24, 32, 48)
SOBOL = (12, 13, 14, 15, 16, 17, 18)
# For a rough trajectory, and how far a state may grow along it.
ROUGH, FAR = QuasiMonteCarlo(12), 1e3
# Minimum and maximum number of points in one block of a table.
BLOCK = (64, 1024)
# Maximum number of points of a tailored grid; beyond, quasi-random points are as good.
MOST_FITTED = 20_000
# Number of points, over all latents, from which a rule is stored as a table.
MANY = 200

# Relative tolerance of an integration with quadratures, or a hundredth of their error.
RTOL = 1e-8

# Errors are relative to the largest drift, but at least to this: at the end of learning all drifts vanish.
SMALLEST_SCALE = 0.1

What = Literal["drift", "error"]
# Flat states.
States = Float[np.ndarray, "S n"]

# Distance from a break, in standard deviations of its field, and number of samples at which it is examined.
# There a kink is a second difference of first order and a jump a third difference of order 0; up to this
# share of the largest gradient both count as zero.
NEAR, SAMPLES, SMOOTH = 1e-4, 64, 1e-6

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
    """The coarsest quadrature of the wanted accuracy at flat states, and its error; tries ``first``.

    The error is the largest change of the drift under a finer or independent quadrature, relative to the
    largest drift at these states (at least 0.1). The same holds for the generalisation error, since a
    quadrature for a smooth loss may not suit a metric that jumps. Warns if no quadrature within
    ``wanted.points`` is accurate enough.
    """
    if isinstance(first, Grid) and len(first.nodes) != len(_where(model, what).segments):
        first = None  # made for other coordinates: a metric without label noise has one fewer
    candidates = _candidates(model, u, states, wanted, what)
    best: tuple[float, AbstractQuadrature] | None = None
    for size, quadrature in chain([] if first is None else [(np.inf, first)], candidates):
        if size > FEW and best is not None and best[0] <= wanted.accepted(size):
            break
        error = quadrature_error(model, states, u, quadrature, what)
        if best is None or error < best[0]:
            best = (error, quadrature)
        if error <= wanted.accepted(size):
            break
    assert best is not None  # a quasi-Monte Carlo quadrature is always tried
    error, quadrature = best
    function = {"drift": "loss", "error": "metric"}[what]
    if not np.isfinite(error):
        settings = ", ".join(f"{name} = {float(value):g}" for name, value in u.items() if np.ndim(value) == 0)
        warn(
            f"the {what} of {type(model).__name__} is not a number where it was tried, with {settings}: "
            f"check whether the {function} or its gradient divides by 0 there, or has no finite mean; bounds "
            "of controls are tried as well",
            AccuracyWarning,
        )
    elif error > wanted.accepted(np.inf):
        warn(
            f"the {what} of {type(model).__name__} is only accurate to {error:.1e} ({quadrature}), instead "
            f"of {wanted.accepted(np.inf):.1e}. Allow more points (AutoQuadrature(points=…)), say "
            f"where the {function} jumps (breaks), or accept less accuracy (AutoQuadrature(accuracy=…)). "
            f"{explained('accuracy')}",
            AccuracyWarning,
        )
    return quadrature, error


@dataclass(frozen=True)
class ResolvedModel(Resolved):
    """A learning model with quadratures for its expectations, whose errors can be measured anywhere."""

    def errors(self, states: States, u: Settings) -> dict[str, float]:
        """Errors of the quadratures, measured also at given flat states."""
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
    """The model with quadratures where it has no closed forms, and their accuracy at flat states.

    ``wanted`` is a quadrature or an accuracy for everything; None: closed forms where the model has them,
    elsewhere a quadrature with the accuracy of ``AutoQuadrature()``.
    """
    if not isinstance(wanted, AbstractQuadrature | AutoQuadrature | None):
        raise SpecificationError(
            f"quadrature must be GaussHermite, QuasiMonteCarlo or AutoQuadrature, got {wanted!r}"
        )
    if isinstance(wanted, AbstractQuadrature):
        model = _with_quadratures(model, u, wanted, wanted)
    if isinstance(wanted, AbstractQuadrature) or (
        wanted is None and (model.drift_quadrature or model.error_quadrature) is not None
    ):
        return ResolvedModel(model, None, RTOL, {"quadrature": repr(_rule(model.drift_quadrature))})
    x = model.layout.unflatten(states[0])
    closed_drift = wanted is None and _exists(model, "closed_drift", x, u)
    closed_error = wanted is None and _exists(model, "closed_error", x, u)
    if closed_drift and closed_error:
        return Resolved(model)
    wanted = wanted or AutoQuadrature()
    info: dict[str, Any] = {}
    drift_quadrature: AbstractQuadrature | None = None
    error_quadrature: AbstractQuadrature | None = None
    if not closed_drift:
        model = replace(model, drift_breaks=bent_at(model, states, u))
        drift_quadrature, info["quadrature_error"] = choose_quadrature(model, states, u, wanted)
        info["quadrature"] = repr(drift_quadrature)
    if not closed_error:
        error_quadrature, info["error_quadrature_error"] = choose_quadrature(
            model, states, u, wanted, "error", drift_quadrature
        )
        info["error_quadrature"] = repr(error_quadrature)
    rtol = Resolved.rtol if closed_drift else max(RTOL, info["quadrature_error"] / 100)
    model = _with_quadratures(model, u, drift_quadrature, error_quadrature)
    errors = [info[name] for name in ("quadrature_error", "error_quadrature_error") if name in info]
    # The accuracy of many points, if these reach it: a rule with few points may fail at other states.
    levels = wanted.accepted(MANY_POINTS), wanted.accepted(np.inf)
    accuracy = next((level for level in levels if max(errors) <= level), levels[-1])
    return ResolvedModel(model, accuracy, rtol, info)


def _with_quadratures(
    model: LearningModel, u: Settings, drift: AbstractQuadrature | None, error: AbstractQuadrature | None
) -> LearningModel:
    """The model with rules of many points as tables, which programs read as numbers."""
    return replace(
        model,
        drift_quadrature=_tabulated(model, u, drift, "drift"),
        error_quadrature=_tabulated(model, u, error, "error"),
    )


def _tabulated(
    model: LearningModel, u: Settings, rule: AbstractQuadrature | None, what: What
) -> Quadrature | None:
    # Two views of a sample have more coordinates than one.
    if not isinstance(rule, GridRule) or model.redrawn:
        return rule
    where = _where(model, what)
    latents = jax.eval_shape(lambda: model.latents(u) if what == "drift" else model.test_latents(u))
    if rule.size(where.segments) * latents.probabilities.shape[0] <= MANY:
        return rule
    # One block holds the coarser rule at the beginning of a search.
    table = _table(model, rule, what, int(np.clip(_fewer(rule).size(where.segments), *BLOCK)))
    # The error is computed rarely, so space for the certificate's finer rule costs nothing.
    return table if what == "drift" else table.holding(_finer(rule)).holding(rule)


def _table(
    model: LearningModel,
    rule: GridRule,
    what: What,
    block: int,
    counts: Sequence[int] = (1,),
    *,
    derivatives: Derivatives = "backwards",
) -> Table:
    """A rule in blocks; one of the numbers in ``counts``, if one is enough."""
    where = _where(model, what)
    centred = not any(model.clusters) and not any(where.cuts)
    size = rule.size(where.segments)
    blocks = next((count for count in counts if count * block >= size), 1)
    return Table.of(
        rule,
        where.segments,
        mirrored=model.even and centred,
        block=block,
        blocks=blocks,
        derivatives=derivatives,
    )


def _where(model: LearningModel, what: What) -> Coordinates:
    return coordinates(model, fields_read(model, "loss" if what == "drift" else "metric"))


def _rule(quadrature: Quadrature | None) -> AbstractQuadrature | None:
    return quadrature.rule if isinstance(quadrature, Table) else quadrature


def bent_at(model: LearningModel, states: States, u: Settings) -> tuple[Break, ...]:
    """The model's breaks at which the drift's integrands have jumps or kinks, at flat states.

    A break that only the metric has would cut the drift's quadrature for nothing. Breaks are examined from
    both sides, at random fields of the size that they have at these states.
    """
    read = {b for cuts in _where(model, "drift").cuts for b in cuts}
    places = [b for b in model.breaks if b in read]
    if not places or model.redrawn:
        return model.breaks
    bare = replace(model, drift_quadrature=None, error_quadrature=None)
    (L, K, M), rng = (model.slots, model.students, model.teachers), np.random.default_rng(0)
    shapes = (L, K), (L, M), (), (model.normals,)
    numbers = tuple(rng.standard_normal((len(places), SAMPLES, *shape)) for shape in shapes)

    def gradients(bare: LearningModel, u: Any, flat: Array, numbers: tuple[Array, ...]) -> Array:
        """(breaks, samples, offsets, …) all integrands of the drift, flattened."""
        x = bare.layout.unflatten(flat)
        summed, whole = bare.summed, bare.total(x)
        widths = jnp.sqrt(jnp.maximum(jnp.diag(gram_matrix(whole, summed.overlaps)), 1e-6))
        scale = {"student": widths[:K], "teacher": widths[K : K + M]}
        latents = bare.latents(u).values

        def at(fields: Fields, latent: Any) -> Array:
            sample = loss_gradient(summed, fields, whole, latent, u)
            statistics = summed.statistics(fields, whole, latent, u)
            return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves((sample, statistics))])

        def beside(place: Break, number: tuple[Array, ...], offset: Array) -> Array:
            student, teacher, *others = number
            fields = Fields(student * scale["student"][None], teacher * scale["teacher"][None], *others)
            tables = {"student": fields.student, "teacher": fields.teacher}
            total = sum(factor * tables[kind][slot, node] for kind, slot, node, factor in place.terms)
            kind, slot, node, factor = place.terms[-1]
            missing = place.threshold(u) + offset * scale[kind][node] - total
            moved = tables[kind].at[slot, node].add(missing / factor)
            return jax.vmap(lambda latent: at(replace(fields, **{kind: moved}), latent))(latents)

        offsets = NEAR * jnp.array([-2.0, -1.0, 1.0, 2.0])
        rows = [
            jax.vmap(lambda number, place=place: jax.vmap(lambda o: beside(place, number, o))(offsets))(
                jax.tree.map(lambda part, i=i: part[i], numbers)
            )
            for i, place in enumerate(places)
        ]
        return jnp.stack(rows)

    leaves, structure = jax.tree.flatten((bare, dict(u)))
    key = (structure, tuple(np.shape(leaf) for leaf in leaves), "breaks")
    program = _VALUES.setdefault(key, quick_jit(gradients))
    bent = np.zeros(len(places), dtype=bool)
    for state in states:
        a, b, c, d = np.moveaxis(np.asarray(program(bare, dict(u), jnp.asarray(state), numbers)), 2, 0)
        size = SMOOTH * np.nanmax(np.abs(d), initial=0.0)
        rough = np.maximum(np.abs(a - b - c + d), np.abs(a - 2 * b + 2 * c - d))
        # Written so that values that are not finite count as rough.
        bent |= ~np.all(rough <= size, axis=tuple(range(1, rough.ndim)))
    return tuple(b for b in model.breaks if b not in places or bent[places.index(b)])


def _exists(model: LearningModel, form: str, x: OrderParameters, u: Settings) -> bool:
    """Whether a model has a closed form; depends only on its structure and is cached."""
    leaves, structure = jax.tree.flatten((model, x, dict(u)))
    key = (form, structure, tuple(np.shape(leaf) for leaf in leaves))
    if key not in _CLOSED:
        _CLOSED[key] = jax.eval_shape(lambda x, u: model.closed(form, x, u), x, dict(u)) is not None
    return _CLOSED[key]


def quadrature_error(
    model: LearningModel, states: States, u: Settings, quadrature: Quadrature, what: What = "drift"
) -> float:
    """Change of the drift, or the error, at flat states under other quadratures: the larger of two changes.

    Two rules may agree by accident, especially with few nodes on either side of an undeclared jump; a third
    one hardly ever does.
    """
    rule = _rule(quadrature)
    assert rule is not None
    # Quadratures that reveal the error at no more than twice the cost in each dimension.
    if isinstance(rule, QuasiMonteCarlo):
        others: list[GridRule] = [QuasiMonteCarlo(rule.log2_points, rule.seed + i) for i in (1, 2)]
    else:
        others = [_finer(rule), _one_more(_finer(rule))]
    base = _values(model, u, states, rule, what)
    return max(_difference(base, _values(model, u, states, other, what)) for other in others)


def finer(quadrature: Quadrature) -> Quadrature:
    """A finer quadrature that shares no points with ``quadrature``: their difference shows the error.

    Twice the nodes of Gauss-Hermite, a third more in a tailored grid, or twice the points with another
    scrambling. The difference underestimates errors that shrink slowly: by up to a third for smooth losses,
    and by more than half for jumps or kinks that ``breaks`` does not declare.
    """
    if isinstance(quadrature, Table):
        return quadrature.holding(_finer(quadrature.rule))
    return _finer(quadrature)


def _finer(rule: AbstractQuadrature) -> GridRule:
    if isinstance(rule, GaussHermite):
        noise_nodes = None if rule.noise_nodes is None else rule.noise_nodes + 1
        return GaussHermite(2 * rule.nodes, noise_nodes)
    if isinstance(rule, Grid):
        return _alternating(map(_more, rule.nodes))
    assert isinstance(rule, QuasiMonteCarlo)
    return QuasiMonteCarlo(min(rule.log2_points + 1, MOST_LOG2_POINTS), rule.seed + 1)


def _alternating(nodes: Iterable[int]) -> Grid:
    """A grid of about so many nodes along which two nodes of the label noise, if any, can alternate.

    One of the lines must have an even number of nodes; otherwise twice the points are needed.
    """
    first, *others = nodes
    is_odd = others[-1:] == [2] and all(count % 2 for count in (first, *others[:-1]))
    return Grid((first + is_odd, *others))


def _one_more(rule: GridRule) -> GridRule:
    """One more node in each dimension, so that all nodes move."""
    if isinstance(rule, GaussHermite):
        return replace(rule, nodes=rule.nodes + 1)
    assert isinstance(rule, Grid)
    return Grid(tuple(nodes + (nodes > 2) for nodes in rule.nodes))


def coarser(table: Table) -> Table | None:
    """A rule with far fewer points in the same table, to begin a search; None if that saves little."""
    coarse = table.holding(_fewer(table.rule))
    return coarse if 2 * coarse.used <= table.used else None


def _fewer(rule: GridRule) -> GridRule:
    """Half the nodes in each dimension, or a sixteenth of the points."""
    if isinstance(rule, Grid):
        return _alternating(max(2, -(-nodes // 2)) for nodes in rule.nodes)
    if isinstance(rule, GaussHermite):
        return replace(rule, nodes=max(4, rule.nodes // 2))
    assert isinstance(rule, QuasiMonteCarlo)
    return replace(rule, log2_points=max(10, rule.log2_points - 4))


def _more(nodes: int) -> int:
    """A third more nodes: enough to see the exponentially small error of a line with stretched steps.

    Two nodes of the label noise stay, since they are exact.
    """
    return nodes + max(1, nodes // 3) if nodes > 2 else nodes


def fitted_grid(
    model: LearningModel,
    states: States,
    u: Settings,
    wanted: AutoQuadrature,
    what: What,
    *,
    quadratic_noise: bool = False,
) -> Grid | None:
    """A grid with as many nodes in each dimension as it needs at flat states.

    Starting from few nodes, the dimensions where more nodes change most are refined until none changes the
    result by more than the accepted error, or no more points are allowed. None if few nodes in all of many
    dimensions already exceed that. Two nodes are exact for label noise that enters at most squared.
    """
    segments = _where(model, what).segments
    rule = Grid(tuple(4 if count else 2 if quadratic_noise else 3 for count in segments))
    if rule.size(segments) > min(wanted.points, MOST_FITTED):
        return None
    while True:
        base, changes, larger = _values(model, u, states, rule, what), [], []
        for place, nodes in enumerate(rule.nodes):
            larger.append(_more(nodes))
            finer_line = Grid((*rule.nodes[:place], larger[-1], *rule.nodes[place + 1 :]))
            same = finer_line == rule
            changes.append(0.0 if same else _difference(base, _values(model, u, states, finer_line, what)))
        accepted = wanted.accepted(rule.size(segments))
        worst = max(changes)
        if worst <= accepted / 4:
            return rule
        if not np.isfinite(worst):
            return None
        grown = zip(rule.nodes, larger, changes, strict=True)
        refined = _alternating(more if change > 0.7 * worst else few for few, more, change in grown)
        if refined.size(segments) > MOST_FITTED or _finer(refined).size(segments) > wanted.points:
            return rule
        rule = refined


def _candidates(
    model: LearningModel, u: Settings, states: States, wanted: AutoQuadrature, what: What
) -> Iterator[tuple[float, AbstractQuadrature]]:
    """Numbers of points, and quadratures to try: small ones, a tailored one, large ones."""
    where = _where(model, what)
    noise_nodes = None
    if where.noise:
        # A square loss contains the label noise squared: three nodes integrate it exactly.
        few, many = (_values(model, u, states, GaussHermite(4, n), what) for n in (3, 9))
        noise_nodes = 3 if _difference(few, many) < wanted.accepted(0) / 100 else None
    tensor = [GaussHermite(nodes, noise_nodes) for nodes in LADDER]
    sized: list[tuple[float, AbstractQuadrature]] = [
        (rule.size(where.segments), rule)
        for rule in tensor
        if _finer(rule).size(where.segments) <= wanted.points
    ]
    # Quasi-Monte Carlo also helps where tensor grids are affordable but kinks are not aligned with an axis.
    most = int(np.log2(wanted.points))
    sized += [(2.0**n, QuasiMonteCarlo(n)) for n in sorted({min(n, most) for n in SOBOL})]
    sized.sort(key=lambda pair: pair[0])
    yield from (pair for pair in sized if pair[0] <= FEW)
    if not model.redrawn:
        grid = fitted_grid(model, states, u, wanted, what, quadratic_noise=noise_nodes == 3)
        if grid is not None:
            yield grid.size(where.segments), grid
    yield from (pair for pair in sized if pair[0] > FEW)


def _values(
    model: LearningModel, u: Settings, states: States, rule: AbstractQuadrature, what: What
) -> np.ndarray:
    """(S, n) drifts or (S, 1) errors at flat states."""
    model = replace(model, drift_quadrature=None, error_quadrature=None)
    quadrature: Quadrature = rule
    if isinstance(rule, GridRule) and not model.redrawn:
        # One program for nearly all rules that are tried; unused blocks cost nothing.
        counts = 2 * MANY_POINTS // 256, 4096
        quadrature = _table(model, rule, what, 256, counts, derivatives="forwards")
    leaves, structure = jax.tree.flatten((model, dict(u), quadrature))
    key = (structure, tuple(np.shape(leaf) for leaf in leaves), what)
    if key not in _VALUES:

        def values(
            model: LearningModel, u: Mapping[str, Array], quadrature: Quadrature, flat: Array
        ) -> Array:
            x = model.layout.unflatten(flat)
            if what == "error":
                return generic_error(model, x, u, quadrature)[None]
            return model.layout.flatten(generic_drift(model, x, u, quadrature))

        _VALUES[key] = quick_jit(values)
    # One state at a time: the program does not depend on how many there are.
    arguments = jax.device_put((model, dict(u), quadrature))
    return np.stack([np.asarray(_VALUES[key](*arguments, state)) for state in states])


def _difference(first: np.ndarray, second: np.ndarray) -> float:
    """Over states where both are finite (training may never reach others); infinite without any."""
    finite = np.all(np.isfinite(first) & np.isfinite(second), axis=1)
    if not np.any(finite):
        return np.inf
    first, second = first[finite], second[finite]
    return float(np.abs(first - second).max() / max(SMALLEST_SCALE, np.abs(second).max()))


def probe_states(model: LearningModel, start: OrderParameters) -> Float[np.ndarray, "3 n"]:
    """The start, and two states in which students have grown towards teachers and centroids."""
    states = (start, _grown(model, start, 0.5), _grown(model, start, 1.0))
    return np.stack([np.asarray(model.layout.flatten(x)) for x in states])


def for_search(
    model: LearningModel, start: OrderParameters, u: Settings, horizon: float
) -> tuple[States, AutoQuadrature | None]:
    """States where a search needs expectations, and how accurate they have to be.

    The growth of trained weights behind the first layer cannot be guessed, so the states lie along a rough
    trajectory under the first guess. The certificate measures the effect of a finer quadrature, so a search
    needs no more accuracy than this.
    """
    probes = probe_states(model, start)
    has_drift_rule = model.drift_quadrature is not None or _exists(model, "closed_drift", start, u)
    if not model.trained or has_drift_rule or model.redrawn:
        return probes, None
    from scipy.integrate import solve_ivp

    def slope(_alpha: float, flat: np.ndarray) -> np.ndarray:
        return _values(model, u, flat[None], ROUGH, "drift")[0]

    def gone(_alpha: float, flat: np.ndarray) -> float:
        return FAR - float(np.abs(flat).max())

    gone.terminal = True  # type: ignore[attr-defined]
    times = np.linspace(0.0, horizon, 5)
    course = solve_ivp(slope, (0.0, horizon), probes[0], "RK23", times, events=gone, rtol=1e-2, atol=1e-4)
    states = course.y.T[np.all(np.isfinite(course.y), axis=0)]
    return np.concatenate([probes[:2], states[1:]]), SearchQuadrature()


def _grown(model: LearningModel, start: OrderParameters, length: float) -> OrderParameters:
    """Students with a component of ``length`` along one teacher or centroid each, and a little along all."""
    K, M, constants = model.students, model.teachers, model.block_overlaps.gram
    share = np.ones(()) if model.spectrum is None else np.asarray(model.spectrum.share)
    count = constants.shape[-1]
    lean = length * (np.eye(K, count) + 0.2) if count else np.zeros((K, 0))
    if count:
        # At most unit squared norm along the constants, whatever their own scale.
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
