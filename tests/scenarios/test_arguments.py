"""Scenarios: what they hold, and how they answer wrong arguments."""

import subprocess
import sys

import numpy as np
import pytest

from optlearn import scenarios
from optlearn._errors import SpecificationError


def test_a_scenario_is_a_function_even_if_its_module_was_imported_first():
    code = (
        "import optlearn.scenarios._denoising, optlearn as ol\n"
        "print(callable(ol.scenarios.denoising), callable(ol.scenarios.denoising_batch))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_unknown_scenario():
    with pytest.raises(AttributeError, match=r"'curiculum' \(did you mean 'curriculum'\?\); there are"):
        _ = scenarios.curiculum
    with pytest.raises(AttributeError, match=r"no scenario 'nonsense'; there are .*curriculum"):
        _ = scenarios.nonsense


@pytest.mark.parametrize(
    ("name", "intervals", "controls"),
    [
        ("curriculum", 240, {"difficulty"}),
        ("dropout", 50, {"activation"}),
        ("denoising", 400, {"noise"}),
        ("denoising_batch", 120, {"batch"}),
        ("gating", 40, {"gate"}),
        ("imbalance", 60, {"sampling"}),
    ],
)
def test_defaults(name, intervals, controls):
    problem = getattr(scenarios, name)()
    assert problem.intervals == intervals
    assert set(problem.controls) == controls


def test_defaults_of_the_joint_problem():
    problem = scenarios.curriculum(joint=True)
    assert problem.intervals == 120
    assert set(problem.controls) == {"difficulty", "learning_rate"}
    assert problem.continuous["learning_rate"].upper == 10


def test_a_start_of_ones_own():
    start = {"Q": [[0.2]], "R": [[0.05, 0.1]], "Omega": [[1.0, 0.0], [0.0, 0.8]]}
    problem = scenarios.denoising(start=start, sigma=(0.1, 0.2))
    assert problem.model.students == 1
    np.testing.assert_array_equal(problem.start.R, start["R"])


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("curriculum", {"alpha_F": 0}, r"alpha_F must be above 0.*, got 0"),
        ("curriculum", {"eta": "fast"}, r"eta must be a finite number, got 'fast'"),
        ("curriculum", {"Delta": (2, 0)}, r"Delta .*easy below hard.*, got \(2, 0\)"),
        ("curriculum", {"Delta": 2}, r"Delta must be a list of numbers, got 2"),
        ("curriculum", {"easy_share": 1.5}, r"easy_share must be from 0 to 1.*, got 1.5"),
        ("curriculum", {"joint": "yes"}, r"joint must be True or False.*, got 'yes'"),
        ("curriculum", {"joint": True, "eta": 20}, r"eta .*max_learning_rate = 10.*, got 20"),
        ("curriculum", {"max_learning_rate": -1}, r"max_learning_rate must be above 0.*, got -1"),
        ("dropout", {"K": 0}, r"K must be a whole number of at least 1.*, got 0"),
        ("dropout", {"sigma_n": -1}, r"sigma_n must be at least 0.*, got -1"),
        ("dropout", {"alpha_F": float("inf")}, r"alpha_F must be a finite number, got inf"),
        ("denoising", {"Delta_F": 1.0}, r"Delta_F must be from 0.01 to 0.99.*, got 1.0"),
        ("denoising", {"start": "fig9"}, r"start must be one of fig3, figS.*, got 'fig9'"),
        ("denoising", {"start": 7}, r"start must be one of fig3, figS or a dictionary, got 7"),
        ("denoising", {"start": {"Q": 1}}, "a mapping with Q, R and Omega"),
        ("denoising_batch", {"mean_batch": 60}, r"mean_batch .*below max_batch = 50.*, got 60"),
        ("denoising_batch", {"mean_batch": 1}, r"mean_batch must be above 1.*, got 1"),
        ("denoising_batch", {"max_batch": 1}, r"max_batch must be above 1.*, got 1"),
    ],
)
def test_wrong_arguments(name, arguments, message):
    with pytest.raises(SpecificationError, match=message):
        getattr(scenarios, name)(**arguments)
