"""The order of samples in PyTorch, with the real thing: exact, and counted by what was trained on."""

import numpy as np
import pytest

from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule

torch = pytest.importorskip("torch", reason="needs the extra torch")
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from optlearn.practice import CurriculumSampler  # noqa: E402

# Workers are forked, and a process that has used JAX is warned of that; they use none.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")

ORDER = Schedule.piecewise([0, 2, 7, 10], {"difficulty": [0.0, 2.0, 0.0]})
GRADUAL = Schedule.mixed([0, 1, 2], {"difficulty": {0.0: [0.9, 0.2], 2.0: [0.1, 0.8]}})
GROUPS = np.array([0, 1] * 50)
DATA = TensorDataset(torch.arange(100))


class TestOrder:
    def indices(self, **arguments):
        return CurriculumSampler(**{"schedule": ORDER, "groups": GROUPS, "steps": 10, **arguments})

    def test_budgets_are_exact_and_the_order_is_the_schedules(self):
        sampler = self.indices(steps=25, batch_size=4)
        assert sampler.counts == {0: 50, 1: 50}
        shown = GROUPS[list(sampler)]
        assert shown.tolist() == [0] * 20 + [1] * 50 + [0] * 30

    def test_one_pass_through_the_data_shows_every_sample_once(self):
        assert sorted(self.indices(steps=100)) == list(range(100))

    def test_nothing_repeats_before_a_group_is_used_up(self):
        shown = np.array(list(self.indices(steps=290)))
        for group in (0, 1):
            mine = shown[GROUPS[shown] == group]
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
        names = {"easy": 0.0, "hard": 2.0}
        sampler = CurriculumSampler(GRADUAL, groups, steps=500, batch_size=4, values=names, seed=3)
        assert sampler.counts == {"easy": 1100, "hard": 900}
        hard = groups[list(sampler)] == "hard"
        # Stratified: in each half, off by the few samples at its edges.
        assert abs(hard[:1000].sum() - 100) <= 2
        assert abs(hard[1000:].sum() - 800) <= 2
        assert 0 < hard[:500].sum() < 100  # spread over the interval, not bunched at its end

    def test_groups_with_names_are_never_matched_by_the_alphabet(self):
        easy_first = Schedule.piecewise([0, 1, 2], {"difficulty": [0.0, 2.0]})
        groups = ["simple", "hard"] * 50
        message = r"where groups are not numbers, values=\{'hard': …, 'simple': …\} out of 0, 2"
        with pytest.raises(SpecificationError, match=message):
            CurriculumSampler(easy_first, groups, steps=100)
        named = CurriculumSampler(easy_first, groups, steps=100, values={"simple": 0, "hard": 2})
        assert [groups[i] for i in named] == ["simple"] * 50 + ["hard"] * 50

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
            ({"steps": None}, "give either steps.* or epochs.*α_F = 10, is in training time"),
            ({"epochs": 2}, "give either steps"),
            ({"steps": 2.5}, r"steps must be a whole number or None, got 2.5"),
            ({"batch_size": 0}, r"batch_size must be a whole number of at least 1, got 0"),
            ({"groups": [0, 1, 2]}, r"groups \[0, 1, 2\], and difficulty takes the values \[0.0, 2.0\]: say"),
            ({"groups": []}, "one label for each sample"),
            ({"values": {0: 0.0}}, "no value of difficulty for the group 1"),
            ({"values": {0: 0.0, 1: 0.0}}, "shows samples with difficulty = 2, but no group"),
            ({"replicas": 0}, "replicas must be a whole number of at least 1, got 0"),
            ({"replicas": 2, "rank": 2}, "rank must be from 0 to 1, got 2"),
            ({"control": "noise"}, "name the control .* the schedule has difficulty"),
        ],
    )
    def test_wrong_arguments(self, change, message):
        with pytest.raises(SpecificationError, match=message):
            self.indices(**change)


def made(**arguments):
    return CurriculumSampler(
        **{"schedule": GRADUAL, "groups": GROUPS, "batch_size": 7, "seed": 5, **arguments}
    )


def plain(sampler, **options):
    return DataLoader(DATA, batch_size=sampler.batch_size, sampler=sampler, **options)


def rows(batches):
    return [batch.tolist() for (batch,) in batches]


