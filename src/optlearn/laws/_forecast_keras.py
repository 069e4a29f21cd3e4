"""Forecasts in Keras, on any of its backends."""

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from optlearn._errors import missing_extra

try:
    import keras
except ModuleNotFoundError as error:
    raise missing_extra("keras", "Forecaster.to_keras") from error

if TYPE_CHECKING:
    from optlearn.laws._forecaster import Forecaster


class KerasForecast(keras.callbacks.Callback):
    """Logs the loss of batches, forecasts, and sets the rate; made by ``Forecaster.to_keras``.

    Keras reports the mean loss since the epoch began; the loss of a batch is recovered from its change.
    """

    def __init__(self, forecaster: "Forecaster") -> None:
        super().__init__()
        self.forecaster = forecaster
        self._before_epoch, self._sum = 0, 0.0

    @override
    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Read the number of steps done."""
        self._before_epoch, self._sum = int(self.model.optimizer.iterations), 0.0

    @override
    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Set the rate of this step."""
        if not self.forecaster.decaying:
            return
        # On JAX the training loop holds the optimiser's state; this hands it over and back.
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()
        own_rate = float(self.model.optimizer.learning_rate)
        self.model.optimizer.learning_rate = self.forecaster.rate(self._before_epoch + batch, own_rate)

    @override
    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Log the loss of this batch."""
        if not logs or "loss" not in logs:
            return
        total = float(logs["loss"]) * (batch + 1)
        loss, self._sum = total - self._sum, total
        self.forecaster.log(self._before_epoch + batch + 1, float(self.model.optimizer.learning_rate), loss)
