"""Wrong calls, made up from signatures: each argument of each public function gets what it may not be.

Every call must raise an error of this library that names the argument, or be right: ``right_values.toml``
says which of the values are right for which argument. Nothing is solved or simulated: where checks end and
work would begin, a call counts as accepted.
"""

import inspect
import math
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn._signatures import checked
from optlearn.scenarios._baselines import exponential_growth

VALUES: dict[str, Any] = {
    "nan": math.nan,
    "inf": math.inf,
    "negative": -1,
    "zero": 0,
    "fraction": 1.5,
    "flag": True,
    "text": "nonsense",
    "nothing": None,
    "object": object(),
    "shape": np.ones((2, 3, 2)),
}
RIGHT = tomllib.loads((Path(__file__).parent / "right_values.toml").read_text())
# Where work begins, by the module whose name is replaced.
WORK = (
    "_bounds.bound.is_linear",
    "_control.solve.compile_problem",
    "_control.evaluate.compile_problem",
    "_engine.integrate._course",
    "_simulate.run.make_plan",
    "_simulate.finite_data._steps",
    "_io.solutions.read_checked",
    "laws._fit.Fitter.from_starts",
    "sweeps.run.open_store",
    "sweeps.finite_size.evaluate",
    "sweeps.finite_size.schedules_of",
    "sweeps.results.read_description",
)
FACTORIES = (
    "attention autoencoder committee continual curriculum deep gating imbalance node_perturbation clipped "
    "sign_sgd deep_linear reward_learner"
)


class Accepted(Exception):
    """The arguments were fine: work would begin."""


@pytest.fixture
def no_work(monkeypatch, tmp_path):
    def accepted(*args, **kwargs):
        raise Accepted

    for place in WORK:
        monkeypatch.setattr(f"optlearn.{place}", accepted)
    monkeypatch.chdir(tmp_path)


