"""Published problems of optimal control by every method, beside a plain transcription with CasADi and IPOPT.

``python -m benchmarks control [NAME …]`` prints a table as it goes; without names it also writes the table of
the documentation (``docs/benchmarks.csv``). ``python -m benchmarks.control --references [NAME …]`` looks for
the references themselves: the transcription from many random starts.

The transcription shares equations with ``ol.benchmarks`` and nothing else: multiple shooting with its own
Runge-Kutta steps, derivatives by CasADi. Discrete controls are shares of their values there, so that its
objective is a lower bound of theirs.
"""

import csv
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import casadi
import numpy as np

import optlearn as ol

# By itself the indirect method creeps where arcs are singular: it is stopped, and then says not converged.
METHODS: dict[str, dict[str, Any]] = {
    "auto": {},
    "direct": {},
    "indirect": {"max_iterations": 200},
}
PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.csv"
HEADER = ("problem", "method", "objective", "excess", "converged", "honest", "seconds", "iterations")
# Random starts of the transcription, in the search for references.
STARTS = 24
# CPU seconds that the default may take before other methods are left out: they are there to compare.
CHEAP = 2.0


def in_casadi(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with CasADi's exp, sqrt, … in place of JAX's."""
    assert isinstance(function, FunctionType)
    names = {**function.__globals__, "jnp": casadi}
    return FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )


class Transcription:
    """Multiple shooting of a benchmark on a grid of intervals, each with Runge-Kutta steps."""

    def __init__(self, benchmark: ol.benchmarks.Benchmark, intervals: int, steps: int) -> None:
        self.benchmark, self.intervals, self.steps = benchmark, intervals, steps
        states, controls = list(benchmark.start), benchmark.controls
        n = len(states) + 1  # the integral of the running cost comes last
        low, high = [], []
        for control in controls.values():
            low += [0.0] * len(control.values) or [control.lower]
            high += [1.0] * len(control.values) or [control.upper]
        self.low, self.high, m = np.array(low), np.array(high), len(low)
        self.start = np.append(list(benchmark.start.values()), 0.0)

        x, u = casadi.SX.sym("x", n), casadi.SX.sym("u", m)
        rate = casadi.Function("rate", [x, u], [self._rate(x, u)])
        self.ranges = _range(benchmark.horizon)
        horizon, state, along = casadi.SX.sym("T"), x, []
        h = horizon / intervals / steps
        for _ in range(steps):
            k1 = rate(state, u)
            k2 = rate(state + h / 2 * k1, u)
            k3 = rate(state + h / 2 * k2, u)
            k4 = rate(state + h * k3, u)
            state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            along += self._paths(state, u)
        self.step = casadi.Function("step", [x, u, horizon], [state])
        paths = casadi.Function("paths", [x, u, horizon], [casadi.vertcat(*along)])
        self.course = self.step.mapaccum(intervals)

        named = {name: x[i] for i, name in enumerate(states)}
        final = 0 if benchmark.final is None else in_casadi(benchmark.final)(named, {})
        self.final = casadi.Function("final", [x], [x[n - 1] + final])
        ends = [in_casadi(limit.objective.terminal)(named, {}) for limit in benchmark.limits]
        self.ends = casadi.Function("ends", [x], [casadi.vertcat(*ends)])

        X, U = casadi.MX.sym("X", n, intervals), casadi.MX.sym("U", m, intervals)
        T = casadi.MX.sym("T")
        before, times = casadi.horzcat(casadi.DM(self.start), X[:, :-1]), casadi.repmat(T, 1, intervals)
        parts = [casadi.vec(self.step.map(intervals)(before, U, times) - X), self.ends(X[:, -1])]
        lower = [np.zeros(n * intervals), *([self._least(limit)] for limit in benchmark.limits)]
        upper = [np.zeros(n * intervals), *([limit.value] for limit in benchmark.limits)]
        if along:
            parts.append(casadi.vec(paths.map(intervals)(before, U, times)))
            lower.append(np.full(len(along) * intervals, -np.inf))
            upper.append(np.zeros(len(along) * intervals))
        for budget in benchmark.budgets:
            assert budget.total is not None
            assert not budget.equal
            parts.append(casadi.sum2(U[list(controls).index(budget.control), :]) * T / intervals)
            lower.append([-np.inf])
            upper.append([budget.total])
        column = 0
        for control in controls.values():
            if control.values:
                count = len(control.values)
                parts.append(casadi.sum1(U[column : column + count, :]).T)
                lower.append(np.ones(intervals))
                upper.append(np.ones(intervals))
            column += len(control.values) or 1
        self.bounds = np.concatenate(lower), np.concatenate(upper)
        self.sizes = n, m
        program = {
            "x": casadi.vertcat(casadi.vec(X), casadi.vec(U), T),
            "f": self.final(X[:, -1]),
            "g": casadi.vertcat(*parts),
        }
        # IPOPT's tolerances are absolute.
        size = min(1.0, benchmark.reference.size or abs(benchmark.reference.objective))
        quiet = {
            "print_level": 0, "sb": "yes", "max_iter": 1000, "tol": 1e-9, "obj_scaling_factor": 1 / size,
        }  # fmt: skip
        self.solver = casadi.nlpsol(
            "plain", "ipopt", program, {"print_time": False, "show_eval_warnings": False, "ipopt": quiet}
        )

    @staticmethod
    def _least(limit: ol.Limit) -> float:
        return limit.value if limit.equals is not None else -np.inf

    def _paths(self, x: Any, u: Any) -> list[Any]:
        """What must not be above 0 at a state, under continuous controls."""
        state = {name: x[i] for i, name in enumerate(self.benchmark.start)}
        settings = {name: u[i] for i, name in enumerate(self.benchmark.controls)}
        values = []
        for path in self.benchmark.paths:
            named = isinstance(path.quantity, str)
            value = state[path.quantity] if named else in_casadi(path.quantity)(state, settings)
            values += [bound.sign * value - bound.limit for bound in path.bounds]
        return values

    def _rate(self, x: Any, u: Any) -> Any:
        """dx/dt and the running cost, under shares of discrete values."""
        names, equations = list(self.benchmark.start), in_casadi(self.benchmark.equations)
        cost = self.benchmark.cost and in_casadi(self.benchmark.cost)
        mixtures: list[tuple[Any, dict[str, Any]]] = [(1.0, {})]
        column = 0
        for name, control in self.benchmark.controls.items():
            options = [(u[column + i], v) for i, v in enumerate(control.values)] or [(1.0, u[column])]
            column += len(options)
            mixtures = [(a * share, {**c, name: v}) for a, c in mixtures for share, v in options]
        state = {name: x[i] for i, name in enumerate(names)}
        total = 0
        for share, settings in mixtures:
            moved = equations(state, settings)
            running = cost(state, settings) if cost else 0.0
            total = total + share * casadi.vertcat(*(moved[name] for name in names), running)
        return total

    def neutral(self) -> np.ndarray:
        """(m, I) the guess that every solver begins with."""
        parts = []
        for control in self.benchmark.controls.values():
            parts += [1 / len(control.values) for _ in control.values] or [control.start]
        return np.tile(np.array(parts)[:, None], (1, self.intervals))

    def random(self, generator: np.random.Generator) -> np.ndarray:
        """(m, I) levels at random."""
        pieces = int(generator.integers(1, 9))
        levels = generator.uniform(self.low, self.high, size=(pieces, len(self.low))).T
        return levels[:, np.arange(self.intervals) * pieces // self.intervals]

    def solve(self, u: np.ndarray) -> tuple[float, np.ndarray, bool, int]:
        """Objective, controls (m, I), whether IPOPT has converged, and its iterations."""
        n, m = self.sizes
        horizon = self.ranges[2]
        states = np.array(self.course(self.start, u, horizon))
        states = np.where(np.isfinite(states), states, self.start[:, None])
        found = self.solver(
            x0=np.concatenate([states.ravel(order="F"), u.ravel(order="F"), [horizon]]),
            lbx=np.concatenate(
                [np.full(n * self.intervals, -np.inf), np.tile(self.low, self.intervals), self.ranges[:1]]
            ),
            ubx=np.concatenate(
                [np.full(n * self.intervals, np.inf), np.tile(self.high, self.intervals), self.ranges[1:2]]
            ),
            lbg=self.bounds[0],
            ubg=self.bounds[1],
        )
        stats = self.solver.stats()
        controls = np.array(found["x"]).ravel()[n * self.intervals : -1].reshape(m, -1, order="F")
        return float(found["f"]), controls, bool(stats["success"]), int(stats["iter_count"])

    def objective(self, u: np.ndarray) -> float:
        """Of controls (m, I), at the horizon where it begins."""
        return float(self.final(self.course(self.start, u, self.ranges[2])[:, -1]))


def _range(horizon: float | ol.Free) -> tuple[float, float, float]:
    """The least and the greatest horizon, and where to begin."""
    if isinstance(horizon, ol.Free):
        return horizon.lower, horizon.upper, horizon.start
    return horizon, horizon, horizon


def look_for_reference(benchmark: ol.benchmarks.Benchmark, starts: int = STARTS) -> None:
    """The lowest objective from many starts, with steps that do not matter."""
    intervals, steps = benchmark.reference.intervals, 1
    generator = np.random.default_rng(29)
    while True:
        coarse, fine = (Transcription(benchmark, intervals, k) for k in (steps, 2 * steps))
        objective, u, converged, _ = coarse.solve(coarse.neutral())
        # Steps may be unstable where the optimum is not, and lead starts astray.
        tried = [u, *(np.tile(end[:, None], (1, intervals)) for end in (coarse.low, coarse.high))]
        change = max(
            abs(fine.objective(v) - coarse.objective(v)) for v in tried[: 1 if benchmark.limits else 3]
        )
        if (converged and change < 1e-6 * abs(benchmark.reference.size or objective)) or steps >= 256:
            break
        steps *= 2
    began = time.process_time()
    ends = [(objective, converged)]
    ends += [coarse.solve(coarse.random(generator))[::2] for _ in range(starts)]
    good = sorted(f for f, ok in ends if ok)
    best = good[0] if good else np.nan
    alike = sum(f - best <= 1e-6 * abs(best) for f in good)
    print(
        f"{benchmark.name:>22} {intervals:4d} x {steps:3d} best {best:.9g} neutral {objective:.9g} "
        f"{alike} of {len(good)} of {len(ends)} alike, worst {good[-1] if good else np.nan:.6g}, now "
        f"{benchmark.reference.objective:.9g}, published {benchmark.reference.published} "
        f"({(time.process_time() - began) / len(ends):.2f} s each)",
        flush=True,
    )


def solved(benchmark: ol.benchmarks.Benchmark, method: str) -> tuple[dict[str, Any], ol.Solution]:
    """A row of the table, and the solution."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ol.NotConvergedWarning)
        solution = ol.solve(benchmark.problem(), method=method, **METHODS[method])
    certificate, reference = solution.certificate, benchmark.reference
    row = {
        "problem": benchmark.name,
        "method": method,
        "objective": solution.objective,
        "excess": reference.excess(solution.objective),
        "converged": certificate.converged,
        "honest": not (certificate.converged and reference.missed_by(solution.objective)),
        "seconds": time.process_time() - began,
        "iterations": sum(run.iterations for run in solution.runs),
    }
    return row, solution


def plain(benchmark: ol.benchmarks.Benchmark, steps: int) -> dict[str, Any]:
    """The transcription from the neutral guess on the same grid."""
    began = time.process_time()
    program = Transcription(benchmark, benchmark.reference.intervals, steps)
    objective, _, converged, iterations = program.solve(program.neutral())
    return {
        "problem": benchmark.name,
        "method": "CasADi/IPOPT",
        "objective": objective,
        "excess": benchmark.reference.excess(objective),
        "converged": converged,
        "honest": not (converged and benchmark.reference.missed_by(objective)),
        "seconds": time.process_time() - began,
        "iterations": iterations,
    }


def shown(row: dict[str, Any]) -> list[str]:
    """A row in words."""
    return [
        row["problem"],
        row["method"],
        f"{row['objective']:.8g}",
        f"{row['excess']:+.1e}",
        "yes" if row["converged"] else "no",
        "yes" if row["honest"] else "NO",
        f"{row['seconds']:.1f}",
        str(row["iterations"]),
    ]


def main(*names: str) -> None:
    """Print the table, and write that of the documentation if it has all problems."""
    widths = (22, 13, 12, 9, 10, 7, 8, 11)
    rows: list[list[str]] = []

    def add(row: dict[str, Any]) -> None:
        rows.append(shown(row))
        print(" ".join(f"{cell:>{w}}" for cell, w in zip(rows[-1], widths, strict=True)), flush=True)

    print(" ".join(f"{cell:>{w}}" for cell, w in zip(HEADER, widths, strict=True)))
    for benchmark in ol.benchmarks.problems(*names):
        row, solution = solved(benchmark, "auto")
        add(row)
        for method in list(METHODS)[1:] if row["seconds"] <= CHEAP else ():
            add(solved(benchmark, method)[0])
        add(plain(benchmark, solution.options["steps"]))
    if not names:
        with PAGE.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([HEADER, *rows])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--references"]:
        for found in ol.benchmarks.problems(*sys.argv[2:]):
            look_for_reference(found)
    else:
        main(*sys.argv[1:])
