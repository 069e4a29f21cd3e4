"""Several figures at once, in processes of their own."""

from collections.abc import Sequence
from typing import Any

from optlearn._io import remove_half_written
from optlearn._processes import Ended, Send, run_tasks
from optlearn._progress import Report
from optlearn.paper.runner import Result, Status, Task, run_task


def run_all(tasks: Sequence[Task], jobs: int, progress: Report) -> list[Result]:
    """Run figures, at most ``jobs`` at a time; results in the order of ``tasks``."""
    results: dict[str, Result] = {}

    def heard(task: Task, message: Any) -> None:
        if isinstance(message, Result):
            results[task.figure] = message
        else:
            progress(message)

    def ended(task: Task, end: Ended) -> None:
        results.setdefault(task.figure, _died(task.figure, end.code))
        remove_half_written(task.out / task.figure, end.pid)

    run_tasks(_figure, tasks, jobs, heard=heard, ended=ended)
    return [results[task.figure] for task in tasks]


def _figure(task: Task, send: Send) -> None:
    """One figure in a worker; progress and result go to the parent."""
    send(run_task(task, send))


def _died(figure: str, code: int | None) -> Result:
    return Result(figure, Status.FAILED, message=f"its process ended with code {code}")
