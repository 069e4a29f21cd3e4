"""The page's requests: the optimum of a scenario, the usual schedules, a simulation.

This runs in the process of a ``Worker``. Moving a slider solves on a coarser grid, starting from the previous
solution; ``full`` is what ``optlearn.solve`` does by default.
"""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

# Imported here although only functions below need them, because an import must not be interrupted.
import scipy.integrate
import scipy.optimize
import scipy.stats

from optlearn._app.messages import Compared, Optimum, Simulate, Simulated, Solve, Usual
from optlearn._control.baselines import baselines_of
from optlearn._control.compare import broken_limits
from optlearn._control.evaluate import evaluate
from optlearn._control.problem import Problem
from optlearn._control.solution import NotConvergedWarning, Solution
from optlearn._control.solve import solve
from optlearn._control.solvers.starts import fits
from optlearn._control.summary import certificate_words
from optlearn._engine import casadi, xla
from optlearn._errors import SpecificationError, UnphysicalStateError
from optlearn._processes import Send
from optlearn._progress import Progress
from optlearn._schedule import Schedule
from optlearn._simulate.run import simulate, theory_beside
from optlearn._trajectory import Trajectory
from optlearn.scenarios._files import find

del scipy, casadi, xla

QUICK = 120  # maximum number of intervals while a slider is moved
RECORD = 101  # training times of a simulation and of the baselines
BATCHES = 5  # number of parts in which a simulation is run and shown
# A baseline that is better by more than this share shows that a solve ended in a local optimum. A smaller
# difference may come from switching between the points of the grid.
BETTER = 1e-4
OF_THE_GRID = ("relaxation_gap", "integration_error")  # gaps that a finer grid alone makes smaller

# Scenario → result of the last solve, from which the next one starts.
_LAST: dict[str, Schedule] = {}


def work(request: Solve | Simulate, send: Send) -> None:
    """Answer a request; runs in the worker's process."""
    send(Progress("setting up the problem"))
    if isinstance(request, Simulate):
        _simulate(request, send)
    else:
        _solve(request, send)


def _solve(request: Solve, send: Send) -> None:
    began = time.perf_counter()
    problem = _problem(request.scenario, request.arguments)
    quick: dict[str, Any] = {"method": "indirect", "intervals": quick_intervals(problem)}
    last = _LAST.get(request.scenario)
    warm = None if request.full or last is None or not fits(problem, last) else last

    def tell(text: str) -> None:
        send(Progress(text))

    def attempt(**options: Any) -> Solution:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            solution = solve(problem, progress=send, **options)
        mixed = solution.relaxed
        _LAST[request.scenario] = solution.schedule if mixed is None else mixed.schedule
        # Warnings, except those that the certificate states anyway.
        texts = [str(w.message) for w in caught if not issubclass(w.category, NotConvergedWarning)]
        remarks = tuple(dict.fromkeys(texts))
        send(_optimum(solution, request.full, time.perf_counter() - began, remarks))
        return solution

    if request.full:
        solution = attempt()
    else:
        solution = attempt(**quick, **({} if warm is None else {"warm_start": warm, "starts": 1}))
    compared = Compared(_usual(problem, solution.schedule.intervals, tell))
    send(compared)
    if request.full:
        return
    objectives = [b.objective for b in compared.usual if b.objective is not None]
    if warm is not None and _worse(solution.objective, min(objectives, default=np.inf)):
        tell("a usual schedule is better: solving from several starts")
        attempt(**quick)
    # Could a better solve on the same grid fix this?
    elif not all(reason.startswith(OF_THE_GRID) for reason in solution.certificate.reasons):
        attempt(intervals=quick["intervals"], warm_start=solution, starts=1)


def _usual(problem: Problem, intervals: int, tell: Callable[[str], None]) -> tuple[Usual, ...]:
    usual = []
    for name, make in baselines_of(problem).items():
        tell(f"comparing with {name!r}")
        try:
            schedule = make(problem, intervals)
            note = "; ".join(broken_limits(problem, schedule))
            trajectory = evaluate(problem, schedule, record=RECORD)
        except UnphysicalStateError as error:
            usual.append(Usual(name, None, None, note=str(error)))
        else:
            usual.append(Usual(name, trajectory.objective, _plain(trajectory), schedule, note))
    return tuple(sorted(usual, key=lambda b: np.inf if b.objective is None else b.objective))


def _problem(scenario: str, arguments: Mapping[str, Any]) -> Problem:
    try:
        problem = find(scenario).function(**arguments)
    except TypeError as error:  # an invalid value that no check catches is still bad input
        raise SpecificationError(str(error)) from error
    return problem


def quick_intervals(problem: Problem) -> int:
    """A coarser grid that holds the same shares as the problem's own grid."""
    count = problem.intervals
    return count if count <= QUICK else max(n for n in range(1, QUICK + 1) if count % n == 0)


def _worse(objective: float, best: float) -> bool:
    return objective - best > BETTER * max(abs(best), 1e-3)


def _optimum(solution: Solution, full: bool, seconds: float, remarks: tuple[str, ...]) -> Optimum:
    return Optimum(
        schedule=solution.schedule,
        mixed=None if solution.relaxed is None else solution.relaxed.schedule,
        objective=solution.objective,
        called=solution.problem.objective.called,
        trajectory=_plain(solution.trajectory),
        costates=_plain(solution.costates),
        certificate=solution.certificate,
        words=tuple(certificate_words(solution)),
        full=full,
        method=solution.method,
        seconds=seconds,
        remarks=remarks,
    )


def _plain(trajectory: Trajectory) -> Trajectory:
    """The trajectory without the integrator, which cannot be pickled."""
    return replace(trajectory, info={}, _dense=None)


def _simulate(request: Simulate, send: Send) -> None:
    """Run the seeds in several parts, so that the page shows the mean converging."""
    began = time.perf_counter()
    arguments = dict(request.arguments)
    if "N" in arguments:
        arguments["N"] = request.N  # the theory's error depends on it too
    problem = _problem(request.scenario, arguments)
    free = evaluate(problem, request.schedule, record=2).info["parameters"]
    options: dict[str, Any] = {"N": request.N, "seeds": request.seeds // BATCHES, "record": RECORD}
    theory: Trajectory | None = None
    parts: list[Trajectory] = []
    for part in range(BATCHES):
        done = part * request.seeds // BATCHES
        text = f"simulating SGD at N = {request.N}: {done} of {request.seeds} seeds"
        send(Progress(text, done, request.seeds))
        parts.append(simulate(problem, request.schedule, seed=part, parameters=free, **options))
        if theory is None:
            theory = theory_beside(parts[0], problem, request.schedule, parameters=free)
        values = {name: np.concatenate([run[name] for run in parts]) for name in parts[0].values}
        so_far = Trajectory(parts[0].alpha, values, parts[0].order_parameters)
        send(Simulated(_plain(theory), so_far, request.seeds, request.N, time.perf_counter() - began))
