"""Checks of learning models: a mistake in a specification gives a clear message instead of a NaN.

Before any computation: sizes and breaks, the start, the data, loss and rule of a sample, the spectrum. Along
a
run: whether any set of weight vectors has the order parameters (``first_impossible``), and the boundary of
    the
possible states (``cone_edge``).
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Float, Settings
from optlearn._dynamics.checks import check_states
from optlearn._dynamics.own_code import is_own, slips_explained
from optlearn._engine.tracing.trace import TracedFunction, trace
from optlearn._errors import AccuracyWarning, SpecificationError, warn
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters, entry_names
from optlearn._theory.sample import Break, Fields, Latents
from optlearn._theory.spectrum import NARROW

TOLERANCE = 1e-8
ROUND_OFF = 1e-11  # relative to Q: size of a zero after an integration with a tolerance of 1e-13

_SAMPLES = ("latents", "test_latents")
_RECORDED: dict[Hashable, TracedFunction] = {}


def check_sizes(model: LearningModel) -> None:
    """Raise for inconsistent counts, breaks and names of a model."""
    name, centroids = type(model).__name__, model.centroids
    for size, lowest in (("students", 1), ("slots", 1), ("heads", 0), ("normals", 0)):
        Arguments(name).count(size, getattr(model, size), lowest)
    if model.clusters and len(model.clusters) != model.slots:
        raise SpecificationError(
            f"{name}(clusters={model.clusters!r}): one count for each of the {model.slots} slots"
        )
    if sum(model.clusters) != centroids:
        raise SpecificationError(
            f"{name}(clusters={model.clusters!r}) has {sum(model.clusters)} centroids in all, "
            f"but Omega is {centroids} by {centroids}"
        )
    if any(not 0 <= slot < model.slots for slot in model.redrawn):
        raise SpecificationError(f"{name}(redrawn={model.redrawn!r}): slots from 0 to {model.slots - 1}")
    if model.redrawn and len(set(model.redrawn)) == model.slots:
        raise SpecificationError(
            f"{name}(redrawn={model.redrawn!r}): at least one slot must be shared by the views; "
            "leave redrawn empty for batches of fresh samples"
        )
    breaks: Any = model.breaks
    if not (isinstance(breaks, list | tuple) and all(isinstance(place, Break) for place in breaks)):
        raise SpecificationError(f"{name}: breaks must be a list of ol.Break(…), got {breaks!r}")
    for place in model.breaks:
        _check_break(model, place)
    if len(set(model.breaks)) < len(model.breaks):
        raise SpecificationError(f"{name}(breaks={model.breaks!r}): a break is given twice")
    entries = [model.layout.name_of(*entry) for entry in model.layout.all_entries()]
    arrays = [{part, *entry_names(part, shape)} for part, shape in model.trained.items()]
    taken = {"Q", "M", "R", "v", *entries}
    for names in (*arrays, *({scalar} for scalar in (*model.extras, *model.running))):
        for further in sorted(names & taken):
            fields = f"trained={model.trained!r}, extras={model.extras!r}, running={model.running!r}"
            raise SpecificationError(f"{name}({fields}): {further!r} is taken")
        taken |= names
    if model.heads and "readout" in model.trained:
        raise SpecificationError(
            f"{name}: trained must not hold 'readout' beside heads={model.heads}: readout_rate is that of v"
        )
    for untracked in sorted(model.untracked):
        if untracked not in entries:
            raise SpecificationError(f"{name}: untracked {untracked!r} is none of {', '.join(entries)}")


def _check_break(model: LearningModel, place: Break) -> None:
    name, limits = type(model).__name__, {"student": model.students, "teacher": model.teachers}
    if any(len(term) != 4 for term in place.plus):
        raise SpecificationError(f"{place}: plus must hold (kind, slot, node, factor) of each further field")
    for kind, slot, node, factor in place.terms:
        if kind not in limits:
            raise SpecificationError(f"{place}: kind is 'student' or 'teacher'")
        if not (0 <= slot < model.slots and 0 <= node < limits[kind]):
            raise SpecificationError(f"{name}: {place} names a field that the model does not have")
        if not (np.isfinite(factor) and factor):
            raise SpecificationError(f"{place}: the factor of a field must be a finite number and not 0")
    if len({term[:3] for term in place.terms}) < len(place.terms):
        raise SpecificationError(f"{place}: a field is given twice")
    if place.parameter is not None and place.parameter[1] not in model.parameters:
        names = ", ".join(model.parameters)
        raise SpecificationError(f"{place}: at must be a number or the name of a parameter, one of {names}")
    if place.parameter is None and not (isinstance(place.at, int | float) and np.isfinite(place.at)):
        raise SpecificationError(f"{place}: at must be a finite number or the name of a parameter")


def check_start(model: LearningModel, start: OrderParameters) -> OrderParameters:
    """The start as NumPy arrays, if its shapes are right and its overlaps are possible."""
    if not isinstance(start, OrderParameters):
        raise SpecificationError(
            f"start must be OrderParameters (see model.state), got {type(start).__name__}"
        )
    template = model.state()
    parts = {name: (getattr(start, name), getattr(template, name)) for name in ("Q", "M", "R", "v")}
    parts |= {name: (start.trained.get(name), template.trained[name]) for name in model.trained}
    for name, arrays in parts.items():
        have, need = map(np.shape, arrays)
        if have != need:
            raise SpecificationError(f"start: {name} has shape {have}; the model needs {need}")
    if set(start.extras) != set(model.layout.extras):
        raise SpecificationError(
            f"start: extras are {sorted(start.extras)}; the model has {sorted(model.layout.extras)}"
        )
    start = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=float), start)
    if not np.allclose(start.Q, np.swapaxes(start.Q, -1, -2), rtol=0, atol=1e-12):
        raise SpecificationError(f"start: Q must be symmetric, got {start.Q.tolist()}")
    for entry in model.layout.all_entries():
        name = model.layout.name_of(*entry)
        if name in model.untracked and np.any(start[name] != 0):
            raise SpecificationError(
                f"start: {name} is {np.max(np.abs(start[name])):.6g}, but {type(model).__name__} does not "
                "track it: it is always 0"
            )
    check_states(model, np.asarray(model.layout.flatten(start))[None], np.zeros(1), where="at the start")
    return start


def check_data(model: LearningModel, u: Mapping[str, Array]) -> None:
    """Raise unless probabilities add up to 1 and variances are not negative."""
    name = type(model).__name__
    for phase, settings in zip(_SAMPLES, (dict(u), dict(model.test_settings(u))), strict=True):
        latents = _recorded(model, phase, settings).expressions(model, settings)
        p = np.asarray(latents.probabilities, dtype=float)
        if not (np.all(p >= -1e-12) and abs(p.sum() - 1) <= 1e-9):  # written so that NaN fails
            raise SpecificationError(
                f"{name}.{phase}: probabilities {p.tolist()} must be at least 0 and add up to 1 "
                f"(sum {p.sum():.9g})"
            )
        variances_of = _recorded(model, "variances", _combination(latents, 0), settings)
        for i in range(len(p)):
            variances = np.asarray(variances_of.expressions(model, _combination(latents, i), settings), float)
            if variances.shape != (model.slots,):
                raise SpecificationError(
                    f"{name}.variances has shape {variances.shape}; one for each of the "
                    f"{model.slots} slots is needed"
                )
            if not np.all(variances >= 0):
                raise SpecificationError(
                    f"{name}.variances are {variances.tolist()}: a variance cannot be negative"
                )


def check_loss(model: LearningModel, start: OrderParameters, u: Mapping[str, Array]) -> None:
    """Raise unless loss and metric of a sample are finite numbers, and its rule is (L, K) of them."""
    name = type(model).__name__
    model, start = model.summed, model.total(start)
    latent = _combination(_recorded(model, "latents", dict(u)).expressions(model, dict(u)), 0)
    shapes = ((model.slots, model.students), (model.slots, model.teachers))
    # An arbitrary sample, away from any special point.
    student, teacher = (0.3 + 0.1 * np.arange(float(np.prod(s))).reshape(s) for s in shapes)
    fields = Fields(student, teacher, np.asarray(0.2), 0.4 + 0.1 * np.arange(model.normals))
    needed_shapes = {"loss": (), "metric": (), **({"update": student.shape} if model.has_rule else {})}
    sample = fields, start, latent, dict(u)
    for kind, needed in needed_shapes.items():
        if is_own(type(model)):
            # With NumPy arrays an index out of range is an error; JAX silently clamps it.
            # JAX operations on them are only traced, not compiled.
            with slips_explained(f"{name}.{kind}"), np.errstate(all="ignore"):
                jax.eval_shape(_calling(getattr(model, kind), sample))
        traced = _recorded(model, kind, *sample)
        requirement = f"an array of shape {needed}" if needed else "one number"
        if not isinstance(traced.outputs, jax.ShapeDtypeStruct):
            returned = jax.tree.map(lambda leaf: leaf.shape, traced.outputs)
            what = (
                "None" if returned is None else f"a {type(returned).__name__} of arrays of shapes {returned}"
            )
            raise SpecificationError(f"{name}.{kind} returns {what}; it must return {requirement}")
        shape, kind_of_number = traced.outputs.shape, traced.outputs.dtype.name
        if shape != needed:
            raise SpecificationError(
                f"{name}.{kind} returns an array of shape {shape}; it must return {requirement}"
            )
        if kind == "loss" and not kind_of_number.startswith("float"):
            raise SpecificationError(
                f"{name}.loss returns a number of type {kind_of_number}, which has no gradient; it must "
                "return a real one, that SGD follows"
            )
        value = np.asarray(traced.expressions(model, *sample), float)
        if not np.all(np.isfinite(value)):
            raise SpecificationError(
                f"{name}.{kind} is {value} for student fields {student.tolist()} and teacher "
                f"fields {teacher.tolist()}; it must be finite"
            )


def _calling(method: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[[], None]:
    def call() -> None:
        method(*arguments)

    return call


def check_spectrum(model: LearningModel) -> None:
    """Raise unless overlaps and clusters fit the spectrum."""
    assert model.spectrum is not None
    name, blocks, variance = type(model).__name__, model.spectrum.blocks, model.spectrum.variance
    if model.overlaps.by_block and model.overlaps.T.shape[0] != blocks:
        raise SpecificationError(
            f"{name}: overlaps of {model.overlaps.T.shape[0]} blocks, but the spectrum has {blocks}"
        )
    if variance.ndim == 2 and variance.shape[0] != model.centroids:
        raise SpecificationError(
            f"{name}: the spectrum has rows for {variance.shape[0]} clusters; there are {model.centroids}"
        )


def warn_if_narrow(model: LearningModel, u: Settings) -> None:
    """Warn if one direction has so much of the variance that 1/N terms matter at any N."""
    assert model.spectrum is not None
    largest, rate = model.spectrum.largest, float(np.max(u["learning_rate"]))
    if largest is not None and rate * largest > NARROW:
        warn(
            f"the learning rate {rate:.3g} times the largest direction's share {largest:.2g} of the total "
            f"variance is above {NARROW}: the equations of the order parameters are inaccurate at any N. "
            "Least squares have an exact recursion (models.linear)",
            AccuracyWarning,
        )


def first_impossible(
    model: LearningModel, states: Float[np.ndarray, "T n"], tolerance: float = TOLERANCE
) -> tuple[int, str] | None:
    """Index of the first of finite flat states (T, n) that no weights can have, and the reason."""
    x = model.layout.unflatten(states)
    towards, fixed = np.concatenate([x.M, x.R], axis=-1), model.block_overlaps.gram
    fixed = np.broadcast_to(fixed, (*x.Q.shape[:-2], *fixed.shape[-2:]))
    gram = np.block([[x.Q, towards], [_turned(towards), fixed]])
    # (times, blocks, n, n); without a spectrum there is one block.
    gram = gram.reshape(len(states), -1, *gram.shape[-2:])
    scale = np.maximum(1.0, np.abs(gram).max(axis=(2, 3)))
    lowest = np.linalg.eigvalsh(gram)[..., 0]
    wrong = np.argwhere(lowest < -tolerance * scale)
    if not len(wrong):
        return None
    time, block = (int(place) for place in wrong[0])
    name, value, reason = _culprit(model, gram[time, block])
    where = "" if model.spectrum is None else f" in block {block + 1}"
    return time, f"{name} = {value:.6g}{where}; {reason}"


def cone_edge(model: LearningModel) -> Callable[[Float[np.ndarray, " n"]], Float[np.ndarray, " n"]]:
    """A function that moves flat states (n,) within round-off of the edge of the cone exactly onto it.

    Linearly dependent students, such as equal ones, stay so under SGD. Numerically they do so only up to
    round-off, which an instability towards specialisation multiplies by e^(rate · α), so that the state
    leaves the cone or ends at a solution that SGD does not have. So eigenvalues at round-off level of the
    part of Q that teachers and centroids do not explain, C = Q − B A⁺ Bᵀ with B = (M, R), are set to zero.
    """
    inverse, layout = np.linalg.pinv(model.block_overlaps.gram), model.layout
    # Indices into (0, *flat), with 0 for entries that are not tracked: this is called in thousands of steps,
    # and converting each to order parameters would take longer than the step.
    places = layout.unflatten(np.arange(1.0, layout.size + 1))
    Q_places, towards_places = (
        part.astype(int) for part in (places.Q, np.concatenate([places.M, places.R], axis=-1))
    )

    def settle(flat: np.ndarray) -> np.ndarray:
        entries = np.append(0.0, flat)
        Q, towards = entries[Q_places], entries[towards_places]
        explained = towards @ inverse @ _turned(towards)
        values, vectors = np.linalg.eigh(Q - explained)
        size = np.maximum(1.0, np.abs(Q).max(axis=(-1, -2)))[..., None]
        tiny = (np.abs(values) < ROUND_OFF * size) & (values != 0)
        if not np.any(tiny):
            return flat
        settled = explained + (vectors * np.where(tiny, 0.0, values)[..., None, :]) @ _turned(vectors)
        # Blocks that are not at the edge stay the same, bit for bit.
        Q = np.where(np.any(tiny, axis=-1)[..., None, None], settled, Q)
        return np.asarray(layout.flatten(replace(layout.unflatten(flat), Q=Q)))

    return settle


def _turned(matrix: np.ndarray) -> np.ndarray:
    return np.swapaxes(matrix, -1, -2)


def _culprit(model: LearningModel, gram: np.ndarray) -> tuple[str, float, str]:
    """The order parameter that breaks an inequality, its value and the inequality."""
    K, M = model.students, model.teachers
    name_of = model.layout.name_of
    for k in range(K):
        if gram[k, k] < 0:
            return name_of("Q", k, k), gram[k, k], "a squared norm cannot be negative"
    for k in range(K):
        for j in range(k + 1, gram.shape[0]):
            bound = gram[k, k] * gram[j, j]
            if gram[k, j] ** 2 > bound + TOLERANCE:
                if j < K:
                    kind, other, i = "Q", "Q", j
                elif j < K + M:
                    kind, other, i = "M", "T", j - K
                else:
                    kind, other, i = "R", "Omega", j - K - M
                norms = f"{name_of('Q', k, k)}·{name_of(other, i, i)}"
                reason = f"its square {gram[k, j] ** 2:.6g} exceeds {norms} = {bound:.6g}"
                return name_of(kind, k, i), gram[k, j], reason
    lowest = float(np.linalg.eigvalsh(gram)[0])
    return "Q", gram[0, 0], f"the Gram matrix has the negative eigenvalue {lowest:.6g}"


def _recorded(model: LearningModel, function: str, *arguments: Any) -> TracedFunction:
    """A traced function of a model, of (model, *arguments); cached per structure for the library's models.

    User-written code may read a global that has changed, so it is traced again.
    """
    leaves, structure = jax.tree.flatten((model, *arguments))
    key = (function, structure, tuple(np.shape(leaf) for leaf in leaves))
    users = is_own(type(model))
    if users or key not in _RECORDED:
        traced = trace(lambda model, *others: getattr(model, function)(*others), model, *arguments)
        if users:
            return traced
        _RECORDED[key] = traced
    return _RECORDED[key]


def _combination(latents: Latents, i: int) -> dict[str, np.ndarray]:
    """The latent variables of one combination."""
    return {key: np.asarray(value)[i] for key, value in latents.values.items()}
