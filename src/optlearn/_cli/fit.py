"""Verbs that fit to the user's data, or to loss curves of any network."""

import warnings
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optlearn._cli import inputs
from optlearn._cli.inputs import argument, flag, option, whole
from optlearn._cli.output import bad_input, console, deliver, exit_code, reporting, table
from optlearn._errors import RunawayError, SpecificationError
from optlearn._progress import Progress, Report

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

    from optlearn._control.problem import Problem
    from optlearn._control.solution import Solution
    from optlearn._schedule import Schedule
    from optlearn.laws import LawFit
    from optlearn.practice.fit import MixtureFit
    from optlearn.practice.regression import Check, ManyPassesFit, RegressionFit

# Files written for a schedule for data, and for one for loss curves.
SOLUTION_FILES = ("solution.nc", "schedule.csv", "schedule.json", "report.html")
CURVE_FILES = ("schedule.csv", "schedule.json", "next_pilot.csv", "curves.png")
SHAPES = ("wsd", "linear", "cosine", "power")


Task = StrEnum("Task", ["mixture", "regression"])  # purposes of data


def run_fit(
    file: Annotated[
        Path,
        argument(
            "DATA",
            "Samples and optional labels: NumPy arrays in an .npz file; for a regression also .npy "
            "(with --labels-file) or .csv with a header row.",
        ),
    ],
    task: Annotated[
        Task, option("TASK", "mixture: clusters, for SCENARIO; regression: a linear predictor of y from X.")
    ] = Task.mixture,
    scenario: Annotated[
        str, option("SCENARIO", "What to optimise: denoising or denoising_batch.")
    ] = "denoising",
    x_key: Annotated[str, option("NAME", "Name of the samples, (n, N) or (n, …), in the file.")] = "X",
    labels_key: Annotated[
        str | None, option("NAME", "Name of the labels, (n,) (default: y, if the file has it).")
    ] = None,
    weights_key: Annotated[
        str | None,
        option("NAME", "Name of the network's initial weights, (K, N) (default: random ones, see --nodes)."),
    ] = None,
    clusters: Annotated[
        int | None, whole("Find this many clusters by k-means instead of using labels.")
    ] = None,
    scale: Annotated[
        float | None,
        option(
            "NUMBER",
            "Divide the samples by this; noise then has variance 1 (default: chosen so that samples are no "
            "larger than the theory assumes).",
        ),
    ] = None,
    nodes: Annotated[int, whole("Hidden nodes of the network, with random weights.")] = 2,
    passes: Annotated[
        float, option("NUMBER", "Regression: passes over the data; 1: every sample is seen once.")
    ] = 1.0,
    test_share: Annotated[
        float, option("SHARE", "Regression with several passes: share of the samples held out.")
    ] = 0.2,
    labels_file: Annotated[Path | None, option("FILE", "Regression: .npy file of the labels.")] = None,
    seeds: Annotated[int, whole("Regression: training runs that check the prediction.", lowest=2)] = 16,
    settings: inputs.Settings = None,
    intervals: inputs.Intervals = None,
    starts: inputs.Starts = None,
    seed: inputs.Seed = 0,
    out: Annotated[Path | None, option("DIR", f"Folder for {', '.join(SOLUTION_FILES)}.")] = None,
    as_json: inputs.Json = False,
    quiet: inputs.Quiet = False,
) -> None:
    """Fit the theory's input model to your data, and find the optimal schedule for it.

    The model is a mixture of isotropic Gaussian clusters. Real data differ from it: a warning quantifies by
    how much.

    A regression measures the spectrum of features and the noise of labels, finds the learning rate (and, for
    several passes, the weight decay) of SGD on a linear predictor, and checks the prediction by training.

    Example: optlearn fit data.npz --set Delta_F=0.2 --out result

    Example: optlearn fit features.csv --task regression --passes 10
    """
    if task is Task.regression:
        for option, value in (("--set", settings), ("--clusters", clusters), ("--weights-key", weights_key)):
            if value is not None:
                bad_input(f"{option} is not for --task regression")
        _check_folder(out)
        if not passes >= 1:
            bad_input(f"--passes must be at least 1, got {passes:g}")
        solver = {"intervals": intervals, "seed": seed, "starts": 1, **inputs.chosen(starts=starts)}
        with reporting(quiet) as tell:
            samples = file, x_key, labels_key, labels_file
            solution, result, show = _fit_regression(samples, passes, test_share, seeds, solver, tell)
    else:
        arguments = inputs.scenario_arguments(scenario, settings, None)
        _check_folder(out)
        solver = {"intervals": intervals, "seed": seed, **inputs.chosen(starts=starts)}
        with reporting(quiet) as tell:
            data = file, x_key, labels_key, weights_key
            solution, result, show = _fit_mixture(
                data, clusters, scale, scenario, arguments, nodes, solver, tell
            )
    schedule = solution.schedule
    writers = (solution.save, schedule.to_csv, schedule.to_json, solution.report)
    _finish(solution, result, show, dict(zip(SOLUTION_FILES, writers, strict=True)), out, as_json)


