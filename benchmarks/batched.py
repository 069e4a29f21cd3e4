"""A phase diagram of curriculum learning in one batch: solves per second beside one-by-one solving.

    python -m benchmarks batched                                 # 12 × 12 points, about two minutes
    python -m benchmarks.batched --side 100 --compare 100 --out diagram.npz
    python -m benchmarks.batched --compare-with diagram.npz --compare 100

The batch needs JAX, NumPy, SciPy, lazy_loader and filelock alone:
on a machine without CasADi nothing is solved one by one, and ``--compare-with`` does that later, elsewhere.
"""

import argparse
import importlib.util
import json
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

ETA, WEIGHT_DECAY = (1.0, 5.0), (0.0, 0.2)


def problem(side: int, number: int) -> Any:
    """A point of the diagram, weight decay varying fastest."""
    import optlearn as ol

    eta, decay = np.linspace(*ETA, side), np.linspace(*WEIGHT_DECAY, side)
    return ol.scenarios.curriculum(eta=eta[number // side], weight_decay=decay[number % side])


def batched(side: int, intervals: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Timings, and arrays of all points."""
    from optlearn._control.batched.solve import solve_many

    began = time.perf_counter()
    posed = [problem(side, number) for number in range(side**2)]
    made = time.perf_counter() - began
    seconds = []
    for _ in range(2):  # the first compiles
        began = time.perf_counter()
        found = solve_many(posed, intervals)
        seconds.append(time.perf_counter() - began)
    # Points that the batch does not certify are solved one by one in a sweep.
    timing = {
        "device": str(jax.devices()[0].device_kind), "points": len(posed), "intervals": intervals,
        "making": made, "first": seconds[0], "again": seconds[1],
        "certified": sum(c.converged for c in found.certificates),
    }  # fmt: skip
    hard = np.array([found.schedule(i)["difficulty"] > 0 for i in range(len(posed))])
    arrays = {
        "objective": found.objective,
        "relaxed_objective": found.relaxed_objective,
        "converged": np.array([c.converged for c in found.certificates]),
        "gap": np.array([c.may_still_be_won for c in found.certificates]),
        "passes": found.passes,
        "hard": np.packbits(hard, axis=1),
    }
    return timing, arrays


def report(timing: dict[str, Any]) -> None:
    """One line of what was measured."""
    points = timing["points"]
    print(
        f"{points} points on {timing['device']}: made in {timing['making']:.1f} s; solved in "
        f"{timing['first']:.1f} s, compilation included, {timing['again']:.1f} s again: "
        f"{points / timing['again']:.1f} solves/s; certified {timing['certified']} of {points}",
        flush=True,
    )


def compare(timing: dict[str, Any], arrays: dict[str, np.ndarray], count: int) -> float | None:
    """One-by-one solves of some random points: how far they are from the batch; returns solves a second."""
    if importlib.util.find_spec("casadi") is None:
        print("no CasADi here: nothing is solved one by one; see --compare-with")
        return None
    import optlearn as ol

    side = round(timing["points"] ** 0.5)
    chosen = np.random.default_rng(0).choice(side**2, min(count, side**2), replace=False)
    posed = [problem(side, number) for number in chosen]
    warnings.simplefilter("ignore", ol.NotConvergedWarning)
    ol.solve(posed[0], timing["intervals"])  # traced
    began = time.perf_counter()
    found = [ol.solve(one, timing["intervals"]) for one in posed]
    rate = len(chosen) / (time.perf_counter() - began)
    difference = np.array([s.objective for s in found]) - arrays["objective"][chosen]
    relative = np.abs(difference) / np.abs(arrays["objective"][chosen])
    flags = np.array([s.certificate.converged for s in found]) == arrays["converged"][chosen]
    speed = timing["points"] / timing["again"]
    print(
        f"one by one, {len(chosen)} random points: {rate:.2f} solves/s; the batch is {speed / rate:.1f} "
        f"times as fast. Objectives differ by {np.nanmax(relative):.1e} of themselves at most (median "
        f"{np.nanmedian(relative):.1e}), the same flags at {flags.sum()} of {len(flags)}"
    )
    return rate


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Measure, print, and write what was asked for; a row for the page of measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=12, help="points along each axis")
    parser.add_argument("--intervals", type=int, default=240)
    parser.add_argument("--compare", type=int, default=10, help="points that are solved one by one as well")
    parser.add_argument("--out", type=Path, help="write the results to this .npz file")
    parser.add_argument("--compare-with", type=Path, help="compare the results in such a file")
    given = parser.parse_args(arguments or [])
    if given.compare_with is None:
        timing, arrays = batched(given.side, given.intervals)
        report(timing)
        if given.out is not None:
            np.savez_compressed(given.out, timing=json.dumps(timing), **arrays)
    else:
        with np.load(given.compare_with) as file:
            arrays = {name: file[name] for name in file.files}
        timing = json.loads(str(arrays.pop("timing")))
        report(timing)
    alone = compare(timing, arrays, given.compare)
    speed = timing["points"] / timing["again"]
    certified = f"{timing['certified']} of {timing['points']}"
    row = {"device": timing["device"], "points": timing["points"], "solves/s": round(speed, 1)}
    return [{**row, "one by one, solves/s": alone and round(alone, 2), "certified": certified}]


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
