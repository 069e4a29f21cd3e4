"""Serve the explorer on this machine, to this machine only."""

import logging
import os
import queue
import socket
import threading
import webbrowser
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode

import panel as pn
from panel.io import hold

from optlearn.app import SCENARIO
from optlearn.app.page import Page
from optlearn.app.parameters import Value, as_text, defaults, typed
from optlearn.app.worker import Worker
from optlearn.scenarios import list_scenarios
from optlearn.theory.errors import SpecificationError

ADDRESS = "127.0.0.1"
TITLE = "optlearn explorer"


def run(
    solver: Worker,
    simulator: Worker,
    scenario: str,
    values: Mapping[str, Any],
    port: int,
    browser: bool,
    started: Callable[[str], None],
) -> None:
    """Serve until Ctrl-C; see ``optlearn.app.serve``."""
    if scenario not in list_scenarios():
        raise SpecificationError(f"no scenario {scenario!r}; there are {', '.join(list_scenarios())}")
    query = urlencode({"scenario": scenario, **typed(scenario, values)})
    port = _free_port(port)
    logging.getLogger("bokeh.server").setLevel(logging.ERROR)  # a page that is closed is no news
    pn.extension()
    server = pn.serve(
        {"/": lambda: _open(solver, simulator)},
        title={"/": TITLE},
        address=ADDRESS,
        port=port,
        websocket_origin=[f"{ADDRESS}:{port}", f"localhost:{port}"],
        start=False,
        show=False,
        verbose=False,
    )
    server.start()
    url = f"http://{ADDRESS}:{port}/?{query}"
    started(url)
    if browser:
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
    server.io_loop.start()


def _open(solver: Worker, simulator: Worker) -> pn.Template:
    """A visitor's page."""
    document = pn.state.curdoc
    asked = {name: words[0].decode() for name, words in pn.state.session_args.items()}
    scenario = asked.pop("scenario", SCENARIO)
    if scenario not in list_scenarios():
        scenario, asked = SCENARIO, {}

    page = Page(solver, simulator, scenario, asked, _in_order(document))
    page.changed = partial(_remember, pn.state.location)
    pn.state.on_session_destroyed(lambda context: page.close())
    return page.template()


def _in_order(document: Any) -> Callable[[Callable[[], None]], None]:
    """A function that calls others in the document's thread, in the order in which it was given them.

    Bokeh forgets the order of callbacks that are added before the browser has connected.
    """
    waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def call_all() -> None:
        with hold(document):  # one message to the browser, not one for each change
            while not waiting.empty():
                waiting.get()()

    def deliver(call: Callable[[], None]) -> None:
        waiting.put(call)
        document.add_next_tick_callback(call_all)

    return deliver


def _remember(location: Any, scenario: str, values: Mapping[str, Value]) -> None:
    """Keep what is shown in the page's address, so that it survives a reload and can be noted."""
    if location is not None:
        first = defaults(scenario)
        moved = {name: as_text(value) for name, value in values.items() if value != first[name]}
        location.search = "?" + urlencode({"scenario": scenario, **moved})


def _free_port(wanted: int) -> int:
    """The port that is wanted, or any if that is 0; an OSError if it is taken."""
    with socket.socket() as one:
        if os.name == "posix":  # elsewhere this would take a port from another program
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((ADDRESS, wanted))
        return int(one.getsockname()[1])
