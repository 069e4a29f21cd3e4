"""Run a JAX function over CasADi expressions, without any XLA compilation.

`trace` records a function written in `jax.numpy` as a jaxpr; the result interprets that jaxpr over
CasADi `SX` symbols, so that one model definition also serves IPOPT and CasADi's integrators.
`evaluate` runs a function on numbers, and `dependencies` asks which entries of an argument it reads.

Inside the interpreter a value is either a plain NumPy array (no symbol has touched it) or a
`Symbolic`: one dense `SX` column with the entries in C order, and the shape. A whole column costs
one call into CasADi where an array of scalar `SX` objects would cost one call (about 20 µs) per
entry. Entries that only move (indexing, transposing, padding, ...) are never computed with: each
such primitive is run in NumPy on the positions of the entries, and the column is indexed once.
What the primitives mean is in `arithmetic` and `moving`; calls, loops and branches are here.
The drift of a system, which several functions call, is interpreted once and then called (`_SHARED`).

What differs from JAX:

* Derivatives that CasADi takes are those of the arithmetic: custom derivative rules and
  `stop_gradient` are not seen. Trace `jax.grad(fn)` where those rules matter.
* In `where` and `cond` with a symbolic condition both sides are built, but the side not taken
  cannot spoil value or derivative with NaN or inf (CasADi's conditional is not a product).
* `SX` simplifies on the spot: `0 * x` is 0, `x - x` is 0 and `x != x` is False even where x would
  be NaN. `maximum` and `minimum` ignore a NaN operand, as C's `fmax` does.
* All symbolic arithmetic is in double precision, whatever the declared dtype.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import jax
import numpy as np

from optlearn._engine.tracing.arithmetic import FOR_SYMBOLS, in_jax, on_numbers, plain
from optlearn._engine.tracing.moving import FOR_ALL
from optlearn._engine.tracing.values import (
    Array,
    Operation,
    Symbolic,
    UnsupportedPrimitive,
    Value,
    casadi,
    choose,
    constant,
    entries_of,
    is_real,
    sx_array,
    sx_vector,
    to_value,
    unsupported,
)

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr

__all__ = ["TracedFunction", "UnsupportedPrimitive", "dependencies", "evaluate", "interpretations", "trace"]

_Run: TypeAlias = Callable[[Any, Sequence[Value]], list[Value]]  # interprets a jaxpr on values
# What to do with an equation that raises UnsupportedPrimitive; None lets the error pass.
_Fallback: TypeAlias = Callable[[Any, list[Value]], list[Value]] | None


# --- the interpreter ------------------------------------------------------------------------------


def _evaluate(eqn: Any, values: list[Value], run: _Run) -> list[Value]:
    name = eqn.primitive.name
    numeric = [value for value in values if not isinstance(value, Symbolic)]
    if name in _CALLS:
        return _call(run, eqn, *values)
    if not is_real(eqn):
        if len(numeric) == len(values):
            return in_jax(eqn, numeric)
        raise unsupported(eqn, "it works on complex numbers or random keys")
    if name in _BRANCHING:
        return _BRANCHING[name](run, eqn, *values)
    if name in FOR_ALL:
        return FOR_ALL[name](eqn, *values)
    if len(numeric) == len(values):
        return on_numbers(eqn, numeric)
    if all(prod(var.aval.shape) == 0 for var in eqn.outvars):
        return [np.zeros(var.aval.shape, var.aval.dtype) for var in eqn.outvars]
    if name in FOR_SYMBOLS:
        return FOR_SYMBOLS[name](eqn, *values)
    raise unsupported(eqn, "it has no form here")


# Their classes are in jax.extend, which also imports Pallas: 30 ms at every start.


def _is_literal(var: Any) -> bool:
    """Whether what an equation reads is a number rather than a variable."""
    return hasattr(var, "val")


def _is_closed(jaxpr: Any) -> bool:
    """Whether a jaxpr comes with its constants."""
    return hasattr(jaxpr, "jaxpr") and hasattr(jaxpr, "consts")


def _live_equations(jaxpr: Any) -> list[Any]:
    """Equations that the outputs need: jax.grad leaves the unused forward result in the jaxpr."""
    needed = {var for var in jaxpr.outvars if not _is_literal(var)}
    live = []
    for eqn in reversed(jaxpr.eqns):
        if not needed.isdisjoint(eqn.outvars):
            live.append(eqn)
            needed.update(var for var in eqn.invars if not _is_literal(var))
    return live[::-1]


def _run(jaxpr: Any, values: Sequence[Value], fallback: _Fallback = None) -> list[Value]:
    """Interpret a (closed) jaxpr on flat values."""
    consts: Sequence[Any] = ()
    if _is_closed(jaxpr):
        jaxpr, consts = jaxpr.jaxpr, [plain(const) for const in jaxpr.consts]
    values_of: dict[Any, Value] = dict(zip(jaxpr.constvars, consts, strict=True))
    values_of.update(zip(jaxpr.invars, values, strict=True))

    def read(var: Any) -> Value:
        dtype = var.aval.dtype
        return np.asarray(var.val, dtype) if _is_literal(var) else values_of[var]

    for eqn in _live_equations(jaxpr):
        inputs = [read(var) for var in eqn.invars]
        try:
            results = _evaluate(eqn, inputs, partial(_run, fallback=fallback))
        except UnsupportedPrimitive:
            if fallback is None:
                raise
            results = fallback(eqn, inputs)
        values_of.update(zip(eqn.outvars, results, strict=True))
    return [read(var) for var in jaxpr.outvars]


def _inner_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        for item in value if isinstance(value, tuple) else (value,):
            inner = item.jaxpr if _is_closed(item) else item
            if hasattr(inner, "eqns"):
                yield inner


def _count(jaxpr: Any) -> int:
    """Estimated scalar operations of an (open) jaxpr."""
    total = 0
    for eqn in jaxpr.eqns:
        work = sum(prod(var.aval.shape) for var in eqn.outvars)
        inner = 0 if "update_jaxpr" in eqn.params else sum(map(_count, _inner_jaxprs(eqn.params)))
        if eqn.primitive.name == "dot_general":
            shape = eqn.invars[0].aval.shape
            work *= prod(shape[d] for d in eqn.params["dimension_numbers"][0][0])
        elif eqn.primitive.name in ("cholesky", "triangular_solve"):
            work *= eqn.invars[0].aval.shape[-1]
        total += inner * eqn.params.get("length", 1) if inner else work
    return total


# --- calls, loops and branches --------------------------------------------------------------------

_CALLS = {"call", "checkpoint", "closed_call", "custom_jvp_call", "custom_vjp_call", "jit", "remat2"}
# Inner functions with these names occur in several functions of one system (`optlearn._engine.functions`).
_SHARED = frozenset({"_traced_once"})

# How often shared inner functions were interpreted: (name, shapes of the results) → count.
interpretations: Counter[tuple[str, tuple[tuple[int, ...], ...]]] = Counter()


_Converted: TypeAlias = Callable[[Sequence[Value]], list[Value]]  # an inner function, interpreted once
# JAX traces a jitted function once for each structure of its arguments, so equal calls hold the same jaxpr,
# in other functions too. None: it cannot be expressed in symbols alone.
_CONVERTED: WeakKeyDictionary[Any, _Converted | None] = WeakKeyDictionary()


def _call(run: _Run, eqn: Any, *values: Value) -> list[Value]:
    p = eqn.params
    jaxpr = p["jaxpr"] if "jaxpr" in p else p["call_jaxpr"]
    if p.get("name") not in _SHARED:
        return run(jaxpr, values)
    # With a number among the arguments, which may be an index, the function is interpreted separately.
    if all(isinstance(value, Symbolic) or value.size == 0 for value in values):
        if jaxpr not in _CONVERTED:
            _CONVERTED[jaxpr] = _convert(eqn, jaxpr)
        if (converted := _CONVERTED[jaxpr]) is not None:
            return converted(values)
    _count_interpretation(eqn)
    return run(jaxpr, values)


def _convert(eqn: Any, jaxpr: Any) -> _Converted | None:
    columns = [casadi.SX.sym("x", prod(var.aval.shape), 1) for var in eqn.invars]
    symbols: list[Value] = [
        Symbolic(column, var.aval.shape) if column.numel() else np.zeros(var.aval.shape, var.aval.dtype)
        for column, var in zip(columns, eqn.invars, strict=True)
    ]
    _count_interpretation(eqn)
    try:
        results = _run(jaxpr, symbols)
    except UnsupportedPrimitive:
        return None
    outputs = [result.entries for result in results if isinstance(result, Symbolic)]
    function = casadi.Function("inner", columns, outputs)

    def converted(values: Sequence[Value]) -> list[Value]:
        entries = iter(function.call([entries_of(value) for value in values]))
        # Values that no symbol reaches are the same numbers for all arguments.
        return [Symbolic(next(entries), r.shape) if isinstance(r, Symbolic) else r for r in results]

    return converted


def _count_interpretation(eqn: Any) -> None:
    interpretations[eqn.params["name"], tuple(var.aval.shape for var in eqn.outvars)] += 1


def _row(value: Value, number: int) -> Value:
    if not isinstance(value, Symbolic):
        return np.asarray(value[number])
    size = prod(value.shape[1:])
    return Symbolic(value.entries[number * size : (number + 1) * size], value.shape[1:])


def _stack(rows: list[Value], aval: Any) -> Value:
    if not any(isinstance(row, Symbolic) for row in rows):
        return np.array(rows, aval.dtype).reshape(aval.shape)
    return Symbolic(casadi.vertcat(*[entries_of(row) for row in rows]), aval.shape)


def _scan(run: _Run, eqn: Any, *values: Value) -> list[Value]:
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


def _while(run: _Run, eqn: Any, *values: Value) -> list[Value]:
    """Unrolled while the condition is a number; the body may work on symbols."""
    p = eqn.params
    first, second = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    carry = list(values[second:])
    while constant(eqn, run(p["cond_jaxpr"], [*values[:first], *carry])[0]).item():
        carry = run(p["body_jaxpr"], [*values[first:second], *carry])
    return carry


def _cond(run: _Run, eqn: Any, index: Value, *operands: Value) -> list[Value]:
    branches = eqn.params["branches"]
    if not isinstance(index, Symbolic):
        return run(branches[int(np.clip(index, 0, len(branches) - 1))], operands)
    results = [run(branch, operands) for branch in branches]
    return [
        Symbolic(choose(index.entries, [entries_of(case) for case in cases]), var.aval.shape)
        if prod(var.aval.shape) else np.zeros(var.aval.shape, var.aval.dtype)
        for var, cases in zip(eqn.outvars, zip(*results, strict=True), strict=True)
    ]  # fmt: skip


_BRANCHING: dict[str, Operation] = {"scan": _scan, "while": _while, "cond": _cond}


# --- the public object ----------------------------------------------------------------------------


@dataclass(frozen=True)
class TracedFunction:
    """A JAX function recorded for fixed shapes; make one with `trace`.

    `inputs` holds one pytree of `jax.ShapeDtypeStruct` per argument, `outputs` that of the result.
    """

    jaxpr: ClosedJaxpr
    inputs: tuple[Any, ...]
    outputs: Any

    @cached_property
    def size(self) -> int:
        """Estimated number of scalar operations, found without CasADi.

        Elements of all results (a dot product counts each multiplication, a scan each step); a
        `while` loop counts as one step.
        """
        return _count(self.jaxpr.jaxpr)

    def expressions(self, *args: Any) -> Any:
        """Interpret the function on symbols.

        Each argument has the structure of its example; a leaf is a NumPy object array of SX scalars of the
        example's shape (or an SX column for a leaf of one dimension or none), or a numeric array, which is
        then a constant. The result has the structure of the function's result, with object arrays (0-d for
        scalars). A result that no symbol reaches stays a numeric array. Only numeric leaves can be indices.
        """
        arrays = [
            sx_array(result.entries, result.shape) if isinstance(result, Symbolic) else result
            for result in interpret(self, args)
        ]
        return jax.tree.unflatten(jax.tree.structure(self.outputs), arrays)

    def function(self, name: str = "f", options: dict[str, Any] | None = None) -> Any:
        """`casadi.Function` with one column per argument and one column per output.

        An argument's column (n, 1) holds its leaves, in pytree order, each raveled in C order; an
        argument without leaves is a (0, 1) input. A function that returns a plain tuple has one
        output per item of it, any other function has one. `options` go to `casadi.Function`.
        """
        sizes = [sum(prod(leaf.shape) for leaf in jax.tree.leaves(example)) for example in self.inputs]
        columns = [casadi.SX.sym(f"x{number}", size, 1) for number, size in enumerate(sizes)]
        pairs = zip(columns, self.inputs, strict=True)
        result = self.expressions(*[_unpack(column, example) for column, example in pairs])
        items = result if type(result) is tuple else (result,)
        outputs = [casadi.vertcat(casadi.SX(0, 1), *map(sx_vector, jax.tree.leaves(i))) for i in items]
        return casadi.Function(name, columns, casadi.cse(outputs) if outputs else [], options or {})


def interpret(traced: TracedFunction, args: Sequence[Any], fallback: _Fallback = None) -> list[Value]:
    """The flat results for arguments as in `TracedFunction.expressions`."""
    if len(args) != len(traced.inputs):
        raise ValueError(f"expected {len(traced.inputs)} arguments, got {len(args)}")
    values: list[Value] = []
    for number, (arg, example) in enumerate(zip(args, traced.inputs, strict=True)):
        expected: Any = jax.tree.structure(example)
        if expected != jax.tree.structure(arg):
            raise ValueError(f"argument {number}: expected the structure {expected}")
        for leaf, spec in zip(jax.tree.leaves(arg), jax.tree.leaves(example), strict=True):
            values.append(to_value(leaf, spec.shape, spec.dtype))
    # NumPy must be as silent as JAX about 1/0 and log(0) of constants.
    with np.errstate(all="ignore"):
        return _run(traced.jaxpr, values, fallback)


def _unpack(column: Any, example: Any) -> Any:
    """Cut a column into the pytree of object arrays that `example` describes."""
    leaves, structure = jax.tree.flatten(example)
    stops = np.cumsum([0, *(prod(leaf.shape) for leaf in leaves)]).tolist()
    arrays = [
        sx_array(column[start:stop], leaf.shape)
        for leaf, start, stop in zip(leaves, stops[:-1], stops[1:], strict=True)
    ]
    return jax.tree.unflatten(structure, arrays)


def _specification(leaf: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of an example leaf; all floating-point numbers count as float64."""
    dtype = np.dtype(leaf.dtype) if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
    shape = tuple(leaf.shape) if hasattr(leaf, "shape") else np.shape(leaf)
    return jax.ShapeDtypeStruct(shape, np.float64 if np.issubdtype(dtype, np.floating) else dtype)


