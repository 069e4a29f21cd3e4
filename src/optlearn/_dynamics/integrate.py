"""Integrate a system under a schedule, to a stated tolerance.

Executors run the same drift: CasADi (the traced drift on SciPy's DOP853; nothing compiles, so a small
closed-form model is done in a fraction of a second) and XLA (diffrax's Dopri8; for large quadratures and
GPUs). All step exactly onto the schedule's edges, where the drift jumps. A system that gives its own exact
``advance`` is not integrated at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from optlearn._arguments import Arguments
from optlearn._arrays import Array
from optlearn._dynamics.checks import check_problem, check_states, extreme_settings
from optlearn._dynamics.executor import Course, Executor
from optlearn._dynamics.flat import FlatSystem
from optlearn._dynamics.system import System, resolved_for
from optlearn._errors import SpecificationError
from optlearn._precision import float64
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn._trajectory import Trajectory

Backend = Literal["auto", "casadi", "xla"]

# Scalar operations in one drift up to which tracing into CasADi beats an XLA compilation (measured:
# docs/decisions/005-two-executors.md, 029-growth.md).
CASADI_LIMIT = 150_000


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
    backend: Backend | Executor = "auto",
    rtol: float | None = None,
    atol: float = 1e-13,
) -> Trajectory:
    """The course of ``model`` from ``start`` under ``schedule``.

    Args:
        model: the system: a learning model, or any other.
        schedule: controls over training time; its grid ends at the horizon.
        start: state at α = 0 (``model.state(Q11=1, …)``, or a dictionary).
        parameters: values that replace the model's defaults.
        record: training times to record, or how many equally spaced ones.
        quadrature: for expectations. Default: closed forms where the model has them, else a
            one chosen for an accuracy of 1e-7 (``AutoQuadrature``). Any can be swapped for another.
        backend: "casadi" (compiles nothing), "xla", "auto": by the size of the drift; or an executor.
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
    initial = np.asarray(model.layout.flatten(start))
    probes = model.probes(start)
    at_end = {**settings, **schedule.at(schedule.horizon)}
    cases = [{**settings, **schedule.at(0.0)}, *extreme_settings(schedule, settings)]
    # A quadrature that is accurate at the start may not be where the weights have grown: measure at the
    # end too, and if need be choose again with the end in view.
    chosen_again = False
    while True:
        resolved = resolved_for(model, probes, cases, quadrature)
        info, accuracy = dict(resolved.info), resolved.accuracy
        flat = FlatSystem(resolved.system, schedule.controls)
        tolerances = (rtol or resolved.rtol, atol)
        executor = choose_executor(flat, settings, backend)

        course = Course(flat, settings, initial, schedule, times, tolerances)

        def dense(at: np.ndarray, executor: Executor = executor, course: Course = course) -> np.ndarray:
            order = np.argsort(at, kind="stable")
            states = np.empty((len(at), model.layout.size))
            states[order] = executor.solve(replace(course, times=at[order]))
            return states

        states = dense(times)
        if accuracy is None or not np.all(np.isfinite(states[-1])):
            break
        hopeless = max(info.get("quadrature_error", 0.0), info.get("error_quadrature_error", 0.0)) > accuracy
        errors = resolved.errors(states[-1:], at_end)
        info |= errors
        if max(errors.values()) <= accuracy or hopeless or chosen_again:
            break
        probes, chosen_again = np.concatenate([probes, states[-1:]]), True
    check_states(model, states, times)
    at_times = schedule.at(times)
    u = (
        np.stack([at_times[c] for c in schedule.controls], axis=1)
        if schedule.controls
        else np.zeros((len(times), 0))
    )
    values = {name: states[:, i] for i, name in enumerate(model.layout.names)}
    values |= choose_executor(flat, settings, backend, "outputs").outputs(flat, settings, states, u)
    info |= {"backend": type(executor).__name__, "rtol": tolerances[0], "atol": atol}
    return Trajectory(times, values, model.layout.names, info, dense)


def choose_executor(
    flat: FlatSystem,
    settings: Mapping[str, Array],
    backend: Backend | Executor = "auto",
    what: Literal["drift", "outputs"] = "drift",
) -> Executor:
    """CasADi for small drifts, or outputs; XLA for large ones or where an operation has no CasADi form."""
    from optlearn._dynamics.on_casadi import OnCasadi, drift_size, outputs_size

    if what == "drift" and flat.system.advances:
        from optlearn._dynamics.exactly import Exactly

        return Exactly()
    if not isinstance(backend, str):
        return backend
    if backend == "auto":
        size = {"drift": drift_size, "outputs": outputs_size}[what]
        backend = "casadi" if size(flat, settings) <= CASADI_LIMIT else "xla"
    if backend == "casadi":
        return OnCasadi()
    if backend == "xla":
        from optlearn._dynamics.on_xla import OnXla

        return OnXla()
    raise SpecificationError(f"backend must be 'auto', 'casadi' or 'xla', got {backend!r}")


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
