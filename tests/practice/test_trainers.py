"""Lightning and Hugging Face's Trainer: callbacks by the sequence of their calls, and with the real thing."""

import importlib
import sys
from importlib.util import find_spec
from itertools import pairwise
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from optlearn._schedule import Schedule

torch = pytest.importorskip("torch", reason="needs the extra torch")

from optlearn.practice import AttributeScheduler, CurriculumSampler, ScheduledDropout  # noqa: E402

SCHEDULE = Schedule.piecewise(
    [0, 1, 3, 4],
    {
        "learning_rate": [1.0, 3.0, 0.5],
        "difficulty": [0.0, 2.0, 0.0],
        "noise": [0.1, 0.5, 0.2],
        "activation": [1.0, 0.5, 0.8],
    },
)
GROUPS = np.arange(96) % 2
X = torch.randn(96, 10, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def stub(monkeypatch):
    """Imports an adapter over an empty stand-in of its framework, which need not be installed."""

    def imported(adapter, framework, base):
        parts = framework.split(".")
        for i in range(len(parts)):
            monkeypatch.setitem(sys.modules, ".".join(parts[: i + 1]), ModuleType(parts[i]))
        for parent, child in pairwise(parts):
            setattr(sys.modules[parent], child, sys.modules[framework])
        setattr(sys.modules[framework], base, type(base, (), {}))
        monkeypatch.delitem(sys.modules, adapter, raising=False)
        made = importlib.import_module(adapter)
        monkeypatch.delitem(sys.modules, adapter)
        return made

    return imported


class TestCallingSequence:
    """The hooks in the order in which the frameworks call them, also in the middle of a run."""

    def test_lightning(self, stub):
        module = stub("optlearn.practice.to_lightning", "lightning.pytorch", "Callback")
        target = SimpleNamespace(noise=0.0)
        sampler = CurriculumSampler(SCHEDULE, GROUPS, batch_size=4, steps=16, control="difficulty")
        callback = module.LightningSchedules(AttributeScheduler(SCHEDULE, "noise", target, steps=8), sampler)
        trainer = SimpleNamespace(global_step=2)
        sampler.set_step(4)  # by the state of its loader
        callback.on_train_start(trainer, None)
        seen = []
        for batch in range(4, 16):  # two batches an optimiser step
            seen.append(target.noise)
            trainer.global_step = (batch + 1) // 2
            callback.on_train_batch_end(trainer, None, None, None, batch)
        assert seen == [0.5] * 8 + [0.2] * 4
        assert sampler.steps_done == 16

    def test_hugging_face(self, stub):
        module = stub("optlearn.practice.to_huggingface", "transformers", "TrainerCallback")
        target = SimpleNamespace(noise=0.0)
        sampler = CurriculumSampler(SCHEDULE, GROUPS, batch_size=4, steps=8, control="difficulty")
        scheduler = AttributeScheduler(SCHEDULE, "noise", target, steps=8)
        callback = module.HuggingFaceSchedules(scheduler, sampler)
        state = SimpleNamespace(global_step=1)
        callback.on_train_begin(None, state, None, model=None)
        seen = []
        for step in range(1, 8):
            seen.append(target.noise)
            state.global_step = step + 1
            callback.on_step_end(None, state, None, model=None)
        assert seen == [0.1] + [0.5] * 4 + [0.2] * 2
        assert sampler.steps_done == 8


@pytest.mark.slow
@pytest.mark.skipif(find_spec("lightning") is None, reason="needs the extra lightning")
@pytest.mark.filterwarnings("ignore")  # of Lightning: about workers, and of what it imports
@pytest.mark.parametrize("length", [{"steps": 30}, {"epochs": 2}], ids=["steps", "epochs"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_lightning_run_is_resumed_as_if_it_had_not_stopped(length, workers, tmp_path):
    import lightning.pytorch as lightning

    from optlearn.practice import LightningSchedules

    class Network(lightning.LightningModule):
        def __init__(self, steps):
            super().__init__()
            self.layer, self.noise = torch.nn.Linear(10, 1), 0.0
            self.dropout = ScheduledDropout(SCHEDULE, steps=steps)
            self.steps, self.seen = steps, []

        def training_step(self, batch, index):
            x, number = batch
            rate = self.optimizers().param_groups[0]["lr"]
            self.seen.append((rate, self.noise, self.dropout.activation, number.tolist()))
            return (self.layer(self.dropout(x)) - 1).square().mean()

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            rate = SCHEDULE.to_torch(optimizer, steps=self.steps, peak=1e-2)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rate, "interval": "step"}}

    def run(stop, checkpoint=None):
        sampler = CurriculumSampler(SCHEDULE, GROUPS, batch_size=7, control="difficulty", **length)
        model = Network(sampler.total_steps)
        noise = AttributeScheduler(SCHEDULE, "noise", model, steps=sampler.total_steps)
        follow = LightningSchedules(sampler, model.dropout, noise)
        trainer = lightning.Trainer(
            max_steps=stop or sampler.total_steps, callbacks=[follow],
            accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False,
        )  # fmt: skip
        data = torch.utils.data.TensorDataset(X, torch.arange(96))
        trainer.fit(model, sampler.loader(data, num_workers=workers), ckpt_path=checkpoint)
        trainer.save_checkpoint(tmp_path / "run.ckpt")
        return model.seen

    whole = run(None)
    assert len(whole) == (30 if "steps" in length else 28)
    assert {noise for _, noise, _, _ in whole} == {0.1, 0.5, 0.2}
    for stop in (1, 11, 14, 20):
        assert run(stop) + run(None, tmp_path / "run.ckpt") == whole


@pytest.mark.slow
@pytest.mark.skipif(find_spec("transformers") is None, reason="needs the extra transformers")
@pytest.mark.filterwarnings("ignore")  # of transformers, and of what it imports
class TestHuggingFace:
    def run(self, folder, stop, steps=30, resume=False):
        from transformers import Trainer, TrainingArguments

        from optlearn.practice import HuggingFaceSchedules

        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 96

            def __getitem__(self, number):
                return {"x": X[number], "number": torch.tensor(number)}

        class Network(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.noise, self.seen = torch.nn.Linear(10, 1), 0.0, []

            def forward(self, x, number):
                self.seen.append((optimizer.param_groups[0]["lr"], self.noise, number.tolist()))
                return {"loss": (self.layer(x) - 1).square().mean()}

        class InOrder(Trainer):
            def _get_train_sampler(self, *_):
                return sampler

        model = Network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sampler = CurriculumSampler(SCHEDULE, GROUPS, batch_size=8, control="difficulty", steps=60)
        noise = AttributeScheduler(SCHEDULE, "noise", model, steps=steps)
        arguments = TrainingArguments(
            str(folder), max_steps=stop, per_device_train_batch_size=8, save_strategy="steps", save_steps=11,
            report_to=[], use_cpu=True, disable_tqdm=True, logging_strategy="no",
            ignore_data_skip=True, remove_unused_columns=False,
        )  # fmt: skip
        trainer = InOrder(
            model, arguments, train_dataset=Data(), callbacks=[HuggingFaceSchedules(sampler, noise)],
            optimizers=(optimizer, SCHEDULE.to_torch(optimizer, steps=steps, peak=1e-2)),
        )  # fmt: skip
        trainer.train(resume_from_checkpoint=resume)
        return model.seen

    def test_a_run_is_resumed_as_if_it_had_not_stopped(self, tmp_path):
        whole = self.run(tmp_path / "whole", 30)
        assert len(whole) == 30
        assert {noise for _, noise, _ in whole} == {0.1, 0.5, 0.2}
        parts = self.run(tmp_path / "parts", 11) + self.run(tmp_path / "parts", 30, resume=True)
        assert parts == whole

    def test_a_changed_horizon_takes_effect(self, tmp_path):
        self.run(tmp_path, 11)
        longer = self.run(tmp_path, 60, steps=60, resume=True)
        rates = [rate for rate, _, _ in longer]
        assert len(rates) == 49
        np.testing.assert_allclose(rates, [1e-2 / 3] * 4 + [1e-2] * 30 + [1e-2 / 6] * 15)