def subjects() -> Iterator[tuple[str, Callable[..., Any], dict[str, Any]]]:
    """Name, function, and arguments with which it is right."""
    problem = ol.scenarios.curriculum()
    easy_first = ol.Schedule.piecewise([0.0, 6.0, 12.0], {"difficulty": [0.0, 2.0]})
    rate = ol.Schedule.constant(2.0, {"learning_rate": 1.0})
    finite = ol.scenarios.finite_data()
    X = np.random.default_rng(0).normal(size=(20, 4))
    curves = {
        name: {"step": np.arange(1, 50), "lr": np.linspace(1, end, 49), "loss": 3 - 0.01 * np.arange(49)}
        for name, end in (("fast", 0.1), ("slow", 0.5))
    }
    for name in ol.scenarios.list_scenarios():
        yield f"scenarios.{name}", getattr(ol.scenarios, name), {}
    for name in FACTORIES.split():
        yield f"models.{name}", getattr(ol.models, name), {}
    data = ol.models.FiniteData()
    yield "models.sign_learner", ol.models.sign_learner, {"rule": "hebb"}
    yield "models.feedback_alignment", ol.models.feedback_alignment, {"feedback": [1.0, 1.0]}
    yield "models.FiniteData", ol.models.FiniteData, {}
    yield "models.FiniteData.start", data.start, {}
    own = {"X": X, "y": X[:, 0], "X_test": X, "y_test": X[:, 0]}
    yield "models.FiniteData.from_data", ol.models.FiniteData.from_data, own
    yield "models.LargeBatch", ol.models.LargeBatch, {"data": data}
    yield "Continuous", ol.Continuous, {"lower": 0.0, "upper": 2.0}
    yield "Discrete", ol.Discrete, {"values": (0.0, 2.0)}
    yield "Free", ol.Free, {"lower": 0.0, "upper": 2.0}
    yield "Budget", ol.Budget, {"control": "difficulty", "mean": 1.0}
    yield "Budget, share", ol.Budget, {"control": "difficulty", "share": {0.0: 0.5}}
    yield "Objective", ol.Objective, {}
    given = {"model": problem.model, "start": problem.start, "horizon": 12.0, "controls": problem.controls}
    yield "Problem", ol.Problem, given
    worlds = {"problem": problem, "over": {"weight_decay": [0.0, 0.1]}}
    yield "robust", ol.robust, worlds
    yield "regret", ol.regret, worlds
    yield "draws", ol.draws, {"mean": {"weight_decay": 0.1}, "covariance": [[0.01]]}
    yield "CVaR", ol.CVaR, {"level": 0.8}
    yield "Limit", ol.Limit, {"objective": ol.Objective(), "at_most": 0.1}
    yield "Path", ol.Path, {"quantity": "error", "at_most": 0.1}
    yield "worst_of", ol.worst_of, {"problem": problem, "objectives": [ol.Objective()]}
    goals = {"error": None, "price": ol.Objective.price()}
    yield "pareto", ol.pareto, {"problem": problem, "objectives": goals}
    yield "bound", ol.bound, {"problem": problem}
    yield "Spectrum", ol.Spectrum, {"variance": [2.0, 0.5], "share": [0.25, 0.75]}
    yield "Spectrum.power_law", ol.Spectrum.power_law, {"N": 100, "exponent": 1.5}
    yield "Spectrum.from_data", ol.Spectrum.from_data, {"X": X, "blocks": 2}
    yield "fit.regression", ol.fit.regression, {"X": X, "y": X[:, 0]}
    yield "AutoQuadrature", ol.AutoQuadrature, {}
    yield "GaussHermite", ol.GaussHermite, {}
    yield "QuasiMonteCarlo", ol.QuasiMonteCarlo, {}
    yield "Overlaps", ol.Overlaps, {}
    yield "solve", ol.solve, {"problem": problem}
    yield "continuation", ol.continuation, {"problems": [problem]}
    yield "evaluate", ol.evaluate, {"problem": problem, "schedule": easy_first}
    yield "compare", ol.compare, {"problem": problem}
    yield "baselines", ol.baselines, {"problem": problem}
    yield "integrate", ol.integrate, {"model": problem.model, "schedule": easy_first, "start": problem.start}
    yield "simulate", ol.simulate, {"model": problem, "schedule": easy_first, "N": 100}
    once = ol.Schedule.constant(finite.horizon, {"learning_rate": 1.0})
    yield "simulate_finite_data", ol.simulate_finite_data, {"model": finite, "schedule": once, "N": 100}
    yield "load", ol.load, {"path": "solution.nc"}
    yield "cite", ol.cite, {}
    yield "plot_schedule", ol.plot_schedule, {"schedule": rate}
    yield "Schedule", ol.Schedule, {"grid": [0, 1], "values": {"noise": [1.0]}}
    yield "Schedule.constant", ol.Schedule.constant, {"alpha_F": 1.0, "values": {"noise": 1.0}}
    yield "Schedule.piecewise", ol.Schedule.piecewise, {"edges": [0, 1], "values": {"noise": [1.0]}}
    functions = {"noise": lambda alpha: alpha}
    yield "Schedule.from_function", ol.Schedule.from_function, {"alpha_F": 1.0, "functions": functions}
    mixtures = {"difficulty": {0.0: 0.5, 1.0: 0.5}}
    yield "Schedule.mixed", ol.Schedule.mixed, {"edges": [0, 1], "mixtures": mixtures}
    yield "Schedule.from_dict", ol.Schedule.from_dict, {"data": {"grid": [0, 1], "noise": [1.0]}}
    yield "Schedule.at", rate.at, {"alpha": 0.5}
    yield "Schedule.to_optax", rate.to_optax, {"control": "learning_rate", "steps": 10}
    yield "Schedule.to_optax, N", rate.to_optax, {"control": "learning_rate", "N": 10.0}
    yield "Schedule.to_thresholds", rate.to_thresholds, {"steps": 10}
    yield "Schedule.to_csv", rate.to_csv, {"path": "schedule.csv", "steps": 10}
    yield "Schedule.to_script", rate.to_script, {}
    yield "Schedule.nearest", rate.nearest, {"shape": "linear"}
    yield "Schedule.to_json", rate.to_json, {}
    wired = {"schedule": rate, "control": "learning_rate", "target": {"learning_rate": 0.1}, "steps": 10}
    yield "practice.AttributeScheduler", ol.practice.AttributeScheduler, wired
    yield "practice.fit.gaussian_mixture", ol.practice.fit.gaussian_mixture, {"X": X, "clusters": 1}
    yield "practice.fit.many_passes", ol.practice.fit.many_passes, {"X": X, "y": X[:, 0]}
    plain = ol.models.committee(1, 1)
    yield "models.with_memory", ol.models.with_memory, {"model": plain, "velocity_rate": 1.0}
    yield "models.adagrad_norm", ol.models.adagrad_norm, {"model": plain}
    yield "models.adam", ol.models.adam, {"model": plain}
    yield "models.deep_matrices", ol.models.deep_matrices, {"correlation": np.eye(2)}
    yield "sweep", ol.sweep, {"scenario": "curriculum", "over": {"eta": [1.0]}}
    grid = {"scenario": "curriculum", "over": {"eta": [1.0]}, "N": 100, "schedule": "curriculum"}
    yield "sweeps.simulate", ol.sweeps.simulate, grid
    measured = {"scenario": "curriculum", "N": [100], "seeds": 4}
    yield "sweeps.finite_size.measure", ol.sweeps.finite_size.measure, measured
    yield "sweeps.load", ol.sweeps.load, {"folder": "sweep"}
    yield "laws.fit", ol.laws.fit, {"curves": curves}
    points = {"step": np.arange(3.0), "rate": np.ones(3), "loss": np.ones(3)}
    yield "laws.Curve", ol.laws.Curve, {"name": "fast", **points}
    try:
        import torch
    except ModuleNotFoundError:
        return
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    yield "Schedule.to_torch", rate.to_torch, {"optimizer": optimizer, "steps": 10, "scale": 0.1}
    shown = {"schedule": easy_first, "groups": [0, 1] * 5, "steps": 5}
    yield "practice.CurriculumSampler", ol.practice.CurriculumSampler, shown
    half = {"schedule": ol.Schedule.constant(2.0, {"activation": 0.5}), "steps": 10}
    yield "practice.ScheduledDropout", ol.practice.ScheduledDropout, half


