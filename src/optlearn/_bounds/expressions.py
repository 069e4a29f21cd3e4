"""CasADi expressions as polynomials, evaluated along the expression's own operations.

Operations that are not polynomial are reported by name. A square root or a quotient of one control, √(p w +
q) or 1/(p w + q), becomes polynomial by a change of control: y = √(p w + q), or its inverse, with w = (y² −
q)/p or (1/y − q)/p.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import casadi

from optlearn._bounds import polynomials as poly
from optlearn._bounds.polynomials import Polynomial
from optlearn._errors import SpecificationError

OPERATIONS = {getattr(casadi, name): name[3:].lower() for name in dir(casadi) if name.startswith("OP_")}
_WORDS = {
    "asin": "an arcsine", "atan": "an arctangent", "atan2": "an arctangent", "cos": "a cosine",
    "constpow": "a power", "div": "a quotient", "erf": "an error function", "exp": "an exponential",
    "fmax": "a maximum", "fmin": "a minimum", "if_else_zero": "a choice", "inv": "a quotient",
    "log": "a logarithm", "pow": "a power", "sin": "a sine", "sqrt": "a square root",
    "tanh": "a hyperbolic tangent",
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """A new control y for w: √(p w + q), or 1/(p w + q) if ``inverse``."""

    slope: float
    offset: float
    inverse: bool

    def polynomial(self, y: Polynomial) -> Polynomial:
        """w, a polynomial of y."""
        exponents = next(iter(y))
        grown = {tuple((-1 if self.inverse else 2) * e for e in exponents): 1.0 / self.slope}
        shift = poly.constant(-self.offset / self.slope, len(exponents))
        return poly.combined([(1.0, grown), (1.0, shift)])

    def bounds(self, low: float, high: float) -> tuple[float, float]:
        """The range of y."""
        both = [self.slope * w + self.offset for w in (low, high)]
        if min(both) <= 0:
            raise SpecificationError("bound: a root or quotient of a control must be of positive numbers")
        ends = sorted(1 / b if self.inverse else b**0.5 for b in both)
        return ends[0], ends[1]


class Reader:
    """Reads expressions in n states and m controls as polynomials of n + m variables.

    Attributes:
        changes: control → its change of variable.
    """

    def __init__(self, name: str, x: Any, w: Any) -> None:
        self.name, self.x, self.w = name, x, w
        self.states, self.size = x.numel(), x.numel() + w.numel()
        self.changes: dict[int, Change] = {}

    def read(self, **expressions: Any) -> dict[str, list[Polynomial]]:
        """Every expression, entry by entry.

        Raises:
            SpecificationError: one of them is not a polynomial; the message names the operations.
        """
        functions = {
            name: casadi.Function("read", [self.x, self.w], [casadi.densify(expression)])
            for name, expression in expressions.items()
        }
        while True:
            polynomials, failed = {}, {}
            for name, function in functions.items():
                walk = _Walk(self, function)
                if any(p is None for p in walk.outputs):
                    failed[name] = walk
                polynomials[name] = [p for p in walk.outputs if p is not None]
            if not failed:
                return polynomials
            # After a change of control the walk restarts, and may need another change.
            if not any(walk.change() for walk in failed.values()):
                name, walk = next(iter(failed.items()))
                words = ", ".join(sorted({_WORDS.get(op, op) for op in walk.met}))
                raise SpecificationError(
                    f"bound: the {name.replace('_', ' ')} of {self.name!r} must be a polynomial of the state "
                    f"and the controls for kind='sos', and has {words}"
                )


class _Walk:
    """Walk through a function's operations with polynomials (None: not a polynomial)."""

    def __init__(self, reader: Reader, function: Any) -> None:
        self.reader = reader
        self.met: set[str] = set()  # operations that are not polynomial
        self._under: list[tuple[Polynomial, bool]] = []  # a root, or (true) a quotient
        inputs = [poly.variable(i, reader.size) for i in range(reader.size)]
        for i, change in reader.changes.items():
            inputs[reader.states + i] = change.polynomial(inputs[reader.states + i])
        work: dict[int, Polynomial | None] = {}
        self.outputs: list[Polynomial | None] = [{} for _ in range(function.numel_out(0))]
        for k in range(function.n_instructions()):
            op = OPERATIONS[function.instruction_id(k)]
            sources, targets = function.instruction_input(k), function.instruction_output(k)
            if op == "output":
                self.outputs[targets[1]] = work[sources[0]]
            elif op == "input":
                # Argument 0 is the state, argument 1 the controls, which follow it.
                work[targets[0]] = inputs[sources[1] + (reader.states if sources[0] else 0)]
            elif op == "const":
                work[targets[0]] = poly.constant(function.instruction_constant(k), reader.size)
            else:
                work[targets[0]] = self._result(op, [work[i] for i in sources])

    def change(self) -> bool:
        """Change a control that is alone under a root or in a quotient; returns whether there was one."""
        n, size = self.reader.states, self.reader.size
        for polynomial, inverse in self._under:
            linear = [e for e in polynomial if any(e)]
            if len(linear) != 1 or sum(map(abs, linear[0])) != 1 or min(linear[0]) < 0:
                continue
            control = linear[0].index(1) - n
            if control >= 0 and control not in self.reader.changes:
                offset = polynomial.get((0,) * size, 0.0)
                self.reader.changes[control] = Change(polynomial[linear[0]], offset, inverse)
                return True
        return False

    def _result(self, op: str, operands: list[Polynomial | None]) -> Polynomial | None:
        polynomials = [p for p in operands if p is not None]
        if len(polynomials) == len(operands) and (result := self._polynomial(op, *polynomials)) is not None:
            return result
        if op not in _RING:
            self.met.add(op)
        return None

    def _polynomial(self, op: str, a: Polynomial, b: Polynomial | None = None) -> Polynomial | None:
        size, second = self.reader.size, {} if b is None else b
        if op in _RING:
            return _RING[op](a, second)
        if op in ("div", "inv"):
            over = self._raised(a if op == "inv" else second, inverse=True)
            return over if op == "inv" or over is None else poly.times(a, over)
        if op == "sqrt":
            return self._raised(a, inverse=False)
        if op in ("pow", "constpow") and set(second) <= {(0,) * size}:
            exponent = second.get((0,) * size, 0.0)
            if exponent == int(exponent):
                base = a if exponent >= 0 else self._raised(a, inverse=True)
                return None if base is None else poly.power(base, abs(int(exponent)), size)
        return None

    def _raised(self, a: Polynomial, inverse: bool) -> Polynomial | None:
        """Inverse or root of a number, or of a power of a changed control, which is positive."""
        if not a and not inverse:
            return a
        positive = {self.reader.states + i for i in self.reader.changes}
        if len(a) == 1 and all(i in positive for exponents in a for i, e in enumerate(exponents) if e):
            ((exponents, value),) = a.items()
            if inverse:
                return {tuple(-e for e in exponents): 1 / value}
            if value > 0 and all(e % 2 == 0 for e in exponents):
                return {tuple(e // 2 for e in exponents): value**0.5}
        self._under.append((a, inverse))
        return None


_RING: dict[str, Callable[[Polynomial, Polynomial], Polynomial]] = {
    "assign": lambda a, b: a,
    "add": lambda a, b: poly.combined([(1.0, a), (1.0, b)]),
    "sub": lambda a, b: poly.combined([(1.0, a), (-1.0, b)]),
    "neg": lambda a, b: poly.combined([(-1.0, a)]),
    "twice": lambda a, b: poly.combined([(2.0, a)]),
    "mul": poly.times,
    "sq": lambda a, b: poly.times(a, a),
}
