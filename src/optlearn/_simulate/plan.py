"""What of a run is known before it begins: its controls step by step, and the structure of one step.

``Controls`` is the schedule as arrays that a compiled loop can look up. ``Views`` says which input vectors a
step draws and which views of the sample use them. A ``Plan`` adds all sizes and structural zeros: what one
compiled program is made for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Bool, Float, Int, Settings
from optlearn._pytrees import Pytree
from optlearn._schedule import Schedule
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters
from optlearn._theory.sample import Fields
from optlearn._theory.sampler import Reads, fields_read

Flags = tuple[tuple[bool, ...], ...]


class Controls(Pytree):
    """Controls by SGD step.

    Attributes:
        first: (intervals,) the first step of each interval of the schedule.
        values: control name → (intervals,).
        choices: mixed control name → its (n,) possible values.
        cumulative: mixed control name → (intervals, n − 1) cumulative shares but the last, which is 1.
    """

    first: Array
    values: dict[str, Array]
    choices: dict[str, Array]
    cumulative: dict[str, Array]

    def at(self, step: Array, uniforms: Float[Array, " mixtures"], settings: Settings) -> dict[str, Array]:
        """Settings at a step; ``uniforms`` (mixtures,) decide the mixed controls."""
        interval = jnp.sum(self.first <= step) - 1
        u = {**settings, **{name: table[interval] for name, table in self.values.items()}}
        for i, (name, choices) in enumerate(self.choices.items()):
            u[name] = choices[jnp.sum(uniforms[i] >= self.cumulative[name][interval])]
        return u


def make_controls(schedule: Schedule, N: int) -> Controls:
    """Arrays of a schedule for input dimension N: step μ has the controls of α = μ/N."""
    return Controls(
        schedule.first_steps(N),
        dict(schedule.values),
        {name: mixture.values for name, mixture in schedule.mixtures.items()},
        {name: np.cumsum(mixture.shares, axis=1)[:, :-1] for name, mixture in schedule.mixtures.items()},
    )


def values_taken(schedule: Schedule, settings: Mapping[str, Array], name: str) -> np.ndarray | None:
    """Every value that a setting takes during a run; None if the model does not have it."""
    if name in schedule.mixtures:
        return schedule.mixtures[name].values
    if name in schedule.values:
        return np.asarray(schedule.values[name])
    return np.atleast_1d(settings[name]) if name in settings else None


@dataclass(frozen=True)
class Views:
    """The inputs of one step: ``count`` views of ``slots`` vectors each, made of ``inputs`` vectors.

    A fresh mini-batch has a sample, hence all vectors, for each view. With augmentation there is one
    sample: its shared slots are drawn once and come first, the redrawn ones follow view by view.
    """

    count: int
    slots: int
    redrawn: tuple[int, ...] = ()

    @property
    def samples(self) -> int:
        """Independent samples in a step: each has its own latent and label noise."""
        return 1 if self.redrawn else self.count

    @cached_property
    def slot_of(self) -> Int[np.ndarray, "count slots"]:
        """(count, slots) number of the input vector that each slot of each view reads."""
        if not self.redrawn:
            return np.arange(self.count * self.slots).reshape(self.count, self.slots)
        shared = [slot for slot in range(self.slots) if slot not in self.redrawn]
        table = np.empty((self.count, self.slots), dtype=int)
        table[:, shared] = np.arange(len(shared))
        fresh = np.arange(self.count * len(self.redrawn)).reshape(self.count, -1)
        table[:, list(self.redrawn)] = len(shared) + fresh
        return table

    @property
    def inputs(self) -> int:
        """Distinct input vectors in a step."""
        return int(self.slot_of.max()) + 1

    @cached_property
    def origin(self) -> tuple[Int[np.ndarray, " inputs"], Int[np.ndarray, " inputs"]]:
        """(inputs,) sample and slot that each input vector belongs to."""
        samples = np.empty(self.inputs, dtype=int)
        slots = np.empty(self.inputs, dtype=int)
        for view, row in enumerate(self.slot_of):
            samples[row] = 0 if self.redrawn else view
            slots[row] = np.arange(self.slots)
        return samples, slots

    @cached_property
    def together(self) -> Bool[np.ndarray, "inputs inputs"]:
        """(inputs, inputs) whether two input vectors meet in a view."""
        flags = np.zeros((self.inputs, self.inputs), dtype=bool)
        for rows in self.slot_of:
            flags[np.ix_(rows, rows)] = True
        return flags

    def read(self, flags: np.ndarray) -> np.ndarray:
        """(inputs, …) flags of the input vectors from those of the slots (slots, …)."""
        return np.asarray(flags)[self.origin[1]]

    def gather(self, per_view: Float[Array, "count slots K"]) -> Float[Array, "inputs K"]:
        """(inputs, K) sums over the views of what each slot of each view has, (count, slots, K)."""
        if not self.redrawn:
            return per_view.reshape(self.inputs, per_view.shape[-1])
        shared = np.array([slot for slot in range(self.slots) if slot not in self.redrawn])
        redrawn = per_view[:, np.array(self.redrawn)]
        return jnp.concatenate([per_view[:, shared].sum(axis=0), redrawn.reshape(-1, per_view.shape[-1])])


def make_views(model: LearningModel, batches: Sequence[float] | np.ndarray) -> Views:
    """Views for every batch size that a run will meet."""
    return Views(int(np.ceil(np.max(batches))), model.slots, tuple(model.redrawn))


def view_weights(count: int, batch: Float[Array, ""], uniform: Float[Array, ""]) -> Float[Array, " count"]:
    """(count,) weights of the views of one step: 1/B for B of them, 0 for the others.

    Only 1/B enters the theory (the noise of a mean over B views), so a real-valued ``batch`` is played by
    its two neighbouring whole numbers, drawn such that the mean of 1/B, not of B, is ``1/batch``.
    """
    low = jnp.floor(batch)
    share_of_next = (low + 1) * (batch - low) / batch
    views = jnp.where(uniform < share_of_next, low + 1, low)
    return jnp.where(jnp.arange(float(count)) < views, 1 / views, 0.0)


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
    vectors: int = 0
    directions: tuple[int, ...] = ()
    memory: bool = False
    normals: int = 0

    @cached_property
    def student_read(self) -> Bool[np.ndarray, "inputs K"]:
        """(inputs, K) student fields that need a value."""
        return self.views.read(np.array(self.student, dtype=bool))

    @cached_property
    def student_moved(self) -> Bool[np.ndarray, "inputs K"]:
        """(inputs, K) inputs that may move a student."""
        read = self.student_read
        return np.repeat(read.any(axis=1, keepdims=True), read.shape[1], axis=1) if self.memory else read

    @cached_property
    def teacher_read(self) -> Bool[np.ndarray, "inputs M"]:
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
    # Fields that nothing reads are neither simulated nor given a gradient: most of a step's cost is inputs.
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

    def loss(Q: Array) -> Array:
        latent = {name: values[0] for name, values in model.latents(settings).values.items()}
        return model.loss(fields, replace(start, Q=Q), latent, settings)

    def penalty(Q: Array) -> Array:
        return model.penalty(replace(start, Q=Q), settings)

    # By the traced program, not by values: at these fields a loss that reads Q may be constant.
    return any(_uses_its_argument(function, jnp.asarray(start.Q)) for function in (loss, penalty))


def _uses_its_argument(function: Callable[[Any], Any], argument: Any) -> bool:
    jaxpr = jax.make_jaxpr(function)(argument).jaxpr
    (variable,) = jaxpr.invars
    used = any(variable is operand for equation in jaxpr.eqns for operand in equation.invars)
    return used or any(variable is result for result in jaxpr.outvars)