# Output of a fit: the solution, the result for JSON, and a function that prints it.
Fitted = tuple["Solution", dict[str, Any], Callable[["Console"], None]]


def _fit_mixture(
    data: tuple[Path, str, str | None, str | None],
    clusters: int | None,
    scale: float | None,
    scenario: str,
    arguments: Mapping[str, Any],
    nodes: int,
    solver: Mapping[str, Any],
    tell: Report,
) -> Fitted:
    """Clusters of the samples, and the optimum of a scenario on them; ``data``: for ``_read``."""
    from optlearn._control.solve import solve
    from optlearn.practice.fit import gaussian_mixture

    tell(Progress("reading the data"))
    samples, labels, weights = _read(*data, clusters)
    tell(Progress("fitting the clusters"))
    fit = gaussian_mixture(samples, labels, clusters, solver["seed"])
    divisor = fit.natural_scale if scale is None else scale
    fit = fit.rescaled(divisor)
    try:
        problem = fit.problem(scenario, weights, nodes=nodes, seed=solver["seed"], **arguments)
    except TypeError as error:
        raise SpecificationError(f"--set: {error}") from error
    try:
        solution = solve(problem, progress=tell, **solver)
    except RunawayError as error:
        raise RunawayError(
            f"training diverges on these data, divided by {divisor:.4g}: use a larger --scale, or a smaller "
            "learning rate with --set eta=…"
        ) from error
    result = {"scenario": scenario, "arguments": arguments, "scale": divisor, "fit": fit.to_dict()}
    result |= solution.to_dict()
    return solution, result, lambda screen: _show_mixture(screen, fit, divisor, solution)


def _read(
    file: Path, x_key: str, labels_key: str | None, weights_key: str | None, clusters: int | None
) -> "tuple[np.ndarray, np.ndarray | None, np.ndarray | None]":
    """Samples, labels and weights from an ``.npz`` file, without unpickling."""
    import numpy as np

    from optlearn.practice.samples import Archive

    archive = Archive(file)

    def pick(option: str, key: str) -> "np.ndarray":
        if key not in archive.names:
            names = ", ".join(archive.names)
            raise SpecificationError(f"{option} {key}: {file} has no such array; it has {names}")
        return archive.read(key)

    samples = pick("--x-key", x_key)
    if not np.issubdtype(samples.dtype, np.number):
        raise SpecificationError(f"--x-key {x_key}: numbers are needed, this array has {samples.dtype}")
    labels = None
    if labels_key is not None:
        labels = pick("--labels-key", labels_key)
    elif clusters is None:
        if "y" not in archive.names:
            raise SpecificationError(
                f"{file} has no labels y; name them with --labels-key, or find clusters with --clusters"
            )
        labels = archive.read("y")
    return samples, labels, None if weights_key is None else pick("--weights-key", weights_key)


