"""Schedules in PyTorch, with the real thing."""

import numpy as np
import pytest

from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule

torch = pytest.importorskip("torch", reason="needs the extra torch")
from torch._dynamo.testing import CompileCounter  # noqa: E402

from optlearn.practice import (  # noqa: E402
    AttributeScheduler,
    OtherScheduleWarning,
    ScheduledDropout,
    UnitsWarning,
)

RATES = Schedule.piecewise([0, 1, 3, 4], {"learning_rate": [0.1, 0.2, 0.05]})
THEORY = Schedule.piecewise([0, 1, 3, 4], {"learning_rate": [1.0, 3.0, 0.5]})


def saved(state, tmp_path):
    """Through a file, as safely as PyTorch reads one."""
    torch.save(state, tmp_path / "state.pt")
    return torch.load(tmp_path / "state.pt", weights_only=True)


class TestLearningRate:
    def run(self, optimizer, scheduler, steps):
        seen = []
        for _ in range(steps):
            seen.append([group["lr"] for group in optimizer.param_groups])
            optimizer.step()
            scheduler.step()
        return seen

    def optimizer(self, groups=1):
        return torch.optim.SGD(
            [{"params": [torch.zeros(1, requires_grad=True)]} for _ in range(groups)], lr=7.0
        )

    def test_every_step_has_its_rate(self):
        optimizer = self.optimizer()
        scheduler = RATES.to_torch(optimizer, steps=8)
        assert isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler)
        seen = self.run(optimizer, scheduler, 10)
        assert np.ravel(seen).tolist() == [0.1, 0.1, 0.2, 0.2, 0.2, 0.2, 0.05, 0.05, 0.05, 0.05]
        assert scheduler.get_last_lr() == [0.05]

    def test_a_scale_for_each_parameter_group(self):
        optimizer = self.optimizer(2)
        seen = self.run(optimizer, RATES.to_torch(optimizer, N=1, scale=[1, 10]), 4)
        np.testing.assert_allclose(seen, [[0.1, 1], [0.2, 2], [0.2, 2], [0.05, 0.5]])
        with pytest.raises(SpecificationError, match="one for each of 2 parameter groups"):
            RATES.to_torch(optimizer, steps=4, scale=[1, 2, 3])

    @pytest.mark.parametrize("with_optimizer", [True, False])
    def test_state_goes_round(self, tmp_path, with_optimizer):
        optimizer = self.optimizer()
        scheduler = RATES.to_torch(optimizer, steps=8)
        self.run(optimizer, scheduler, 3)
        state = saved({"scheduler": scheduler.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path)
        other = self.optimizer()
        resumed = RATES.to_torch(other, steps=8)
        if with_optimizer:
            other.load_state_dict(state["optimizer"])
        resumed.load_state_dict(state["scheduler"])
        assert resumed.get_last_lr() == [0.2]
        assert self.run(other, resumed, 6) == self.run(optimizer, scheduler, 6)

    def test_a_changed_horizon_takes_effect_and_is_told(self):
        optimizer = self.optimizer()
        scheduler = RATES.to_torch(optimizer, steps=8)
        self.run(optimizer, scheduler, 6)
        other = self.optimizer()
        longer = RATES.to_torch(other, steps=16)
        with pytest.warns(
            OtherScheduleWarning, match="8 steps. It continues at step 6 of 16 .* 0.2 instead of 0.05"
        ):
            longer.load_state_dict(scheduler.state_dict())
        assert np.ravel(self.run(other, longer, 10)).tolist() == [0.2] * 6 + [0.05] * 4

    def test_peak_is_the_users_own_largest_rate(self):
        optimizer = self.optimizer()
        seen = self.run(optimizer, THEORY.to_torch(optimizer, N=1, peak=1e-3), 4)
        np.testing.assert_allclose(np.ravel(seen), [1e-3 / 3, 1e-3, 1e-3, 0.5e-3 / 3])
        with pytest.raises(SpecificationError, match="scale and peak must not both be given"):
            THEORY.to_torch(optimizer, steps=4, scale=1, peak=1e-3)
        for wrong in (0.0, -1.0, np.nan, "high"):
            with pytest.raises(SpecificationError, match=r"peak must be (above 0|a finite number)"):
                THEORY.to_torch(optimizer, steps=4, peak=wrong)

    def test_a_rate_of_the_theory_without_a_scale_warns_with_numbers(self):
        with pytest.warns(UnitsWarning, match="reaches 3 .* scale=1/784, which makes it 0.0038") as seen:
            THEORY.to_torch(self.optimizer(), steps=4)
        assert seen[0].filename == __file__
        THEORY.to_torch(self.optimizer(), steps=4, scale=1)  # said to be meant so: warnings are errors here

    def test_a_group_that_is_added_later_has_its_rate_at_once(self):
        optimizer = self.optimizer()
        scheduler = THEORY.to_torch(optimizer, steps=4, scale=0.01)
        self.run(optimizer, scheduler, 1)
        late = torch.ones(1, requires_grad=True)
        late.grad = torch.ones(1)
        optimizer.add_param_group({"params": [late]})
        optimizer.step()  # at 3·0.01, not at the optimiser's own 7
        assert late.item() == pytest.approx(0.97)
        scheduler.step()
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.03, 0.03])

    def test_a_late_group_needs_a_scale_where_groups_have_their_own(self):
        optimizer = self.optimizer(2)
        scheduler = THEORY.to_torch(optimizer, steps=4, scale=[0.1, 0.2])
        optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)], "scale": 0.3})
        optimizer.step()
        assert scheduler.get_last_lr() == pytest.approx([0.1, 0.2, 0.3])
        optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})
        with pytest.raises(SpecificationError, match="scale must be known for every parameter group"):
            scheduler.step()

    def test_units_are_named_in_the_error(self):
        with pytest.raises(SpecificationError, match=r"to_torch: give either steps.* or N="):
            RATES.to_torch(self.optimizer())


