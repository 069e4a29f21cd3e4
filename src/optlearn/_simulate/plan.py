"""What of a step is known before it runs: the structure that one compiled program is made for."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Settings
from optlearn._simulate.controls import Controls
from optlearn._simulate.views import Views
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters
from optlearn._theory.sample import Fields
from optlearn._theory.sampler import Reads, fields_read

Flags = tuple[tuple[bool, ...], ...]


@dataclass(frozen=True)
class Plan:
    """Sizes and structural zeros of a step. Hashable: equal plans share a compiled program.

    Attributes:
        views: input vectors and who reads them.
        student: (L, K) student fields that the loss reads, or a rule moves; the others have no gradient.
        teacher: (L, M) teacher fields that the loss reads.
        noise: whether the loss reads the label noise.
        pulls_on_weights: whether the loss or the penalty reads Q, so that P is not zero.
        latents: how many values the latent variables can take.
        mixtures: how many controls are drawn at random.
        fractional: whether the batch size is ever not a whole number.
        vectors: students, teachers and centroids.
        directions: of each block of a spectrum; none without.
        memory: whether rows move by a recurrence, so that an input that moves one may move all.
        normals: further standard normals of a sample that the loss or a rule reads.
    """

    views: Views
    student: Flags
    teacher: Flags
    noise: bool
    pulls_on_weights: bool
    latents: int
    mixtures: int
    fractional: bool
    vectors: int = field(default=0)
    directions: tuple[int, ...] = ()
    memory: bool = False
    normals: int = 0

    @cached_property
    def student_read(self) -> np.ndarray:
        """(inputs, K) student fields that need a value."""
        return self.views.read(np.array(self.student, dtype=bool))

    @cached_property
    def student_moved(self) -> np.ndarray:
        """(inputs, K) inputs that may move a student."""
        read = self.student_read
        return np.repeat(read.any(axis=1, keepdims=True), read.shape[1], axis=1) if self.memory else read

    @cached_property
    def teacher_read(self) -> np.ndarray:
        """(inputs, M) teacher fields that need a value."""
        flags = np.array(self.teacher, dtype=bool).reshape(self.views.slots, -1)
        return self.views.read(flags)

    @property
    def noises(self) -> int:
        """Label noises and further normals of a step."""
        return self.views.samples * (self.noise + self.normals)

    @property
    def uniforms(self) -> int:
        """Uniform numbers of a step: mixed controls, batch size, latents."""
        return self.mixtures + self.fractional + self.views.samples * (self.latents > 1)


def make_plan(
    model: LearningModel,
    start: OrderParameters,
    settings: Settings,
    controls: Controls,
    views: Views,
    fractional: bool,
    N: int,
) -> Plan:
    """Look at the model's functions without running them."""
    reads = fields_read(model)
    directions = () if model.spectrum is None else tuple(int(n) for n in model.spectrum.directions(N))
    latents = jax.eval_shape(model.latents, dict(settings))
    return Plan(
        views=views,
        # A rule of the model's own may move a unit whose field it does not read.
        student=_flags(reads.student | model.has_rule),
        teacher=_flags(reads.teacher),
        noise=bool(reads.noise),
        pulls_on_weights=_reads_Q(model.summed, model.total(start), settings, reads),
        latents=latents.probabilities.shape[0],
        mixtures=len(controls.choices),
        fractional=fractional,
        vectors=model.students + model.teachers + model.centroids,
        directions=directions,
        memory=jax.eval_shape(model.recurrence, model.total(start), dict(settings)) is not None,
        normals=reads.normals,
    )


def _flags(table: np.ndarray) -> Flags:
    return tuple(tuple(bool(flag) for flag in row) for row in table)


def _reads_Q(model: LearningModel, start: OrderParameters, settings: Settings, reads: Reads) -> bool:
    """Whether the loss or the penalty depends on Q (a false alarm costs time, never correctness)."""
    fields = Fields(
        jnp.zeros(reads.student.shape),
        jnp.zeros(reads.teacher.shape),
        jnp.zeros(()),
        jnp.zeros(model.normals),
    )

    def with_Q(function: Callable[..., Any]) -> Callable[[Any], Any]:
        return lambda Q: function(OrderParameters(Q, start.M, start.R, start.v, start.extras))

    def loss(x: OrderParameters) -> Any:
        latent = {name: values[0] for name, values in model.latents(settings).values.items()}
        return model.loss(fields, x, latent, settings)

    def penalty(x: OrderParameters) -> Any:
        return model.penalty(x, settings)

    return any(_uses_its_argument(with_Q(f), jnp.asarray(start.Q)) for f in (loss, penalty))


def _uses_its_argument(function: Callable[[Any], Any], argument: Any) -> bool:
    jaxpr = jax.make_jaxpr(function)(argument).jaxpr
    (variable,) = jaxpr.invars
    used = any(variable is operand for equation in jaxpr.eqns for operand in equation.invars)
    return used or any(variable is result for result in jaxpr.outvars)
