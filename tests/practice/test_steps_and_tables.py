"""Steps and training time are never confused; schedules as functions, attributes, CSV and JSON."""

import csv
import json
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn.practice import AttributeScheduler, OtherScheduleWarning, UnitsWarning
from optlearn.practice.steps import step_table

RATES = Schedule.piecewise([0, 1, 3, 4], {"learning_rate": [0.1, 0.2, 0.05], "noise": [0.0, 0.5, 1.0]})
MIXED = Schedule.mixed([0, 1, 2], {"difficulty": {0.0: [0.25, 1.0], 2.0: [0.75, 0.0]}}, {"noise": [0.1, 0.2]})


def by_definition(schedule, control, steps):
    """Value at α = μ α_F/steps for every step μ, an edge belonging to the interval that begins there."""
    alpha = np.arange(steps) * schedule.horizon / steps
    return schedule.at(alpha * (1 + 1e-12) + 1e-12)[control]


class TestSteps:
    @given(st.lists(st.floats(0.01, 5), min_size=1, max_size=12), st.integers(1, 300))
    def test_every_step_has_the_value_of_its_training_time(self, lengths, steps):
        schedule = Schedule.piecewise(np.append(0, np.cumsum(lengths)), {"noise": np.arange(len(lengths))})
        table = step_table(schedule, "noise", steps=steps, N=None, purpose="test")
        expected = by_definition(schedule, "noise", steps)
        np.testing.assert_array_equal(table.all(), expected)
        np.testing.assert_array_equal([table.at(step) for step in range(steps)], expected)

    def test_N_and_steps_say_the_same(self):
        by_N = step_table(RATES, "noise", steps=None, N=25, purpose="test")
        assert by_N == step_table(RATES, "noise", steps=100, N=None, purpose="test")
        assert by_N.steps == 100

    def test_after_the_end_the_last_value_stays(self):
        table = step_table(RATES, "learning_rate", steps=8, N=None, purpose="test")
        assert [table.at(step) for step in (0, 1, 2, 5, 6, 7, 8, 1000)] == [
            *(0.1, 0.1, 0.2, 0.2, 0.05, 0.05, 0.05, 0.05)
        ]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                {},
                r"give either steps.* or N.*, got neither.*α_F = 4, which is not",
            ),
            ({"steps": 10, "N": 3}, "give either .*, got steps=10 and N=3"),
            ({"steps": 4.0}, r"steps must be a whole number or None, got 4.0"),
            (
                {"steps": 0},
                r"steps must be a whole number of at least 1.*\(not training time, .* α_F = 4\), got 0",
            ),
            ({"steps": True}, "steps must be a whole number or None, got True"),
            ({"N": 0.1}, r"N must be the input dimension, .* N·α_F = N·4 is at least one step, got 0.1"),
            ({"N": "784"}, "N must be a finite number or None, got '784'"),
            ({"N": float("nan")}, "N must be a finite number or None, got nan"),
            ({"steps": 10, "scale": float("inf")}, "scale must be a finite number or None, got inf"),
        ],
    )
    def test_wrong_units(self, arguments, message):
        with pytest.raises(SpecificationError, match=message):
            RATES.to_optax("learning_rate", **arguments)

    def test_a_mixed_control_is_no_number(self):
        message = "to_optax: 'difficulty' is drawn for every sample from 0, 2.*CurriculumSampler"
        with pytest.raises(SpecificationError, match=message):
            MIXED.to_optax("difficulty", steps=10)
        assert MIXED.to_optax("noise", steps=10)(9) == pytest.approx(0.2)

    def test_unknown_control(self):
        with pytest.raises(
            SpecificationError, match="no control 'lr' in this schedule; it has learning_rate"
        ):
            RATES.to_optax("lr", steps=10)


class TestOptax:
    def test_is_safe_under_jit_and_vmap(self):
        expected = by_definition(RATES, "learning_rate", 50) * 3
        value = RATES.to_optax("learning_rate", steps=50, scale=3.0)
        steps = jnp.arange(50, dtype=jnp.int32)
        np.testing.assert_allclose(jax.jit(jax.vmap(value))(steps), expected, rtol=1e-12)
        np.testing.assert_allclose([value(step) for step in range(50)], expected, rtol=1e-12)

    def test_has_the_precision_of_the_caller(self):
        value = RATES.to_optax("learning_rate", steps=50)
        assert value(3).dtype == jnp.float64
        with jax.enable_x64(False):
            assert value(3).dtype == jnp.float32
            assert jax.jit(value)(jnp.int32(3)).dtype == jnp.float32

    def test_sgd_makes_the_steps_of_the_schedule(self):
        optimiser = optax.sgd(RATES.to_optax("learning_rate", steps=8))
        weights, state, update = jnp.zeros(()), optimiser.init(jnp.zeros(())), jax.jit(optimiser.update)
        for _ in range(8):
            change, state = update(jnp.ones(()), state)
            weights = weights + change
        assert float(weights) == pytest.approx(-np.sum(by_definition(RATES, "learning_rate", 8)))

    def test_any_numeric_argument_of_an_optimiser(self):
        make = optax.inject_hyperparams(optax.trace)
        optimiser = make(decay=RATES.to_optax("noise", steps=4))
        state, trace, found = optimiser.init(jnp.zeros(())), 0.0, []
        for step in range(4):
            change, state = optimiser.update(jnp.ones(()), state)
            trace = 1 + by_definition(RATES, "noise", 4)[step] * trace
            found.append(float(change))
            assert found[-1] == pytest.approx(trace)
        assert len(set(found)) > 1


