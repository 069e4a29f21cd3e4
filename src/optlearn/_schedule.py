"""Schedules: controls as piecewise-constant functions of training time α = steps / N."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from optlearn._arguments import Arguments, as_numbers
from optlearn._errors import SpecificationError, count_of
from optlearn._signatures import checked

if TYPE_CHECKING:
    import keras
    import torch

    from optlearn.practice.batches import BatchRamp
    from optlearn.practice.curriculum_sampler import CurriculumSampler
    from optlearn.practice.mixtures import Interleaved, Phase
    from optlearn.practice.shapes import Simplified

# Keys of a schedule in JSON that do not name controls.
RESERVED = ("grid", "controls", "mixtures", "parameters")


@dataclass(frozen=True)
class Mixture:
    """A control drawn independently for every sample: ``values`` (n,) with ``shares`` (intervals, n)."""

    values: np.ndarray
    shares: np.ndarray

    def __post_init__(self) -> None:
        values, shares = _frozen(self.values), _frozen(self.shares)
        if values.ndim != 1 or not len(values) or not np.all(np.isfinite(values)):
            raise SpecificationError(f"values must be at least one value, all finite; got {values.tolist()}")
        if shares.ndim != 2 or shares.shape[1] != len(values):
            raise SpecificationError(
                f"shares must have shape (intervals, {len(values)}), one column for each value, "
                f"got {shares.shape}"
            )
        sums = shares.sum(axis=1)
        # Written so that a NaN is wrong too.
        if not (np.all(shares >= -1e-12) and np.all(np.abs(sums - 1) <= 1e-9)):
            raise SpecificationError(
                "shares must be at least 0 and add up to 1 in every interval, got sums from "
                f"{sums.min():.6g} to {sums.max():.6g} and shares from {shares.min():.6g}"
            )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "shares", shares)

    @property
    def mean(self) -> np.ndarray:
        """(intervals,) mean value of the control."""
        return np.asarray(self.shares @ self.values)


@checked
@dataclass(frozen=True)
class Schedule:
    """Controls on a grid of training time. Its arrays are read-only copies of its arguments.

    Attributes:
        grid: (intervals + 1,) edges in α, from 0 to the horizon.
        values: control name → (intervals,) values.
        mixtures: controls drawn at random sample by sample (relaxed discrete controls).
        parameters: values of free parameters that belong to this schedule.
    """

    grid: np.ndarray
    values: Mapping[str, np.ndarray]
    mixtures: Mapping[str, Mixture] = field(default_factory=dict)
    parameters: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        grid = _frozen(self.grid)
        if grid.ndim != 1 or len(grid) < 2 or not np.all(np.isfinite(grid)):
            raise SpecificationError(f"the grid must have at least two finite edges, got {grid.tolist()}")
        if grid[0] != 0 or np.any(np.diff(grid) <= 0):
            raise SpecificationError(f"edges of the grid must start at 0 and increase, got {grid.tolist()}")
        values = {name: _checked_values(name, column, grid) for name, column in self.values.items()}
        for name, mixture in self.mixtures.items():
            if name in values:
                raise SpecificationError(f"{name!r} is given both as a mixture and as plain values")
            if len(mixture.shares) != len(grid) - 1:
                raise SpecificationError(
                    f"mixture of {name!r} must have one share for each of the {len(grid) - 1} intervals, got "
                    f"{len(mixture.shares)}"
                )
        names: list[Any] = [*values, *self.mixtures, *self.parameters]
        for name in names:
            if not (isinstance(name, str) and name.isprintable()):
                raise SpecificationError(f"names of controls and parameters must be text, got {name!r}")
        object.__setattr__(self, "grid", grid)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "mixtures", dict(self.mixtures))
        object.__setattr__(self, "parameters", dict(self.parameters))

    @classmethod
    @checked
    def constant(cls, alpha_F: float, values: Mapping[str, float]) -> "Schedule":
        """The same values from 0 to ``alpha_F``."""
        return cls.piecewise(uniform_grid(alpha_F, 1), {name: [value] for name, value in values.items()})

    @classmethod
    @checked
    def piecewise(
        cls, edges: Sequence[float] | np.ndarray, values: Mapping[str, Sequence[float] | np.ndarray]
    ) -> "Schedule":
        """Piecewise constant: ``len(edges) == len(values[name]) + 1``."""
        return cls(np.asarray(edges, dtype=float), {name: np.asarray(v) for name, v in values.items()})

    @classmethod
    @checked
    def from_function(
        cls, alpha_F: float, functions: Mapping[str, Callable[[Any], Any]], intervals: int = 200
    ) -> "Schedule":
        """Sample functions of α at the midpoints of ``intervals`` equal intervals."""
        grid = uniform_grid(alpha_F, intervals)
        middles = (grid[1:] + grid[:-1]) / 2
        return cls.piecewise(grid, {name: [float(f(a)) for a in middles] for name, f in functions.items()})

    @classmethod
    @checked
    def mixed(
        cls,
        edges: Sequence[float] | np.ndarray,
        mixtures: Mapping[str, Mapping[float, Sequence[float] | np.ndarray | float]],
        values: Mapping[str, Sequence[float] | np.ndarray] | None = None,
    ) -> "Schedule":
        """Controls drawn at random: ``{"difficulty": {0.0: shares, 2.0: shares}}``.

        Shares are numbers or (intervals,) arrays that add up to 1 in every interval.
        """
        plain = cls.piecewise(edges, values or {})
        by_name = {name: _mixture(name, table, plain.intervals) for name, table in mixtures.items()}
        return replace(plain, mixtures=by_name)

    @property
    def horizon(self) -> float:
        """Final training time α_F."""
        return float(self.grid[-1])

    @property
    def intervals(self) -> int:
        """Number of intervals of the grid."""
        return len(self.grid) - 1

    @property
    def controls(self) -> tuple[str, ...]:
        """Names of all controls."""
        return (*self.values, *self.mixtures)

    def __getitem__(self, name: str) -> np.ndarray:
        """(intervals,) values of a control; the mean of a mixed one."""
        if name in self.mixtures:
            return self.mixtures[name].mean
        if name not in self.values:
            raise KeyError(f"no control {name!r} in this schedule; it has {list(self.controls)}")
        return self.values[name]

    @checked
    def at(self, alpha: float | np.ndarray) -> dict[str, np.ndarray]:
        """Values at training time ``alpha``; at an edge, those of the interval that begins there."""
        index = np.clip(np.searchsorted(self.grid, alpha, side="right") - 1, 0, self.intervals - 1)
        return {name: np.asarray(self[name][index]) for name in self.controls}

    def variants(self) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """All combinations of mixed values: (intervals,) shares and (intervals,) control values."""
        options = [(np.ones(self.intervals), dict(self.values))]
        for name, mixture in self.mixtures.items():
            options = [
                (shares * mixture.shares[:, i], {**values, name: np.full(self.intervals, value)})
                for shares, values in options
                for i, value in enumerate(mixture.values)
            ]
        yield from options

    def first_steps(self, N: float) -> np.ndarray:
        """(intervals,) first step of each interval, where step μ has the controls at α = μ/N.

        An interval shorter than a step may contain no step; the next one then begins at the same step.
        """
        # An edge that is a whole number of steps up to round-off begins exactly there.
        return np.ceil(self.grid[:-1] * N * (1 - 1e-12) - 1e-9).astype(np.int64)

    @checked
    def with_parameters(self, **parameters: float) -> "Schedule":
        """The same schedule with values of free parameters attached."""
        return replace(self, parameters={**self.parameters, **parameters})

    def between(self, begin: float, end: float) -> "Schedule":
        """The part from α = ``begin`` to ``end``, shifted to start at 0."""
        if not 0 <= begin < end <= self.horizon * (1 + 1e-12):
            raise SpecificationError(
                f"a part must lie between 0 and the horizon {self.horizon:g}, got {begin:g} to {end:g}"
            )
        # Edges that differ only by round-off are merged.
        near = 1e-12 * self.horizon
        inside = (self.grid > begin + near) & (self.grid < end - near)
        grid = np.concatenate([[begin], self.grid[inside], [end]])
        kept = np.searchsorted(self.grid, (grid[1:] + grid[:-1]) / 2, side="right") - 1
        return self._kept(grid - begin, kept)

    def extended(self, horizon: float) -> "Schedule":
        """The schedule extended to a later horizon with its last values, in intervals as long as its last."""
        last = self.grid[-1] - self.grid[-2]
        more = round((horizon - self.horizon) / last)
        if more < 1:
            return self
        grid = np.concatenate([self.grid, np.linspace(self.horizon, horizon, more + 1)[1:]])
        return self._kept(grid, np.minimum(np.arange(len(grid) - 1), self.intervals - 1))

    def followed_by(self, rest: "Schedule") -> "Schedule":
        """This schedule, followed by another with the same controls, whose free parameters are taken."""
        if {*self.values} != {*rest.values} or {*self.mixtures} != {*rest.mixtures}:
            raise SpecificationError(
                "schedules that follow each other must have the same controls, got "
                f"{list(self.controls)} and {list(rest.controls)}"
            )
        mixtures = {}
        for name, mixture in self.mixtures.items():
            if not np.array_equal(mixture.values, rest.mixtures[name].values):
                raise SpecificationError(f"the mixtures of {name!r} must be of the same values")
            mixtures[name] = Mixture(mixture.values, np.vstack([mixture.shares, rest.mixtures[name].shares]))
        return Schedule(
            np.concatenate([self.grid, self.horizon + rest.grid[1:]]),
            {name: np.concatenate([values, rest.values[name]]) for name, values in self.values.items()},
            mixtures,
            {**self.parameters, **rest.parameters},
        )

    def _kept(self, grid: np.ndarray, intervals: np.ndarray) -> "Schedule":
        """The same values on another grid, interval by interval."""
        return Schedule(
            grid,
            {name: values[intervals] for name, values in self.values.items()},
            {name: Mixture(m.values, m.shares[intervals]) for name, m in self.mixtures.items()},
            self.parameters,
        )

    def merged(self) -> "Schedule":
        """The same schedule with neighbouring equal intervals joined."""
        shares = [mixture.shares for mixture in self.mixtures.values()]
        table = np.column_stack([np.zeros(self.intervals), *self.values.values(), *shares])
        keep = np.append(True, np.any(table[1:] != table[:-1], axis=1))
        return self._kept(np.append(self.grid[:-1][keep], self.grid[-1]), np.flatnonzero(keep))

    def to_dict(self) -> dict[str, Any]:
        """Grid and controls as lists, mixtures and free parameters under their own keys; for JSON.

        If a control has the name of one of these keys, all controls are stored under ``controls``.
        """
        plain = {name: values.tolist() for name, values in self.values.items()}
        taken = any(name in RESERVED for name in plain)
        content: dict[str, Any] = {"grid": self.grid.tolist(), **({"controls": plain} if taken else plain)}
        if self.mixtures:
            content["mixtures"] = {
                name: {"values": m.values.tolist(), "shares": m.shares.tolist()}
                for name, m in self.mixtures.items()
            }
        if self.parameters:
            content["parameters"] = {name: float(value) for name, value in self.parameters.items()}
        return content

    @classmethod
    @checked
    def from_dict(cls, data: Mapping[str, Any]) -> "Schedule":
        """The schedule that ``to_dict`` wrote."""
        check = Arguments("from_dict")
        if "grid" not in data:
            check.fail("data", dict(data), "must hold the edges of intervals under 'grid'")
        plain = {name: values for name, values in data.items() if name not in RESERVED}
        controls, mixed, parameters = (data.get(name, {}) for name in RESERVED[1:])
        for name, held in zip(RESERVED[1:], (controls, mixed, parameters), strict=True):
            if not isinstance(held, Mapping):
                check.fail(f"data[{name!r}]", held, "must be a dictionary")
        for name, mixture in mixed.items():
            if not isinstance(mixture, Mapping) or not {"values", "shares"} <= set(mixture):
                check.fail(
                    f"data['mixtures'][{name!r}]", mixture, "must be a dictionary of values and shares"
                )
        mixtures = {name: Mixture(mixture["values"], mixture["shares"]) for name, mixture in mixed.items()}
        return cls(data["grid"], {**plain, **controls}, mixtures, parameters)

    # --- export to the user's own training loop: implemented in ``practice`` ------------------------

    @checked
    def to_optax(
        self,
        control: str,
        *,
        steps: int | None = None,
        N: float | None = None,
        scale: float | None = None,
        peak: float | None = None,
    ) -> Callable[[Any], Any]:
        """A control as a plain function step → value, for optax or any JAX code; safe under ``jit``.

        Args:
            control: name of the control.
            steps: optimisation steps of the whole training. Give this, or ``N``.
            N: input dimension; training then takes N·α_F steps.
            scale: factor from the theory's values to the optimiser's: for a learning rate 1/N, with the
                inputs of a layer.
            peak: your own largest value, to which all values are scaled; an alternative to ``scale``.
        """
        from optlearn.practice.steps import step_function, step_table

        is_rate = control == "learning_rate"
        table = step_table(
            self, control, steps=steps, N=N, scale=scale, peak=peak, is_rate=is_rate, purpose="to_optax"
        )
        return step_function(table)

    @checked
    def to_torch(
        self,
        optimizer: "torch.optim.Optimizer",
        control: str = "learning_rate",
        *,
        steps: int | None = None,
        N: float | None = None,
        scale: float | Sequence[float] | None = None,
        peak: float | None = None,
    ) -> "torch.optim.lr_scheduler.LRScheduler":
        """A PyTorch learning-rate scheduler: call its ``step()`` after every optimiser step.

        Args:
            optimizer: the optimiser whose learning rate is set; the rate it was created with is not used.
            control: name of the control.
            steps: optimisation steps of the whole training. Give this, or ``N``.
            N: input dimension; training then takes N·α_F steps.
            scale: factor from the theory's values to the optimiser's, 1/N with the N inputs of a layer;
                one number, or one for each parameter group.
            peak: your own largest learning rate, to which all values are scaled, instead of ``scale``.
        """
        from optlearn.practice.to_torch import ScheduledLR

        return ScheduledLR(optimizer, self, control, steps=steps, N=N, scale=scale, peak=peak)

    @checked
    def to_torch_sampler(
        self, domains: Any, batch_size: int = 1, *, steps: int | None = None, **options: Any
    ) -> "CurriculumSampler":
        """A PyTorch sampler that draws each domain as often as the controls ``share_NAME`` prescribe.

        Args:
            domains: (n,) domain name of each sample of the data set.
            batch_size: samples in a batch.
            steps: batches in the whole training (default: the schedule's horizon counts steps).
            options: ``seed``, ``rank`` and ``replicas`` of ``practice.CurriculumSampler``.
        """
        from optlearn.practice.mixtures import torch_sampler

        return torch_sampler(self, domains, batch_size, steps, **options)

    @checked
    def to_interleaved(
        self, streams: Mapping[str, Any], batch_size: int, *, steps: int | None = None
    ) -> "Interleaved":
        """Samples of several streams (domain → iterable) in the order of the schedule; resumable."""
        from optlearn.practice.mixtures import Interleaved

        return Interleaved(self, streams, batch_size, steps)

    @checked
    def to_shares(self, *, steps: int | None = None) -> Callable[[int], dict[str, float]]:
        """The shares of the domains as a plain function of the step."""
        from optlearn.practice.mixtures import share_function

        return share_function(self, steps)

    @checked
    def to_phases(self, tolerance: float = 0.02, *, steps: int | None = None) -> "list[Phase]":
        """The domains' shares as phases: first step, steps, shares. See ``practice.mixtures.phases``."""
        from optlearn.practice.mixtures import phases

        return phases(self, tolerance, steps)

    @checked
    def to_keras(
        self,
        control: str = "learning_rate",
        *,
        steps: int | None = None,
        N: float | None = None,
        scale: float | None = None,
        peak: float | None = None,
    ) -> "keras.callbacks.Callback":
        """A Keras callback for ``model.fit`` that sets the learning rate before every batch.

        Args:
            control: name of the control.
            steps: optimisation steps (batches) of the whole training. Give this, or ``N``.
            N: input dimension; training then takes N·α_F steps.
            scale: factor from the theory's values to the optimiser's, 1/N with the inputs of a layer.
            peak: your own largest learning rate, to which all values are scaled; an alternative to ``scale``.
        """
        from optlearn.practice.steps import step_table
        from optlearn.practice.to_keras import ScheduledLearningRate

        table = step_table(
            self, control, steps=steps, N=N, scale=scale, peak=peak, is_rate=True, purpose="to_keras"
        )
        return ScheduledLearningRate(table)

    @checked
    def to_script(
        self,
        path: str | PathLike[str] | None = None,
        *,
        framework: Literal["torch", "jax"] = "torch",
        arguments: Mapping[str, Any] | None = None,
        N: int | None = None,
        steps: int | None = None,
    ) -> str:
        """A complete script that trains under this schedule, also written to ``path`` if given.

        It makes data, trains a small network for a few seconds and prints the loss: run it, then put in your
        own data and network. ``solution.export(path)`` fills in the arguments.

        Args:
            path: file to write.
            framework: "torch", or "jax" for optax.
            arguments: the arguments of the scenario, which set the script's numbers.
            N: input dimension of the network.
            steps: optimiser steps; None for N·α_F.
        """
        from optlearn.practice.script import training_script

        return training_script(self, path, framework=framework, arguments=arguments, N=N, steps=steps)

    @checked
    def to_csv(self, path: str | PathLike[str], *, steps: int | None = None, N: float | None = None) -> Path:
        """Write a table with a row for each interval, in α and, with ``steps`` or ``N``, also in steps.

        Args:
            path: file to write.
            steps: optimisation steps of the whole training.
            N: input dimension; training then takes N·α_F steps.
        """
        from optlearn.practice.tables import write_csv

        return write_csv(self, path, steps=steps, N=N)

    @checked
    def to_thresholds(
        self,
        control: str = "learning_rate",
        *,
        unit: Literal["steps", "tokens"] = "steps",
        steps: int | None = None,
        N: float | None = None,
        tokens_per_step: float | None = None,
        tokens_per_sample: float | None = None,
        scale: float = 1.0,
    ) -> str:
        """One line of text, ``"0:768 250B:1536"``: the first step or token of each value, and the value.

        Megatron-LM takes a batch size in this form (``--step-batch-size-schedule``).

        Args:
            control: name of the control.
            unit: unit of the thresholds.
            steps: optimisation steps of the whole training. Give this, or ``N``.
            N: input dimension; training then takes N·α_F steps.
            tokens_per_step: tokens in a step, for ``unit="tokens"``.
            tokens_per_sample: instead of ``tokens_per_step`` if the control is the batch size, so that steps
                differ in tokens.
            scale: factor from the schedule's values to the written ones.
        """
        from optlearn.practice.tables import thresholds

        return thresholds(
            self, control, unit=unit, steps=steps, N=N, tokens_per_step=tokens_per_step, scale=scale,
            tokens_per_sample=tokens_per_sample,
        )  # fmt: skip

    @checked
    def to_batches(self, control: str = "batch", *, steps: int | None = None) -> "BatchRamp":
        """The batch size as a function of the step, and a resumable batch sampler.

        Args:
            control: name of the control.
            steps: optimisation steps of the whole training (default: the schedule's horizon counts steps).
        """
        from optlearn.practice.batches import BatchRamp

        return BatchRamp(self, control, steps=steps)

    @checked
    def nearest(
        self, shape: str, control: str = "learning_rate", *, loss: "Callable[[Schedule], float] | None" = None
    ) -> "Simplified":
        """The nearest schedule of a built-in shape, and the cost of the simplification.

        An initial rise to the peak is kept.

        Args:
            shape: "linear", "cosine", "power" or "wsd" (constant, then a linear decay).
            control: name of the control.
            loss: schedule → loss; if given, the shape's parameters minimise the loss instead of the distance,
                and the cost of the simplification is measured.
        """
        from optlearn.practice.shapes import nearest_shape

        return nearest_shape(self, shape, control, loss)

    @checked
    def to_json(self, path: str | PathLike[str] | None = None) -> str:
        """The schedule as JSON, also written to ``path`` if given; ``from_json`` reads it."""
        from optlearn.practice.tables import write_json

        return write_json(self, path)

    @classmethod
    @checked
    def from_json(cls, source: str | PathLike[str]) -> "Schedule":
        """Read a schedule from JSON text, or from a file written by ``to_json`` or ``optlearn solve``."""
        from optlearn.practice.tables import read_json

        return read_json(source)


def uniform_grid(alpha_F: float, intervals: int) -> np.ndarray:
    """Edges of ``intervals`` equal intervals from 0 to ``alpha_F``."""
    check = Arguments("Schedule")
    end = check.number("alpha_F", alpha_F, 0.0, open_below=True)
    return np.linspace(0.0, end, check.count("intervals", intervals) + 1)


def _frozen(values: Any) -> np.ndarray:
    """A read-only copy in floats."""
    copy = as_numbers(values)
    if copy is None:
        raise SpecificationError(f"a schedule must be made of numbers, got {values!r}")
    copy.setflags(write=False)
    return copy


def _mixture(name: str, table: Mapping[float, Any], intervals: int) -> Mixture:
    columns = [np.asarray(share, dtype=float) for share in table.values()]
    if any(column.shape not in ((), (intervals,)) for column in columns):
        raise SpecificationError(
            f"mixture of {name!r} must have a number or one share for each of the {intervals} intervals, "
            f"got shapes {[column.shape for column in columns]}"
        )
    try:
        shares = np.array([np.broadcast_to(column, (intervals,)) for column in columns]).T
        return Mixture(np.array(list(table), dtype=float), shares)
    except SpecificationError as error:
        raise SpecificationError(f"mixture of {name!r}: {error}") from None


def _checked_values(name: str, values: Any, grid: np.ndarray) -> np.ndarray:
    array = _frozen(values)
    if array.shape != (len(grid) - 1,):
        raise SpecificationError(
            f"schedule of {name!r} has shape {array.shape}; {len(grid)} edges need "
            f"{count_of(len(grid) - 1, 'value')}, one for each interval"
        )
    if not np.all(np.isfinite(array)):
        where = int(np.flatnonzero(~np.isfinite(array))[0])
        raise SpecificationError(
            f"schedule of {name!r} is {array[where]} in interval {where}: values must be finite"
        )
    return array
