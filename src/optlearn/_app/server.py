"""Serve the explorer on this machine, to this machine only.

A server on 127.0.0.1 is not out of reach of the web: a page elsewhere may point a name of its own at that
address (DNS rebinding), and the browser then takes the explorer for a part of that page. Its requests still
carry the name, in ``Host``; and what one page sends to another carries its home, in ``Origin``.

One thread makes all pages and answers everybody. Making a page takes a good part of a second, so when many
are asked for at once, some must wait: else the pages that are open would hear nothing for as long.
"""

import logging
import os
import socket
import threading
import time
import webbrowser
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import ip_address
from math import ceil
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

import panel as pn
from panel.io import hold
from panel.io.resources import LOCAL_DIST
from tornado.httputil import HTTPServerRequest
from tornado.ioloop import IOLoop
from tornado.routing import Matcher, Rule
from tornado.web import Application, RequestHandler
from typing_extensions import override

from optlearn._app import SCENARIO
from optlearn._app.messages import as_text, defaults, typed
from optlearn._app.page import Page
from optlearn._app.parts import Address
from optlearn._app.worker import Worker
from optlearn.scenarios._arguments import Value
from optlearn.scenarios._files import find

ADDRESS = "127.0.0.1"
TITLE = "optlearn explorer"
ALIVE = "alive"  # path at which the page asks whether the server is there, and whether it is the same one
# Pages that may be made at once, and seconds that the thread may owe: after a page it rests for as long.
AT_ONCE, OWED = 3, 1.0
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
    find(scenario)  # a page shows no file but one that is named here
    query = urlencode({"scenario": scenario, **typed(scenario, values)})
    port = _free_port(port)
    logging.getLogger("bokeh.server").setLevel(logging.ERROR)  # otherwise every closed page is logged
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
    let_crowds_wait(server._tornado)
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
    """Names this run of the server, so that a page knows that it must reload after a restart."""

    @override
    def initialize(self, run: str) -> None:
        self._run = run

    @override
    def get(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.finish(self._run)


def _free_port(wanted: int) -> int:
    """The port that is wanted, or any if that is 0; an OSError if it is taken."""
    with socket.socket() as probe:
        if os.name == "posix":  # elsewhere this would take a port from another program
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((ADDRESS, wanted))
        return int(probe.getsockname()[1])


def admits(host: str, origin: str | None) -> bool:
    """May a request with these headers be answered?

    Args:
        host: whom the browser thinks it talks to, ``name:port``; any port, since one may be forwarded.
        origin: of the page that asks, ``http://name:port``; None where the header is missing, as it is when
            a user opens an address.
    """
    return _is_loopback(host) and origin in (None, f"http://{host}")


def _is_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # brackets that do not match
        return False
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


class _Stranger(Matcher):
    """Matches what must be refused."""

    @override
    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        admitted = admits(request.headers.get("Host", ""), request.headers.get("Origin"))
        return None if admitted else {}


class _Refusal(RequestHandler):
    """403 to whatever is asked."""

    @override
    def prepare(self) -> None:
        """Answer before the request's method is looked at."""
        self.set_status(403)
        self.finish("The explorer answers to this machine only: open http://127.0.0.1 with its port.\n")


def keep_out_strangers(application: Application) -> None:
    """Refuse, in front of all that the server serves, websockets too."""
    application.default_router.rules.insert(0, Rule(_Stranger(), _Refusal))


class _Crowd(Matcher):
    """Matches pages that are asked for while too many others are being made."""

    def __init__(self) -> None:
        self._making = 0  # pages that have been asked for, and are not there yet
        self._rested = 0.0  # when the thread will have rested from all pages that it has made

    @property
    def wait(self) -> int:
        """Seconds until the next page may be asked for."""
        return ceil(max(self._rested - time.monotonic(), 0.0))

    @override
    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        if request.path != "/":
            return None
        if self._making >= AT_ONCE or self._rested - time.monotonic() > OWED:
            return {}
        self._making += 1
        return None

    def made(self, handler: RequestHandler) -> None:
        """A request has been answered."""
        if handler.request.path == "/" and not isinstance(handler, _Later | _Refusal):
            took = handler.request.request_time()
            self._making -= 1
            self._rested = max(self._rested, time.monotonic() - took) + 2 * took


class _Later(RequestHandler):
    """503 to whoever asks for a page now; a browser asks again by itself."""

    @override
    def initialize(self, crowd: _Crowd) -> None:
        self._crowd = crowd

    @override
    def prepare(self) -> None:
        """Answer before the request's method is looked at."""
        wait = max(1, self._crowd.wait)
        self.set_status(503)
        self.set_header("Retry-After", str(wait))
        self.finish(
            f'<!doctype html><title>{TITLE}</title><meta http-equiv="refresh" content="{wait}">'
            f"<p>The explorer is opening other pages. This one comes in about {wait} s.</p>\n"
        )


def let_crowds_wait(application: Application) -> None:
    """Make no more pages at once than leave the thread time for everybody."""
    crowd = _Crowd()
    # Behind strangers, who are refused in any case.
    application.default_router.rules.insert(1, Rule(crowd, _Later, {"crowd": crowd}))
    application.settings["log_function"] = crowd.made
