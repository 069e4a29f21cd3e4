"""``optlearn fit``: the schedule for one's own data."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optlearn._cli import options
from optlearn._cli.inputs import given, scenario_arguments
from optlearn._cli.output import (
    SOLUTION_FILES,
    bad_input,
    check_folder,
    console,
    deliver,
    exit_code,
    reporting,
    write_solution,
)
from optlearn._errors import RunawayError, SpecificationError
from optlearn._progress import Progress

if TYPE_CHECKING:
    import numpy as np

    from optlearn._control.solution import Solution
    from optlearn.practice.fit import MixtureFit


class Task(StrEnum):
    """What data are for."""

    mixture = "mixture"
    regression = "regression"


def command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="Samples and, maybe, labels: NumPy's arrays in an .npz file; for a regression also .npy "
            "(with --labels-file) or .csv with a row of names.",
        ),
    ],
    task: Annotated[
        Task,
        typer.Option(
            metavar="TASK",
            help="mixture: clusters, for SCENARIO; regression: a linear predictor of y from X.",
        ),
    ] = Task.mixture,
    scenario: Annotated[
        str, typer.Option(metavar="SCENARIO", help="What to optimise: denoising or denoising_batch.")
    ] = "denoising",
    x_key: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the samples, (n, N) or (n, …), in the file.")
    ] = "X",
    labels_key: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the labels, (n,) (default: y, if the file has it)."),
    ] = None,
    weights_key: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the network's initial weights, (K, N) (default: random ones, see --nodes).",
        ),
    ] = None,
    clusters: Annotated[
        int | None, options.whole("Find so many clusters by k-means instead of using labels.")
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Divide the samples by this; noise has variance 1 after it (default: what makes them no "
            "larger than the theory assumes).",
        ),
    ] = None,
    nodes: Annotated[int, options.whole("Hidden nodes of the network, with random weights.")] = 2,
    passes: Annotated[
        float,
        typer.Option(
            metavar="NUMBER", help="Of a regression: how often each sample is seen; 1: fresh samples."
        ),
    ] = 1.0,
    test_share: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Of a regression of several passes: samples that are held out."),
    ] = 0.2,
    labels_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of a regression: .npy file of the labels.")
    ] = None,
    seeds: Annotated[
        int, options.whole("Of a regression: trainings that check the prediction.", lowest=2)
    ] = 16,
    settings: options.Settings = None,
    intervals: options.Intervals = None,
    starts: options.Starts = None,
    seed: options.Seed = 0,
    out: Annotated[Path | None, options.folder(f"Folder for {', '.join(SOLUTION_FILES)}.")] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit the theory's model of inputs to data, and find the optimal schedule for them.

    The model is a mixture of Gaussian clusters, each spread alike in all directions. Real data are not: a
    warning says, with numbers, how far they are from it.

    A regression measures the spectrum of features and the noise of labels, finds the learning rate (and, for
    several passes, the weight decay) of SGD on a linear predictor, and trains some to check.

    Example: optlearn fit data.npz --set Delta_F=0.2 --out result

    Example: optlearn fit features.csv --task regression --passes 10
    """
    if task is Task.regression:
        from optlearn._cli.regression import Regression

        for option, given_value in (
            ("--set", settings),
            ("--clusters", clusters),
            ("--weights-key", weights_key),
        ):
            if given_value is not None:
                bad_input(f"{option} is not for --task regression")
        asked = Regression(passes, test_share, seeds, seed, intervals, given(starts=starts))
        raise typer.Exit(asked.run(file, (x_key, labels_key, labels_file), out, as_json, quiet))
    arguments = scenario_arguments(scenario, settings, None)
    check_folder(out)
    limits = given(starts=starts)
    with reporting(quiet) as tell:
        from optlearn._control.solve import solve
        from optlearn.practice.fit import gaussian_mixture

        tell(Progress("reading the data"))
        samples, labels, weights = _read(file, x_key, labels_key, weights_key, clusters)
        tell(Progress("fitting the clusters"))
        found = gaussian_mixture(samples, labels, clusters, seed)
        divisor = found.natural_scale if scale is None else scale
        found = found.rescaled(divisor)
        try:
            problem = found.problem(scenario, weights, nodes=nodes, seed=seed, **arguments)
        except TypeError as error:
            raise SpecificationError(f"--set: {error}") from error
        try:
            solution = solve(problem, intervals, seed=seed, progress=tell, **limits)
        except RunawayError as error:
            raise RunawayError(
                f"training runs away on these data, divided by {divisor:.4g}: give a larger --scale, or a "
                "smaller learning rate than the scenario's by --set eta=…"
            ) from error
    result = {
        "scenario": scenario,
        "arguments": arguments,
        "scale": divisor,
        "fit": found.to_dict(),
        **solution.to_dict(),
    }
    deliver(result, None, as_json, lambda: _show(found, divisor, solution, out))
    if out is not None:
        write_solution(solution, out)
    raise typer.Exit(exit_code(solution))


def _read(
    file: Path, x_key: str, labels_key: str | None, weights_key: str | None, clusters: int | None
) -> "tuple[np.ndarray, np.ndarray | None, np.ndarray | None]":
    """Samples, labels and weights of an ``.npz`` file, without ever unpickling."""
    import numpy as np

    from optlearn.practice.samples import Archive

    archive = Archive(file)

    def pick(option: str, key: str) -> "np.ndarray":
        if key not in archive.names:
            known = ", ".join(archive.names)
            raise SpecificationError(f"{option} {key}: {file} has no such array; it has {known}")
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
                f"{file} has no labels y; name them by --labels-key, or give --clusters to find clusters"
            )
        labels = archive.read("y")
    return samples, labels, None if weights_key is None else pick("--weights-key", weights_key)


def _show(found: "MixtureFit", divisor: float, solution: "Solution", out: Path | None) -> None:
    from rich.table import Table

    screen = console()
    table = Table(title=f"{len(found.assignment)} samples in {found.N} dimensions")
    for heading in ("cluster", "share", "σ", "|μ|²/N", "directions", "if isotropic"):
        table.add_column(heading, justify="left" if heading == "cluster" else "right")
    for c, label in enumerate(found.classes):
        table.add_row(
            str(label),
            f"{found.probabilities[c]:.4f}",
            f"{found.sigma[c]:.5g}",
            f"{found.Omega[c, c]:.5g}",
            f"{found.isotropy.participation[c]:.1f}",
            f"{found.isotropy.expected[c]:.0f}",
        )
    screen.print(table)
    if divisor != 1:
        screen.print(
            f"Samples were divided by {divisor:.4g}; noise has variance 1 in these units.", style="dim"
        )
    screen.print(solution)
    if out is not None:
        screen.print(f"{out}: {', '.join(SOLUTION_FILES)}", style="dim")
