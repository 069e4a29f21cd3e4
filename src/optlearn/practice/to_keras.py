"""Schedules in Keras, on any of its backends."""

from typing import Any

from typing_extensions import override

from optlearn._errors import missing_extra
from optlearn.practice.steps import StepTable

try:
    import keras
except ModuleNotFoundError as error:
    raise missing_extra("keras", "to_keras") from error


class ScheduledLearningRate(keras.callbacks.Callback):
    """Sets the optimiser's learning rate before every batch. Built by ``Schedule.to_keras``.

    Like ``keras.callbacks.LearningRateScheduler``, but by batch. Steps are counted by the optimiser
    (``optimizer.iterations``), so that a second ``fit``, or a ``fit`` of a saved model, continues where the
    first one ended.
    """

    def __init__(self, table: StepTable) -> None:
        super().__init__()
        self.table = table
        self._before_epoch = 0
        self._set: float | None = None

    @override
    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Set the rate again: the optimiser's may have been changed since the last run."""
        self._set = None

    @override
    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Read the number of steps done."""
        self._before_epoch = int(self.model.optimizer.iterations)

    @override
    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Set the rate of this step."""
        value = self.table.at(self._before_epoch + batch)
        if value == self._set:
            return
        # With JAX the training loop holds the optimiser's state; this passes it there and back.
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        self.model.optimizer.learning_rate = value
        self._set = value
