"""Schedules in Lightning. A learning rate needs no callback: see the tutorial."""

from typing import Any

from typing_extensions import override

from optlearn._errors import missing_extra
from optlearn.practice.curriculum_sampler import CurriculumSampler
from optlearn.practice.steps import FollowsSteps

try:
    import lightning.pytorch as lightning
except ModuleNotFoundError as error:
    raise missing_extra("lightning", "LightningSchedules") from error


class LightningSchedules(lightning.Callback):
    """Updates adapters after every optimiser step: ``Trainer(callbacks=[…])``.

    Steps are counted by the trainer (``global_step``) and saved in its checkpoints, so resuming and gradient
    accumulation need no state here. A sampler counts batches; its position is saved with its loader.

    Args:
        *adapters: objects that follow the steps: ``AttributeScheduler``, ``ScheduledDropout``, and the
            loader's ``CurriculumSampler``.
    """

    def __init__(self, *adapters: FollowsSteps) -> None:
        self.samplers = [adapter for adapter in adapters if isinstance(adapter, CurriculumSampler)]
        self.others = [adapter for adapter in adapters if adapter not in self.samplers]

    @override
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start a resumed run at its checkpoint's step."""
        for adapter in self.others:
            adapter.set_step(trainer.global_step)

    @override
    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Set the values of the next step."""
        for sampler in self.samplers:
            sampler.step()
        for adapter in self.others:
            adapter.set_step(trainer.global_step)
