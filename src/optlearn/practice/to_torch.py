"""Schedules in PyTorch: learning rate, dropout, and the order of samples."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np

from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn.practice.curriculum_order import curriculum_order
from optlearn.practice.extras import missing
from optlearn.practice.steps import StepTable, is_whole, step_table

try:
    import torch
    from torch.optim.lr_scheduler import LRScheduler
    from torch.utils.data import Sampler
except ModuleNotFoundError as error:
    raise missing("torch", "this adapter") from error


class ScheduledLR(LRScheduler):
    """A learning rate by a schedule; made by ``Schedule.to_torch``, which describes the arguments.

    The schedule by step is part of ``state_dict``: a resumed run goes on under the schedule that it
    began with.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        control: str = "learning_rate",
        *,
        steps: int | None = None,
        N: float | None = None,
        scale: float | Sequence[float] = 1.0,
    ) -> None:
        table = step_table(schedule, control, steps=steps, N=N, purpose="to_torch")
        groups = len(optimizer.param_groups)
        scales = np.asarray(scale, dtype=float)
        if scales.shape not in ((), (groups,)) or not np.all(np.isfinite(scales)):
            raise SpecificationError(
                f"to_torch(scale={scale!r}): a finite number, or one for each of {groups} parameter groups"
            )
        # Plain numbers, since they go into state_dict.
        self.first, self.values, self.total = list(table.first), list(table.values), table.steps
        self.scales: list[float] = np.broadcast_to(scales, (groups,)).tolist()
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        """Learning rate of each parameter group at this step."""
        value = StepTable(tuple(self.first), tuple(self.values), self.total).at(self.last_epoch)
        return [value * scale for scale in self.scales]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a ``state_dict``; the optimiser's learning rate is set at once."""
        super().load_state_dict(state_dict)
        rates = self.get_lr()
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = rates


