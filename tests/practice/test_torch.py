"""Schedules in PyTorch, with the real thing."""

import numpy as np
import pytest

from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule

torch = pytest.importorskip("torch", reason="pip install 'optlearn[torch]'")

from optlearn.practice import AttributeScheduler, CurriculumSampler, ScheduledDropout  # noqa: E402

RATES = Schedule.piecewise([0, 1, 3, 4], {"learning_rate": [0.1, 0.2, 0.05]})
ORDER = Schedule.piecewise([0, 2, 7, 10], {"difficulty": [0.0, 2.0, 0.0]})
GRADUAL = Schedule.mixed([0, 1, 2], {"difficulty": {0.0: [0.9, 0.2], 2.0: [0.1, 0.8]}})


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
        resumed = Schedule.constant(1, {"learning_rate": 9}).to_torch(other, steps=2)
        if with_optimizer:
            other.load_state_dict(state["optimizer"])
        resumed.load_state_dict(state["scheduler"])
        assert self.run(other, resumed, 6) == self.run(optimizer, scheduler, 6)

    def test_units_are_named_in_the_error(self):
        with pytest.raises(SpecificationError, match=r"to_torch: give either steps .* or N"):
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

    def test_only_probabilities(self):
        with pytest.raises(SpecificationError, match="from 0 to 2"):
            ScheduledDropout(ORDER, "difficulty", steps=2)
        with pytest.raises(SpecificationError, match="divided by 0"):
            ScheduledDropout(Schedule.constant(1, {"activation": 0.0}), steps=2)


def test_an_attribute_of_a_module():
    model = torch.nn.Dropout(0.0)
    scheduler = AttributeScheduler(RATES, "learning_rate", model, "p", N=1)
    scheduler.step()
    assert model.p == 0.2


class TestSampler:
    GROUPS = np.array([0, 1] * 50)

    def indices(self, **arguments):
        return CurriculumSampler(**{"schedule": ORDER, "groups": self.GROUPS, "steps": 10, **arguments})

    def test_budgets_are_exact_and_the_order_is_the_schedules(self):
        sampler = self.indices(steps=25, batch_size=4)
        assert sampler.counts == {0: 50, 1: 50}
        shown = self.GROUPS[list(sampler)]
        assert shown.tolist() == [0] * 20 + [1] * 50 + [0] * 30

    def test_one_pass_through_the_data_shows_every_sample_once(self):
        assert sorted(self.indices(steps=100)) == list(range(100))

    def test_nothing_repeats_before_a_group_is_used_up(self):
        shown = np.array(list(self.indices(steps=290)))
        for group in (0, 1):
            mine = shown[self.GROUPS[shown] == group]
            assert len(mine) == 145
            for first in range(0, 145, 50):
                part = mine[first : first + 50]
                assert len(set(part)) == len(part)

    def test_shares_that_do_not_fit_are_rounded_by_largest_remainder(self):
        thirds = Schedule.piecewise([0, 1, 2, 3], {"d": [0.0, 1.0, 2.0]})
        sampler = CurriculumSampler(thirds, [0, 1, 2] * 10, steps=20)
        assert sampler.counts == {0: 7, 1: 7, 2: 6}
        assert len(list(sampler)) == 20

    def test_a_mixture_is_drawn_by_share(self):
        groups = np.repeat(["easy", "hard"], 1000)
        sampler = CurriculumSampler(GRADUAL, groups, steps=500, batch_size=4, seed=3)
        assert sampler.counts == {"easy": 1100, "hard": 900}
        hard = groups[list(sampler)] == "hard"
        # Stratified: in each half, off by the few samples at its edges.
        assert abs(hard[:1000].sum() - 100) <= 2
        assert abs(hard[1000:].sum() - 800) <= 2
        assert 0 < hard[:500].sum() < 100  # spread over the interval, not bunched at its end

    def test_works_in_a_loader_and_resumes_with_the_identical_continuation(self, tmp_path):
        data = torch.utils.data.TensorDataset(torch.arange(100))

        def loader(sampler):
            return torch.utils.data.DataLoader(data, batch_size=7, sampler=sampler)

        def made(seed=5):
            return CurriculumSampler(GRADUAL, self.GROUPS, steps=40, batch_size=7, seed=seed)

        whole = [batch.tolist() for (batch,) in loader(made())]
        assert len(whole) == 40
        first = made()
        batches = iter(loader(first))
        begun = [next(batches)[0].tolist() for _ in range(13)]
        state = saved(first.state_dict(), tmp_path)
        resumed = made()
        resumed.load_state_dict(state)
        assert len(resumed) == 27 * 7
        assert begun + [batch.tolist() for (batch,) in loader(resumed)] == whole
        assert list(resumed) == []  # the training is over
        resumed.reset()
        assert len(resumed) == 280
        again = made()
        again.load_state_dict(first.state_dict(steps_done=4))
        assert next(iter(loader(again)))[0].tolist() == whole[4]
        assert [batch.tolist() for (batch,) in loader(made(seed=6))] != whole
        with pytest.raises(SpecificationError, match="saved state has seed = 5, this sampler 6"):
            made(seed=6).load_state_dict(state)
        with pytest.raises(SpecificationError, match="saved state has order"):
            CurriculumSampler(
                Schedule.mixed([0, 1, 2], {"difficulty": {0.0: [0.2, 0.9], 2.0: [0.8, 0.1]}}),
                self.GROUPS, steps=40, batch_size=7, seed=5,
            ).load_state_dict(state)  # fmt: skip

    def test_epochs_go_on_from_one_another(self):
        sampler = self.indices(steps=None, epochs=3)
        passes = [list(sampler) for _ in range(4)]
        assert [len(one) for one in passes] == [100, 100, 100, 0]
        assert sampler.counts == {0: 150, 1: 150}
        assert self.GROUPS[passes[0]].tolist() == [0] * 60 + [1] * 40

    def test_groups_are_matched_to_values(self):
        by_value = CurriculumSampler(ORDER, [0.0, 2.0, 2.0], steps=10)
        named = CurriculumSampler(ORDER, ["a", "b", "c"], steps=10, values={"a": 0, "b": 2, "c": 2})
        assert by_value.counts == {0.0: 5, 2.0: 5}
        assert named.counts["a"] == 5
        assert named.counts["b"] + named.counts["c"] == 5
        tensor = CurriculumSampler(ORDER, torch.tensor([0, 1, 1]), steps=10)
        assert tensor.counts == {0: 5, 1: 5}

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"steps": None}, "give either steps .* or epochs.*α_F = 10, which is neither"),
            ({"epochs": 2}, "give either steps"),
            ({"steps": 2.5}, r"steps=2.5\): a whole number"),
            ({"batch_size": 0}, r"batch_size=0\)"),
            ({"groups": [0, 1, 2]}, r"groups \[0, 1, 2\], and difficulty takes the values \[0.0, 2.0\]: say"),
            ({"groups": []}, "one label for each sample"),
            ({"values": {0: 0.0}}, "no value of difficulty for the group 1"),
            ({"values": {0: 0.0, 1: 0.0}}, "shows samples with difficulty = 2, but no group"),
            ({"control": "noise"}, "name the control .* the schedule has difficulty"),
        ],
    )
    def test_wrong_arguments(self, change, message):
        with pytest.raises(SpecificationError, match=message):
            self.indices(**change)