def _show_mixture(screen: "Console", fit: "MixtureFit", divisor: float, solution: "Solution") -> None:
    spread = (fit.isotropy.participation, fit.isotropy.expected)
    columns = zip(fit.classes, fit.probabilities, fit.sigma, fit.Omega.diagonal(), *spread, strict=True)
    rows = [
        (str(label), f"{share:.4f}", f"{sigma:.5g}", f"{norm:.5g}", f"{directions:.1f}", f"{expected:.0f}")
        for label, share, sigma, norm, directions, expected in columns
    ]
    headings = ("cluster", "share", "σ", "|μ|²/N", "directions", "if isotropic")
    title = f"{len(fit.assignment)} samples in {fit.N} dimensions"
    screen.print(table(title, headings, rows, words=["cluster"]))
    if divisor != 1:
        units = f"Samples were divided by {divisor:.4g}; noise has variance 1 in these units."
        screen.print(units, style="dim")
    screen.print(solution)


def _fit_regression(
    data: tuple[Path, str, str | None, Path | None],
    passes: float,
    test_share: float,
    seeds: int,
    solver: Mapping[str, Any],
    tell: Report,
) -> Fitted:
    """A linear predictor: the optimum, with predicted and actual training; ``data``: for ``read_samples``."""
    from optlearn._control.solve import solve
    from optlearn.practice.regression import ManyPassesFit, many_passes, regression
    from optlearn.practice.samples import read_samples

    tell(Progress("reading the data"))
    X, y = read_samples(*data)
    tell(Progress("measuring the spectrum"))
    fit: RegressionFit | ManyPassesFit
    if passes > 1:
        fit = many_passes(X, y, test_share, solver["seed"])
        problem = fit.problem(passes)
    else:
        fit = regression(X, y)
        problem = fit.problem(len(y))
    solution = solve(problem, progress=tell, **solver)
    tell(Progress("training"))
    checks = _checks(fit, problem, solution, seeds, solver["seed"])
    rates = fit.learning_rate(solution.schedule["learning_rate"])
    facts = fit.to_dict() | {"learning_rates": [float(rate) for rate in rates]}
    if isinstance(fit, ManyPassesFit):
        facts["weight_decay"] = float(fit.weight_decay(solution.parameters["weight_decay"]))
    trained = [check._asdict() for check in checks]
    result = {"task": "regression", "passes": passes, "fit": facts, "checks": trained, **solution.to_dict()}
    return solution, result, lambda screen: _show_regression(screen, facts, checks, solution)


def _checks(
    fit: "RegressionFit | ManyPassesFit", problem: "Problem", solution: "Solution", seeds: int, seed: int
) -> "list[Check]":
    """The optimum and a constant rate, both predicted and trained."""
    import numpy as np

    from optlearn._schedule import Schedule
    from optlearn.practice.regression import RegressionFit

    schedule = solution.schedule
    mean = float(np.average(schedule["learning_rate"], weights=np.diff(schedule.grid)))
    constant = Schedule.constant(problem.horizon, {"learning_rate": mean})
    schedules = {"optimum": schedule, "its mean rate": constant.with_parameters(**solution.parameters)}
    if isinstance(fit, RegressionFit):
        return fit.check(schedules, seeds, seed)
    # Sampling as in the theory, and as in most training loops.
    return fit.check(problem, schedules, "replacement", seeds, seed) + [
        check._replace(name=f"{check.name}, shuffled")
        for check in fit.check(problem, schedules, "shuffle", seeds, seed)
    ]


def _show_regression(
    screen: "Console", facts: Mapping[str, Any], checks: "list[Check]", solution: "Solution"
) -> None:
    noise = "unknown (as many weights as samples)" if facts["noise"] is None else f"{facts['noise']:.4g}"
    screen.print(
        f"{facts['samples']} samples of {facts['features']} features (κ = {facts['kappa']:.3g}); largest "
        f"direction {facts['largest']:.2g} of all variance; noise of the labels {noise}"
    )
    screen.print(solution)
    rates = facts["learning_rates"]
    screen.print(
        f"In your own loop, for the loss ½(f − y)²: learning rate from {rates[0]:.4g} to {rates[-1]:.4g}"
        + (f", weight decay {facts['weight_decay']:.4g}" if "weight_decay" in facts else "")
    )
    rows = [(c.name, f"{c.predicted:.5g}", f"{c.trained:.5g}", f"{c.standard_error:.1g}") for c in checks]
    headings = ("schedule", "predicted", "trained", "±")
    screen.print(table("Error at the end", headings, rows, words=["schedule"]))