def trace(fn: Callable[..., Any], *examples: Any) -> TracedFunction:
    """Record `fn` for arguments shaped like `examples`.

    Examples are pytrees of arrays, `jax.ShapeDtypeStruct`s or Python numbers; only shape and dtype
    are used, and floating-point leaves are taken as float64.
    """
    with jax.enable_x64(True):
        inputs = tuple(jax.tree.map(_specification, example) for example in examples)
        jaxpr, outputs = jax.make_jaxpr(fn, return_shape=True)(*inputs)
    return TracedFunction(jaxpr, inputs, outputs)


def evaluate(fn: Callable[..., Any], *args: Any) -> Any:
    """The result of `fn` for pytrees of numbers, in NumPy arrays and double precision.

    The function is traced but not compiled: JAX, which would compile it, evaluates only primitives
    that NumPy does not know, one by one.
    """
    return trace(fn, *args).expressions(*args)


# --- dependencies ---------------------------------------------------------------------------------

# Results of operations that cannot be expressed are new symbols that remember their origins.
_Origins = frozenset[int]  # hashes of symbols


def dependencies(fn: Callable[..., Any], *examples: Any) -> Any:
    """Which entries of the first argument the result of `fn` depends on.

    Returns a pytree of boolean arrays with the structure and shapes of the first argument. The answer is
    structural: an entry counts if it appears in the simplified expression, whatever its derivative
    (`sign(x)` depends on x, `0 * x` does not). It is never too small: the result of an operation that has no
    form as an expression (a sort, an entry at an unknown index) depends on everything that enters it. Integer
    and boolean examples given by value in the other arguments count as constants, and may be indices.
    """
    traced = trace(fn, *examples)

    def symbols(spec: jax.ShapeDtypeStruct, example: Any = None) -> Array:
        if isinstance(example, (int, np.ndarray, np.generic, jax.Array)) and not np.issubdtype(
            spec.dtype, np.floating
        ):
            return np.asarray(example)
        return sx_array(casadi.SX.sym("x", prod(spec.shape), 1), spec.shape)

    first = jax.tree.map(symbols, traced.inputs[0])
    others = [
        jax.tree.map(symbols, inputs, example)
        for inputs, example in zip(traced.inputs[1:], examples[1:], strict=True)
    ]
    unknown = _Unknown()
    results = interpret(traced, (first, *others), fallback=unknown)
    # Symbols, since Jacobian sparsity would not see a dependence through a step function.
    used = set[int]().union(*map(unknown.origins, results))

    def appears(array: Array) -> Array:
        flags = [symbol.element_hash() in used for symbol in array.ravel()]
        return np.array(flags, bool).reshape(array.shape)

    return jax.tree.map(appears, first)