class TestDropout:
    SCHEDULE = Schedule.piecewise([0, 1, 2], {"activation": [0.9, 0.3]})

    def test_drops_by_the_schedule_and_rescales_in_evaluation(self):
        torch.manual_seed(0)
        layer = ScheduledDropout(self.SCHEDULE.with_parameters(rescaling=0.6), steps=2)
        x = torch.full((100_000,), 2.0)
        for p in (0.9, 0.3):
            kept = layer(x)
            assert set(kept.unique().tolist()) == {0.0, 2.0}
            # z below 4.5: one false alarm in 150,000.
            assert abs((kept > 0).double().mean().item() - p) < 4.5 * np.sqrt(p * (1 - p) / len(x))
            layer.step()
        layer.eval()
        torch.testing.assert_close(layer(x), 0.6 * x)

    def test_without_rescaling_it_is_the_convention_of_torch(self):
        layer = ScheduledDropout(self.SCHEDULE, steps=2)
        assert layer(torch.ones(1000)).unique().tolist() == pytest.approx([0.0, 1 / 0.9])
        layer.eval()
        torch.testing.assert_close(layer(torch.ones(5)), torch.ones(5))

    def test_the_step_is_in_the_state_of_the_model(self, tmp_path):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), ScheduledDropout(self.SCHEDULE, steps=2))
        model[1].step()
        other = torch.nn.Sequential(torch.nn.Linear(2, 2), ScheduledDropout(self.SCHEDULE, steps=2))
        other.load_state_dict(saved(model.state_dict(), tmp_path))
        assert other[1].activation == 0.3
        assert "activation=0.3" in repr(other)

    def test_is_compiled_once_for_all_steps(self):
        torch.manual_seed(0)
        layer = ScheduledDropout(self.SCHEDULE.with_parameters(rescaling=0.6), steps=6)
        counter = CompileCounter()
        compiled = torch.compile(layer, backend=counter, fullgraph=True)
        shares = []
        for _ in range(6):
            shares.append((compiled(torch.ones(10_000)) > 0).double().mean().item())
            layer.step()
        np.testing.assert_allclose(shares, [0.9] * 3 + [0.3] * 3, atol=0.025)  # five standard deviations
        assert counter.frame_count == 1

    def test_only_probabilities(self):
        with pytest.raises(SpecificationError, match="from 0 to 2"):
            ScheduledDropout(Schedule.piecewise([0, 1, 2], {"difficulty": [0, 2]}), "difficulty", steps=2)
        with pytest.raises(SpecificationError, match="divided by 0"):
            ScheduledDropout(Schedule.constant(1, {"activation": 0.0}), steps=2)


def test_an_attribute_of_a_module():
    model = torch.nn.Dropout(0.0)
    scheduler = AttributeScheduler(RATES, "learning_rate", model, "p", N=1)
    scheduler.step()
    assert model.p == 0.2