class TestResume:
    WORKERS = pytest.mark.parametrize("workers", [0, 2])

    @pytest.mark.parametrize(
        ("workers", "length"),
        [
            pytest.param(0, {"steps": 40}, id="steps"),
            pytest.param(0, {"epochs": 3}, id="epochs"),
            pytest.param(2, {"steps": 40}, id="steps, workers", marks=pytest.mark.slow),
            pytest.param(2, {"epochs": 3}, id="epochs, workers", marks=pytest.mark.slow),
        ],
    )
    def test_goes_on_with_the_identical_continuation(self, workers, length, tmp_path):
        whole = []
        sampler = made(**length)
        loader = sampler.loader(DATA, num_workers=workers)
        for _ in range(length.get("epochs", 1)):
            whole += rows(loader)
        assert len(whole) == sampler.total_steps == (40 if "steps" in length else 45)  # 15 with a partial one
        for stop in (1, 13, 15, 16):
            first = made(**length)
            begun = []
            loader = first.loader(DATA, num_workers=workers)
            while len(begun) < stop:
                for (batch,) in loader:
                    begun.append(batch.tolist())
                    if len(begun) == stop:
                        break
            torch.save(loader.state_dict(), tmp_path / "state.pt")  # in the loop, a batch in hand
            second = made(**length).loader(DATA, num_workers=workers)
            second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
            rest = []
            while second.sampler.steps_done < sampler.total_steps:
                rest += rows(second)
            assert begun + rest == whole

    def test_the_sampler_alone_says_the_same_as_its_loader(self):
        sampler = made(steps=40)
        for number, _ in enumerate(sampler.loader(DATA, num_workers=2), 1):
            assert sampler.state_dict()["steps_done"] == number

    @WORKERS
    def test_ones_own_loader_is_counted_by_step(self, workers):
        whole = rows(made(epochs=2).loader(DATA))
        sampler = made(epochs=2)
        for number, (batch,) in enumerate(plain(sampler, num_workers=workers)):
            assert batch.tolist() == whole[number]
            sampler.step()
            if number == 4:
                break
        assert sampler.state_dict()["steps_done"] == 5
        assert rows(sampler.counted(plain(sampler))) == whole[5:]
        assert sampler.steps_done == 15  # the partial batch at an epoch's end is one

    def test_what_nobody_has_counted_is_not_saved(self):
        sampler = made(steps=40)
        assert sampler.state_dict()["steps_done"] == 0
        next(iter(plain(sampler, num_workers=2)))
        with pytest.raises(SpecificationError, match=r"Use sampler.loader\(data\), .* sampler.step\(\)"):
            sampler.state_dict()

    @WORKERS
    def test_looking_at_a_batch_consumes_none(self, workers):
        whole = rows(made(steps=40).loader(DATA))
        for loader in (
            made(steps=40).loader(DATA, num_workers=workers),
            plain(made(steps=40), num_workers=workers),
        ):
            for _ in range(2):
                assert next(iter(loader))[0].tolist() == whole[0]
            assert rows(loader) == whole

    def test_a_loop_that_is_left_goes_on_after_its_last_batch(self):
        whole = rows(made(steps=40).loader(DATA))
        loader = made(steps=40).loader(DATA)
        for number, _ in enumerate(loader):
            if number == 9:
                break
        assert rows(loader) == whole[10:]

    def test_an_exhausted_sampler_says_so(self):
        for loader in (made(steps=40).loader(DATA), plain(made(steps=40))):
            assert len(rows(loader)) == 40
            with pytest.raises(
                SpecificationError, match=r"40 batches, has been shown. To train in several passes"
            ):
                rows(loader)
            loader.sampler.reset()
            assert len(rows(loader)) == 40

    def test_epochs_go_on_from_one_another_even_if_nobody_counts(self):
        sampler = CurriculumSampler(ORDER, GROUPS, epochs=3)
        passes = [list(sampler) for _ in range(3)]
        assert [len(one) for one in passes] == [100, 100, 100]
        assert sampler.counts == {0: 150, 1: 150}
        assert GROUPS[passes[0]].tolist() == [0] * 60 + [1] * 40
        assert GROUPS[passes[1]].tolist() == [1] * 100
        with pytest.raises(SpecificationError, match="has been shown"):
            list(sampler)

    def test_drop_last_leaves_no_partial_batch_and_no_sample_of_the_order(self):
        sampler = made(epochs=3, drop_last=True)
        loader = sampler.loader(DATA)
        assert len(loader) == 14
        batches = [rows(loader) for _ in range(3)]
        assert [len(one) for one in batches] == [14, 14, 14]
        assert np.ravel(batches).tolist() == sampler.order.indices.tolist()

    def test_only_a_state_of_the_same_training_is_taken(self):
        state = made(steps=40).state_dict()
        with pytest.raises(SpecificationError, match="saved state has seed = 5, this sampler 6"):
            made(steps=40, seed=6).load_state_dict(state)
        with pytest.raises(SpecificationError, match="saved state has batch_size = 7, this sampler 14"):
            made(steps=20, batch_size=14).load_state_dict(state)
        other = Schedule.mixed([0, 1, 2], {"difficulty": {0.0: [0.2, 0.9], 2.0: [0.8, 0.1]}})
        with pytest.raises(SpecificationError, match="saved state has order"):
            made(schedule=other, steps=40).load_state_dict(state)
        with pytest.raises(SpecificationError, match=r"steps_done must be from 0 to 40.*, got 41"):
            made(steps=40).set_step(41)


class TestProcesses:
    @pytest.mark.parametrize("length", [{"steps": 6}, {"epochs": 2}], ids=["steps", "epochs"])
    def test_processes_share_the_order_step_by_step(self, length):
        groups = np.array([0, 1] * 50 + [0])  # 101 samples: every process must get as many
        samplers = [made(groups=groups, replicas=3, rank=rank, **length) for rank in range(3)]
        loaders = [sampler.loader(TensorDataset(torch.arange(101))) for sampler in samplers]
        seen = []
        for _ in range(length.get("epochs", 1)):
            shares = [rows(loader) for loader in loaders]
            assert len({len(share) for share in shares}) == 1
            for parts in zip(*shares, strict=True):
                seen.append(np.transpose(parts).ravel().tolist())
        assert np.concatenate(seen).tolist() == samplers[0].order.indices.tolist()

    def test_a_replaced_sampler_is_refused(self):
        loader = made(steps=40).loader(DATA)
        other = type(loader)(DATA, batch_size=7, sampler=torch.utils.data.DistributedSampler(DATA, 2, 0))
        with pytest.raises(
            SpecificationError, match=r"got DistributedSampler.*use_distributed_sampler=False"
        ):
            iter(other)
