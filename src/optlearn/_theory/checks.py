"""Checks before any computation: a slip in a specification gets a sentence, not a NaN."""

from collections.abc import Hashable, Mapping
from typing import Any

import jax
import numpy as np

from optlearn._arrays import Array
from optlearn._dynamics.checks import check_states
from optlearn._dynamics.own_code import is_own, slips_explained
from optlearn._engine.tracing.trace import TracedFunction, trace
from optlearn._errors import SpecificationError
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters
from optlearn._theory.sample import Fields, Latents

_SAMPLES = ("latents", "test_latents")
_RECORDED: dict[Hashable, TracedFunction] = {}


def check_start(model: LearningModel, start: OrderParameters) -> OrderParameters:
    """The start as NumPy arrays, if its shapes are right and some weights have these overlaps."""
    if not isinstance(start, OrderParameters):
        raise SpecificationError(
            f"start must be OrderParameters (see model.state), got {type(start).__name__}"
        )
    wanted = model.state()
    for name in ("Q", "M", "R", "v"):
        have, need = np.shape(getattr(start, name)), np.shape(getattr(wanted, name))
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
    drawn, tested = (_recorded(model, f, dict(u)).expressions(model, dict(u)) for f in _SAMPLES)
    for phase, latents in zip(_SAMPLES, (drawn, tested), strict=True):
        p = np.asarray(latents.probabilities, dtype=float)
        if not (np.all(p >= -1e-12) and abs(p.sum() - 1) <= 1e-9):  # so that NaN fails
            raise SpecificationError(
                f"{name}.{phase}: probabilities {p.tolist()} must be at least 0 and add up to 1 "
                f"(sum {p.sum():.9g})"
            )
    variances_of = _recorded(model, "variances", _one(drawn, 0), dict(u))
    for i in range(len(drawn.probabilities)):
        variances = np.asarray(variances_of.expressions(model, _one(drawn, i), dict(u)), float)
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
    latent = _one(_recorded(model, "latents", dict(u)).expressions(model, dict(u)), 0)
    shapes = ((model.slots, model.students), (model.slots, model.teachers))
    # An arbitrary sample, away from any special point.
    student, teacher = (0.3 + 0.1 * np.arange(float(np.prod(s))).reshape(s) for s in shapes)
    fields = Fields(student, teacher, np.asarray(0.2), 0.4 + 0.1 * np.arange(model.normals))
    needed_shapes = {"loss": (), "metric": (), **({"update": student.shape} if model.has_rule else {})}
    sample = fields, start, latent, dict(u)
    for kind, needed in needed_shapes.items():
        if is_own(type(model)):
            # On NumPy's arrays a field that does not exist is an error; JAX takes the nearest one silently.
            with slips_explained(f"{name}.{kind}"), np.errstate(all="ignore"):
                getattr(model, kind)(*sample)
        traced = _recorded(model, kind, *sample)
        shape = traced.outputs.shape
        if shape != needed:
            wanted = f"an array of shape {needed}" if needed else "one number"
            raise SpecificationError(
                f"{name}.{kind} returns an array of shape {shape}; it must return {wanted}"
            )
        value = np.asarray(traced.expressions(model, *sample), float)
        if not np.all(np.isfinite(value)):
            raise SpecificationError(
                f"{name}.{kind} is {value} for student fields {student.tolist()} and teacher "
                f"fields {teacher.tolist()}; it must be finite"
            )


def _recorded(model: LearningModel, function: str, *arguments: Any) -> TracedFunction:
    """One of a model's functions, of (model, *arguments); of the library's models once for each structure.

    What somebody wrote may read a global that has changed, and is traced again.
    """
    leaves, structure = jax.tree.flatten((model, *arguments))
    key = (function, structure, tuple(np.shape(leaf) for leaf in leaves))
    own = is_own(type(model))
    if own or key not in _RECORDED:
        traced = trace(lambda model, *rest: getattr(model, function)(*rest), model, *arguments)
        if own:
            return traced
        _RECORDED[key] = traced
    return _RECORDED[key]


def _one(latents: Latents, i: int) -> dict[str, np.ndarray]:
    """The latent variables of one combination."""
    return {key: np.asarray(value)[i] for key, value in latents.values.items()}
