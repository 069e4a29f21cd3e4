"""Continual learning: which of several tasks to train on, and when to go back to an old one."""

from dataclasses import replace
from typing import Annotated

import numpy as np

import optlearn as ol
from optlearn import _time_courses as shapes
from optlearn._arguments import Arguments
from optlearn._control.families import BestOf
from optlearn._schedule import uniform_grid
from optlearn.scenarios._baselines import Baseline, Baselines, bounds_of, rate_baselines, rate_control
from optlearn.scenarios._catalogue import Example, scenario
from optlearn.scenarios._committee import random_overlaps

_LEAST_SHARE = 0.002  # of a task with its own rate, which would be arbitrary if the task were never shown
_HALVINGS = 16  # accuracy of the share of replay that keeps a limit


@scenario(
    citations=("lee2021continual", "mori2024optimal"),
    code_only={
        "K": "a number, by default that of tasks",
        "readout_rate": "a number, by default eta",
        "forgetting_limit": "a number, by default none",
    },
    variants=({"joint": True}, {"own_rates": True}),
    example=Example({"task": [1.0, 0.0]}, 12, {"alpha_F": 3.0}),
)
def task_order(
    tasks: Annotated[int, (2, 5, 1)] = 2,
    similarity: Annotated[float, (0, 1, 0.05)] = 0.6,
    alpha_F: float = 5.0,
    pretraining: float = 20.0,
    eta: float = 3.0,
    joint: bool = False,
    own_rates: bool = False,
    max_learning_rate: Annotated[float, (3, 30, 0.5)] = 10.0,
    sigma_n: float = 0.0,
    K: int | None = None,
    readout_rate: float | None = None,
    forgetting_limit: float | None = None,
    start_norm: float = 0.01,
    start_overlap: Annotated[float, (0, 0.1, 0.01)] = 0.03,
    start_readout: float = 0.1,
    seed: int = 0,
) -> "ol.Problem":
    """The order of tasks that leaves a network with the lowest mean error over all of them.

    Control ``task``, from 0 to ``tasks`` − 1, is the task of the training samples; each task has a teacher
    and a readout head of its own, and all share the hidden weights. The first task has been learned
    before, for a time ``pretraining``. With ``joint`` the control ``learning_rate`` is optimised too. With
    ``own_rates``, for two tasks, the controls ``learning_rate1`` and ``learning_rate2`` are the rates of
    samples of each task, and ``task``, from 0.002 to 0.998, is the share of samples of the second task.
    With ``forgetting_limit`` the error of the first task stays below a limit throughout. With two tasks,
    ``task`` is then the share of samples of the second one, from 0 to 1: intervals of one task alone would
    overshoot the limit.

    Args:
        tasks: number of tasks.
        similarity: overlap of any two teachers, from 0 (nothing in common) to 1 (the same task).
        alpha_F: horizon, training steps divided by input dimension, ``pretraining`` not included.
        pretraining: training time on task 0 before α = 0; 0 to start from small random weights.
        eta: learning rate η; with ``joint`` that of the first guess and of baselines.
        joint: optimise the learning rate too.
        own_rates: optimise a learning rate for each of two tasks.
        max_learning_rate: upper bound of η with ``joint``; the lower one is 0.
        sigma_n: standard deviation of the label noise.
        K: hidden nodes of the student; None for one per task.
        readout_rate: learning rate η_v of the heads; None for η, also if η is controlled.
        forgetting_limit: the largest error of the first task at any time, which must be above its error at
            α = 0; None for no limit.
        start_norm: squared norm Q_kk of every student's weights at the start, over N.
        start_overlap: typical cosine at the start, 1/√N for random weights in N dimensions.
        start_readout: standard deviation of the readout weights at the start.
        seed: seed of the random initial weights.
    """
    check = Arguments("task_order")
    highest = check.number("max_learning_rate", max_learning_rate, 0.0, open_below=True)
    horizon = check.number("alpha_F", alpha_F, 0.0, open_below=True)
    before = check.number("pretraining", pretraining, 0.0)
    size = check.number("start_readout", start_readout, 0.0)
    own_rates = check.flag("own_rates", own_rates)
    joint = check.flag("joint", joint) or own_rates
    if own_rates and tasks != 2:
        check.fail("tasks", tasks, "must be 2 with own_rates")
    model = ol.models.continual(
        tasks, similarity, K, sigma_n=sigma_n, eta=eta, readout_rate=readout_rate, own_rates=own_rates
    )
    overlaps = np.asarray(model.overlaps.T)
    start = random_overlaps(check, model.students, overlaps, start_norm, start_overlap, seed)
    readout = size * np.random.default_rng(seed + 1).standard_normal((model.students, tasks))
    controls: dict[str, ol.Discrete | ol.Continuous] = {"task": ol.Discrete(range(tasks))}
    paths: tuple[ol.Path, ...] = ()
    if forgetting_limit is not None:
        limit = check.number("forgetting_limit", forgetting_limit, 0.0, open_below=True)
        paths = (ol.Path("error1", at_most=limit),)
        if tasks == 2:
            controls["task"] = ol.Continuous(0.0, 1.0)
    if joint:
        names = ["learning_rate1", "learning_rate2"] if own_rates else ["learning_rate"]
        controls |= dict.fromkeys(names, rate_control(check, eta, highest))
    if own_rates:
        controls["task"] = ol.Continuous(_LEAST_SHARE, 1 - _LEAST_SHARE)
    return ol.Problem(
        model=model,
        start=_pretrained(model, model.state(**start, v=readout), before),
        horizon=horizon,
        controls=controls,
        intervals=50 if joint else 60 if paths else 150,
        baselines=_baselines(range(1 if before else 0, tasks), joint, own_rates, bool(paths)),
        name=", ".join(
            [
                "task_order",
                *["own rates" if own_rates else "joint"] * joint,
                *["limited forgetting"] * bool(paths),
            ]
        ),
        paths=paths,
    )