def run_fit_curves(
    curves: Annotated[
        Path, argument("DIR", "Folder of logs (CSV or TensorBoard), or a file of several runs.")
    ],
    warmup: Annotated[
        int | None, whole("Steps of a linear warm-up, if logs begin after it.", lowest=0)
    ] = None,
    steps: Annotated[int | None, whole("Steps to plan for (default: the longest run's).")] = None,
    lowest: Annotated[float, option("RATE", "Lowest learning rate.")] = 0.0,
    highest: Annotated[
        float | None, option("RATE", "Highest learning rate (default: that of the logs).")
    ] = None,
    law: Annotated[str, option("LAW", "general, multi-power, sgd or momentum.")] = "general",
    best_fit: Annotated[
        bool, flag("Plan with the best-fit parameters alone, not with an ensemble.", "--best-fit")
    ] = False,
    falling: Annotated[bool, flag("The rate must not rise again.", "--falling")] = False,
    budget: Annotated[
        list[str] | None,
        option("DOMAIN=SHARE", "Mixtures: the largest share of a domain in all samples. Repeatable."),
    ] = None,
    weight: Annotated[
        list[str] | None, option("DOMAIN=NUMBER", "Mixtures: weight of a domain's final loss. Repeatable.")
    ] = None,
    limit: Annotated[
        list[str] | None,
        option("DOMAIN=LOSS", "Mixtures: the highest final loss allowed for a domain. Repeatable."),
    ] = None,
    intervals: inputs.Intervals = None,
    seed: inputs.Seed = 0,
    out: Annotated[Path | None, option("DIR", f"Folder for {', '.join(CURVE_FILES)}.")] = None,
    as_json: inputs.Json = False,
    quiet: inputs.Quiet = False,
) -> None:
    """Fit a law to the loss curves of any network, and find the best schedule under that law.

    Curves are logs of step, learning rate and loss from at least two runs with different rates. A warning
    quantifies what the law does not describe. With columns share_NAME and loss_NAME the order of data is
    planned
    too: the shares of domains over training.

    Example: optlearn fit-curves runs --warmup 2000 --out result

    Example: optlearn fit-curves runs --budget cpp=0.2 --limit python=1.0 --out result
    """
    _check_folder(out)
    with reporting(quiet) as tell:
        from optlearn._control.solve import solve
        from optlearn.laws import LawWarning, MixtureFit, fit, next_pilot

        tell(Progress("reading the curves"))
        mixed = {"budget": budget, "weight": weight, "limit": limit}
        numbers = {name: inputs.by_name(f"--{name}", given) for name, given in mixed.items()}
        _check_plan(curves, warmup, steps, (lowest, highest), numbers, falling)
        tell(Progress("fitting the curves"))
        law_fit = fit(curves, warmup=warmup, law=law, seed=seed)
        if isinstance(law_fit, MixtureFit):
            from optlearn._cli.mixtures import plan_mixture

            options = {"steps": steps, "lowest": lowest, "highest": highest, "seed": seed}
            options["robust"] = not best_fit
            planned = plan_mixture(law_fit, numbers, intervals, options, tell)
            _finish(*planned, out, as_json)
            return
        bounds = (lowest, law_fit.data.scale.peak if highest is None else highest)
        problem = law_fit.problem(steps, bounds, not best_fit, falling=falling, seed=seed)
        solution = solve(problem, intervals, method="indirect", seed=seed, progress=tell)
        schedule = law_fit.schedule(solution)
        tell(Progress("choosing the next pilot run"))

        def final_loss(simple: "Schedule") -> float:
            return float(law_fit.predict(simple)[-1])

        with warnings.catch_warnings():  # the problem has already warned of rates and steps beyond the curves
            warnings.simplefilter("ignore", LawWarning)
            pilot = next_pilot(law_fit, steps, bounds, seed)
            shapes = {name: schedule.nearest(name, loss=final_loss) for name in SHAPES}
            low, high = (float(ends[-1]) for ends in law_fit.interval(schedule))
            predicted = {"loss": final_loss(schedule), "low": low, "high": high}
        left_out = law_fit.leave_one_out() if len(law_fit.data.curves) > 2 else {}
    result: dict[str, Any] = {
        "fit": law_fit.to_dict(),
        "leave_one_out": left_out,
        "schedule": {"grid": schedule.grid, "learning_rate": schedule["learning_rate"]},
        "predicted": predicted,
        "shapes": {name: {**s.settings, "cost": s.cost} for name, s in shapes.items()},
        "next_pilot": {"grid": pilot.grid, "learning_rate": pilot["learning_rate"]},
        "certificate": solution.certificate.to_dict(),
        "seconds": solution.seconds,
    }

    def show(screen: "Console") -> None:
        _show_curves(screen, law_fit, result)

    writers = (
        partial(schedule.to_csv, steps=round(schedule.horizon)),
        schedule.to_json,
        partial(pilot.to_csv, steps=round(pilot.horizon)),
        lambda path: law_fit.plot(schedule).savefig(path, dpi=150),
    )
    _finish(solution, result, show, dict(zip(CURVE_FILES, writers, strict=True)), out, as_json)


