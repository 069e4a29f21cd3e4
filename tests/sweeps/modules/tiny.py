"""Scenarios and functions that worker processes import by name."""

import os
import signal

import optlearn as ol

# Six points in two chains, quick to solve.
OVER = {"sigma_n": [0.2, 0.3], "eta": [0.5, 1.0, 1.5]}
QUICK = {"intervals": 6, "starts": 1, "method": "indirect"}


def plain(sigma_n=0.3, eta=1.0):
    """Dropout with a short training: quick to solve."""
    return ol.scenarios.dropout(sigma_n=sigma_n, eta=eta, alpha_F=1.0)


def troubled(sigma_n=0.3, eta=1.0, raises_at=(), kills_at=()):
    """The same, but at some values of η it raises, or kills the process that asks."""
    if eta in raises_at:
        raise RuntimeError(f"no such luck at eta = {eta}")
    if eta in kills_at:
        os.kill(os.getpid(), signal.SIGKILL)
    return plain(sigma_n, eta)


def ends(solution):
    """A number and an array."""
    activation = solution.schedule["activation"]
    return {"last": activation[-1], "both": activation[[0, -1]], "intervals": len(activation)}


def not_numbers(solution):
    return {"schedule": solution.schedule}


def raises_above_one(solution):
    rate = float(solution.problem.settings["learning_rate"])
    if rate > 1:
        raise ZeroDivisionError("no luck")
    return {"rate": rate}
