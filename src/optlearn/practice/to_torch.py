"""Schedules in PyTorch: learning rate and dropout. The order of samples is in ``curriculum_sampler``."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from optlearn._arguments import Arguments
from optlearn._errors import SpecificationError, missing_extra
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn.practice.steps import step_table

try:
    import torch
    from torch.optim.lr_scheduler import LRScheduler
except ModuleNotFoundError as error:
    raise missing_extra("torch", "this adapter") from error


class ScheduledLR(LRScheduler):
    """A learning rate that follows a schedule. Built by ``Schedule.to_torch``, which describes the arguments.

    A resumed run continues at its step under this scheduler's own schedule, with a warning if the run began
    under a different one. Parameter groups may be added later.
    """

    @checked
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        control: str = "learning_rate",
        *,
        steps: int | None = None,
        N: float | None = None,
        scale: float | Sequence[float] | None = None,
        peak: float | None = None,
    ) -> None:
        self.scales: list[float] | None = None
        if isinstance(scale, Sequence | np.ndarray):
            self.scales, scale = _scales(scale, len(optimizer.param_groups)), 1.0
        self.table = step_table(
            schedule, control, steps=steps, N=N, scale=scale, peak=peak, is_rate=True, purpose="to_torch"
        )
        super().__init__(optimizer)
        # A parameter group added later would keep its own rate until the first ``step()``, so set it now.
        optimizer.register_step_pre_hook(lambda *_: self._set(len(self._last_lr)))

    @override
    def get_lr(self) -> list[float]:
        value = self.table.at(self.last_epoch)
        return [value * self._scale(i) for i in range(len(self.optimizer.param_groups))]

    @override
    def state_dict(self) -> dict[str, Any]:
        """The position, and the schedule by step for comparison when a run is resumed."""
        return {"last_epoch": self.last_epoch, "_step_count": self._step_count, **self.table.state()}

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a ``state_dict``; sets the optimiser's learning rate at once.

        Warns:
            OtherScheduleWarning: the run began under a different schedule.
        """
        self.last_epoch, self._step_count = state_dict["last_epoch"], state_dict["_step_count"]
        self._set()
        self.table.resume(state_dict, self.last_epoch, "to_torch")

    def _set(self, first: int = 0) -> None:
        """Set the rate of this step in the parameter groups from ``first`` on."""
        rates = self.get_lr()
        for group, rate in list(zip(self.optimizer.param_groups, rates, strict=True))[first:]:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self._last_lr = rates

    def _scale(self, group: int) -> float:
        if self.scales is None:
            return 1.0
        if group < len(self.scales):
            return self.scales[group]
        added = self.optimizer.param_groups[group]
        if "scale" not in added:
            raise SpecificationError(
                f"to_torch: scale must be known for every parameter group, got {self.scales} and a group "
                'that was added later; add it as {"params": …, "scale": …}'
            )
        return float(added["scale"])


def _scales(scale: Any, groups: int) -> list[float]:
    """A scale for each parameter group, as plain numbers."""
    try:
        scales = np.asarray(scale, dtype=float)
    except (TypeError, ValueError):
        scales = np.empty(0)
    if scales.shape != (groups,) or not np.all(np.isfinite(scales)):
        raise SpecificationError(
            f"to_torch: scale must be a finite number, or one for each of {groups} parameter groups, got "
            f"{scale!r}"
        )
    return [float(factor) for factor in scales]


class ScheduledDropout(torch.nn.Module):
    """Dropout whose activation probability follows a schedule; call ``step()`` after optimiser steps.

    In training every element is kept with probability p(step) and set to zero otherwise. As in the theory,
    the output is not rescaled in training but multiplied by ``rescaling`` in evaluation. If neither this
    argument nor the schedule gives that factor, the convention of ``torch.nn.Dropout`` is used: divide by p
    in training and change nothing in evaluation.

    Args:
        schedule: the schedule.
        control: name of the control, a probability of being *on*, from 0 to 1.
        steps: optimisation steps of the whole training. Give this, or ``N``.
        N: input dimension; training then takes N·α_F steps.
        rescaling: factor p_f of the output in evaluation; None for the schedule's free parameter
            ``rescaling``, if it has one.
    """

    done: torch.Tensor
    _first: torch.Tensor
    _values: torch.Tensor

    @checked
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
        self.rescaling = schedule.parameters.get("rescaling")
        if rescaling is not None:
            self.rescaling = Arguments("ScheduledDropout").number("rescaling", rescaling, 0.0)
        if self.rescaling is None and low == 0:
            raise SpecificationError(
                "ScheduledDropout: the schedule switches everything off at some step; without rescaling=… "
                "the output would be divided by 0"
            )
        # Stored in tensors, so that ``torch.compile`` sees one graph for all steps.
        self.register_buffer("done", torch.zeros((), dtype=torch.long))
        self.register_buffer("_first", torch.tensor(self.table.first), persistent=False)
        self.register_buffer("_values", torch.tensor(self.table.values), persistent=False)

    @property
    def activation(self) -> float:
        """The probability of being on at the current step."""
        return self.table.at(int(self.done))

    def step(self) -> None:
        """Count one optimiser step."""
        self.done.add_(1)

    def set_step(self, steps_done: int) -> None:
        """Move to the step that follows ``steps_done`` optimiser steps."""
        self.done.fill_(steps_done)

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` with random elements set to zero (in training), or rescaled (in evaluation)."""
        if not self.training:
            return x if self.rescaling is None else x * self.rescaling
        p = torch.take(self._values, torch.searchsorted(self._first, self.done, right=True) - 1)
        kept = x * (torch.rand_like(x) < p)
        return kept / p if self.rescaling is None else kept

    @override
    def extra_repr(self) -> str:
        rescaling = "none" if self.rescaling is None else f"{self.rescaling:.4g}"
        return f"activation={self.activation:.4g}, rescaling={rescaling}, steps={self.table.steps}"
