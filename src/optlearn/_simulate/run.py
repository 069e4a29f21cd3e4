"""The entry point: simulate SGD at finite N.

Least squares are simulated as a committee of one linear node, whose order parameters determine the excess
(``as_network``); students on finite data have a separate simulator (``finite_data``).
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, float64
from optlearn._dynamics.checks import check_problem
from optlearn._dynamics.wrapped import Switched
from optlearn._engine.integrate import integrate
from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn._simulate.finite_data import simulate_finite_data
from optlearn._simulate.normals import make_keys
from optlearn._simulate.overlaps import advance_overlaps, initial_overlaps
from optlearn._simulate.plan import Prepared, make_controls, make_plan
from optlearn._simulate.record import check_cost, check_finite, evaluate, record_steps, run_info
from optlearn._simulate.weights import WeightState, advance_weights, initial_weights, weight_overlaps
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters
from optlearn._trajectory import Trajectory
from optlearn.models._committee import Committee
from optlearn.models._finite_data import FiniteData
from optlearn.models._linear import Linear

MODES = ("overlaps", "weights")
DTYPES = {"overlaps": ("float64",), "weights": ("float32", "float64")}
# Minimum number of updates of a progress bar.
PROGRESS_STOPS = 200


@checked
@float64
def simulate(
    model: LearningModel | Any,
    schedule: Schedule,
    *,
    start: OrderParameters | None = None,
    N: int,
    seeds: int = 8,
    mode: str = "overlaps",
    seed: int = 0,
    parameters: Mapping[str, Array] | None = None,
    record: int | Sequence[float] | np.ndarray = 101,
    progress: bool = False,
    dtype: str | None = None,
    error: bool = True,
) -> Trajectory:
    """Online SGD in input dimension N: ``round(α_F N)`` steps, each on fresh data.

    Args:
        model: a LearningModel, or a problem with one. On finite data this is ``simulate_finite_data``, always
            on weights, with samples drawn with replacement.
        schedule: controls; step μ has those at α = μ/N. A mixed control is drawn at every step, independently
            for every seed. A ``batch`` between two whole numbers is realised by a random choice of these.
        start: initial order parameters; by default those of the problem.
        N: input dimension.
        seeds: number of independent runs.
        mode: "overlaps", the exact Markov chain of the order parameters (a step's cost does not depend on
            N), or "weights", SGD on N-dimensional vectors. The two have the same distribution.
        seed: seed of the random numbers; the same call gives the same numbers bit for bit.
        parameters: settings that differ from the model's own. A problem's free parameters that are named
            neither here nor in ``schedule.parameters`` are optimised for the schedule, as in ``evaluate``; if
            the schedule covers only part of training, their guesses are used.
        record: number of equally spaced times to record, including both ends, or the training times α, which
            are rounded to whole steps.
        progress: show a progress bar on stderr.
        dtype: of weights and inputs in mode "weights": "float32" (default; order parameters are
            still computed and recorded in float64) or "float64". Mode "overlaps" is in float64.
        error: False leaves out the generalisation error and the observables. If the error has no closed form,
            it needs a quadrature for every seed and time, which may take longer than the simulation.

    Returns:
        A Trajectory with a seed axis: every order parameter, ``error`` and the model's observables, each
        (seeds, T).

    Raises:
        SpecificationError: an argument, or a combination of arguments, is invalid.
        UnphysicalStateError: the simulation diverged.
    """
    began = time.perf_counter()
    dtype = check_run(N, seeds, mode, seed, dtype)
    if isinstance(getattr(model, "model", model), FiniteData):
        return simulate_finite_data(
            model, schedule, N=N, seeds=seeds, seed=seed, start=start, parameters=parameters, record=record
        )
    read = None
    if isinstance(getattr(model, "model", model), Linear):
        model, start, schedule, parameters, read = as_network(model, schedule, start, parameters)
    stops = record_steps(record, schedule, N)
    prepared = prepare(model, schedule, start, N, parameters)
    model, plan = prepared.model, prepared.plan
    # Students and teachers, and the inputs of a step, are vectors of N numbers.
    numbers = N * (plan.vectors + plan.views.inputs) if mode == "weights" else 0
    steps = int(stops[-1])
    check_cost(
        "simulate", N=N, steps=steps, seeds=seeds, numbers_a_step=numbers, numbers_held=seeds * numbers
    )
    keys = make_keys(seed, seeds)
    learners: WeightState | OrderParameters
    if mode == "weights":
        learners = initial_weights(model, prepared.start, N, seeds, seed, dtype, prepared.settings)
        advance: Callable[..., Any] = partial(advance_weights, prepared, keys)
    else:
        learners = initial_overlaps(prepared.start, seeds)
        advance = partial(advance_overlaps, prepared, keys, np.float64(N))
    names = model.layout.names
    recorded = []
    with _bar(progress, mode, steps, seeds) as update:
        done = 0
        for stop in stops:
            for pause in _pauses(done, int(stop), steps, progress):
                learners = jax.block_until_ready(advance(learners, np.int64(done), np.int64(pause)))
                done = pause
                update(done)
            # The overlap chain stores only order parameters.
            x = learners
            if isinstance(x, WeightState):
                x = weight_overlaps(x, model.teachers, plan.directions)
            states = np.asarray(model.layout.flatten(x))
            check_finite(states, names, done / N)
            recorded.append(states)
    states = np.stack(recorded, axis=1)
    alpha = stops / N
    values = {name: states[:, :, i] for i, name in enumerate(names)}
    if error:
        values |= evaluate(prepared, schedule, alpha, states)
    info = run_info(began, mode=mode, dtype=dtype, N=N, seeds=seeds, seed=seed, stops=stops)
    run = Trajectory(alpha, values, names, info)
    return run if read is None else read(run)


def theory_beside(
    simulated: Trajectory,
    model: Any,
    schedule: Schedule,
    *,
    start: OrderParameters | None = None,
    parameters: Mapping[str, Array] | None = None,
) -> Trajectory:
    """The theory of a ``simulated`` training at the simulation's training times.

    The other arguments are those of ``simulate``; ``parameters`` of a problem must include all free
    parameters.
    """
    # The last step of a simulation may end up to 1/N beyond the horizon.
    times, how = simulated.alpha.clip(max=schedule.horizon), {}
    if hasattr(model, "model"):
        start, parameters = model.start, {**model.parameters, **(parameters or {})}
        model, how = model.model, {"quadrature": model.quadrature}
    return integrate(model, schedule, start=start, parameters=parameters, record=times, **how)


def prepare(
    model: LearningModel | Any,
    schedule: Schedule,
    start: OrderParameters | None,
    N: int,
    parameters: Mapping[str, Array] | None,
) -> Prepared:
    """Check the arguments of a run and convert them to the form that a compiled loop reads."""
    model, start, parameters = _unpack(model, schedule, start, parameters)
    model = model.current()
    start, settings = check_problem(model, start, schedule, parameters)
    modes: Mapping[str, Mapping[str, Array]] = {}
    if isinstance(model, Switched):
        modes, settings = (
            model.tables,
            {name: np.asarray(v) for name, v in model.inner_settings(settings).items()},
        )
    model = _learner(model)
    mixed = schedule.mixtures.get("batch")
    chosen = schedule.values.get("batch", settings.get("batch", 1.0)) if mixed is None else mixed.values
    batches = np.atleast_1d(next((table["batch"] for table in modes.values() if "batch" in table), chosen))
    if np.any(batches < 1):
        raise SpecificationError(f"batch={batches.min():g}: a batch has at least one view")
    plan = make_plan(model, start, settings, len(schedule.mixtures), batches, N)
    needed = plan.vectors + plan.views.inputs
    if needed > N and not plan.directions:
        raise SpecificationError(
            f"N={N} is too small: the Gram matrix is {plan.vectors} by {plan.vectors} (students, teachers "
            f"and centroids) and a step draws {plan.views.inputs} input vectors; N must be at least {needed}"
        )
    return Prepared(model, start, settings, make_controls(schedule, N, modes), plan)


def _learner(model: Any) -> LearningModel:
    """The model to train: the model itself, or the one behind controls with modes."""
    learner = model.inner if isinstance(model, Switched) else model
    if isinstance(learner, LearningModel):
        return learner
    name = type(learner).__name__
    if isinstance(learner, FiniteData | Linear):
        raise SpecificationError(f"simulate takes modes by name of a LearningModel only, not of {name}")
    raise SpecificationError(
        "simulate: model must be a LearningModel, or a problem with one, whose weights it can simulate, "
        f"got {name}"
    )


def _unpack(
    model: Any, schedule: Schedule, start: OrderParameters | None, parameters: Mapping[str, Array] | None
) -> tuple[LearningModel, OrderParameters, Mapping[str, Array] | None]:
    """A model with start and parameters, from a model or a problem."""
    problem = model if not isinstance(model, LearningModel) and hasattr(model, "model") else None
    model = model if problem is None else problem.model
    _learner(model)
    if problem is not None:
        from optlearn._control.evaluate import check_values, with_best_free

        check_values(problem, schedule)
        start = problem.start if start is None else start
        named = {**schedule.parameters, **(parameters or {})}
        whole = abs(schedule.horizon - problem.horizon) <= 1e-9 * problem.horizon
        if set(problem.free) <= set(named) or not whole:
            guesses = {name: free.start for name, free in problem.free.items()}
            parameters = {**problem.parameters, **guesses, **named}
        else:
            compiled, free = with_best_free(problem, schedule, parameters)
            parameters = {**compiled.problem.parameters, **free}
    if start is None:
        raise SpecificationError("start is missing: the order parameters at the beginning, model.state(…)")
    return model, start, parameters


def as_network(
    model: Linear | Any, schedule: Schedule, start: Any, parameters: Mapping[str, Array] | None
) -> tuple[Committee, OrderParameters, Schedule, dict[str, Array], Callable[[Trajectory], Trajectory]]:
    """The committee of a ``Linear`` model, or of a problem with one, that starts at zero weights.

    With its start, schedule and parameters; and a function that interprets its run.
    """
    named = {**schedule.parameters, **(parameters or {})}
    if not isinstance(model, Linear):
        from optlearn._control.evaluate import check_values, with_best_free

        problem = model
        check_values(problem, schedule)
        if not set(problem.free) <= set(named):
            _, free = with_best_free(problem, schedule, parameters)
            named = {**named, **free}
        named, start, model = {**problem.parameters, **named}, start or problem.start, problem.model
    teacher = np.asarray(model.teacher)
    if start is not None and not np.allclose(start["excess"], teacher, rtol=1e-9, atol=1e-12):
        raise SpecificationError("start must be model.start(): SGD of least squares begins at zero weights")
    settings = model.settings(named)
    settings["sigma_n"] = np.sqrt(settings.pop("noise"))
    network = model.network
    bare = Schedule(schedule.grid, schedule.values, schedule.mixtures, {})

    def read(run: Trajectory) -> Trajectory:
        names = tuple(model.layout.names)
        values = {
            name: run[f"Q11_{b + 1}"] - 2 * run[f"M11_{b + 1}"] + teacher[b] for b, name in enumerate(names)
        }
        if "error" in run.values:
            values["error"] = run["error"]
        return Trajectory(run.alpha, values, names, run.info)

    return network, network.state(), bare, settings, read


def check_run(N: int, seeds: int, mode: str, seed: int, dtype: str | None) -> str:
    """Raise for invalid numbers; returns the dtype to use."""
    check = Arguments("simulate")
    check.one_of("mode", mode, MODES)
    check.count("N", N)
    check.count("seeds", seeds)
    check.count("seed", seed, 0)
    chosen = DTYPES[mode][0] if dtype is None else dtype
    if chosen not in DTYPES[mode]:
        check.fail("dtype", dtype, f"must be {' or '.join(map(repr, DTYPES[mode]))} in mode {mode!r}")
    return chosen


def _pauses(done: int, stop: int, total: int, progress: bool) -> Iterator[int]:
    """Step numbers, up to ``stop``, at which the compiled loop returns."""
    stride = max(1, total // PROGRESS_STOPS) if progress else max(1, total)
    while done < stop:
        done = min(stop, done + stride)
        yield done


@contextmanager
def _bar(show: bool, mode: str, steps: int, seeds: int) -> Iterator[Callable[[int], None]]:
    """A transient progress bar on stderr, or nothing."""
    if not show:
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} steps, {task.fields[rate]} seed-steps/s"),
        TimeRemainingColumn(),
    )
    began = time.perf_counter()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"simulating {mode}", total=steps, rate="…")

        def update(done: int) -> None:
            rate = done * seeds / max(time.perf_counter() - began, 1e-9)
            bar.update(task, completed=done, rate=f"{rate:,.0f}")

        yield update
