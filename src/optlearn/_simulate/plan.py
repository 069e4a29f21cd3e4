"""What is known of a run before it begins: its controls step by step, and the structure of one step.

``Controls`` is the schedule as arrays that a compiled loop can look up. ``Views`` says which input vectors a
step draws and which views of the sample use them. A ``Plan`` adds all sizes and structural zeros, which
determine a compiled program. ``Prepared`` holds everything that a compiled loop reads.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Bool, Float, Int, Settings
from optlearn._pytrees import Pytree, field
from optlearn._schedule import Schedule
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters
from optlearn._theory.sample import Fields
from optlearn._theory.sampler import Reads, fields_read

Flags = tuple[tuple[bool, ...], ...]


class Controls(Pytree):
    """Controls by SGD step."""

    first: Array  # (intervals,) the first step of each interval of the schedule
    values: dict[str, Array]  # control name → (intervals,)
    choices: dict[str, Array]  # mixed control name → its (n,) possible values
    cumulative: dict[str, Array]  # its (intervals, n − 1) cumulative shares, without the last, which is 1
    modes: dict[str, dict[str, Array]]  # control → parameter → (n, …) values in the n modes

    def at(self, step: Array, uniforms: Float[Array, " mixtures"], settings: Settings) -> dict[str, Array]:
        """Settings at a step; ``uniforms`` (mixtures,) determine the mixed controls."""
        interval = jnp.sum(self.first <= step) - 1
        u = {**settings, **{name: table[interval] for name, table in self.values.items()}}
        for i, (name, choices) in enumerate(self.choices.items()):
            u[name] = choices[jnp.sum(uniforms[i] >= self.cumulative[name][interval])]
        return set_by_modes(u, self.modes)


def set_by_modes(u: Settings, modes: Mapping[str, Mapping[str, Array]]) -> dict[str, Array]:
    """Settings with mode numbers, rounded to the nearest, replaced by the parameters of the modes."""
    settings = dict(u)
    for control, table in modes.items():
        number = jnp.ceil(settings.pop(control) - 0.5).astype(int)
        settings |= {name: jnp.asarray(values)[number] for name, values in table.items()}
    return settings


def make_controls(
    schedule: Schedule, N: int, modes: Mapping[str, Mapping[str, Array]] | None = None
) -> Controls:
    """Arrays of a schedule for input dimension N: step μ has the controls at α = μ/N."""
    return Controls(
        schedule.first_steps(N),
        dict(schedule.values),
        {name: mixture.values for name, mixture in schedule.mixtures.items()},
        {name: np.cumsum(mixture.shares, axis=1)[:, :-1] for name, mixture in schedule.mixtures.items()},
        {control: dict(table) for control, table in (modes or {}).items()},
    )


@dataclass(frozen=True)
class Views:
    """The inputs of one step: ``count`` views of ``slots`` vectors each, drawn from ``inputs`` vectors.

    In a fresh mini-batch each view is a separate sample with its own vectors. With augmentation there is one
    sample: its shared slots are drawn once and come first, and the redrawn ones follow view by view.
    """

    count: int
    slots: int
    redrawn: tuple[int, ...] = ()

    @property
    def samples(self) -> int:
        """Number of independent samples in a step, each with its own latent and label noise."""
        return 1 if self.redrawn else self.count

    @cached_property
    def slot_of(self) -> Int[np.ndarray, "count slots"]:
        """(count, slots) index of the input vector in each slot of each view."""
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
        """(inputs,) sample and slot of each input vector."""
        samples = np.empty(self.inputs, dtype=int)
        slots = np.empty(self.inputs, dtype=int)
        for view, row in enumerate(self.slot_of):
            samples[row] = 0 if self.redrawn else view
            slots[row] = np.arange(self.slots)
        return samples, slots

    @cached_property
    def together(self) -> Bool[np.ndarray, "inputs inputs"]:
        """(inputs, inputs) whether two input vectors occur in the same view."""
        flags = np.zeros((self.inputs, self.inputs), dtype=bool)
        for rows in self.slot_of:
            flags[np.ix_(rows, rows)] = True
        return flags

    def gather(self, per_view: Float[Array, "count slots K"]) -> Float[Array, "inputs K"]:
        """(inputs, K) sums over views of values (count, slots, K) of each slot of each view."""
        if not self.redrawn:
            return per_view.reshape(self.inputs, per_view.shape[-1])
        shared = np.array([slot for slot in range(self.slots) if slot not in self.redrawn])
        redrawn = per_view[:, np.array(self.redrawn)]
        return jnp.concatenate([per_view[:, shared].sum(axis=0), redrawn.reshape(-1, per_view.shape[-1])])


def view_weights(count: int, batch: Float[Array, ""], uniform: Float[Array, ""]) -> Float[Array, " count"]:
    """(count,) weights of the views of one step: 1/B for B of them, 0 for the others.

    Only 1/B enters the theory (the noise of a mean over B views), so a real-valued ``batch`` is realised by
    drawing one of its two neighbouring whole numbers such that the mean of 1/B, not of B, is ``1/batch``.
    """
    low = jnp.floor(batch)
    share_of_next = (low + 1) * (batch - low) / batch
    views = jnp.where(uniform < share_of_next, low + 1, low)
    return jnp.where(jnp.arange(float(count)) < views, 1 / views, 0.0)


@dataclass(frozen=True)
class Plan:
    """Sizes and structural zeros of a step. Hashable: equal plans share a compiled program."""

    views: Views
    student: Flags  # (L, K) student fields that the loss reads or a rule moves; others have no gradient
    teacher: Flags  # (L, M) teacher fields that the loss reads
    noise: bool  # whether the loss reads the label noise
    pulls_on_weights: bool  # whether the loss or the penalty reads Q, so that P is not zero
    latents: int  # number of values of the latent variables
    mixtures: int  # number of controls drawn at random
    fractional: bool  # whether the batch size is ever not a whole number
    vectors: int  # students, teachers and centroids
    directions: tuple[int, ...]  # of each block of a spectrum; none without
    memory: bool  # whether rows change by a recurrence, so that an input that moves one row may move all
    normals: int  # further standard normals of a sample that the loss or a rule reads

    @cached_property
    def student_read(self) -> Bool[np.ndarray, "inputs K"]:
        """(inputs, K) student fields that need a value."""
        return np.array(self.student, dtype=bool)[self.views.origin[1]]

    @cached_property
    def student_moved(self) -> Bool[np.ndarray, "inputs K"]:
        """(inputs, K) inputs that may move a student."""
        read = self.student_read
        return np.repeat(read.any(axis=1, keepdims=True), read.shape[1], axis=1) if self.memory else read

    @cached_property
    def teacher_read(self) -> Bool[np.ndarray, "inputs M"]:
        """(inputs, M) teacher fields that need a value."""
        return np.array(self.teacher, dtype=bool).reshape(self.views.slots, -1)[self.views.origin[1]]

    @property
    def noises(self) -> int:
        """Label noises and further normals of a step."""
        return self.views.samples * (self.noise + self.normals)

    @property
    def uniforms(self) -> int:
        """Uniform numbers of a step: mixed controls, batch size, latents."""
        return self.mixtures + self.fractional + self.views.samples * (self.latents > 1)


class Prepared(Pytree):
    """Everything about a run except its random numbers."""

    model: LearningModel
    start: OrderParameters
    settings: dict[str, Array]
    controls: Controls
    plan: Plan = field(static=True)


def make_plan(
    model: LearningModel,
    start: OrderParameters,
    settings: Settings,
    mixtures: int,
    batches: np.ndarray,
    N: int,
) -> Plan:
    """Analyse the model's functions without running them; ``batches`` are all batch sizes of the run."""
    # Unread fields are neither simulated nor given a gradient, since inputs are most of a step's cost.
    reads = fields_read(model)
    directions = () if model.spectrum is None else tuple(int(n) for n in model.spectrum.directions(N))
    latents = jax.eval_shape(model.latents, dict(settings))
    return Plan(
        views=Views(int(np.ceil(np.max(batches))), model.slots, tuple(model.redrawn)),
        # A rule of the model's own may move a unit whose field it does not read.
        student=_flags(reads.student | model.has_rule),
        teacher=_flags(reads.teacher),
        noise=bool(reads.noise),
        pulls_on_weights=_reads_Q(model.summed, model.total(start), settings, reads),
        latents=latents.probabilities.shape[0],
        mixtures=mixtures,
        fractional=bool(np.any(batches != np.round(batches))),
        vectors=model.students + model.teachers + model.centroids,
        directions=directions,
        memory=jax.eval_shape(model.recurrence, model.total(start), dict(settings)) is not None,
        normals=reads.normals,
    )


def _flags(table: np.ndarray) -> Flags:
    return tuple(tuple(bool(flag) for flag in row) for row in table)


def _reads_Q(model: LearningModel, start: OrderParameters, settings: Settings, reads: Reads) -> bool:
    """Whether the loss or the penalty depends on Q (a false positive costs time, never correctness)."""
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

    # From the traced program, not from values: at these fields a loss that reads Q may be constant.
    return any(_uses_its_argument(function, jnp.asarray(start.Q)) for function in (loss, penalty))


def _uses_its_argument(function: Callable[[Any], Any], argument: Any) -> bool:
    jaxpr = jax.make_jaxpr(function)(argument).jaxpr
    (variable,) = jaxpr.invars
    used = any(variable is operand for equation in jaxpr.eqns for operand in equation.invars)
    return used or any(variable is result for result in jaxpr.outvars)
