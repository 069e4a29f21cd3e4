"""Schedules in Hugging Face's ``Trainer``. A learning rate needs no callback: see the tutorial."""

from typing import Any

from typing_extensions import override

from optlearn._errors import missing_extra
from optlearn.practice.steps import FollowsSteps

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise missing_extra("transformers", "HuggingFaceSchedules") from error


class HuggingFaceSchedules(TrainerCallback):
    """Updates adapters after every optimiser step: ``Trainer(callbacks=[…])``.

    Steps are counted by the trainer (``state.global_step``) and saved in its checkpoints, so that resuming
    needs no state here.

    Args:
        *adapters: objects with ``set_step``: ``AttributeScheduler``, ``ScheduledDropout``,
            ``CurriculumSampler`` (with the samples of an optimiser step as its ``batch_size``).
    """

    def __init__(self, *adapters: FollowsSteps) -> None:
        self.adapters = adapters

    @override
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start a resumed run at its checkpoint's step."""
        self._follow(state.global_step)

    @override
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Set the values of the next step."""
        self._follow(state.global_step)

    def _follow(self, steps_done: int) -> None:
        for adapter in self.adapters:
            adapter.set_step(steps_done)
