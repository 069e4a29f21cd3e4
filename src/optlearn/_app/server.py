"""Serve the explorer on this machine, to this machine only."""

import logging
import os
import socket
import threading
import webbrowser
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import panel as pn
from panel.io import hold
from panel.io.resources import LOCAL_DIST
from tornado.ioloop import IOLoop
from tornado.web import RequestHandler

from optlearn._app import SCENARIO
from optlearn._app.form import Address
from optlearn._app.guard import keep_out_strangers
from optlearn._app.page import Page
from optlearn._app.parameters import as_text, defaults, typed
from optlearn._app.worker import Worker
from optlearn._errors import SpecificationError
from optlearn.scenarios import list_scenarios
from optlearn.scenarios._arguments import Value

ADDRESS = "127.0.0.1"
TITLE = "optlearn explorer"
ALIVE = "alive"  # path at which the page asks whether the server is there, and whether it is the same one
KEPT = 300_000  # milliseconds for which a page may be out of reach, as on a machine that sleeps


def run(
    solver: Worker,
    simulator: Worker,
    scenario: str,
    values: Mapping[str, Any],
    port: int,
    browser: bool,
    started: Callable[[str], None],
) -> None:
    """Serve until Ctrl-C; see ``optlearn._app.serve``."""
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
        websocket_origin="*",  # the guard has seen to that, and Bokeh's own list knows no IPv6
        location=False,
        extra_patterns=[(f"/{ALIVE}", _Alive, {"run": uuid4().hex})],
        start=False,
        show=False,
        verbose=False,
        unused_session_lifetime_milliseconds=KEPT,
    )
    keep_out_strangers(server._tornado)
    server.start()
    url = f"http://{ADDRESS}:{port}/?{query}"
    started(url)
    if browser:
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
    server.io_loop.start()


def _open(solver: Worker, simulator: Worker) -> pn.Template:
    """A visitor's page."""
    use_local_files(pn.state.curdoc)
    asked = {name: words[0].decode(errors="replace") for name, words in pn.state.session_args.items()}
    scenario = asked.pop("scenario", SCENARIO)
    mailbox = Mailbox(pn.state.curdoc, IOLoop.current())
    page = Page(solver, simulator, scenario, asked, mailbox.deliver)
    page.changed = partial(_remember, page.address)

    def leave(context: Any) -> None:
        page.close()
        mailbox.close()

    pn.state.onload(mailbox.open)
    pn.state.on_session_destroyed(leave)
    return page.template()


def use_local_files(document: Any) -> None:
    """Let style sheets come from this server.

    Panel does that when it writes the page; but a browser that takes long to connect gets a new document
    without a new page, and would be sent to a content delivery network.
    """
    document.template_variables["dist_url"] = LOCAL_DIST


class Mailbox:
    """Calls functions in a document's thread, in order, as soon as the browser shows the document.

    Bokeh forgets the order of callbacks that are added before the browser has connected, and Panel drops
    what changes after the browser has fetched the document and before it has drawn it.

    Args:
        document: of Bokeh.
        loop: the server's event loop.
    """

    def __init__(self, document: Any, loop: Any) -> None:
        self._document, self._loop = document, loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._shown = self._closed = False

    def deliver(self, call: Callable[[], None]) -> None:
        """To be called from any thread."""
        self._waiting.append(call)
        self._loop.add_callback(self._schedule)

    def open(self) -> None:
        """The browser shows the document."""
        self._shown = True
        self._schedule()

    def close(self) -> None:
        """The document is gone."""
        self._closed = True
        self._waiting.clear()

    def _schedule(self) -> None:
        if self._shown and not self._closed and self._waiting:
            self._document.add_next_tick_callback(self._call_all)

    def _call_all(self) -> None:
        with hold(self._document):  # one message to the browser, not one for each change
            while self._waiting:
                self._waiting.popleft()()


def _remember(address: Address, scenario: str, values: Mapping[str, Value]) -> None:
    """Keep what is shown in the page's address, so that it survives a reload and can be noted."""
    first = defaults(scenario)
    moved = {name: as_text(value) for name, value in values.items() if value != first[name]}
    address.search = "?" + urlencode({"scenario": scenario, **moved})


class _Alive(RequestHandler):
    """Says which run of the server this is: after a restart the page has to be loaded anew.

    Args:
        run: its name.
    """

    def initialize(self, run: str) -> None:
        self._run = run

    def get(self) -> None:
        """The name of the run."""
        self.set_header("Cache-Control", "no-store")
        self.finish(self._run)


def _free_port(wanted: int) -> int:
    """The port that is wanted, or any if that is 0; an OSError if it is taken."""
    with socket.socket() as one:
        if os.name == "posix":  # elsewhere this would take a port from another program
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((ADDRESS, wanted))
        return int(one.getsockname()[1])
