"""Spawned processes that work through tasks: one for the explorer, several for figures and sweeps.

Processes are spawned: a forked one that uses JAX may deadlock. They end with their parent, even if that is
killed.
"""

from optlearn._processes.pool import Ended, WorkerStartError, run_tasks
from optlearn._processes.worker import Send, WorkerProcess

__all__ = ["Ended", "Send", "WorkerProcess", "WorkerStartError", "run_tasks"]
