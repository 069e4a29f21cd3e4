"""Integrate a system under a schedule, with quadratures that are accurate throughout.

It uses the same engines as solvers; see ``adaptive`` for the methods.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array, Float, Settings, float64
from optlearn._dynamics.checks import check_problem, check_states, extreme_settings
from optlearn._dynamics.system import System, resolved_for
from optlearn._engine.adaptive import Course, states_along
from optlearn._engine.base import Engine
from optlearn._engine.build import Backend, engine_for, outputs_along
from optlearn._engine.functions import FlatSystem, control_tables, pack, system_functions
from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn._trajectory import Trajectory


@checked
@float64
def integrate(
    model: System,
    schedule: Schedule,
    *,
    start: Any,
    parameters: Mapping[str, Array] | None = None,
    record: int | Sequence[float] | np.ndarray = 201,
    quadrature: Any = None,
    backend: Backend = "auto",
    rtol: float | None = None,
    atol: float = 1e-13,
) -> Trajectory:
    """The trajectory of ``model`` from ``start`` under ``schedule``.

    Args:
        model: the system: a learning model, or any other.
        schedule: controls over training time; its grid ends at the horizon.
        start: state at α = 0 (``model.state(Q11=1, …)``, or a dictionary).
        parameters: values that replace the model's defaults.
        record: training times to record, or how many equally spaced ones.
        quadrature: quadrature for expectations. Default: closed forms where the model has them, else one with
            the accuracy of ``AutoQuadrature()``.
        backend: "casadi" (compiles nothing), "xla" (for wide quadratures), "auto": by the size of the drift.
        rtol: relative local error tolerance of the integrator. Default: 1e-12 for closed forms, a
            tenth of the quadrature's accuracy where expectations are computed by quadrature.
        atol: absolute local error tolerance.

    Raises:
        UnphysicalStateError: an impossible state, with its name, value and α.
    """
    check = Arguments("integrate")
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance is not None:
            check.number(name, tolerance, 0.0, 1.0, open_below=True)
    model = model.current()
    start, settings = check_problem(model, start, schedule, parameters)
    times = _record_times(record, schedule.horizon)
    probes = model.probes(start)
    at_end = {**settings, **schedule.at(schedule.horizon)}
    cases = [{**settings, **schedule.at(0.0)}, *extreme_settings(schedule, settings)]
    # A quadrature that is accurate at the start may fail where weights have grown: measure at the end too,
    # and choose again including the end if necessary.
    chosen_again = False
    while True:
        resolved = resolved_for(model, probes, cases, quadrature)
        info, accuracy = dict(resolved.info), resolved.accuracy
        system = FlatSystem(resolved.system, tuple(sorted(schedule.controls)))
        tolerances = (rtol or resolved.rtol, atol)
        engine, course = _course(system, settings, model.layout.flatten(start), schedule, tolerances, backend)

        def dense(at: np.ndarray, engine: Engine = engine, course: Course = course) -> np.ndarray:
            order = np.argsort(at, kind="stable")
            states = np.empty((len(at), model.layout.size))
            states[order] = states_along(engine, course, at[order])
            return states

        states = dense(times)
        if accuracy is None or not np.all(np.isfinite(states[-1])):
            break
        hopeless = max(info.get("quadrature_error", 0.0), info.get("error_quadrature_error", 0.0)) > accuracy
        # Relative to the largest drift at all of them, as in the choice of a quadrature.
        probes = np.concatenate([probes, states[-1:]])
        errors = resolved.errors(probes, at_end)
        info |= errors
        if max(errors.values()) <= accuracy or hopeless or chosen_again:
            break
        chosen_again = True
    check_states(model, states, times)
    at_times = schedule.at(times)
    columns = [at_times[name] for name in system.controls]
    u = np.stack(columns, axis=1) if columns else np.zeros((len(times), 0))
    values = {name: states[:, i] for i, name in enumerate(model.layout.names)}
    values |= outputs_along(system, settings, states, u, backend)
    info |= {"backend": engine.name, "rtol": tolerances[0], "atol": atol}
    return Trajectory(times, values, model.layout.names, info, dense)


def _course(
    system: FlatSystem,
    settings: Settings,
    start: Float[Array, " n"],
    schedule: Schedule,
    tolerances: tuple[float, float],
    backend: Backend,
) -> tuple[Engine, Course]:
    """The compiled functions and the engine."""
    model = system.system
    # If exact steps mix values or read the time, results depend on the ends of intervals.
    pieces = schedule if model.advances else schedule.merged()
    shares, vectors = control_tables(pieces, system.controls)
    variants = vectors.shape[1]
    functions = system_functions(system, settings, variants)
    controls = vectors.reshape(len(vectors), -1)
    course = Course(
        constants=pack(functions.constants),
        start=np.asarray(start),
        edges=pieces.grid,
        controls=np.hstack([controls, shares]) if variants > 1 else controls,
        tolerances=tolerances,
        guard=model.round_off_guard(),
        longest=model.longest,
    )
    return engine_for(functions, backend), course


def _record_times(record: int | Sequence[float] | np.ndarray, horizon: float) -> np.ndarray:
    if isinstance(record, int | np.integer):
        if record < 2:
            raise SpecificationError(f"record must be at least 2 training times, got {record!r}")
        return np.linspace(0.0, horizon, int(record))
    times = np.asarray(record, dtype=float)
    increasing = times.ndim == 1 and len(times) > 0 and bool(np.all(np.diff(times) > 0))
    if not (increasing and np.all(np.isfinite(times))):
        raise SpecificationError(f"record must be increasing training times, got {record!r}")
    if times[0] < 0 or times[-1] > horizon * (1 + 1e-12):
        raise SpecificationError(f"record must be times from 0 to the horizon {horizon:g}, got {record!r}")
    return np.asarray(np.minimum(times, horizon))
