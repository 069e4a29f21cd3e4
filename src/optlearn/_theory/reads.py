"""Which local fields a loss reads: only those need integrating over and simulating."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._engine.tracing.trace import dependencies
from optlearn._theory.model import LearningModel
from optlearn._theory.sample import Fields

_CACHE: dict[Hashable, "Reads"] = {}


@dataclass(frozen=True)
class Reads:
    """Flags for the fields: student (L, K), teacher (L, M), noise; how many further normals count.

    Those are all or none: a rule that shakes its units shakes all.
    """

    student: np.ndarray
    teacher: np.ndarray
    noise: bool
    normals: int = 0


def fields_read(model: LearningModel, function: Literal["loss", "metric"] = "loss") -> Reads:
    """The fields that enter the model's loss (and its own rule) or metric, found in its traced program.

    The answer is structural and never too small: a field counts even where its derivative vanishes,
    as in the sign of a teacher.
    """
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), float), model)
    leaves, structure = jax.tree.flatten(shapes)
    key = (structure, tuple(leaf.shape for leaf in leaves), function)
    if key not in _CACHE:
        with jax.enable_x64(True):
            _CACHE[key] = _find(shapes, function)
    return _CACHE[key]


def _find(shapes: LearningModel, function: str) -> Reads:
    L, K, M = shapes.slots, shapes.students, shapes.teachers

    def table(model: LearningModel, u: dict[str, Any]) -> Any:
        if function == "metric":
            return model.test_latents(model.test_settings(u)).values
        return model.latents(u).values

    latents = jax.eval_shape(table, shapes, shapes.parameters)
    latent = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), latents)
    state = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, float), shapes.state())
    fields = Fields(
        *(jax.ShapeDtypeStruct(shape, float) for shape in ((L, K), (L, M), (), (shapes.normals,)))
    )

    def read(f: Fields, model: LearningModel, x: Any, c: Any, u: Any) -> Any:
        model, x = model.summed, model.total(x)
        if function == "metric":
            return model.metric(f, x, c, u)
        read = sum(model.statistics(f, x, c, u).values(), start=jnp.zeros(()))
        if model.has_rule:
            read = read + jnp.sum(model.update(f, x, c, u))
        if not model.has_rule or model.heads or model.extras:
            read = read + model.loss(f, x, c, u)
        return read

    flags = dependencies(
        read,
        fields,
        shapes,
        state,
        latent,
        shapes.parameters,
    )
    normals = shapes.normals if np.any(flags.normals) else 0
    return Reads(flags.student, flags.teacher, bool(flags.noise), normals)
