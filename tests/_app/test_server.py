"""The server itself: whom it answers, and how a page finds out that it is there."""

import asyncio
import http.client
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

pytest.importorskip("panel", reason="the explorer needs the extra app")

from tornado.ioloop import IOLoop

from optlearn._app import server
from optlearn._app.server import _Crowd, admits

ADMITTED = ("127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", "localhost", "localhost:1")
REFUSED = (
    "evil.example:{port}",
    "127.0.0.1.evil.example:{port}",
    "localhost.evil.example",
    "192.168.0.2",
    "[",
    "",
)


class Idle:
    """A worker that never answers."""

    def ask(self, client, request, heard):
        pass

    def cancel(self, client):
        pass


@pytest.fixture(scope="module")
def port():
    """Of a server in a thread of its own."""
    ready, found = threading.Event(), {}

    def started(url):
        found.update(port=int(re.search(r":(\d+)/", url)[1]), loop=IOLoop.current())
        ready.set()

    def serve():
        asyncio.set_event_loop(asyncio.new_event_loop())
        server.run(Idle(), Idle(), "dropout", {}, 0, False, started)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert ready.wait(60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "OWED", 3600.0)  # tests ask for many pages
        yield found["port"]
    found["loop"].add_callback(found["loop"].stop)
    thread.join(20)
    assert not thread.is_alive()


def ask(port, host, path="/", **headers):
    """Status and text of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest("GET", path, skip_host=True)
    for name, value in {"Host": host.format(port=port), **headers}.items():
        connection.putheader(name.replace("_", "-"), value.format(port=port))
    connection.endheaders()
    answer = connection.getresponse()
    text = "" if answer.status == 101 else answer.read().decode()
    connection.close()
    return answer.status, text


@pytest.mark.parametrize("host", ADMITTED)
def test_names_of_this_machine_are_answered(port, host):
    assert ask(port, host, "/alive")[0] == 200


@pytest.mark.parametrize("host", ADMITTED[1:3])
def test_they_get_the_page_with_ipv6_too(port, host):
    status, text = ask(port, host)
    assert status == 200
    assert "<title>optlearn explorer</title>" in text


@pytest.mark.parametrize("path", ["/", "/alive", "/static/js/bokeh.min.js", "/nothing"])
@pytest.mark.parametrize("host", REFUSED)
def test_other_names_get_nothing(port, host, path):
    status, text = ask(port, host, path)
    assert status == 403
    assert "this machine only" in text


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:{port}", "http://127.0.0.1:{port}", 101),
        ("[::1]:{port}", "http://[::1]:{port}", 101),
        ("evil.example:{port}", "http://evil.example:{port}", 403),
        ("127.0.0.1:{port}", "http://evil.example", 403),
        ("127.0.0.1:{port}", "null", 403),
        ("127.0.0.1:{port}", "http://127.0.0.1:1", 403),
    ],
)
def test_websockets_are_for_pages_of_this_server(port, host, origin, status):
    page = ask(port, "localhost")[1] if status == 101 else '"token":"none"'
    token = re.search(r'"token":"([^"]+)"', page)[1]
    headers = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Protocol": f"bokeh, {token}",
        "Origin": origin,
    }
    assert ask(port, host, "/ws", **headers)[0] == status


def test_a_page_elsewhere_is_not_answered(port):
    assert ask(port, "localhost:{port}", "/alive", Origin="http://evil.example")[0] == 403
    assert ask(port, "localhost:{port}", "/alive", Origin="http://localhost:{port}")[0] == 200


def test_a_run_of_the_server_has_a_name_that_does_not_change(port):
    first, second = ask(port, "localhost", "/alive"), ask(port, "localhost", "/alive")
    assert first == second
    assert first[0] == 200
    assert re.fullmatch("[0-9a-f]{32}", first[1])


@pytest.mark.parametrize(
    "search", ["?scenario=nope", "?scenario=a?b#c", "?scenario=%00%FF", "?Delta[1]=&eta"]
)
def test_no_address_is_a_fault(port, search):
    status, text = ask(port, "localhost", f"/{search}")
    assert status == 200
    assert "h-certificate" in text  # the page, not a trace of what went wrong


def test_many_clients_at_once_do_not_keep_the_server_from_answering(port, monkeypatch):
    monkeypatch.setattr(server, "OWED", 0.0)
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(lambda _: ask(port, "localhost"), range(40)))
    statuses = [status for status, _ in answers]
    assert set(statuses) <= {200, 503}
    assert statuses.count(200) <= server.AT_ONCE
    assert ask(port, "localhost", "/alive")[0] == 200
    refusals = [text for status, text in answers if status == 503]
    assert all(re.search('http-equiv="refresh" content="[1-9]', text) for text in refusals)
    assert all("The explorer is opening other pages" in text for text in refusals)


def test_those_who_come_later_get_their_page(monkeypatch):
    monkeypatch.setattr(server, "OWED", 1.0)
    crowd, page = _Crowd(), SimpleNamespace(path="/", request_time=lambda: 0.4)
    assert [crowd.match(page) for _ in range(4)] == [None, None, None, {}]
    assert crowd.match(SimpleNamespace(path="/alive")) is None
    for _ in range(3):
        crowd.made(SimpleNamespace(request=page))
    assert crowd.match(page) == {}  # the thread owes a rest
    assert crowd.wait == 2
    crowd._rested -= 1.9
    assert crowd.match(page) is None


def test_any_loopback_address_is_this_machine():
    assert admits("127.8.8.8:80", None)
    assert not admits("[::2]:80", None)
    assert not admits("0.0.0.0:80", None)
