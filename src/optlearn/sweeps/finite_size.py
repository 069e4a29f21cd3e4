"""Simulations at finite N compared with the theory: on a grid of a scenario's arguments, and against N.

``simulate`` runs them in batches: seeds × parameters × N. ``measure`` determines how they approach the
theory, which is the limit N → ∞: at finite N the mean error over seeds has a bias that should fall like 1/N,
and single runs scatter with a variance that should also fall like 1/N. So it depends on N whether the gain of
a better schedule is *visible* in a single run.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from optlearn._arguments import Arguments
from optlearn._control.baselines import baselines_of
from optlearn._control.compare import baselines as all_baselines
from optlearn._control.evaluate import evaluate
from optlearn._control.problem import Problem
from optlearn._control.solve import solve
from optlearn._errors import SpecificationError
from optlearn._progress import Progress, Report
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn._simulate.batch import AT_ONCE, simulate_many
from optlearn.sweeps.spec import Index, Scenario, Spec, scenario_function

if TYPE_CHECKING:
    import xarray

MakeSchedule = Callable[[Problem], Schedule]

OPTIMUM = "optimum"
# A bias is significant if it is this many standard errors from zero (two-sided false-positive rate 0.3 %).
SEEN = 3.0


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
    dimensions one after the other, since they take different numbers of steps. All points use the same
    random numbers.

    Args:
        scenario: name of a scenario, a file that defines ``problem``, or a function that returns a
            ``Problem``.
        over: argument of the scenario → its values.
        N: input dimension, or several.
        schedule: name of a baseline, a function of the problem, or the result of ``sweep`` over the same
            grid, whose optimal schedules are then used.
        seeds: number of runs at each point.
        seed: seed of the random numbers.
        fixed: further arguments of the scenario.
        at_once: number of seeds in one call of the compiled program.
        progress: called with the finished share of the work.

    Returns:
        ``error`` (…, N, seed) and every order parameter at the end of training, and ``theory`` (…), the
        error for N → ∞.
    """
    import xarray

    check = Arguments("simulate")
    spec = Spec(scenario, over, fixed or {})
    dimensions = [check.count("N", n) for n in (N if isinstance(N, Sequence | np.ndarray) else [N])]
    check.count("seeds", seeds)
    check.count("seed", seed, 0)
    check.count("at_once", at_once)
    if len(set(dimensions)) < len(dimensions):
        raise SpecificationError(f"N must hold every dimension once, got {dimensions}")
    indices = spec.indices()
    problems = [spec.problem(index) for index in indices]
    schedules = [_schedule(spec, index, p, schedule) for index, p in zip(indices, problems, strict=True)]
    theory = np.array([_theory(p, s) for p, s in zip(problems, schedules, strict=True)])
    names = problems[0].model.layout.names
    # Lanes of one program take the same number of steps, N times the horizon.
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
    point = dataset.isel(dict(zip(dataset["objective"].dims, index, strict=True)))
    edges = np.asarray(point["edges"])
    edges = edges[np.isfinite(edges)]

    def finite(prefix: str, part: Any) -> dict[str, np.ndarray]:
        names = [str(name) for name in point.data_vars if str(name).startswith(prefix)]
        columns = {name.removeprefix(prefix): np.asarray(point[name])[part] for name in names}
        return {name: column for name, column in columns.items() if np.all(np.isfinite(column))}

    values = finite("schedule_", slice(len(edges) - 1))
    if len(edges) < 2 or not values:
        raise SpecificationError(f"the sweep has no schedule at {index}: the point failed or is not finished")
    free = {name: float(value) for name, value in finite("free_", ()).items()}
    return Schedule.piecewise(edges, values).with_parameters(**free)


def _schedule(
    spec: Spec, index: Index, problem: Problem, wanted: "str | MakeSchedule | xarray.Dataset"
) -> Schedule:
    if isinstance(wanted, str):
        schedule = _baseline(problem, wanted, "schedule must be a baseline, one of")
    elif callable(wanted):
        schedule = wanted(problem)
    elif not hasattr(wanted, "dims"):
        Arguments("simulate").fail("schedule", wanted, "must be a baseline, a function or a sweep's result")
    else:
        for name, values in spec.over.items():
            if name not in wanted.dims or list(wanted[name].values) != list(values):
                raise SpecificationError(f"schedule: that sweep is not over the same values of {name!r}")
        schedule = schedule_at(wanted, index)
    return _with_free_parameters(problem, schedule)


def _baseline(problem: Problem, name: str, allowed: str) -> Schedule:
    usual = baselines_of(problem)
    if name not in usual:
        raise SpecificationError(f"{allowed} {', '.join(usual)}, got {name!r}")
    return usual[name](problem, problem.intervals)


