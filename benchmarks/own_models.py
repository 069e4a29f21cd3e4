"""Models of one's own, without closed forms, in CPU seconds beside ``optlearn solve curriculum``.

Each problem is solved, or integrated, in a fresh process with nothing kept from before, imports and
compilation included. ``python -m benchmarks own_models``, or ``python -m benchmarks.own_models [PROBLEM …]``.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import optlearn as ol
from benchmarks.own_problems import hinge, logistic, relu_committee, softmax, three_layers
from benchmarks.record import Rows
from optlearn._control.baselines import baselines_of


class Task(NamedTuple):
    """One row of the table."""

    problem: Callable[[], ol.Problem]
    limit: float  # times the CPU seconds of ``optlearn solve curriculum``
    at_most: float = float("inf")  # what the objective must be
    integrated: bool = False  # under the guesses, held constant, instead of solved
    beside: str | None = None  # baseline that the objective must be below
    bar_suffices: bool = False  # an error bar of the expectations may stand against convergence


TASKS = {
    "logistic with flips": Task(logistic, 20, at_most=0.14984),
    "three layers, constant rates": Task(three_layers, 5, at_most=0.043525, integrated=True),
    "three layers, both rates": Task(three_layers, 80, beside="best constant"),
    "hinge, rate and margin": Task(hinge, 60),
    "two tokens with softmax": Task(softmax, 80, bar_suffices=True),
    "ReLU committee, 3 from 2": Task(relu_committee, 80),
}


def measured(task: Task) -> dict[str, Any]:
    """Objective, certificate, and the CPU seconds of this process from its first import on."""
    problem = task.problem()
    if task.integrated:
        guesses = {name: control.start for name, control in problem.controls.items()}
        constant = ol.Schedule.constant(problem.horizon, guesses)
        course = ol.integrate(problem.model, constant, start=problem.start, record=2)
        seconds, objective = time.process_time(), float(course["error"][-1])
        bar = objective * max(course.info["quadrature_error"], course.info["error_quadrature_error"])
        return {"objective": objective, "converged": True, "bar": bar, "seconds": seconds}
    solution = ol.solve(problem)
    found = {
        "objective": solution.objective,
        "converged": solution.certificate.converged,
        "only_bar": all("quadrature_error" in reason for reason in solution.certificate.reasons),
        "bar": solution.certificate.quadrature_error,
        "seconds": time.process_time(),
    }
    if task.beside is not None:
        schedule = baselines_of(problem)[task.beside](problem, problem.intervals)
        found["beside"] = ol.evaluate(problem, schedule).objective
    return found


def faults(task: Task, found: dict[str, Any], ratio: float) -> list[str]:
    """What a row does not fulfil, in words."""
    checks = {
        "NOT CONVERGED": found["converged"] or (task.bar_suffices and found["only_bar"]),
        f"TOO SLOW (limit {task.limit:g})": ratio <= task.limit,
        f"ABOVE {task.at_most:g}": found["objective"] <= task.at_most,
        f"ABOVE {task.beside}": found["objective"] < found.get("beside", float("inf")),
    }
    return [words for words, fulfilled in checks.items() if not fulfilled]


def fresh(*command: str) -> tuple[str, float]:
    """What a new process without caches prints, and its CPU seconds.

    Raises:
        RuntimeError: with the last line of its error messages.
    """
    here, before = Path(__file__).resolve().parent.parent, os.times()
    with tempfile.TemporaryDirectory() as cache:
        kept = {"OPTLEARN_CACHE": cache, "JAX_COMPILATION_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
        environment = {**os.environ, **kept, "PYTHONPATH": os.pathsep.join([str(here / "src"), str(here)])}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(
            [sys.executable, "-m", *command], capture_output=True, text=True, cwd=cache, env=environment
        )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout, seconds


def main(*names: str) -> Rows:
    """Print the table, and return its rows."""
    unknown = [name for name in names if name not in TASKS]
    if unknown:
        sys.exit(f"unknown problem {unknown[0]!r}; there are {', '.join(TASKS)}")
    for _ in range(2):  # the first may have to compile Python's bytecode, which installations have
        _, unit = fresh("optlearn._cli", "solve", "curriculum")
    print(
        f"CPU seconds of fresh processes, and as multiples of the {unit:.2f} of `optlearn solve curriculum`."
    )
    print(
        f"{'problem':>30} {'seconds':>8} {'ratio':>6} {'limit':>6} {'objective':>10} {'error bar':>9}  beside"
    )
    rows: Rows = []
    for name in names or TASKS:
        task = TASKS[name]
        try:
            found = json.loads(fresh("benchmarks.own_models", "--here", name)[0])
        except RuntimeError as error:
            print(f"{name:>30} FAILED: {error}", flush=True)
            continue
        ratio = found["seconds"] / unit
        bar = "–" if found["bar"] is None else f"{found['bar']:.0e}"
        beside = f"{task.beside} {found['beside']:.6f}" if task.beside else "–"
        print(
            f"{name:>30} {found['seconds']:8.1f} {ratio:6.1f} {task.limit:6.0f} {found['objective']:10.6f} "
            f"{bar:>9}  {'; '.join([beside, *faults(task, found, ratio)])}",
            flush=True,
        )
        done = "integrated" if task.integrated else "converged" if found["converged"] else "error bar alone"
        rows.append(
            {
                "problem": name,
                "objective": f"{found['objective']:.6f}",
                "error bar": bar,
                "CPU s": f"{found['seconds']:.0f}",
                "times curriculum": f"{ratio:.0f}",
                "limit": f"{task.limit:g}",
                "outcome": "; ".join(faults(task, found, ratio)) or done,
            }
        )
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        warnings.simplefilter("ignore")
        print(json.dumps(measured(TASKS[sys.argv[2]])))
    else:
        main(*sys.argv[1:])
