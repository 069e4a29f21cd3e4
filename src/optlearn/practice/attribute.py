"""Set any attribute by a schedule: noise level, dropout, batch size or weight decay."""

from collections.abc import Callable, MutableMapping
from typing import Any

from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn.practice.steps import step_table


class AttributeScheduler:
    """Sets an attribute of an object, or an entry of a dictionary, step by step.

    The value of the first step is set at once; call ``step()`` after every optimiser step. It needs
    no framework: a PyTorch module's ``noise``, a ``BatchSampler``'s ``batch_size`` or the entry
    ``weight_decay`` of an optimiser's parameter group are all set alike.

    Args:
        schedule: the schedule.
        control: name of the control.
        target: the object or dictionary.
        attribute: what to set; must exist. None if it has the name of the control.
        steps: optimisation steps of the whole training. Give this, or ``N``.
        N: input dimension; training then takes N·α_F steps.
        scale: factor from the schedule's values to the target's; None for 1.
        convert: makes of a number what is set, such as ``round`` for a batch size.
    """

    @checked
    def __init__(
        self,
        schedule: Schedule,
        control: str,
        target: Any,
        attribute: str | None = None,
        *,
        steps: int | None = None,
        N: float | None = None,
        scale: float | None = None,
        convert: Callable[[float], Any] = float,
    ) -> None:
        self._table = step_table(
            schedule, control, steps=steps, N=N, scale=scale, purpose="AttributeScheduler"
        )
        self._target, self._attribute, self._convert = target, attribute or control, convert
        known = self._attribute in target if self._is_mapping else hasattr(target, self._attribute)
        if not known:
            what = "entry" if self._is_mapping else "attribute"
            raise SpecificationError(
                f"AttributeScheduler: target must have the {what} {self._attribute!r} (say another with "
                f"attribute=…), got {type(target).__name__}"
            )
        self._step = 0
        self._set()

    @property
    def value(self) -> Any:
        """What is set now."""
        return self._convert(self._table.at(self._step))

    @property
    def steps_done(self) -> int:
        """How often ``step()`` was called."""
        return self._step

    def step(self) -> None:
        """One optimiser step is done: set the value of the next."""
        self.set_step(self._step + 1)

    def set_step(self, steps_done: int) -> None:
        """So many optimiser steps are done: set the value of the next."""
        self._step = int(steps_done)
        self._set()

    def state_dict(self) -> dict[str, Any]:
        """Where it is, and the schedule by step, with which that of a resumed run is compared."""
        return {"step": self._step, **self._table.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a ``state_dict``, under the schedule that this scheduler was made with.

        Warns:
            OtherScheduleWarning: the run began under another one.
        """
        self.set_step(state["step"])
        self._table.resume(state, self._step, "AttributeScheduler")

    @property
    def _is_mapping(self) -> bool:
        return isinstance(self._target, MutableMapping)

    def _set(self) -> None:
        if self._is_mapping:
            self._target[self._attribute] = self.value
        else:
            setattr(self._target, self._attribute, self.value)
