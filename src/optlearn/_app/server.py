"""Serve the explorer on this machine, to this machine only.

A server on 127.0.0.1 is reachable from the web: a page elsewhere may let its own host name resolve to that
address (DNS rebinding), and the browser then treats the explorer as part of that page. Its requests still
carry the name in ``Host``, and requests across sites carry their source in ``Origin``.

One thread builds all pages and answers all requests. Building a page takes a good part of a second, so if
many are requested at once, some must wait; otherwise open pages would get no answers for that time.
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
ALIVE = "alive"  # path at which the page checks whether the server is up, and still the same one
# Pages that may be built at once, and seconds that the thread may owe: after a page it rests for as long.
AT_ONCE, OWED = 3, 1.0
KEPT = 300_000  # milliseconds for which a page may be unreachable, as on a sleeping machine


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
    find(scenario)  # pages can access only the files named here
    query = urlencode({"scenario": scenario, **typed(scenario, values)})
    port = _free_port(port)
    logging.getLogger("bokeh.server").setLevel(logging.ERROR)  # otherwise every closed page is logged
    pn.extension()
    server = pn.serve(
        {"/": lambda: _open(solver, simulator)},
        title={"/": TITLE},
        address=ADDRESS,
        port=port,
        websocket_origin="*",  # the guard checks this, and Bokeh's own list does not support IPv6
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
    """Serve style sheets from this server.

    Panel does this when it writes the page; but a browser that connects slowly gets a new document without a
    new page, and would load them from a content delivery network.
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
        """Schedule a call, from any thread."""
        self._waiting.append(call)
        self._loop.add_callback(self._schedule)

    def open(self) -> None:
        """Handle that the browser shows the document."""
        self._shown = True
        self._schedule()

    def close(self) -> None:
        """Handle that the document is gone."""
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
    """Keep the shown values in the page's address, so that they survive a reload and can be bookmarked."""
    first = defaults(scenario)
    moved = {name: as_text(value) for name, value in values.items() if value != first[name]}
    address.search = "?" + urlencode({"scenario": scenario, **moved})


class _Alive(RequestHandler):
    """Identifies this run of the server, so that a page reloads after a restart."""

    @override
    def initialize(self, run: str) -> None:
        self._run = run

    @override
    def get(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.finish(self._run)


def _free_port(port: int) -> int:
    """The requested port, or any free one for 0; raises OSError if it is taken."""
    with socket.socket() as probe:
        if os.name == "posix":  # on other systems this would steal another program's port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((ADDRESS, port))
        return int(probe.getsockname()[1])


def admits(host: str, origin: str | None) -> bool:
    """May a request with these headers be answered?

    Args:
        host: the host that the browser addresses, ``name:port``; any port, since ports may be forwarded.
        origin: origin of the requesting page, ``http://name:port``; None if the header is missing, as when a
            user opens an address.
    """
    return _is_loopback(host) and origin in (None, f"http://{host}")


def _is_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # unbalanced brackets
        return False
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


class _Stranger(Matcher):
    """Matches requests that must be rejected."""

    @override
    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        admitted = admits(request.headers.get("Host", ""), request.headers.get("Origin"))
        return None if admitted else {}


class _Refusal(RequestHandler):
    """Answers 403 to every request."""

    @override
    def prepare(self) -> None:
        """Answer before the request's method is looked at."""
        self.set_status(403)
        self.finish("The explorer answers to this machine only: open http://127.0.0.1 with its port.\n")


def keep_out_strangers(application: Application) -> None:
    """Reject such requests before anything that the server serves, including websockets."""
    application.default_router.rules.insert(0, Rule(_Stranger(), _Refusal))


class _Crowd(Matcher):
    """Matches requests for pages while too many others are being built."""

    def __init__(self) -> None:
        self._making = 0  # pages requested but not yet built
        self._rested = 0.0  # time at which the thread has rested from all pages that it has built

    @property
    def wait(self) -> int:
        """Seconds until the next page may be requested."""
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
        """Count an answered request."""
        if handler.request.path == "/" and not isinstance(handler, _Later | _Refusal):
            took = handler.request.request_time()
            self._making -= 1
            self._rested = max(self._rested, time.monotonic() - took) + 2 * took


class _Later(RequestHandler):
    """Answers 503 to requests for pages now; the browser retries by itself."""

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
    """Limit the pages built at once, so that the thread has time for all clients."""
    crowd = _Crowd()
    # Checked after foreign requests, which are rejected in any case.
    application.default_router.rules.insert(1, Rule(crowd, _Later, {"crowd": crowd}))
    application.settings["log_function"] = crowd.made
