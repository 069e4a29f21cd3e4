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
    """Tells adapters, after every optimiser step, how many are done: ``Trainer(callbacks=[…])``.

    The steps are the trainer's own (``global_step``), which a checkpoint holds. So a resumed run, and one
    that accumulates gradients, is right without any state here. A sampler counts batches; where it stands is
    saved with its loader.

    Args:
        *adapters: whatever follows the steps: ``AttributeScheduler``, ``ScheduledDropout``, and the
            ``CurriculumSampler`` of the loader.
    """

    def __init__(self, *adapters: FollowsSteps) -> None:
        self.samplers = [adapter for adapter in adapters if isinstance(adapter, CurriculumSampler)]
        self.others = [adapter for adapter in adapters if adapter not in self.samplers]

    @override
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """A resumed run begins where its checkpoint was."""
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
