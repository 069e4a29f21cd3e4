"""How time and memory grow with hidden nodes, intervals and states, each case in a process of its own.

CPU seconds and peak memory (as Linux counts it) are what a case takes beyond the imports. A case that takes
longer than a minute is left out, and so are all larger ones.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence

import numpy as np

from benchmarks.record import Rows

SECONDS_AT_MOST = 60

PREPARED = """
import json, resource, sys, time, warnings
import jax, jax.numpy as jnp, numpy as np
import optlearn as ol
from optlearn._engine.build import engine_for
from optlearn._engine.functions import FlatSystem, system_functions
warnings.simplefilter("ignore", ol.NotConvergedWarning)
ol.solve
resource.setrlimit(resource.RLIMIT_CPU, ({limit}, {limit} + 5))
def memory():
    # The peak of this memory. That of the process, by getrusage, begins with its parent's at the fork.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
"""

MEASURED = """
base, began = memory(), time.process_time()
found = {case}
print(json.dumps({{"seconds": time.process_time() - began, "MB": memory() - base, **(found or {{}})}}))
"""

# Microseconds of one drift in a compiled batch; and its scalar operations.
DRIFT = """
def drift(K, batch=64, times=20):
    with jax.enable_x64(True):
        model = ol.models.committee(K=K, M=K, sigma_n=0.1)
        flat, settings = FlatSystem(model, ("learning_rate",)), model.settings()
        lean = np.random.default_rng(0).normal(size=(K, K)) * 0.3
        x = np.asarray(model.layout.flatten(model.state(Q=lean @ lean.T + 0.1 * np.eye(K), M=lean)))
        many = jax.jit(jax.vmap(lambda x: flat.drift(model, settings, x, jnp.array([0.5]))))
        states = jnp.tile(x, (batch, 1))
        many(states).block_until_ready()
        began = time.process_time()
        for _ in range(times):
            many(states).block_until_ready()
        each = (time.process_time() - began) / times / batch
        size = engine_for(system_functions(flat, settings), "xla").size
        return {"states": len(x), "operations": size, "us": 1e6 * each}
"""

COMMITTEE = """
def solve(K, method):
    problem = ol.scenarios.learning_rate(K=K, M=K, alpha_F=10.0)
    ol.solve(problem, 8, method, starts=1, steps=2, max_iterations=30)
"""

INTERVALS = """
def solve(intervals, method):
    ol.solve(ol.scenarios.curriculum(), intervals, method, starts=1)
"""

# Every state relaxes towards its neighbours, all under one rate: a drift whose work is linear in the states.
STATES = """
def solve(size, method):
    states = [f"e{i}" for i in range(size)]
    class Chain(ol.System):
        names = tuple(states)
        parameters = {"rate": 0.5}
        def drift(self, x, u):
            e = jnp.stack([x[name] for name in states])
            slope = u["rate"] * (jnp.roll(e, 1) - 2 * e) + u["rate"] ** 2 * e**2
            return {name: slope[i] for i, name in enumerate(states)}
        def error(self, x, u):
            return sum(x[name] for name in states) / size
    start = {name: 1.0 for name in states}
    problem = ol.Problem(model=Chain(), start=start, horizon=5, controls={"rate": ol.Continuous(0, 1)})
    ol.solve(problem, 20, method, starts=1, steps=2)
"""


def measured(program: str, case: str) -> dict[str, float] | None:
    """What a case takes, in a process of its own; None: more than a minute of CPU time."""
    prepared = PREPARED.format(limit=SECONDS_AT_MOST)
    done = subprocess.run(
        [sys.executable, "-c", prepared + program + MEASURED.format(case=case)],
        capture_output=True,
        text=True,
    )
    if done.returncode == -signal.SIGXCPU:
        return None
    done.check_returncode()
    return json.loads(done.stdout.splitlines()[-1])


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The b of the best a·sizeᵇ."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-9)), 1)[0])


def table(title: str, symbol: str, sizes: Sequence[int], program: str, case: str) -> Rows:
    """One row a size, and how each column grows; the rows, for the page of measurements."""
    rows: list[dict[str, float]] = []
    print(f"\n{title}", flush=True)
    for size in sizes:
        found = measured(program, case.format(size=size))
        if found is None:
            print(f"{symbol} = {size:>5}: more than {SECONDS_AT_MOST} s")
            break
        rows.append(found)
        print(
            f"{symbol} = {size:>5}:", *(f"{name} {value:,.4g}" for name, value in found.items()), flush=True
        )
    # All sizes, and the largest two: where one term has not taken over yet, the second is higher.
    for words, first in (("grows like", 0), ("at the end", -2)):
        if len(rows) > 1:
            reached = sizes[: len(rows)][first:]
            powers = {name: exponent(reached, [row[name] for row in rows[first:]]) for name in rows[0]}
            print(words, ", ".join(f"{name}: {symbol}^{power:.1f}" for name, power in powers.items()))
    return [
        {"what": title, "size": f"{symbol} = {size}", **{name: float(f"{v:.3g}") for name, v in row.items()}}
        for size, row in zip(sizes, rows, strict=False)
    ]


def main() -> Rows:
    """Print all tables."""
    nodes = (2, 4, 8, 16)
    rows = table("committees, drift alone", "K", nodes, DRIFT, "drift({size})")
    for method in ("indirect", "direct"):
        case = f"solve({{size}}, {method!r})"
        rows += table(f"committees, {method}, 8 intervals", "K", nodes, COMMITTEE, case)
        rows += table(f"curriculum, {method}, one start", "I", (60, 120, 250, 500, 1000), INTERVALS, case)
        rows += table(f"chains of states, {method}, 20 intervals", "n", (12, 25, 50, 100), STATES, case)
    return rows


if __name__ == "__main__":
    main()
