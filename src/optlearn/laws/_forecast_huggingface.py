"""Forecasts in Hugging Face's ``Trainer``."""

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from optlearn._errors import missing_extra

try:
    from transformers import TrainerCallback
    from transformers.trainer_callback import ExportableState
except ModuleNotFoundError as error:
    raise missing_extra("transformers", "Forecaster.to_huggingface") from error

if TYPE_CHECKING:
    from optlearn.laws._forecaster import Forecaster


class HuggingFaceForecast(TrainerCallback, ExportableState):
    """Logs what the trainer logs, forecasts, and sets rates; made by ``Forecaster.to_huggingface``."""

    def __init__(self, forecaster: "Forecaster") -> None:
        self.forecaster = forecaster

    @override
    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Log the training loss."""
        if logs and "loss" in logs and "learning_rate" in logs:
            self.forecaster.log(state.global_step, logs["learning_rate"], logs["loss"])

    @override
    def on_step_begin(
        self, args: Any, state: Any, control: Any, optimizer: Any = None, **kwargs: Any
    ) -> None:
        """Set the rates of this step, after the trainer's own scheduler."""
        if optimizer is not None:
            self.forecaster.set_rates(optimizer, state.global_step)

    @override
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Restore the state from the checkpoint of a resumed run."""
        saved = state.stateful_callbacks.get(type(self).__name__)
        if state.global_step and saved:
            self.forecaster.load_state_dict(saved["attributes"])

    @override
    def state(self) -> dict[str, Any]:
        """For the trainer's checkpoints."""
        return {"args": {}, "attributes": self.forecaster.state_dict()}
