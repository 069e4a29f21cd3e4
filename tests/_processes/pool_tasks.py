"""Tasks for the pool of processes: nothing heavy."""

import os
import signal


def echo(task, send):
    send((task, os.getpid()))


def die_at_two(task, send):
    send(task)
    if task == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    send(-task)


def raise_at_two(task, send):
    if task == 2:
        raise OSError(28, "No space left on device")
    send(task)


def threads(task, send):
    send(os.environ.get("OMP_NUM_THREADS"))
