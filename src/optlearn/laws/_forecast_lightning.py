"""Forecasts in Lightning."""

from typing import Any

from typing_extensions import override

from optlearn._errors import missing_extra
from optlearn.laws._forecaster import Forecaster, leading

try:
    import lightning.pytorch as lightning
except ModuleNotFoundError as error:
    raise missing_extra("lightning", "Forecaster.to_lightning") from error


class LightningForecast(lightning.Callback):
    """Logs a metric, forecasts, and sets rates; made by ``Forecaster.to_lightning``.

    The rates are set before the optimiser's step, so the module's own scheduler may stay active.
    """

    def __init__(self, forecaster: Forecaster, loss: str) -> None:
        self.forecaster, self.loss = forecaster, loss

    @override
    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Set the rates of this step."""
        self.forecaster.set_rates(optimizer, trainer.global_step)

    @override
    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log the metric, once per optimiser step."""
        value = trainer.callback_metrics.get(self.loss)
        if value is not None and trainer.global_step:
            rate = leading([group["lr"] for group in trainer.optimizers[0].param_groups])
            self.forecaster.log(trainer.global_step, rate, value)

    @override
    def state_dict(self) -> dict[str, Any]:
        """For the trainer's checkpoints."""
        return self.forecaster.state_dict()

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state from a checkpoint."""
        self.forecaster.load_state_dict(state_dict)
