"""Element-wise primitives: for each its NumPy and its CasADi function."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from optlearn._casadi.lazy import casadi, later
from optlearn._casadi.operations.values import (
    Array,
    Operation,
    Symbolic,
    Value,
    broadcast,
    unsupported,
)


def _numpy_divide(x: Array, y: Array) -> Array:
    if np.issubdtype(x.dtype, np.integer):
        safe = np.where(y == 0, 1, y)
        return np.asarray((x - np.fmod(x, safe)) // safe)
    return np.asarray(x / y)


def _from_scipy(name: str) -> Callable[[Array], Array]:
    def numbers(x: Array) -> Array:
        import scipy.special  # a tenth of a second, for what is rarely asked of plain numbers

        return np.asarray(getattr(scipy.special, name)(x))

    return numbers


def _truncate(x: Any) -> Any:
    return casadi.sign(x) * casadi.floor(casadi.fabs(x))


def _finite(x: Any) -> Any:
    return casadi.fabs(x) < np.inf  # NaN compares as False; x - x == 0 would simplify to True


# name -> (NumPy function, CasADi function)
ELEMENTWISE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (np.add, operator.add),
    "add_any": (np.add, operator.add),
    "sub": (np.subtract, operator.sub),
    "mul": (np.multiply, operator.mul),
    "div": (_numpy_divide, operator.truediv),
    "rem": (np.fmod, later("fmod")),
    "neg": (np.negative, operator.neg),
    "abs": (np.abs, later("fabs")),
    "sign": (np.sign, later("sign")),
    "max": (np.maximum, later("fmax")),
    "min": (np.minimum, later("fmin")),
    "clamp": (lambda lo, x, hi: np.minimum(np.maximum(x, lo), hi),
              lambda lo, x, hi: casadi.fmin(casadi.fmax(x, lo), hi)),
    "floor": (np.floor, later("floor")),
    "ceil": (np.ceil, later("ceil")),
    "square": (np.square, lambda x: x * x),
    "sqrt": (np.sqrt, later("sqrt")),
    "rsqrt": (lambda x: 1.0 / np.sqrt(x), lambda x: 1.0 / casadi.sqrt(x)),
    "cbrt": (np.cbrt, lambda x: casadi.sign(x) * casadi.power(casadi.fabs(x), 1.0 / 3.0)),
    "pow": (np.power, later("power")),
    "exp": (np.exp, later("exp")),
    "exp2": (np.exp2, lambda x: casadi.exp(np.log(2.0) * x)),
    "expm1": (np.expm1, later("expm1")),
    "log": (np.log, later("log")),
    "log1p": (np.log1p, later("log1p")),
    "logistic": (_from_scipy("expit"), lambda x: 1.0 / (1.0 + casadi.exp(-x))),
    "erf": (np.vectorize(math.erf, otypes=[float]), later("erf")),
    "erfc": (np.vectorize(math.erfc, otypes=[float]), lambda x: 1.0 - casadi.erf(x)),
    "erf_inv": (_from_scipy("erfinv"), later("erfinv")),
    "sin": (np.sin, later("sin")),
    "cos": (np.cos, later("cos")),
    "tan": (np.tan, later("tan")),
    "asin": (np.arcsin, later("asin")),
    "acos": (np.arccos, later("acos")),
    "atan": (np.arctan, later("atan")),
    "atan2": (np.arctan2, later("atan2")),
    "sinh": (np.sinh, later("sinh")),
    "cosh": (np.cosh, later("cosh")),
    "tanh": (np.tanh, later("tanh")),
    "asinh": (np.arcsinh, later("asinh")),
    "acosh": (np.arccosh, later("acosh")),
    "atanh": (np.arctanh, later("atanh")),
    "eq": (np.equal, operator.eq),
    "ne": (np.not_equal, operator.ne),
    "lt": (np.less, operator.lt),
    "le": (np.less_equal, operator.le),
    "gt": (np.greater, operator.gt),
    "ge": (np.greater_equal, operator.ge),
    "and": (np.bitwise_and, later("logic_and")),
    "or": (np.bitwise_or, later("logic_or")),
    "not": (np.invert, later("logic_not")),
    "xor": (np.bitwise_xor, operator.ne),
    "is_finite": (np.isfinite, _finite),
}  # fmt: skip
_LOGIC = frozenset({"and", "or", "not", "xor"})


def _elementwise(eqn: Any, *values: Value) -> list[Value]:
    name, out = eqn.primitive.name, eqn.outvars[0].aval
    if name in _LOGIC and out.dtype != np.bool_:
        raise unsupported(eqn, "bit operations on symbolic integers have no counterpart")
    result = ELEMENTWISE[name][1](*[broadcast(value, out.shape) for value in values])
    if name == "div" and np.issubdtype(out.dtype, np.integer):
        result = _truncate(result)
    return [Symbolic(result, out.shape)]


def _integer_pow(eqn: Any, x: Symbolic) -> list[Value]:
    # casadi.power multiplies out integer powers.
    return [Symbolic(casadi.power(x.entries, eqn.params["y"]), x.shape)]


def _convert(eqn: Any, x: Symbolic) -> list[Value]:
    old, new = eqn.invars[0].aval.dtype, np.dtype(eqn.params["new_dtype"])
    if new == np.bool_:
        return [Symbolic(x.entries != 0, x.shape)]
    narrows = np.issubdtype(old, np.floating) and np.issubdtype(new, np.integer)
    return [Symbolic(_truncate(x.entries), x.shape) if narrows else x]


def _round(eqn: Any, x: Symbolic) -> list[Value]:
    if eqn.params["rounding_method"] != jax.lax.RoundingMethod.TO_NEAREST_EVEN:
        raise unsupported(eqn, "only rounding to even, as in jax.numpy.round, has a form")
    # C's remainder rounds the quotient half to even.
    return [Symbolic(x.entries - casadi.remainder(x.entries, 1.0), x.shape)]


# With at least one operand symbolic.
OPERATIONS: dict[str, Operation] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    "integer_pow": _integer_pow,
    "convert_element_type": _convert,
    "round": _round,
}


def choose(condition: Any, cases: Sequence[Any]) -> Any:
    """Entries of case 0 where `condition` is 0, of case 1 where it is 1, and so on; clamped."""
    chosen = cases[-1]
    for number in range(len(cases) - 2, -1, -1):
        chosen = casadi.if_else(condition <= number, cases[number], chosen)
    return chosen