class _Unknown:
    """Replaces the results of an equation by new symbols, and remembers their origins.

    Each entry gets a symbol of its own, so that CasADi's simplifications (x - x is 0) never take
    two unknown numbers for the same.
    """

    def __init__(self) -> None:
        self._origins: dict[int, _Origins] = {}
        self._kept: list[Any] = []  # a symbol's hash is its address: none may be freed

    def origins(self, value: Value) -> _Origins:
        """The symbols that the entries of a value may depend on, with new symbols traced back."""
        sources: set[int] = set()
        for symbol in casadi.symvar(value.entries) if isinstance(value, Symbolic) else ():
            key = symbol.element_hash()
            sources |= self._origins.get(key, {key})
        return frozenset(sources)

    def __call__(self, eqn: Any, values: list[Value]) -> list[Value]:
        """Results of an equation: every entry may depend on all symbols in all inputs."""
        if eqn.primitive.name in ("dynamic_slice", "gather") and is_real(eqn):
            return [self._read(eqn, *values)]
        sources = self._all(values)
        return [self._new(np.full(v.aval.shape, sources), v.aval.dtype) for v in eqn.outvars]

    def _all(self, values: Iterable[Value]) -> _Origins:
        return _Origins().union(*map(self.origins, values))

    def _each(self, value: Value) -> Array:
        """The origins of each entry, in an object array."""
        origins = np.full(prod(value.shape), _Origins())
        for position, entry in enumerate(entries_of(value).elements()):
            origins[position] = self.origins(Symbolic(entry, ()))
        return origins.reshape(value.shape)

    def _new(self, origins: Array, dtype: Any) -> Value:
        """One new symbol for each entry of an object array of origins."""
        if origins.size == 0:
            return np.zeros(origins.shape, dtype)
        column = casadi.SX.sym("unknown", origins.size)
        symbols = sx_array(column, (origins.size,))
        for symbol, sources in zip(symbols, origins.ravel(), strict=True):
            self._origins[symbol.element_hash()] = sources
        self._kept.append(column)
        return Symbolic(column, origins.shape)

    def _read(self, eqn: Any, operand: Value, *indices: Value) -> Value:
        """Entries read at an unknown place: they may be any along the axes of unknown index.

        Since each entry of such an axis then represents the whole axis, any index, such as 0, will do.
        """
        dtype = eqn.outvars[0].aval.dtype
        settled, missing = zip(*map(_settle, indices), strict=True)
        if eqn.primitive.name == "gather":
            flags = missing[0].any(axis=tuple(range(missing[0].ndim - 1)))
            lines = np.array(eqn.params["dimension_numbers"].start_index_map)[flags]
        else:
            lines = np.flatnonzero(missing)
        smeared = np.bitwise_or.reduce(self._each(operand), axis=tuple(lines), keepdims=True)
        blurred = self._new(np.broadcast_to(smeared, operand.shape), dtype)
        (result,) = FOR_ALL[eqn.primitive.name](eqn, blurred, *settled)
        origins = self._each(result) | self._all(indices)
        return self._new(np.asarray(origins, dtype=object), dtype)  # NumPy unwraps 0-d results


def _settle(index: Value) -> tuple[Array, Array]:
    """The numbers in an index, with 0 where it holds symbols, and flags at these places."""
    entries = sx_array(entries_of(index), index.shape)
    missing = np.vectorize(lambda entry: not entry.is_constant(), otypes=[bool])(entries)
    return np.where(missing, 0, entries).astype(float), missing