def _pretrained(
    model: "ol.models.Continual", start: "ol.OrderParameters", time: float
) -> "ol.OrderParameters":
    """The order parameters after training on task 0."""
    if not time:
        return start
    trained = ol.integrate(model, ol.Schedule.constant(time, {"task": 0.0}), start=start, record=2)
    return model.layout.unflatten(trained.states[-1])


def _baselines(new: range, joint: bool, own_rates: bool, limited: bool) -> Baselines:
    """Usual orders at a constant rate; ``new`` are the tasks not trained on before."""
    orders: dict[str, Baseline] = {
        "blocked": lambda problem, intervals: _blocks(problem, new, problem.horizon),
        "alternating": lambda problem, intervals: _alternating(problem, intervals, new[0]),
        "random": lambda problem, intervals: _blocks(problem, new, 0.0),
        "blocked, then random": BestOf(
            lambda problem, intervals, a: _blocks(problem, new, a), lambda problem: (0.0, problem.horizon)
        ),
    }
    if limited:
        orders["steady replay"] = _steady
    if own_rates:
        best = BestOf(_random_at_constant_rates, bounds_of("learning_rate1"))
        return {name: _within_bounds(order) for name, order in orders.items()} | {"best constant rate": best}
    return {**orders, **rate_baselines(_random_at_rate)} if joint else orders


def _within_bounds(order: Baseline) -> Baseline:
    """The same order with the nearest allowed shares of the second task."""

    def baseline(problem: "ol.Problem", intervals: int) -> "ol.Schedule":
        schedule, task = order(problem, intervals), problem.continuous["task"]
        values = {"task": np.clip(schedule["task"], task.lower, task.upper)}
        return ol.Schedule.piecewise(
            schedule.grid, {**values, **_constant_rate(problem, len(schedule.grid) - 1)}
        )

    return baseline


def _random_at_constant_rates(problem: "ol.Problem", intervals: int, rate: float) -> "ol.Schedule":
    del intervals
    return ol.Schedule.constant(problem.horizon, {**dict.fromkeys(problem.continuous, rate), "task": 0.5})


def _steady(problem: "ol.Problem", intervals: int) -> "ol.Schedule":
    """The smallest constant share of the first task that keeps the limit; the others have equal shares."""
    del intervals
    limit, count = problem.paths[0].at_most, _tasks(problem)
    free = replace(problem, paths=())

    def schedule(replayed: float) -> "ol.Schedule":
        others = {float(task): [(1 - replayed) / (count - 1)] for task in range(1, count)}
        mixture = {0.0: [replayed], **others}
        return ol.Schedule.mixed([0.0, problem.horizon], {"task": mixture}, _constant_rate(problem, 1))

    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        forgets = ol.evaluate(free, schedule(middle))["error1"].max() > limit
        low, high = (middle, high) if forgets else (low, middle)
    return schedule(high)


def _blocks(problem: "ol.Problem", new: range, a: float) -> "ol.Schedule":
    """The new tasks one after the other up to α = a, for equal times; then all tasks at random."""
    count, equal = _tasks(problem), 1 / _tasks(problem)
    lengths = [*([a / len(new)] * len(new)), problem.horizon - a]
    shares = np.array([*np.eye(count)[list(new)], np.full(count, equal)])
    kept = np.array(lengths) > 1e-12 * problem.horizon
    edges = np.concatenate([[0.0], np.cumsum(np.array(lengths)[kept])])
    edges[-1] = problem.horizon
    mixture = {float(task): shares[kept, task] for task in range(count)}
    return ol.Schedule.mixed(edges, {"task": mixture}, _constant_rate(problem, len(edges) - 1))


def _alternating(problem: "ol.Problem", intervals: int, first: int) -> "ol.Schedule":
    order = (first + np.arange(intervals)) % _tasks(problem)
    values = {"task": order.astype(float), **_constant_rate(problem, intervals)}
    return ol.Schedule.piecewise(uniform_grid(problem.horizon, intervals), values)


def _random_at_rate(problem: "ol.Problem", intervals: int, rate: shapes.Shape) -> "ol.Schedule":
    grid = uniform_grid(problem.horizon, intervals)
    shares = {float(task): 1 / _tasks(problem) for task in range(_tasks(problem))}
    rates = [rate(alpha) for alpha in (grid[1:] + grid[:-1]) / 2]
    return ol.Schedule.mixed(grid, {"task": shares}, {"learning_rate": rates})


def _constant_rate(problem: "ol.Problem", intervals: int) -> dict[str, np.ndarray]:
    """The first guess of the learning rate, if it is controlled."""
    rates = {name: rate for name, rate in problem.continuous.items() if name != "task"}
    return {name: np.full(intervals, rate.start) for name, rate in rates.items()}


def _tasks(problem: "ol.Problem") -> int:
    return round(problem.controls["task"].upper) + 1