class ScheduledDropout(torch.nn.Module):
    """Dropout whose activation probability follows a schedule; call ``step()`` after optimiser steps.

    In training every element is kept with probability p(step), else set to zero. As in the theory,
    the output is not rescaled in training but multiplied by ``rescaling`` in evaluation. Where
    neither this argument nor the schedule says by what, it is ``torch.nn.Dropout``'s convention:
    divided by p in training, left alone in evaluation.

    Args:
        schedule: the schedule.
        control: name of the control, a probability of being *on*, from 0 to 1.
        steps: optimisation steps of the whole training. Give this, or ``N``.
        N: input dimension; training then takes N·α_F steps.
        rescaling: factor p_f of the output in evaluation; None for the schedule's free parameter
            ``rescaling``, if it has one.
    """

    done: torch.Tensor

    def __init__(
        self,
        schedule: Schedule,
        control: str = "activation",
        *,
        steps: int | None = None,
        N: float | None = None,
        rescaling: float | None = None,
    ) -> None:
        super().__init__()
        self.table = step_table(schedule, control, steps=steps, N=N, purpose="ScheduledDropout")
        low, high = min(self.table.values), max(self.table.values)
        if low < 0 or high > 1:
            raise SpecificationError(
                f"ScheduledDropout(control={control!r}): goes from {low:g} to {high:g}; a probability of "
                "being on, from 0 to 1, is needed"
            )
        self.rescaling = schedule.parameters.get("rescaling") if rescaling is None else float(rescaling)
        if self.rescaling is None and low == 0:
            raise SpecificationError(
                "ScheduledDropout: the schedule switches everything off at some step; without rescaling=… "
                "the output would be divided by 0"
            )
        self.register_buffer("done", torch.zeros((), dtype=torch.long))

    @property
    def activation(self) -> float:
        """Probability of being on at this step."""
        return self.table.at(int(self.done))

    def step(self) -> None:
        """One optimiser step is done."""
        self.done += 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` with random elements set to zero (in training), or rescaled (in evaluation)."""
        if not self.training:
            return x if self.rescaling is None else x * self.rescaling
        p = self.activation
        kept = x * (torch.rand_like(x) < p)
        return kept / p if self.rescaling is None else kept

    def extra_repr(self) -> str:
        """Shown inside brackets."""
        return f"activation={self.activation:.4g}, rescaling={self.rescaling}, steps={self.table.steps}"


class CurriculumSampler(Sampler[int]):
    """Indices of a data set in the order of a curriculum, for ``DataLoader(data, batch_size, sampler=…)``.

    Over the whole training the number of samples of each group is exactly the schedule's share
    (largest remainder), and no sample of a group comes twice before all of it has come once.
    ``state_dict`` and ``load_state_dict`` resume in the middle with the identical continuation. With
    ``steps``, one pass through the sampler is the whole training; with ``epochs``, it is an epoch, and the
    next pass goes on from there. ``reset()`` begins anew.

    Args:
        schedule: with a control that says which group is shown; it may mix values.
        groups: (n,) the group of each sample of the data set, such as 0 for easy and 1 for hard.
        batch_size: samples of an optimiser step; with ``steps``, and to resume by steps.
        steps: optimiser steps of the whole training. Give this, or ``epochs``.
        epochs: epochs of the whole training; each shows as many samples as the data set has.
        control: name of the control; None if the schedule has only one.
        values: group → value of the control; None to match them in ascending order, if there are as many
            groups as the schedule has values.
        seed: of everything random.
    """

    def __init__(
        self,
        schedule: Schedule,
        groups: Sequence[Any] | np.ndarray,
        *,
        batch_size: int = 1,
        steps: int | None = None,
        epochs: int | None = None,
        control: str | None = None,
        values: Mapping[Any, float] | None = None,
        seed: int = 0,
    ) -> None:
        if (steps is None) == (epochs is None):
            raise SpecificationError(
                f"CurriculumSampler(steps={steps!r}, epochs={epochs!r}): give either steps (optimiser steps "
                f"of the whole training) or epochs. The schedule itself ends at training time α_F = "
                f"{schedule.horizon:g}, which is neither"
            )
        for name, value in (("batch_size", batch_size), ("steps", steps), ("epochs", epochs)):
            if value is not None and not (is_whole(value) and value >= 1):
                raise SpecificationError(f"CurriculumSampler({name}={value!r}): a whole number of at least 1")
        self.batch_size = int(batch_size)
        labels = groups.numpy() if isinstance(groups, torch.Tensor) else groups
        total = steps * self.batch_size if steps is not None else (epochs or 0) * len(labels)
        self.order = curriculum_order(schedule, labels, int(total), control=control, values=values, seed=seed)
        self.position, self._pass = 0, int(total) if steps is not None else len(labels)

    @property
    def counts(self) -> dict[Any, int]:
        """Group → how many of its samples the whole training shows."""
        return dict(zip(self.order.labels, self.order.counts.tolist(), strict=True))

    def __len__(self) -> int:
        """Samples that are still to come in this pass."""
        return self._end() - self.position

    def __iter__(self) -> Iterator[int]:
        end = self._end()
        while self.position < end:
            self.position += 1
            yield int(self.order.indices[self.position - 1])

    def _end(self) -> int:
        """Where this pass ends; at the end of one, where the next does."""
        return min((self.position // self._pass + 1) * self._pass, len(self.order.sequence))

    def reset(self) -> None:
        """Begin anew."""
        self.position = 0

    def state_dict(self, steps_done: int | None = None) -> dict[str, Any]:
        """Where it is.

        Args:
            steps_done: optimiser steps that were really made. Give it where a ``DataLoader`` with
                workers fetches batches in advance, so that the sampler is ahead of the training.
        """
        position = self.position if steps_done is None else int(steps_done) * self.batch_size
        if not 0 <= position <= len(self.order.sequence):
            raise SpecificationError(f"steps_done={steps_done!r}: beyond the end of this training")
        return {"position": position, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict`` of a sampler that was made with the same arguments."""
        for name, mine in self._identity().items():
            if state[name] != mine:
                raise SpecificationError(
                    f"CurriculumSampler: the saved state has {name} = {state[name]}, this sampler {mine}; "
                    "make it with the same schedule, data set and seed"
                )
        self.position = int(state["position"])

    def _identity(self) -> dict[str, Any]:
        return {
            "seed": self.order.seed,
            "total": len(self.order.sequence),
            "samples": sum(map(len, self.order.members)),
            "counts": self.order.counts.tolist(),
            "order": crc32(self.order.indices.tobytes()),
        }
