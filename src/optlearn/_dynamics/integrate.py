"""Integrate the order parameters under a schedule, to a stated tolerance.

Two executors run the same drift: CasADi (the traced drift on SciPy's DOP853; nothing compiles, so a
small closed-form model is done in a fraction of a second) and XLA (diffrax's Dopri8; for wide
quadratures and GPUs). Both step exactly onto the schedule's edges, where the drift jumps.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from optlearn._arrays import Array
from optlearn._dynamics.flat import FlatSystem, flat_system
from optlearn._errors import SpecificationError
from optlearn._precision import float64
from optlearn._schedule import Schedule
from optlearn._theory.checks import check_problem
from optlearn._theory.expectation import AbstractRule, AutoRule
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters
from optlearn._theory.physical import check_physical
from optlearn._theory.quadrature import probe_states, rule_error
from optlearn._trajectory import Trajectory

Backend = Literal["auto", "casadi", "xla"]

# Scalar operations in one drift up to which tracing into CasADi beats an XLA compilation (measured:
# docs/decisions/005-two-executors.md).
CASADI_LIMIT = 30_000


class Executor(Protocol):
    """Runs a flat system."""

    def solve(
        self,
        system: FlatSystem,
        settings: Mapping[str, Array],
        start: np.ndarray,
        schedule: Schedule,
        times: np.ndarray,
        tolerances: tuple[float, float],
    ) -> np.ndarray:
        """(T, n) states at increasing ``times``; rows after a failure are NaN."""
        ...

    def outputs(
        self, system: FlatSystem, settings: Mapping[str, Array], states: np.ndarray, u: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Error and observables (T,) at states (T, n) under controls (T, c)."""
        ...


_Run = tuple[Executor, FlatSystem, tuple[float, float]]


@float64
def integrate(
    model: LearningModel,
    schedule: Schedule,
    *,
    start: OrderParameters,
    parameters: Mapping[str, Array] | None = None,
    record: int | Sequence[float] | np.ndarray = 201,
    rule: AbstractRule | AutoRule | None = None,
    backend: Backend | Executor = "auto",
    rtol: float | None = None,
    atol: float = 1e-13,
) -> Trajectory:
    """Order parameters of ``model`` from ``start`` under ``schedule``.

    Args:
        model: the learning model.
        schedule: controls over training time; its grid ends at the horizon.
        start: order parameters at α = 0 (``model.state(Q11=1, …)``).
        parameters: values that replace the model's defaults.
        record: training times to record, or how many equally spaced ones.
        rule: quadrature for expectations. Default: closed forms where the model has them, else a
            rule chosen for an accuracy of 1e-7 (``AutoRule``). Any rule can be swapped for another.
        backend: "casadi" (compiles nothing), "xla", "auto": by the size of the drift; or an executor.
        rtol: relative local error tolerance of the integrator. Default: 1e-12 for closed forms, a
            tenth of the rule's accuracy where expectations are computed by quadrature.
        atol: absolute local error tolerance.

    Raises:
        UnphysicalStateError: a state that no weights can have, with its name, value and α.
    """
    start, settings = check_problem(model, start, schedule, parameters)
    times = _record_times(record, schedule.horizon)
    initial = np.asarray(model.layout.flatten(start))
    accuracy = rule.accuracy if isinstance(rule, AutoRule) else AutoRule.accuracy
    probes = probe_states(model, start)
    at_start, at_end = ({**settings, **schedule.at(a)} for a in (0.0, schedule.horizon))
    # A rule that is accurate at the start may not be where the weights have grown: measure at the
    # end too, and if need be choose again with the end in view.
    chosen_again = False
    while True:
        system, info = flat_system(model, schedule.controls, probes, at_start, rule)
        tolerances = (rtol or (1e-12 if system.rule is None else accuracy / 10), atol)
        executor = choose_executor(system, settings, backend)

        def dense(at: np.ndarray, run: _Run = (executor, system, tolerances)) -> np.ndarray:
            executor, system, tolerances = run
            order = np.argsort(at, kind="stable")
            states = np.empty((len(at), model.layout.size))
            states[order] = executor.solve(system, settings, initial, schedule, at[order], tolerances)
            return states

        states = dense(times)
        chosen = not isinstance(rule, AbstractRule) and (system.rule or system.error_rule) is not None
        if not chosen or not np.all(np.isfinite(states[-1])):
            break
        hopeless = max(info.get("rule_error", 0.0), info.get("error_rule_error", 0.0)) > accuracy
        errors = _errors_at_end(system, info, states[-1:], at_end)
        info |= errors
        if max(errors.values()) <= accuracy or hopeless or chosen_again:
            break
        probes, chosen_again = np.concatenate([probes, states[-1:]]), True
    check_physical(model, states, times)
    at_times = schedule.at(times)
    u = (
        np.stack([at_times[c] for c in schedule.controls], axis=1)
        if schedule.controls
        else (np.zeros((len(times), 0)))
    )
    values = {name: states[:, i] for i, name in enumerate(model.layout.names)}
    values |= choose_executor(system, settings, backend, "outputs").outputs(system, settings, states, u)
    info |= {"backend": type(executor).__name__, "rtol": tolerances[0], "atol": atol}
    return Trajectory(times, values, model.layout.names, info, dense)


def _errors_at_end(
    system: FlatSystem, info: Mapping[str, Any], state: np.ndarray, u: Mapping[str, Array]
) -> dict[str, float]:
    """Errors of the chosen rules, measured at the end (1, n) as well."""
    found = {}
    if system.rule is not None:
        error = rule_error(system.model, state, u, system.rule)
        found["rule_error"] = max(info["rule_error"], error)
    if system.error_rule is not None:
        error = rule_error(system.model, state, u, system.error_rule, "error")
        found["error_rule_error"] = max(info["error_rule_error"], error)
    return found


def choose_executor(
    system: FlatSystem,
    settings: Mapping[str, Array],
    backend: Backend | Executor = "auto",
    what: Literal["drift", "outputs"] = "drift",
) -> Executor:
    """CasADi for small drifts, or outputs; XLA for large ones or where an operation has no CasADi form."""
    from optlearn._dynamics.on_casadi import OnCasadi, drift_size, outputs_size

    if not isinstance(backend, str):
        return backend
    if backend == "auto":
        size = {"drift": drift_size, "outputs": outputs_size}[what]
        backend = "casadi" if size(system, settings) <= CASADI_LIMIT else "xla"
    if backend == "casadi":
        return OnCasadi()
    if backend == "xla":
        from optlearn._dynamics.on_xla import OnXla

        return OnXla()
    raise SpecificationError(f"backend={backend!r}: one of 'auto', 'casadi', 'xla'")


def _record_times(record: int | Sequence[float] | np.ndarray, horizon: float) -> np.ndarray:
    if isinstance(record, int | np.integer):
        if record < 2:
            raise SpecificationError(f"record={record!r}: at least 2 training times")
        return np.linspace(0.0, horizon, int(record))
    times = np.asarray(record, dtype=float)
    increasing = times.ndim == 1 and len(times) > 0 and bool(np.all(np.diff(times) > 0))
    if not (increasing and np.all(np.isfinite(times))):
        raise SpecificationError(f"record={record!r}: increasing training times")
    if times[0] < 0 or times[-1] > horizon * (1 + 1e-12):
        raise SpecificationError(f"record={record!r}: training times from 0 to the horizon {horizon:g}")
    return np.asarray(np.minimum(times, horizon))
