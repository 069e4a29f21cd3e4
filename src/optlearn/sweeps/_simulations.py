"""Simulations on a grid of a scenario's arguments, in batches: seeds × parameters × N."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from optlearn._arguments import Arguments
from optlearn._control.evaluate import evaluate
from optlearn._control.problem import Problem
from optlearn._errors import SpecificationError
from optlearn._progress import Progress, Report
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn._simulate.batch import AT_ONCE, simulate_many
from optlearn.sweeps.spec import Index, Scenario, Spec, make_spec

if TYPE_CHECKING:
    import xarray

MakeSchedule = Callable[[Problem], Schedule]


@checked
def simulate(
    scenario: Scenario,
    over: Mapping[str, Any],
    *,
    N: int | Sequence[int],
    schedule: "str | MakeSchedule | xarray.Dataset",
    seeds: int = 8,
    seed: int = 0,
    fixed: Mapping[str, Any] | None = None,
    at_once: int = AT_ONCE,
    progress: Report | None = None,
) -> "xarray.Dataset":
    """Run SGD at finite N at every point of a grid.

    Points with the same horizon are simulated together, seeds and points in one compiled program; input
    dimensions one after the other, since they take different numbers of steps. All points see the same
    random numbers.

    Args:
        scenario: name of a scenario, or a function that returns a ``Problem``.
        over: argument of the scenario → its values.
        N: input dimension, or several.
        schedule: name of a baseline, a function of the problem, or the result of ``sweep`` over the same
            grid, whose optimal schedules are then used.
        seeds: runs of each point.
        seed: of the random numbers.
        fixed: further arguments of the scenario.
        at_once: seeds in one call of the compiled program.
        progress: called with how much of the work is done.

    Returns:
        ``error`` (…, N, seed) and every order parameter at the end of training, and ``theory`` (…), the
        error for N → ∞.
    """
    import xarray

    check = Arguments("simulate")
    spec = make_spec(scenario, over, fixed=fixed)
    dimensions = [check.count("N", n) for n in (N if isinstance(N, Sequence | np.ndarray) else [N])]
    check.count("seeds", seeds)
    check.count("seed", seed, 0)
    check.count("at_once", at_once)
    if len(set(dimensions)) < len(dimensions):
        raise SpecificationError(f"N must hold every dimension once, got {dimensions}")
    indices = spec.indices()
    problems = [spec.problem(index) for index in indices]
    schedules = [_schedule(spec, index, p, schedule) for index, p in zip(indices, problems, strict=True)]
    theory = np.array(
        [evaluate(p, s, record=2)["error"][-1] for p, s in zip(problems, schedules, strict=True)]
    )
    names = problems[0].model.layout.names
    groups: dict[float, list[int]] = {}
    for place, problem in enumerate(problems):
        groups.setdefault(problem.horizon, []).append(place)
    work = sum(dimensions) * sum(groups)
    before = 0.0
    table = np.full((len(problems), len(dimensions), seeds, 1 + len(names)), np.nan)
    for column, n in enumerate(dimensions):
        for horizon, members in groups.items():
            part = n * horizon / work

            def tell(news: Progress, before: float = before, part: float = part) -> None:
                if progress is not None:
                    share = (news.done or 0.0) / (news.total or 1.0)
                    progress(Progress(news.text, before + part * share, 1.0))

            states, errors = simulate_many(
                [problems[i] for i in members],
                [schedules[i] for i in members],
                N=n, seeds=seeds, seed=seed, at_once=at_once, progress=tell,
            )  # fmt: skip
            for place, state, error in zip(members, states, errors, strict=True):
                table[place, column] = np.column_stack([error, state])
            before += part
    dims = (*spec.over, "N", "seed")
    table = table.reshape(*spec.shape, *table.shape[1:])
    columns = {name: (dims, table[..., i]) for i, name in enumerate(("error", *names))}
    coordinates = {name: list(values) for name, values in spec.over.items()} | {"N": dimensions}
    return xarray.Dataset(
        {**columns, "theory": (tuple(spec.over), theory.reshape(spec.shape))},
        coordinates,
        {"seed": seed, "scenario": spec.to_json()["scenario"]},
    )


def schedule_at(dataset: "xarray.Dataset", index: Index) -> Schedule:
    """The optimal schedule of a point of a sweep, with its free parameters."""
    point = dataset.isel(dict(zip(_grid_dims(dataset), index, strict=True)))
    edges = np.asarray(point["edges"])
    edges = edges[np.isfinite(edges)]
    prefix = "schedule_"
    values = {
        str(name).removeprefix(prefix): np.asarray(point[name])[: len(edges) - 1]
        for name in point.data_vars
        if str(name).startswith(prefix) and np.all(np.isfinite(point[name][: len(edges) - 1]))
    }
    if len(edges) < 2 or not values:
        raise SpecificationError(f"the sweep has no schedule at {index}: the point failed or is not finished")
    free = {
        str(name).removeprefix("free_"): float(point[name])
        for name in point.data_vars
        if str(name).startswith("free_") and np.isfinite(point[name])
    }
    return Schedule.piecewise(edges, values).with_parameters(**free)


def _grid_dims(dataset: "xarray.Dataset") -> list[str]:
    return [str(dim) for dim in dataset["objective"].dims]


def _schedule(
    spec: Spec, index: Index, problem: Problem, wanted: "str | MakeSchedule | xarray.Dataset"
) -> Schedule:
    if isinstance(wanted, str):
        if wanted not in problem.baselines:
            raise SpecificationError(
                f"schedule must be a baseline, one of {', '.join(problem.baselines)}, got {wanted!r}"
            )
        found = problem.baselines[wanted](problem, problem.intervals)
    elif callable(wanted):
        found = wanted(problem)
    elif not hasattr(wanted, "dims"):
        Arguments("simulate").fail("schedule", wanted, "must be a baseline, a function or a sweep's result")
    else:
        for name, values in spec.over.items():
            if name not in wanted.dims or list(wanted[name].values) != list(values):
                raise SpecificationError(f"schedule: that sweep is not over the same values of {name!r}")
        found = schedule_at(wanted, index)
    # Free parameters that the schedule does not carry are the best for it.
    return found.with_parameters(**evaluate(problem, found, record=2).info["parameters"])
