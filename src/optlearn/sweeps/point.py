"""One point of a sweep, and chains of points, each solved from the previous solution."""

import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optlearn._control.baselines import baselines_of
from optlearn._control.certificate import Certificate
from optlearn._control.evaluate import evaluate
from optlearn._control.problem import Problem
from optlearn._control.runs import Outcome
from optlearn._control.solution import NotConvergedWarning, Solution, Variant
from optlearn._control.solve import solve
from optlearn._control.solvers.starts import fits
from optlearn._errors import SpecificationError
from optlearn._progress import Progress
from optlearn._schedule import Schedule
from optlearn.sweeps.results import PREFIXES, RESULTS
from optlearn.sweeps.spec import Index, Spec
from optlearn.sweeps.store import Record, Store

# A cluster's worker may run several threads, but caches of traced programs are not thread-safe.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class PointDone(Progress):
    """A finished point of a sweep; ``objective`` is None if it failed, ``done`` and ``total`` count points.

    Attributes:
        index: its index in the grid.
        coordinates: values of the varying arguments.
        converged: whether the certificate says so.
        seconds: wall-clock time of the point.
        error: the error, if it failed.
        stored: whether an earlier part of the sweep had finished it.
    """

    index: Index
    coordinates: Mapping[str, Any]
    converged: bool
    seconds: float
    error: str
    stored: bool = False


@dataclass(frozen=True)
class Chain:
    """The unit of work: neighbouring points in the order of solving."""

    spec: Spec
    store: Store
    points: tuple[Index, ...]


def walk(chain: Chain, tell: Callable[[PointDone], None]) -> None:
    """Solve unfinished points and report all; each is written to disk before the next one begins.

    The first guess of a point comes from its neighbour's file, so it does not matter whether that was
    computed just now or before an interruption.
    """
    neighbour: Record | None = None
    for index in chain.points:
        record = chain.store.read(index)
        if record is None:
            record = chain.store.write(index, compute(chain.spec, index, neighbour))
        tell(done(record, chain.store))
        if record["status"] == "done":
            neighbour = record


def compute(
    spec: Spec, index: Index, neighbour: Record | None = None, near: Schedule | None = None
) -> Record:
    """The record of one point, or of the error that it raised.

    The schedule of a ``neighbour`` is a first guess; ``near``, a solution of this very point, is continued.
    """
    began, cpu = time.perf_counter(), time.process_time()
    with _ONE_AT_A_TIME:
        try:
            content = _solved(spec, index, neighbour, near)
        except Exception as error:
            content = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    return make_record(spec, index, content, time.perf_counter() - began, time.process_time() - cpu)


def make_record(
    spec: Spec, index: Index, content: Record, seconds: float = 0.0, cpu_seconds: float = 0.0
) -> Record:
    """The record of a point: index, status, result or error, and time."""
    return {
        "coordinates": spec.coordinates(index),
        "status": "failed" if "error" in content else "done",
        **content,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
    }


def solved_content(
    objective: float,
    certificate: Certificate,
    outcome: Outcome,
    schedule: Schedule,
    relaxed: Variant | None,
    **more: Any,
) -> Record:
    """The part of a record that describes a solved point, solved alone or in a batch."""
    return {
        "objective": objective,
        "converged": certificate.converged,
        "reasons": list(certificate.reasons),
        "hamiltonian_gap": certificate.hamiltonian_gap,
        "relaxation_gap": certificate.relaxation_gap,
        "integration_error": certificate.integration_error,
        "budget_error": certificate.budget_error,
        "starts": [certificate.starts.tried, certificate.starts.agreeing],
        "outcome": outcome.name.lower(),
        "warm": False,
        "free": {},
        "schedule": schedule.to_dict(),
        "relaxed": relaxed and {"objective": relaxed.objective, "schedule": relaxed.schedule.to_dict()},
        "baselines": {},
        "reduced": {},
        "reduce_error": "",
        **more,
    }


