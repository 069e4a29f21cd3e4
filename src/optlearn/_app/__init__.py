"""The explorer: a local page for moving a scenario's parameters.

``optlearn explore`` opens it. It needs the extra ``app`` (Panel), which is loaded when it is used.
"""

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["serve"]

WORK = "optlearn._app.solver:work"
SCENARIO = "curriculum"  # shown at first
# Seconds that a cancelled simulation may take to end, since compiling cannot be interrupted.
COMPILING = 60.0


def serve(
    scenario: str = SCENARIO,
    values: Mapping[str, Any] | None = None,
    *,
    port: int = 0,
    browser: bool = True,
    started: Callable[[str], None] = print,
) -> None:
    """Serve the explorer to this machine until Ctrl-C.

    Args:
        scenario: scenario to show first.
        values: arguments of the scenario that differ from its defaults.
        port: port on 127.0.0.1; 0 for any free one.
        browser: open a browser.
        started: called with the address of the page once it can be opened.

    Raises:
        SpecificationError: there is no such scenario, or its page cannot show these values.
        OSError: the port is taken.
    """
    from optlearn._app.worker import Worker

    solver, simulator = Worker(WORK), Worker(WORK, patience=COMPILING)
    solver.start()  # it loads while the page is being prepared
    try:
        from optlearn._app.server import run

        run(solver, simulator, scenario, values or {}, port, browser, started)
    finally:
        solver.stop()
        simulator.stop()
