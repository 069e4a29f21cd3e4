"""Seed-steps per second of both simulators beside a plain NumPy loop, one thread each.

The measurement runs in a process of its own, bound to one core, with one thread for XLA and for BLAS. Rates
are per second of CPU time, so that other work on the machine disturbs them less; compilation is left out
and shown beside. The NumPy loop is what one writes by hand: one seed, ``np.random.randn`` for every input.
"""

# ruff: noqa: NPY002 - the loop to compare with is written as it usually is
import os
import subprocess
import sys
import time
from collections.abc import Callable
from math import erf, exp, pi, sqrt
from typing import Any

import numpy as np

DIMENSIONS = (1_000, 10_000, 30_000, 100_000)
SECONDS = 2.0
SEEDS = {"weights": 8, "overlaps": 1000}
ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def numpy_curriculum(N: int, steps: int) -> None:
    """Curriculum model, η = 3, hard samples (Δ = 2)."""
    eta, Delta = 3.0, 2.0
    w1, w2, teacher = np.random.randn(N), np.random.randn(N), np.random.randn(N)
    for _ in range(steps):
        x1 = np.random.randn(N)
        x2 = sqrt(Delta) * np.random.randn(N)
        label = np.sign(x1 @ teacher)
        h = (x1 @ w1 + x2 @ w2) / sqrt(N) / 2
        slope = -(label - erf(h)) * exp(-(h**2)) / sqrt(pi)
        w1 -= eta * slope * x1 / sqrt(N)
        w2 -= eta * slope * x2 / sqrt(N)


def numpy_dropout(N: int, steps: int) -> None:
    """Committee K = 2, M = 1 with dropout p = 0.7, σ_n = 0.3, η = 1."""
    eta, p, sigma_n = 1.0, 0.7, 0.3
    w, teacher = np.random.randn(2, N) / 10, np.random.randn(N)
    for _ in range(steps):
        x = np.random.randn(N)
        mask = np.random.rand(2) < p
        label = erf(x @ teacher / sqrt(2 * N)) + sigma_n * np.random.randn()
        fields = w @ x / sqrt(N)
        error = label - sum(erf(f / sqrt(2)) for f, on in zip(fields, mask, strict=True) if on)
        slopes = -error * mask * sqrt(2 / pi) * np.exp(-(fields**2) / 2)
        w -= eta * np.outer(slopes, x) / sqrt(N)


def numpy_rate(loop: Callable[[int, int], None], N: int) -> float:
    """Steps per second of a NumPy loop, the best of a few stretches."""
    loop(N, 3)
    best, began, steps = 0.0, time.process_time(), max(5, 3_000_000 // N)
    while time.process_time() - began < SECONDS:
        start = time.process_time()
        loop(N, steps)
        best = max(best, steps / (time.process_time() - start))
    return best


def simulator_rate(model: Any, start: Any, N: int, mode: str) -> tuple[float, float]:
    """Seed-steps per second of a second run, and what the first one took longer (compilation)."""
    import optlearn as ol

    def run(steps: int) -> float:
        began = time.process_time()
        schedule = ol.Schedule.constant(steps / N, {})
        ol.simulate(model, schedule, start=start, N=N, seeds=SEEDS[mode], mode=mode, record=2, error=False)
        return time.process_time() - began

    first = run(64)
    steps, taken = 64, run(64)
    compilation = first - taken
    base = taken  # start-up, which is not a step's cost: drawing initial weights, checking arguments
    while taken < SECONDS / 4:
        steps *= 4
        taken = run(steps)
    steps = int(min(steps * SECONDS / taken, 2e6))
    return max((steps - 64) * SEEDS[mode] / (run(steps) - base) for _ in range(2)), compilation


def measure() -> None:
    """Print the table; run with one thread."""
    import optlearn as ol

    curriculum = ol.models.curriculum(Delta=(2.0, 2.0))
    dropout = ol.models.committee(dropout=True, activation_probability=0.7, sigma_n=0.3)
    problems = (
        ("curriculum", numpy_curriculum, curriculum, curriculum.state(Q11=1, Q22=1)),
        ("dropout", numpy_dropout, dropout, dropout.state(Q11=0.01, Q22=0.01)),
    )
    print("one thread each; seed-steps per second of CPU time; × = ratio to the NumPy loop in this run")
    print(f"weights: {SEEDS['weights']} seeds, float32; overlaps: {SEEDS['overlaps']} seeds, float64")
    head = f"{'model':>10} {'N':>7} {'NumPy':>8} {'weights':>9} {'×':>6} {'overlaps':>11} {'×':>8}"
    print(f"{head}   compile (weights, overlaps)")
    for name, loop, model, start in problems:
        for N in DIMENSIONS:
            plain = numpy_rate(loop, N)
            weights, compile_weights = simulator_rate(model, start, N, "weights")
            overlaps, compile_overlaps = simulator_rate(model, start, N, "overlaps")
            print(
                f"{name:>10} {N:>7} {plain:>8,.0f} {weights:>9,.0f} {weights / plain:>6.1f} "
                f"{overlaps:>11,.0f} {overlaps / plain:>8,.0f}   "
                f"{compile_weights:.1f} s, {compile_overlaps:.1f} s",
                flush=True,
            )


def main() -> None:
    """Measure in a process of its own, bound to one core."""
    code = "import os\n"
    if hasattr(os, "sched_setaffinity"):
        code += "os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])\n"
    code += "from benchmarks.simulators import measure; measure()"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **ONE_THREAD}, check=True)


if __name__ == "__main__":
    main()