def _with_free_parameters(problem: Problem, schedule: Schedule) -> Schedule:
    """Free parameters that the schedule does not carry are optimised for it."""
    return schedule.with_parameters(**evaluate(problem, schedule, record=2).info["parameters"])


def _theory(problem: Problem, schedule: Schedule) -> float:
    """The final error for N → ∞."""
    return float(evaluate(problem, schedule, record=2)["error"][-1])


# --- against N ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class PowerLaw:
    """``prefactor · N^−exponent``, fitted to logarithms weighted by their errors.

    Attributes:
        exponent: and ``exponent_error``, its standard error.
        prefactor: with the sign of the values.
        chi2: χ² of the fit.
        points: number of fitted values.
    """

    exponent: float
    exponent_error: float
    prefactor: float
    chi2: float
    points: int

    def __call__(self, N: Any) -> Any:
        """The law at N."""
        return self.prefactor * np.asarray(N, dtype=float) ** -self.exponent


@checked
def measure(
    scenario: Scenario,
    N: Sequence[int],
    seeds: Mapping[int, int] | Callable[[int], int] | int,
    *,
    baselines: Sequence[str] | None = None,
    fixed: Mapping[str, Any] | None = None,
    seed: int = 0,
    at_once: int = AT_ONCE,
    progress: Report | None = None,
) -> "xarray.Dataset":
    """Bias and variance of the final error of the optimum and of baselines, at several N.

    If the scenario itself has an argument N, it is set too, since its theory and optimum depend on it.

    Args:
        scenario: name of a scenario, a file that defines ``problem``, or a function that returns a
            ``Problem``.
        N: input dimensions.
        seeds: number of runs, for each N or for all.
        baselines: names of baselines (default: all of the scenario's).
        fixed: arguments of the scenario.
        seed: seed of the random numbers, which are the same for all schedules and different for every N.
        at_once: number of seeds in one call of the compiled program.
        progress: called at every stage.

    Returns:
        Over ``schedule`` and ``N``: ``theory``, ``mean``, ``variance``, ``bias`` = mean − theory,
        ``bias_error`` and ``variance_error`` (standard errors); and ``seeds`` (N).
    """

    def tell(text: str) -> None:
        if progress is not None:
            progress(Progress(text, len(rows), len(N)))

    check = Arguments("measure")
    check.count("seed", seed, 0)
    check.count("at_once", at_once)
    if not callable(seeds):
        for runs in seeds.values() if isinstance(seeds, Mapping) else [seeds]:
            check.count("seeds", runs)
    for n in N:
        check.count("N", n)
    rows: list[list[Moments]] = []
    names: list[str] = []
    chosen: tuple[Problem, dict[str, Schedule]] | None = None
    for n in N:
        problem, depends = problem_at(scenario, n, fixed or {})
        if chosen is None or depends:
            tell(f"solving at N = {n}" if depends else "solving")
            chosen = problem, schedules_of(problem, baselines)
        problem, schedules = chosen
        names = list(schedules)
        count = int(seeds if isinstance(seeds, int) else seeds(n) if callable(seeds) else seeds[n])
        tell(f"{count} runs at N = {n}")
        _, errors = simulate_many(
            [problem] * len(schedules), list(schedules.values()),
            N=int(n), seeds=count, seed=_seed_at(seed, n), at_once=at_once,
        )  # fmt: skip
        limits = [_theory(problem, schedule) for schedule in schedules.values()]
        rows.append([moments(e, limit) for e, limit in zip(errors, limits, strict=True)])
    return make_dataset(str(scenario), names, N, rows)


class Moments(NamedTuple):
    """Final errors of many runs."""

    theory: float  # for N → ∞
    seeds: int
    mean: float
    variance: float
    fourth: float  # central moment


def moments(errors: np.ndarray, theory: float) -> Moments:
    """Moments of the errors (S,) of all runs."""
    mean = float(errors.mean())
    if len(errors) < 4:
        raise SpecificationError(f"seeds must be at least 4 for a variance and its error, got {len(errors)}")
    fourth = float(np.mean((errors - mean) ** 4))
    return Moments(theory, len(errors), mean, float(errors.var(ddof=1)), fourth)


def make_dataset(
    scenario: str, names: Sequence[str], N: Sequence[int], rows: Sequence[Sequence[Moments]]
) -> "xarray.Dataset":
    """The dataset of ``measure``, from the moments of each N (rows) and schedule (columns)."""
    import xarray

    tables = {name: np.array([[getattr(m, name) for m in row] for row in rows]).T for name in Moments._fields}
    count, variance = tables["seeds"], tables["variance"]
    of_variance = np.maximum(tables.pop("fourth") - variance**2 * (count - 3) / (count - 1), 0.0) / count
    tables |= {
        "bias": tables["mean"] - tables["theory"],
        "bias_error": np.sqrt(variance / count),
        "variance_error": np.sqrt(of_variance),
        "seeds": count[0],
    }
    columns = {name: (("schedule", "N")[-table.ndim :], table) for name, table in tables.items()}
    return xarray.Dataset(columns, {"schedule": list(names), "N": list(N)}, {"scenario": scenario})


