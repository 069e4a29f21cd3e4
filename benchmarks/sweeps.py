"""Sweeps: solves per second, one by one, with continuation, on one and two workers; batched simulations."""

import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import Rows

# 4 × 8 points of the curriculum diagram: four chains of eight.
OVER = {"eta": np.linspace(1.0, 4.0, 4), "weight_decay": np.linspace(0.0, 0.2, 8)}
SEEDS, DIMENSION, LANES = 500, 100, 8


def one_by_one() -> int:
    """Every problem on its own, as a loop over ``solve`` does."""
    import optlearn as ol

    for eta in OVER["eta"]:
        for weight_decay in OVER["weight_decay"]:
            ol.solve(ol.scenarios.curriculum(eta=eta, weight_decay=weight_decay))
    return int(np.prod([len(values) for values in OVER.values()]))


def timed(run: Callable[[], Any]) -> tuple[Any, float, float]:
    """Result, seconds on the clock, and of CPU in this process and those that it waited for."""
    wall, before = time.perf_counter(), os.times()
    found = run()
    after = os.times()
    cpu = sum(
        getattr(after, n) - getattr(before, n) for n in ("user", "system", "children_user", "children_system")
    )
    return found, time.perf_counter() - wall, cpu


def sweeps() -> Rows:
    """Throughput of solving."""
    import optlearn as ol

    def sweep(**options: Any) -> tuple[Any, list[float]]:
        moments: list[float] = []
        with tempfile.TemporaryDirectory() as folder:
            found = ol.sweep(
                "curriculum",
                OVER,
                out=Path(folder),
                progress=lambda _: moments.append(time.perf_counter()),
                **options,
            )
        return found, moments

    ol.solve(ol.scenarios.curriculum())  # traced
    print(
        f"{'':>24} {'wall s':>7} {'CPU s':>7} {'solves/s':>9} {'×':>5}   after the first point of each worker"
    )
    points, wall, cpu = timed(one_by_one)
    alone = points / wall
    rows: Rows = [{"how": "one by one with ol.solve", "solves/s": round(alone, 2)}]
    print(f"{'one by one':>24} {wall:>7.1f} {cpu:>7.1f} {alone:>9.2f} {1:>5.2f}", flush=True)
    steady = {}
    for label, options in (
        ("in this process", {"executor": "serial"}),
        ("without continuation", {"executor": "serial", "chain": 1}),
        ("one worker", {"executor": "processes", "jobs": 1}),
        ("two workers", {"executor": "processes", "jobs": 2}),
    ):
        (found, moments), wall, cpu = timed(lambda options=options: sweep(**options))
        jobs = options.get("jobs", 1)
        steady[label] = (points - jobs) / (moments[-1] - moments[jobs - 1])
        bad = int((~found["converged"]).sum())
        rows.append({"how": label, "solves/s": round(points / wall, 2), "not converged": bad})
        print(
            f"{label:>24} {wall:>7.1f} {cpu:>7.1f} {points / wall:>9.2f} {points / wall / alone:>5.2f}   "
            f"{steady[label]:.2f} solves/s" + (f", {bad} NOT CONVERGED" if bad else ""),
            flush=True,
        )
    print(f"from one worker to two: × {steady['two workers'] / steady['one worker']:.2f}")
    return rows


def simulations() -> None:
    """Throughput of simulating: problems one after the other, and as lanes of one program."""
    import optlearn as ol
    from optlearn._simulate.batch import simulate_many

    problems = [ol.scenarios.curriculum(eta=eta) for eta in np.linspace(1.0, 4.0, LANES)]
    schedules = [problem.baselines["curriculum"](problem, 1) for problem in problems]

    def separate() -> None:
        for problem, schedule in zip(problems, schedules, strict=True):
            ol.simulate(problem, schedule, N=DIMENSION, seeds=SEEDS, record=2)

    def together() -> None:
        simulate_many(problems, schedules, N=DIMENSION, seeds=SEEDS)

    steps = LANES * SEEDS * DIMENSION * problems[0].horizon
    print(f"{LANES} problems, {SEEDS} seeds, N = {DIMENSION}, compilation apart:")
    rates = {}
    for run in (separate, together):
        _, _, first = timed(run)
        _, wall, cpu = timed(run)
        rates[run.__name__] = steps / cpu
        print(
            f"{run.__name__:>24} {wall:>7.1f} {cpu:>7.1f} {steps / cpu:>12,.0f} seed-steps a second of CPU; "
            f"compiled in {max(first - cpu, 0):.1f} s",
            flush=True,
        )
    print(f"together: × {rates['together'] / rates['separate']:.2f}")


def main() -> Rows:
    """Print both tables; the rows of the first, for the page of measurements."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = sweeps()
    simulations()
    return rows


if __name__ == "__main__":
    main()
