"""Several figures at once, each in a fresh process.

Processes are spawned: a forked one that uses JAX may deadlock.
"""

import multiprocessing
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import cast

from optlearn.paper.runner import Progress, Result, Status, Task, run_task


def run_all(tasks: Sequence[Task], jobs: int, progress: Progress) -> list[Result]:
    """Run figures, at most ``jobs`` at a time; results in the order of ``tasks``."""
    context = multiprocessing.get_context("spawn")
    waiting = list(enumerate(tasks))
    running: dict[Connection, tuple[int, SpawnProcess]] = {}
    results: dict[int, Result] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                index, task = waiting.pop(0)
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_child, args=(task, theirs), daemon=True)
                process.start()
                theirs.close()  # so that the end of the process is the end of the pipe
                running[ours] = (index, process)
            for ready in cast(list[Connection], wait(list(running))):
                index, process = running[ready]
                try:
                    message = ready.recv()
                except EOFError:
                    process.join()
                    del running[ready]
                    results.setdefault(index, _died(tasks[index].figure, process.exitcode))
                    continue
                if isinstance(message, Result):
                    results[index] = message
                else:
                    progress(*message)
    finally:
        for _, process in running.values():
            process.terminate()
        for index, process in running.values():
            process.join()
            folder = tasks[index].out / tasks[index].figure
            for half_written in folder.glob(f".*.{process.pid}.tmp*"):
                half_written.unlink(missing_ok=True)
    return [results[index] for index in range(len(tasks))]


def _child(task: Task, pipe: Connection) -> None:
    """One figure in this process; progress and result go through the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a traceback
    pipe.send(run_task(task, lambda figure, text: pipe.send((figure, text))))
    pipe.close()


def _died(figure: str, code: int | None) -> Result:
    return Result(figure, Status.FAILED, message=f"its process ended with code {code}")
