"""``optlearn explore``: a page on which parameters can be moved."""

from importlib.util import find_spec
from typing import Annotated

import typer

from optlearn._cli import options
from optlearn._cli.inputs import scenario_arguments
from optlearn._cli.output import bad_input, console, deliver
from optlearn._errors import SpecificationError, how_to_install


def command(
    scenario: Annotated[
        str, options.scenario_argument("Name of the scenario to begin with; `optlearn list` shows them.")
    ] = "curriculum",
    settings: Annotated[list[str] | None, options.settings_option("A parameter to begin with.")] = None,
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Port on 127.0.0.1; 0: any free one.")
    ] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser.")] = True,
    as_json: Annotated[bool, options.flag("--json", text="Print the address as one JSON object.")] = False,
) -> None:
    """Open a page on this machine: move parameters, see the optimal schedule, download it.

    The page is served to this machine only and needs no network. Ctrl-C ends it.

    Example: optlearn explore dropout --set sigma_n=0.2
    """
    values = scenario_arguments(scenario, settings, None)
    if find_spec("panel") is None:
        bad_input(f"the explorer needs Panel, which is not installed: {how_to_install('app')}")
    console(stderr=True).print("loading …", style="dim")
    from optlearn._app import serve

    def started(url: str) -> None:
        deliver({"url": url}, None, as_json, lambda: console().print(f"{url}\nCtrl-C ends it.", markup=False))

    try:
        serve(scenario, values, port=port, browser=browser, started=started)
    except SpecificationError as error:
        bad_input(f"--set: {error}")
    except OSError as error:
        bad_input(f"--port {port}: {error.strerror or error}")
    except KeyboardInterrupt:
        console(stderr=True).print("stopped", style="yellow")