SUBJECTS = {name: (function, right) for name, function, right in subjects()}


def arguments_of(function: Callable[..., Any]) -> list[str]:
    """Names of the arguments that are checked; reports of progress are called only while work is done."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind not in kinds and p.name not in ("progress", "own_code")]


def outcome(function: Callable[..., Any], arguments: dict[str, Any]) -> str:
    """ "accepted", or the sentence of an error of this library; any other error is raised."""
    try:
        function(**arguments)
    except Accepted:
        return "accepted"
    except SpecificationError as error:
        return str(error)
    return "accepted"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_wrong_value_is_refused_by_name(name, capsys):
    function, right = SUBJECTS[name]
    assert outcome(function, right) == "accepted"
    allowed = RIGHT.get(name, {})
    if name.startswith("scenarios."):
        allowed = RIGHT["every scenario"] | allowed
    wrong = []
    for argument in arguments_of(function):
        for kind, value in VALUES.items():
            said = outcome(function, {**right, argument: value})
            is_right = kind in allowed.get(argument, "").split()
            if is_right != (said == "accepted") or (not is_right and argument not in said):
                wrong.append(f"{argument}={kind}: {said}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("name", [name for name in SUBJECTS if name != "plot_schedule"])  # has Matplotlib's
def test_an_unknown_argument_is_refused_by_name(name):
    function, right = SUBJECTS[name]
    with pytest.raises(SpecificationError, match="nonsense"):
        function(**right, nonsense=1)


def test_the_table_is_large():
    calls = sum(len(VALUES) * len(arguments_of(function)) for function, _ in SUBJECTS.values())
    right = sum(len(kinds.split()) for table in RIGHT.values() for kinds in table.values())
    print(f"{calls} calls of {len(SUBJECTS)} functions, of which {right} are right")
    assert calls - right >= 400
    known = {(name, a) for name, (function, _) in SUBJECTS.items() for a in arguments_of(function)}
    assert {(name, a) for name, table in RIGHT.items() for a in table if name in SUBJECTS} <= known


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p, s: ol.solve(p, tolerance=math.nan), "tolerance must be a finite number or None, got nan"),
        (lambda p, s: ol.solve(p, steps=0), "steps must be a whole number of at least 1, got 0"),
        (lambda p, s: ol.solve(p, tolerence=1e-6), "tolerence must be one of .* did you mean tolerance?"),
        (lambda p, s: ol.solve(p, intervals=10**12), "intervals must be a whole number from 1 to 100000"),
        (lambda p, s: p.with_parameters(learning_rate=-1.0), "learning_rate must be at least 0, got -1"),
        (lambda p, s: p.with_parameters(batch=0.5), "no parameter 'batch'"),
        (lambda p, s: ol.models.committee(batch=0.5), "batch must be at least 1, got 0.5"),
        (lambda p, s: replace(p, intervals=math.nan), "intervals must be a whole number, got nan"),
        (lambda p, s: replace(p, objective=None), "objective must be an Objective, got None"),
        (
            lambda p, s: replace(p, controls={"activation": 0.5}),
            "'activation'. must be a Control, got",
        ),
        (
            lambda p, s: replace(p, controls={"learning_rate": ol.Continuous(-1, 1)}, budgets=()),
            "learning_rate must be at least 0, got -1",
        ),
        (lambda p, s: ol.Discrete("01"), "values must be a list of numbers or a dictionary, got '01'"),
        (lambda p, s: ol.Discrete((0, 1), max_switches=1.5), "max_switches must be a whole number or None"),
        (lambda p, s: ol.Budget("noise", mean=math.inf), "mean must be a finite number or None, got inf"),
        (
            lambda p, s: ol.integrate(p.model, s, start=p.start, rtol=math.nan),
            "rtol must be a finite number or None, got nan",
        ),
        (lambda p, s: ol.scenarios.finite_data(weight_decay="fre"), "weight_decay must be .* or .*free"),
    ],
)
def test_calls_that_once_passed_or_hung(make, message):
    problem = ol.scenarios.curriculum()
    schedule = ol.Schedule.piecewise([0.0, 6.0, 12.0], {"difficulty": [0.0, 2.0]})
    with pytest.raises(SpecificationError, match=message):
        make(problem, schedule)


class Own(ol.System):
    """A system without parameters."""

    names = ("e",)

    def drift(self, x, u):
        return {"e": -x["e"]}

    def error(self, x, u):
        return x["e"]


COMPLEX = np.ones((20, 2)) * 1j


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ol.Spectrum.reduce("a"), "Spectrum: variances must be an array of numbers, got 'a'"),
        (lambda: ol.Spectrum([True, False], [0.5, 0.5]), "variance must be an array of numbers"),
        (lambda: ol.Spectrum.commuting([COMPLEX]), r"clusters\[0\] must be an array of numbers"),
        (lambda: ol.models.FiniteData(nodes=("a", "b")), r"nodes\[0\] must be a list of numbers"),
        (lambda: ol.models.FiniteData(nodes=([1.0],)), "nodes must be a pair"),
        (lambda: ol.draws({}, np.zeros((0, 0))), "draws: mean must name at least one parameter"),
        (lambda: ol.Schedule.from_dict({"noise": [1.0]}), "from_dict: data must hold .* 'grid'"),
        (lambda: ol.Schedule.from_dict({"grid": [0, 1], "mixtures": 3}), "must be a dictionary, got 3"),
        (lambda: ol.Schedule.from_dict({"grid": [0, 1], "mixtures": {"a": 3}}), "values and shares, got 3"),
        (lambda: ol.Schedule([0, 1], {"noise": [1j]}), r"must be made of numbers, got \[1j\]"),
        (
            lambda: ol.Problem(model=Own(), start={"e": 1.0}, horizon=1, controls={"a": ol.Continuous(0, 1)}),
            "unknown control 'a': Own has no parameters",
        ),
        (lambda: Own().settings({"a": 1.0}), "Own has no parameter 'a'; it has none"),
        (lambda: ol.Objective.price(math.nan), "per_sample must be a finite number, at least 0, got nan"),
        (lambda: ol.Objective.price(-1), "per_sample must be at least 0, got -1"),
        (lambda: ol.Objective.price(1, per_step=-1), "per_step must be at least 0, got -1"),
        (lambda: ol.Objective(tests={"noise": np.complex128(1j)}), "tests must be a mapping of settings"),
        (lambda: ol.fit.regression(COMPLEX, np.arange(20.0)), "X must be an array of real numbers"),
        (lambda: ol.fit.regression(COMPLEX.real, COMPLEX[:, 0]), "y must be an array of real numbers"),
        (
            lambda: ol.models.with_memory(ol.models.committee(1, 1), averaging=1.0, friction=3),
            "friction must be left out without a velocity_rate",
        ),
        (
            lambda: ol.practice.fit.many_passes(COMPLEX.imag, np.arange(20.0), test_share=1.0),
            "test_share must leave at least 2 of 20 samples to train on, got 1.0",
        ),
        (
            lambda: ol.scenarios.finite_data(control="both", weight_decay="free"),
            "weight_decay is scheduled if control is 'both': leave it out, got 'free'",
        ),
        (
            lambda: ol.scenarios.finite_data().with_parameters(weight_decay=-1.0),
            "FiniteData: weight_decay must be at least 0, got -1",
        ),
        (
            lambda: ol.scenarios.power_law(N=10).with_parameters(noise=-1.0),
            "Linear: noise must be at least 0, got -1",
        ),
        (
            lambda: ol.solve(ol.scenarios.curriculum(), method="a"),
            "solve: method must be one of auto, direct, greedy, indirect, got 'a'",
        ),
    ],
)
def test_calls_that_once_failed_without_a_word(make, message):
    with pytest.raises(SpecificationError, match=message):
        make()


@pytest.mark.parametrize(
    ("scenario", "shift", "message"),
    [
        ("curriculum", {"test_share": 2.0}, r"probabilities \[2.0, -1.0\] must be at least 0"),
        ("curriculum", {"test_difficulties": [-1.0, 2.0]}, "a variance cannot be negative"),
        ("curriculum", {"difficulty": 1.0}, "the error of Curriculum does not read 'difficulty'"),
        ("curriculum", {"weight_decay": 1.0}, "does not read 'weight_decay'"),
        ("curriculum", {"colour": 1.0}, "Curriculum has no parameter 'colour'"),
        ("curriculum", {"test_share": math.nan}, "test_share must be a finite number"),
        ("curriculum", {"test_share": [0.5, 0.5]}, "must have shape"),
        ("imbalance", {"test_share": 1.7}, r"probabilities \[-0.7, 1.7\] must be at least 0"),
        ("denoising", {"test_noise": -0.1}, "test_noise must be from 0 to 1, got -0.1"),
        ("denoising", {"sigma": -0.1}, "sigma must be at least 0"),
        ("attention", {"sigma": -1.0}, "sigma must be at least 0, got -1"),
        ("batch_size", {"sigma_n": 0.5}, "does not read 'sigma_n'"),
    ],
)
def test_tests_that_are_impossible_or_no_other_tests(scenario, shift, message):
    with pytest.raises(SpecificationError, match=f"{scenario}: shift: tests: .*{message}"):
        getattr(ol.scenarios, scenario)(shift=shift)


def test_tests_are_checked_wherever_they_are_given():
    problem = ol.scenarios.curriculum()
    wrong = ol.Objective.under({"test_share": 3.0})
    for changes in (
        {"objective": wrong},
        {"rivals": (wrong,)},
        {"limits": (ol.Limit(wrong, 0.1),)},
    ):
        with pytest.raises(SpecificationError, match=r"tests: .*probabilities \[3.0, -2.0\]"):
            replace(problem, **changes)
    with pytest.raises(SpecificationError, match=r"tests: .*probabilities \[3.0, -2.0\]"):
        replace(ol.robust(problem, {"learning_rate": [2.0, 3.0]}), objective=wrong)
    # One number fills a vector, as everywhere.
    same = ol.scenarios.curriculum(shift={"test_difficulties": 2.0})
    apart = ol.scenarios.curriculum(shift={"test_difficulties": [2.0, 2.0]})
    u, x = same.settings, same.start
    assert same.objective.error(same.model, x, u) == apart.objective.error(apart.model, x, u)


@pytest.mark.parametrize(
    ("lowest", "highest", "bound", "intervals"), [(1.3, 4.7, 1.3, 10), (1.1, 3.3, 3.3, 13)]
)
def test_a_budget_at_a_bound_that_was_put_in_by_hand_has_its_baselines(lowest, highest, bound, intervals):
    problem = replace(
        ol.scenarios.batch_size(),
        controls={"batch": ol.Continuous(lowest, highest)},
        budgets=(ol.Budget("batch", mean=bound),),
    )
    np.testing.assert_allclose(exponential_growth(problem, intervals, 1.0)["batch"], bound, rtol=1e-12)


def test_the_shape_of_an_array_is_not_checked_with_its_kind():
    @checked
    def norm(vector: Float[np.ndarray, " n"]) -> float:
        return float(np.linalg.norm(vector))

    assert norm([3, 4]) == norm(np.array([3.0, 4.0])) == 5.0
    with pytest.raises(SpecificationError, match="norm: vector must be a list, got 'three'"):
        norm("three")
