"""The pool of spawned processes, with tasks that need nothing heavy."""

import os
import sys
from pathlib import Path

import pytest

from optlearn._processes import WorkerStartError, run_tasks


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import pool_tasks

    return pool_tasks


def run(work, tasks, jobs=1, again=False):
    heard, ended = [], []

    def at_end(task, end):
        ended.append((task, end.code, end.stopped))
        return [task + 10] if again and not end.stopped else None

    run_tasks(work, tasks, jobs, heard=lambda task, message: heard.append((task, message)), ended=at_end)
    return heard, ended


def test_workers_live_on_from_task_to_task(tiny):
    heard, ended = run(tiny.echo, [1, 2, 3, 4], jobs=2)
    assert sorted(task for task, _ in heard) == [1, 2, 3, 4]
    assert all(task == told for task, (told, _) in heard)
    pids = {pid for _, (_, pid) in heard}
    assert os.getpid() not in pids
    assert len(pids) <= 2
    assert ended == []


def test_a_death_is_noticed_and_another_task_may_take_its_place(tiny):
    heard, ended = run(tiny.die_at_two, [1, 2, 3], again=True)
    assert ended == [(2, -9, False)]
    assert heard == [(1, 1), (1, -1), (2, 2), (12, 12), (12, -12), (3, 3), (3, -3)]


def test_what_a_task_raises_is_raised_here(tiny):
    with pytest.raises(OSError, match="No space left") as caught:
        run(tiny.raise_at_two, [1, 2, 3])
    assert caught.value.errno == 28


def test_a_worker_that_cannot_start_is_explained(tiny, monkeypatch):
    # A script whose import fails in the worker, as one without the guard does.
    broken = type(sys)("__main__")
    broken.__file__ = str(Path(__file__).parent / "no_such_script.py")
    broken.__spec__ = None
    monkeypatch.setitem(sys.modules, "__main__", broken)
    with pytest.raises(WorkerStartError, match='put the call under `if __name__ == "__main__":`'):
        run(tiny.echo, [1])


@pytest.mark.parametrize(("given", "expected"), [(None, "1"), ("3", "3")])
def test_workers_do_linear_algebra_in_one_thread_unless_told_otherwise(tiny, monkeypatch, given, expected):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    heard, _ = run(tiny.threads, [1])
    assert heard == [(1, expected)]
    assert os.environ.get("OMP_NUM_THREADS") == given
