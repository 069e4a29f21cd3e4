"""``optlearn fit-curves``: the best learning rate for any network, from its own loss curves."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optlearn._cli import options
from optlearn._cli.output import bad_input, console, deliver, exit_code, reporting
from optlearn._progress import Progress

if TYPE_CHECKING:
    from optlearn._schedule import Schedule
    from optlearn.laws import LawFit

FILES = ("schedule.csv", "schedule.json", "next_pilot.csv", "curves.png")
SHAPES = ("wsd", "linear", "cosine", "power")


def command(
    curves: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder of logs (CSV or TensorBoard), or a file of several runs."),
    ],
    warmup: Annotated[int, options.whole("Steps of a linear warm-up, if logs begin after it.", lowest=0)] = 0,
    steps: Annotated[int | None, options.whole("Steps to plan for (default: the longest run's).")] = None,
    lowest: Annotated[float, typer.Option(metavar="RATE", help="Lowest learning rate.")] = 0.0,
    highest: Annotated[
        float | None, typer.Option(metavar="RATE", help="Highest learning rate (default: that of the logs).")
    ] = None,
    law: Annotated[
        str, typer.Option(metavar="LAW", help="general, multi-power, sgd or momentum.")
    ] = "general",
    best_fit: Annotated[
        bool, options.flag("--best-fit", text="Plan by the best parameters alone, not by an ensemble.")
    ] = False,
    falling: Annotated[bool, options.flag("--falling", text="The rate must not rise again.")] = False,
    intervals: options.Intervals = None,
    seed: options.Seed = 0,
    out: Annotated[Path | None, options.folder(f"Folder for {', '.join(FILES)}.")] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit a law to loss curves of any network, and find the schedule that it calls best.

    Curves are logs of step, learning rate and loss, of at least two runs whose rates differ. What the law
    does not describe is said, with numbers.

    Example: optlearn fit-curves runs --warmup 2000 --out result
    """
    if out is not None and out.exists() and not out.is_dir():
        bad_input(f"--out {out}: this is a file; a folder is needed")
    with reporting(quiet) as tell:
        from optlearn._control.solve import solve
        from optlearn.laws import fit, next_pilot

        tell(Progress("fitting the curves"))
        found = fit(curves, warmup=warmup, law=law, seed=seed)
        bounds = (lowest, found.data.scale.peak if highest is None else highest)
        problem = found.problem(steps, bounds, not best_fit, falling=falling, seed=seed)
        solution = solve(problem, intervals, method="indirect", seed=seed, progress=tell)
        schedule = found.schedule(solution)
        tell(Progress("asking what is left to know"))
        pilot = next_pilot(found, steps, bounds, seed)
        shapes = {name: schedule.nearest(name, loss=lambda s: float(found.predict(s)[-1])) for name in SHAPES}
        left_out = found.leave_one_out() if len(found.data.curves) > 2 else {}
    low, high = (float(ends[-1]) for ends in found.interval(schedule))
    predicted = {"loss": float(found.predict(schedule)[-1]), "low": low, "high": high}
    result: dict[str, Any] = {
        "fit": found.to_dict(),
        "leave_one_out": left_out,
        "schedule": {"grid": schedule.grid, "learning_rate": schedule["learning_rate"]},
        "predicted": predicted,
        "shapes": {name: {**s.settings, "cost": s.cost} for name, s in shapes.items()},
        "next_pilot": {"grid": pilot.grid, "learning_rate": pilot["learning_rate"]},
        "certificate": solution.certificate.to_dict(),
        "seconds": solution.seconds,
    }
    deliver(result, None, as_json, lambda: _show(found, result, out))
    if out is not None:
        _write(found, schedule, pilot, out)
    raise typer.Exit(exit_code(solution))


def _write(found: "LawFit", schedule: "Schedule", pilot: "Schedule", out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        schedule.to_csv(out / FILES[0], steps=round(schedule.horizon))
        schedule.to_json(out / FILES[1])
        pilot.to_csv(out / FILES[2], steps=round(pilot.horizon))
        found.plot(schedule).savefig(out / FILES[3], dpi=150)
    except OSError as error:
        bad_input(f"--out {out}: {error.strerror or error}")


def _show(found: "LawFit", result: dict[str, Any], out: Path | None) -> None:
    screen = console()
    screen.print(found.summary(), markup=False)
    if result["leave_one_out"]:
        worst = max(result["leave_one_out"].items(), key=lambda item: item[1]["PredE"])
        off = 100 * worst[1]["PredE"]
        screen.print(f"left out and predicted: at most {off:.2g} % off on average ({worst[0]})")
    loss, low, high = (result["predicted"][key] for key in ("loss", "low", "high"))
    screen.print(f"best schedule: loss {loss:.4f} predicted ({low:.4f} to {high:.4f})")
    for name, shape in result["shapes"].items():
        numbers = ", ".join(f"{key} {value:.3g}" for key, value in shape.items() if key != "cost")
        screen.print(f"  as {name}: {shape['cost']:+.4f} ({numbers})")
    if out is not None:
        screen.print(f"{out}: {', '.join(FILES)}", style="dim")