def fit_bias(dataset: "xarray.Dataset", schedule: str = OPTIMUM, smallest: float = 0) -> PowerLaw | None:
    """Power law of the significant biases at N ≥ ``smallest``; None with fewer than two of them."""
    row = dataset.sel(schedule=schedule, N=dataset["N"] >= smallest)
    bias, error = np.asarray(row["bias"]), np.asarray(row["bias_error"])
    significant = np.abs(bias) > SEEN * error
    if len(set(np.sign(bias[significant]))) != 1:  # a power law has a single sign
        return None
    return fit_power_law(np.asarray(row["N"])[significant], bias[significant], error[significant])


def fit_variance(dataset: "xarray.Dataset", schedule: str = OPTIMUM, smallest: float = 0) -> PowerLaw | None:
    """Power law of the variance over seeds, at N ≥ ``smallest``."""
    row = dataset.sel(schedule=schedule, N=dataset["N"] >= smallest)
    return fit_power_law(row["N"], np.asarray(row["variance"]), np.asarray(row["variance_error"]))


def advantage(dataset: "xarray.Dataset", baseline: str) -> tuple[np.ndarray, PowerLaw | None]:
    """The optimum's gain over a baseline in theory, in standard deviations of a difference of two runs.

    Returns:
        (N,) the ratio, and its power law.
    """
    best, other = dataset.sel(schedule=OPTIMUM), dataset.sel(schedule=baseline)
    gain = np.asarray(other["theory"] - best["theory"])
    variance = np.asarray(best["variance"] + other["variance"])
    ratio = gain / np.sqrt(variance)
    spread = np.asarray(np.hypot(best["variance_error"], other["variance_error"])) / variance / 2
    return ratio, fit_power_law(dataset["N"], ratio, np.abs(ratio) * spread) if np.all(gain > 0) else None


def crossover(dataset: "xarray.Dataset", baseline: str) -> float:
    """N above which the optimum's gain over a baseline exceeds the scatter of a difference of two runs.

    It is interpolated between simulated N and extrapolated by the ratio's power law beyond them; NaN if there
    is no gain, or the ratio does not grow with N.
    """
    ratio, law = advantage(dataset, baseline)
    if law is None or law.exponent >= 0:
        return float("nan")
    N, growing = np.log(np.asarray(dataset["N"], dtype=float)), np.log(ratio)
    if growing[0] < 0 < growing[-1] and np.all(np.diff(growing) > 0):
        return float(np.exp(np.interp(0.0, growing, N)))
    return float(law.prefactor ** (1 / law.exponent))


def fit_power_law(N: Any, values: np.ndarray, errors: np.ndarray) -> PowerLaw | None:
    """Weighted straight line through the logarithms of absolute values; None with fewer than two values."""
    N, values, errors = (np.asarray(a, dtype=float) for a in (N, values, errors))
    if len(values) < 2 or not (np.all(values > 0) or np.all(values < 0)):
        return None
    x, y, weight = np.log(N), np.log(np.abs(values)), (values / errors) ** 2
    design = np.column_stack([np.ones_like(x), -x])
    covariance = np.linalg.inv(design.T @ (weight[:, None] * design))
    offset, exponent = covariance @ design.T @ (weight * y)
    chi2 = float(np.sum(weight * (y - design @ np.array([offset, exponent])) ** 2))
    prefactor = float(np.sign(values[0]) * np.exp(offset))
    return PowerLaw(float(exponent), float(np.sqrt(covariance[1, 1])), prefactor, chi2, len(values))


def _seed_at(seed: int, N: int) -> int:
    """Independent random numbers for each N, as the weights of fits assume."""
    return int(np.random.SeedSequence([seed, int(N)]).generate_state(1)[0])


def problem_at(scenario: Scenario, N: int, fixed: Mapping[str, Any]) -> tuple[Problem, bool]:
    """The problem at one N, and whether it depends on N, that is, whether the scenario has an argument N."""
    function = scenario_function(scenario)
    depends = "N" in inspect.signature(function).parameters
    return function(**{**fixed, **({"N": N} if depends else {})}), depends


def schedules_of(problem: Problem, names: Sequence[str] | None) -> dict[str, Schedule]:
    """The optimum and baselines (None: all), with free parameters attached."""
    others = all_baselines(problem) if names is None else {}
    for name in names or ():
        others[name] = _baseline(problem, name, "baselines must be among")
    schedules = {OPTIMUM: solve(problem).schedule, **others}
    return {name: _with_free_parameters(problem, schedule) for name, schedule in schedules.items()}
