"""The verb that forecasts where a run in progress will end."""

from pathlib import Path
from typing import Annotated

import typer

from optlearn._cli import inputs
from optlearn._cli.inputs import argument, flag, option, whole
from optlearn._cli.output import console, deliver, reporting
from optlearn._progress import Progress


def run_forecast(
    file: Annotated[Path, argument("LOG", "Log of the run so far: step, learning rate and loss.")],
    steps: Annotated[int, whole("Steps of the whole training.")],
    prior: Annotated[
        list[Path] | None,
        option("DIR", "Folder of logs of a smaller network, or of an earlier round. Repeatable."),
    ] = None,
    pilots: Annotated[Path | None, option("DIR", "Folder of logs of other runs of the same network.")] = None,
    warmup: Annotated[
        int | None, whole("Steps of a linear warm-up, if logs begin after it.", lowest=0)
    ] = None,
    end: Annotated[float, option("SHARE", "Final rate of a decay, as a share of the current rate.")] = 0.0,
    level: Annotated[float, option("NUMBER", "Coverage of the intervals.")] = 0.95,
    same_unit: Annotated[
        bool,
        flag("Treat all losses as being in the same unit, however different they look.", "--same-unit"),
    ] = False,
    seed: inputs.Seed = 0,
    as_json: inputs.Json = False,
    quiet: inputs.Quiet = False,
) -> None:
    """Forecast where a run in progress will end under common schedules, and when to begin its decay.

    A law is fitted to the run so far. Only runs with a decay show what a decay gains: give logs of a smaller
    network with --prior, or of other runs of the same network with --pilots. Without them the intervals are
    wide.

    Example: optlearn forecast run.csv --steps 100000 --prior small_runs
    """
    with reporting(quiet) as tell:
        from optlearn.laws import forecast

        tell(Progress("fitting the run" + (" and those of its prior" if prior else "")))
        result = forecast(
            file,
            steps,
            prior=prior,
            pilots=pilots,
            warmup=warmup,
            end=end,
            level=level,
            same_unit=same_unit,
            seed=seed,
        )
    deliver(result.to_dict(), None, as_json, lambda: console().print(result.summary(), markup=False))
    raise typer.Exit(0)
