"""Inner functions, scans, loops and branches; each operation receives the interpreter as `run`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from optlearn._casadi.lazy import casadi
from optlearn._casadi.operations.elementwise import choose
from optlearn._casadi.operations.values import Operation, Symbolic, Value, constant, entries_of

Run: TypeAlias = Callable[[Any, Sequence[Value]], list[Value]]  # interprets a jaxpr on values


def _call(run: Run, eqn: Any, *values: Value) -> list[Value]:
    p = eqn.params
    return run(p["jaxpr"] if "jaxpr" in p else p["call_jaxpr"], values)


def _row(value: Value, number: int) -> Value:
    if not isinstance(value, Symbolic):
        return np.asarray(value[number])
    size = prod(value.shape[1:])
    return Symbolic(value.entries[number * size : (number + 1) * size], value.shape[1:])


def _stack(rows: list[Value], aval: Any) -> Value:
    if not any(isinstance(row, Symbolic) for row in rows):
        return np.array(rows, aval.dtype).reshape(aval.shape)
    return Symbolic(casadi.vertcat(*[entries_of(row) for row in rows]), aval.shape)


def _scan(run: Run, eqn: Any, *values: Value) -> list[Value]:
    p = eqn.params
    split = p["num_consts"] + p["num_carry"]
    consts, carry = list(values[: p["num_consts"]]), list(values[p["num_consts"] : split])
    collected: list[list[Value]] = [[] for _ in eqn.outvars[p["num_carry"] :]]
    steps = range(p["length"])
    for step in reversed(steps) if p["reverse"] else steps:
        rows = [_row(value, step) for value in values[split:]]
        results = run(p["jaxpr"], [*consts, *carry, *rows])
        carry = results[: p["num_carry"]]
        for store, result in zip(collected, results[p["num_carry"] :], strict=True):
            store.append(result)
    stores = [store[::-1] for store in collected] if p["reverse"] else collected
    avals = [var.aval for var in eqn.outvars[p["num_carry"] :]]
    return [*carry, *(_stack(store, aval) for store, aval in zip(stores, avals, strict=True))]


def _while(run: Run, eqn: Any, *values: Value) -> list[Value]:
    """Unrolled for as long as the condition is a number; the body may work on symbols."""
    p = eqn.params
    first, second = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    carry = list(values[second:])
    while constant(eqn, run(p["cond_jaxpr"], [*values[:first], *carry])[0]).item():
        carry = run(p["body_jaxpr"], [*values[first:second], *carry])
    return carry


def _cond(run: Run, eqn: Any, index: Value, *operands: Value) -> list[Value]:
    branches = eqn.params["branches"]
    if not isinstance(index, Symbolic):
        return run(branches[int(np.clip(index, 0, len(branches) - 1))], operands)
    results = [run(branch, operands) for branch in branches]
    return [
        Symbolic(choose(index.entries, [entries_of(case) for case in cases]), var.aval.shape)
        if prod(var.aval.shape) else np.zeros(var.aval.shape, var.aval.dtype)
        for var, cases in zip(eqn.outvars, zip(*results, strict=True), strict=True)
    ]  # fmt: skip


CALLS: dict[str, Operation] = dict.fromkeys(
    ("call", "checkpoint", "closed_call", "custom_jvp_call", "custom_vjp_call", "jit", "remat2"),
    _call,
)
OPERATIONS: dict[str, Operation] = {"scan": _scan, "while": _while, "cond": _cond}