def done(record: Record, store: Store) -> PointDone:
    """The report on a record."""
    return PointDone(
        text=_line(record),
        objective=record.get("objective"),
        gap=record.get("hamiltonian_gap"),
        index=tuple(record["index"]),
        coordinates=record["coordinates"],
        converged=record.get("converged", False),
        seconds=record["seconds"],
        error=record.get("error", ""),
        stored=record["part"] < store.part,
    )


def _line(record: Record) -> str:
    """A point in one line."""
    where = ", ".join(
        f"{name} = {value:.6g}" if isinstance(value, float) else f"{name} = {value}"
        for name, value in record["coordinates"].items()
    )
    if record["status"] == "failed":
        return f"{where}: failed: {record['error']}"
    doubts = [] if record["converged"] else ["not converged"]
    doubts += [f"reduce raised {record['reduce_error']}"] if record["reduce_error"] else []
    return ", ".join([f"{where}: {record['objective']:.10g}", *doubts])


def _solved(spec: Spec, index: Index, neighbour: Record | None, near: Schedule | None) -> Record:
    problem = spec.problem(index)
    options = dict(spec.options)
    warm = None if neighbour is None or spec.chain == 1 else warm_start(problem, neighbour)
    if warm is not None:
        options |= {"warm_start": warm, "starts": spec.warm_starts}
    elif near is not None:
        options |= {"warm_start": near}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # the record reports it
        solution = solve(problem, **options)
        if solution.outcome is Outcome.INTERRUPTED:
            raise KeyboardInterrupt
        baselines = _baselines(problem, spec.baselines, solution.schedule.intervals)
        reduced, error = _reduced(spec, solution)
    return solved_content(
        solution.objective,
        solution.certificate,
        solution.outcome,
        solution.schedule,
        solution.relaxed,
        warm=warm is not None,
        free=dict(solution.parameters),
        baselines=baselines,
        reduced=reduced,
        reduce_error=error,
    )


def _baselines(problem: Problem, names: Sequence[str], intervals: int) -> dict[str, float]:
    usual = baselines_of(problem)
    unknown = [name for name in names if name not in usual]
    if unknown:
        raise SpecificationError(f"no baseline {unknown[0]!r}; there are {', '.join(usual)}")
    schedules = {name: usual[name](problem, intervals) for name in names}
    return {name: evaluate(problem, s, record=2).objective for name, s in schedules.items()}


def _reduced(spec: Spec, solution: Solution) -> tuple[dict[str, Any], str]:
    """The result of ``reduce`` as lists of numbers; or its error, which must not cost the solution."""
    if spec.reduce is None:
        return {}, ""
    try:
        return _numbers(spec.reduce(solution), taken=(*spec.over, *RESULTS)), ""
    except Exception as error:
        return {}, f"{type(error).__name__}: {error}"


def _numbers(returned: Any, taken: Sequence[str]) -> dict[str, Any]:
    if not isinstance(returned, Mapping) or not all(isinstance(name, str) for name in returned):
        raise TypeError(
            f"reduce must return a mapping of names to numbers or arrays, not {type(returned).__name__}"
        )
    arrays = {name: np.asarray(value) for name, value in returned.items()}
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise TypeError(f"reduce: {name!r} is {returned[name]!r}; only numbers and arrays of them")
        if name in taken or name.startswith(PREFIXES):
            raise ValueError(f"{name!r} is the name of another result; call it something else")
    return {name: array.tolist() for name, array in arrays.items()}


def warm_start(problem: Problem, neighbour: Record) -> Schedule | None:
    """The neighbour's schedule; None if it lacks a control.

    For a discrete control this is the relaxed optimum, not the rounded one, since solvers start better there.
    """
    source = neighbour if neighbour["relaxed"] is None else neighbour["relaxed"]
    schedule = Schedule.from_dict(source["schedule"])
    return schedule if fits(problem, schedule) else None
