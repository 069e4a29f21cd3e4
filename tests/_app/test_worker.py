"""One process, many requests: only the newest of a client counts. The work here is nothing heavy."""

import os
import queue
import signal
import time

import pytest

from optlearn._app.messages import Done, Failed, Waiting
from optlearn._app.worker import Worker

SECONDS = 20.0  # for what takes milliseconds on a machine that is not busy


class Client:
    def __init__(self, worker, name="page"):
        self.worker, self.name, self.events = worker, name, queue.Queue()

    def ask(self, *request):
        self.worker.ask(self.name, request, lambda event: self.events.put((request, event)))

    def hear(self):
        return self.events.get(timeout=SECONDS)

    def until_end(self):
        heard = [self.hear()]
        while not isinstance(heard[-1][1], Done | Failed):
            heard.append(self.hear())
        return heard


@pytest.fixture
def make_worker(slow_work):
    made = []

    def make(**options):
        made.append(Worker("slow_work:work", **options))
        return made[-1]

    yield make
    for worker in made:
        worker.stop()


@pytest.fixture
def client(make_worker):
    return Client(make_worker())


def pid_of(heard):
    return next(event[2] for _, event in heard if isinstance(event, tuple))


def test_the_process_lives_on_from_request_to_request(client):
    pids = set()
    for number in range(3):
        client.ask("echo", number)
        heard = client.until_end()
        assert [event[0] for _, event in heard[:-1]] == ["began", "ended"]
        assert heard[-1][1] == Done()
        pids.add(pid_of(heard))
    assert len(pids) == 1
    assert os.getpid() not in pids


@pytest.mark.parametrize("kind", ["sleep", "swallow", "broken"])
def test_a_newer_request_interrupts_the_older_one_and_nothing_more_is_heard_of_it(client, kind):
    client.ask(kind, 60.0)
    (_, (_, _, pid)) = client.hear()
    client.ask("echo", "new")
    heard = client.until_end()
    assert {request for request, _ in heard} == {("echo", "new")}
    assert heard[-1][1] == Done()
    assert pid_of(heard) == pid  # interrupted, not ended
    assert client.events.empty()


def test_of_many_requests_at_once_only_the_last_is_answered(client):
    for number in range(50):
        client.ask("sleep", number / 1000)
    last = ("sleep", 49 / 1000)
    while (heard := client.hear())[1] != Done() or heard[0] != last:
        assert not isinstance(heard[1], tuple) or heard[1][0] == "began" or heard[0] == last
    assert client.events.empty()


def test_clients_do_not_supersede_each_other(client):
    other = Client(client.worker, "another page")
    client.ask("sleep", 0.1)
    other.ask("echo", 1)
    assert client.until_end()[-1] == (("sleep", 0.1), Done())
    assert other.until_end()[-1] == (("echo", 1), Done())


def test_those_that_wait_are_told_how_many_come_first(client):
    second, third = Client(client.worker, "second"), Client(client.worker, "third")
    client.ask("sleep", 60.0)
    second.ask("sleep", 60.0)
    third.ask("echo", 1)
    assert third.hear()[1] == Waiting(2)
    assert second.hear()[1] == Waiting(1)
    client.worker.cancel("page")  # the second has not begun, but nobody comes first
    assert third.hear()[1] == Waiting(1)
    client.worker.cancel("second")
    heard = third.until_end()
    assert heard[-1][1] == Done()
    assert {event.before for _, event in heard if isinstance(event, Waiting)} <= {0, 1}


def test_one_s_own_superseded_request_does_not_count(client):
    client.ask("sleep", 60.0)
    client.hear()
    client.ask("echo", 1)
    assert not any(isinstance(event, Waiting) for _, event in client.until_end())


def test_no_more_may_wait_than_can_be_served(make_worker):
    worker = make_worker(most=2)
    clients = [Client(worker, name) for name in range(40)]
    for client in clients:
        client.ask("sleep", 60.0)
    refused = [client for client in clients if isinstance(client.hear()[1], Failed)]
    assert refused == clients[3:]
    refused[0].ask("echo", 1)
    said = refused[0].hear()[1]
    assert said == Failed("2 others are waiting already: try again in a moment", expected=True)


def test_what_is_wrong_with_a_request_is_told_and_the_process_lives_on(client):
    client.ask("raise", ValueError("eta = -1: must be above 0"))
    wrong = client.until_end()
    assert wrong[-1][1] == Failed("eta = -1: must be above 0", expected=True)
    client.ask("raise", RuntimeError("a fault"))
    assert client.until_end()[-1][1] == Failed("RuntimeError: a fault")
    client.ask("echo", 1)
    assert pid_of(client.until_end()) == pid_of(wrong)


def test_a_process_that_dies_is_told_and_replaced(client):
    client.ask("die")
    heard = client.until_end()
    assert isinstance(heard[-1][1], Failed)
    assert "code 7" in heard[-1][1].reason
    client.ask("echo", 1)
    assert pid_of(client.until_end()) != pid_of(heard)


def test_work_that_cannot_be_interrupted_is_ended_with_its_process(make_worker):
    client = Client(make_worker(patience=0.3))
    client.ask("deaf", 60.0)
    (_, (_, _, pid)) = client.hear()
    client.ask("echo", "new")
    heard = client.until_end()
    assert {request for request, _ in heard} == {("echo", "new")}
    assert pid_of(heard) != pid


def test_a_cancelled_request_is_silent_and_the_next_one_is_answered(client):
    client.ask("sleep", 60.0)
    client.hear()
    client.worker.cancel("page")
    client.ask("echo", 1)
    assert {request for request, _ in client.until_end()} == {("echo", 1)}


@pytest.mark.skipif(os.name == "nt", reason="signals of a terminal")
def test_ctrl_c_in_the_terminal_does_not_end_the_work(client):
    client.ask("sleep", 0.3)
    client.hear()
    os.kill(client.worker.pid, signal.SIGINT)
    assert client.until_end()[-1] == (("sleep", 0.3), Done())


def test_stop_ends_the_process(client):
    client.ask("sleep", 60.0)
    client.hear()
    process = client.worker._process.process
    client.worker.stop()
    # Not by join: the worker's listener waits for the process as well, and whoever comes second is told at
    # once that there is no such process, perhaps before the first has noted that it ended.
    deadline = time.monotonic() + SECONDS
    while process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not process.is_alive()
    time.sleep(0.3)
    assert client.events.empty()