def _check_plan(
    curves: Path,
    warmup: int | None,
    steps: int | None,
    rates: tuple[float, float | None],
    numbers: Mapping[str, Mapping[str, float]],
    falling: bool,
) -> None:
    """Refuse what cannot be planned for the curves, before they are fitted."""
    import numpy as np

    from optlearn.laws import LawWarning, read_curves
    from optlearn.laws._mixture_curves import read_mixtures

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LawWarning)  # the fit says it again
        mixtures = read_mixtures(curves)
        runs = read_curves(curves) if mixtures is None else [curve.rates for curve in mixtures]
    lowest, highest = rates
    if highest is None:
        highest = max(float(run.known[1].max()) for run in runs)
    if not 0 <= lowest < highest < np.inf:
        default = ", the highest of the logs" if rates[1] is None else ""
        bad_input(f"--lowest must be from 0 to below --highest, got {lowest:g} and {highest:g}{default}")
    rise = round(warmup or float(np.median([run.rise for run in runs])))
    if steps is not None and steps <= rise:
        bad_input(f"--steps must exceed the {rise} steps of the warm-up, got {steps}")
    if mixtures is not None and falling:
        bad_input("--falling is for curves of one loss: the rate of a mixture may rise again")
    for name, given in numbers.items():
        if mixtures is None and given:
            bad_input(f"--{name} is for curves of mixtures, with columns share_NAME and loss_NAME")


def _show_curves(screen: "Console", law_fit: "LawFit", result: Mapping[str, Any]) -> None:
    screen.print(law_fit.summary(), markup=False)
    if result["leave_one_out"]:
        worst = max(result["leave_one_out"].items(), key=lambda item: item[1]["PredE"])
        off = 100 * worst[1]["PredE"]
        screen.print(f"leave-one-out prediction: mean error at most {off:.2g} % ({worst[0]})")
    loss, low, high = (result["predicted"][key] for key in ("loss", "low", "high"))
    screen.print(f"best schedule: predicted loss {loss:.4f} ({low:.4f} to {high:.4f})")
    for name, shape in result["shapes"].items():
        numbers = ", ".join(f"{key} {value:.3g}" for key, value in shape.items() if key != "cost")
        screen.print(f"  as {name}: {shape['cost']:+.4f} ({numbers})")


def _check_folder(out: Path | None) -> None:
    """Reject a folder name that is a file."""
    if out is not None and out.exists() and not out.is_dir():
        bad_input(f"--out {out}: must be a folder, this is a file")


def _finish(
    solution: "Solution",
    result: Mapping[str, Any],
    show: Callable[["Console"], None],
    writers: Mapping[str, Callable[[Path], object]],
    out: Path | None,
    as_json: bool,
) -> None:
    """Print the result, write each of its files into the folder ``out``, and exit."""

    def show_all() -> None:
        screen = console()
        show(screen)
        if out is not None:
            screen.print(f"{out}: {', '.join(writers)}", style="dim")

    deliver(result, None, as_json, show_all)
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
            for name, write in writers.items():
                write(out / name)
        except OSError as error:
            bad_input(f"--out {out}: {error.strerror or error}")
    raise typer.Exit(exit_code(solution))
