"""Who may ask the explorer: pages of this machine only.

A server on 127.0.0.1 is not out of reach of the web: a page elsewhere may point a name of its own at that
address (DNS rebinding), and the browser then takes the explorer for a part of that page. Its requests still
carry the name, in ``Host``; and what one page sends to another carries its home, in ``Origin``.
"""

from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from tornado.httputil import HTTPServerRequest
from tornado.routing import Matcher, Rule
from tornado.web import Application, RequestHandler


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

    def match(self, request: HTTPServerRequest) -> dict[str, Any] | None:
        """Not None for requests that are not admitted."""
        headers = request.headers
        admitted = admits(headers.get("Host", ""), headers.get("Origin"))
        return None if admitted else {}


class _Refusal(RequestHandler):
    """403 to whatever is asked."""

    def prepare(self) -> None:
        """Answer before the request's method is looked at."""
        self.set_status(403)
        self.finish("The explorer answers to this machine only: open http://127.0.0.1 with its port.\n")


def keep_out_strangers(application: Application) -> None:
    """Refuse, in front of all that the server serves, websockets too."""
    application.default_router.rules.insert(0, Rule(_Stranger(), _Refusal))