class TestAttribute:
    def test_sets_an_attribute_step_by_step(self):
        model = SimpleNamespace(noise=None)
        scheduler = AttributeScheduler(RATES, "noise", model, steps=8)
        seen = []
        for _ in range(8):
            seen.append(model.noise)
            scheduler.step()
        np.testing.assert_array_equal(seen, by_definition(RATES, "noise", 8))
        assert scheduler.steps_done == 8

    def test_an_entry_of_a_parameter_group_and_a_whole_number(self):
        group = {"batch_size": 1}
        scheduler = AttributeScheduler(
            RATES, "learning_rate", group, "batch_size", N=1, scale=50, convert=round
        )
        seen = [(group["batch_size"], scheduler.step())[0] for _ in range(4)]
        assert seen == [5, 10, 10, 2]
        assert all(type(size) is int for size in seen)

    def test_resumes_where_it_was(self):
        first, second = SimpleNamespace(noise=0), SimpleNamespace(noise=0)
        scheduler = AttributeScheduler(RATES, "noise", first, steps=8)
        for _ in range(3):
            scheduler.step()
        state = json.loads(json.dumps(scheduler.state_dict()))
        resumed = AttributeScheduler(RATES, "noise", second, steps=8)
        resumed.load_state_dict(state)
        for _ in range(4):
            assert second.noise == first.noise
            scheduler.step(), resumed.step()

    def test_another_schedule_takes_effect_and_is_told(self):
        scheduler = AttributeScheduler(RATES, "noise", SimpleNamespace(noise=0), steps=8)
        scheduler.set_step(6)
        target = SimpleNamespace(noise=0)
        longer = AttributeScheduler(RATES, "noise", target, steps=16)
        with pytest.warns(OtherScheduleWarning, match=r"at step 6 of 16 .* with 0.5 instead of 1"):
            longer.load_state_dict(scheduler.state_dict())
        assert target.noise == 0.5

    @pytest.mark.parametrize("target", [SimpleNamespace(nois=0), {"nois": 0}])
    def test_a_slip_in_the_name_is_an_error(self, target):
        with pytest.raises(SpecificationError, match=r"must have the (attribute|entry) 'noise'"):
            AttributeScheduler(RATES, "noise", target, steps=8)


class TestTables:
    def test_csv(self, tmp_path):
        schedule = MIXED.with_parameters(rescaling=0.7)
        path = schedule.to_csv(tmp_path / "s.csv", steps=5)
        rows = list(csv.DictReader(path.read_text().splitlines()))
        columns = ["alpha_from", "alpha_to", "step_from", "step_to", "noise", "difficulty"]
        assert list(rows[0]) == [*columns, "difficulty=0", "difficulty=2", "rescaling"]
        assert [float(row["difficulty"]) for row in rows] == [1.5, 0]
        assert [(row["step_from"], row["step_to"]) for row in rows] == [("0", "3"), ("3", "5")]
        assert "step_from" not in schedule.to_csv(tmp_path / "t.csv").read_text()

    def test_json_gives_back_the_same_schedule(self, tmp_path):
        for schedule in (RATES, MIXED.with_parameters(rescaling=1 / 3)):
            text = schedule.to_json(tmp_path / "s.json")
            for found in (Schedule.from_json(text), Schedule.from_json(tmp_path / "s.json")):
                np.testing.assert_array_equal(found.grid, schedule.grid)
                assert found.controls == schedule.controls
                assert found.parameters == schedule.parameters
                for name in schedule.values:
                    np.testing.assert_array_equal(found[name], schedule[name])
                for name, mixture in schedule.mixtures.items():
                    np.testing.assert_array_equal(found.mixtures[name].shares, mixture.shares)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("{", "is not JSON"),
            ('{"grid": [0, 1], "a": [1, 2]}', "2 edges need 1 value,"),
            ('{"a": 1}', "expected"),
        ],
    )
    def test_bad_json(self, text, message):
        with pytest.raises(SpecificationError, match=message):
            Schedule.from_json(text)


def test_optax_rates_have_a_peak_and_warn_without_a_scale():
    schedule = Schedule.piecewise([0, 1, 2], {"learning_rate": [1.0, 4.0], "noise": [1.0, 4.0]})
    rate = schedule.to_optax("learning_rate", steps=4, peak=1e-3)
    np.testing.assert_allclose([rate(step) for step in range(4)], [2.5e-4, 2.5e-4, 1e-3, 1e-3], rtol=1e-6)
    with pytest.warns(UnitsWarning, match="reaches 4") as seen:
        schedule.to_optax("learning_rate", steps=4)
    assert seen[0].filename == __file__
    schedule.to_optax("noise", steps=4)  # not a rate: warnings are errors here


def test_a_missing_package_names_the_extra():
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['keras'] = None\n"
        "import optlearn as ol\n"
        "s = ol.Schedule.constant(1, {'learning_rate': 0.1})\n"
        "for call in (lambda: s.to_torch(None, steps=1), lambda: s.to_keras(steps=1),\n"
        "             lambda: ol.practice.CurriculumSampler):\n"
        "    try: call()\n"
        "    except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    for line, extra in zip(lines, ("torch", "keras", "torch"), strict=True):
        assert f"pip install -c constraints.txt '.[{extra}]' in the folder" in line
