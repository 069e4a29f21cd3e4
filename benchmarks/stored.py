"""Measurements that were made elsewhere and are kept as files: two studies on a GPU."""

import json
from pathlib import Path

import numpy as np

from benchmarks.record import Rows, record

MEASURED = Path(__file__).resolve().parent / "measured"
GPU = "NVIDIA H200"
MADE_WITH = {"optlearn": "0.1.0"}  # both studies are older than the first recorded measurement here


def jax_of_study() -> str:
    """The version of JAX that the study of seeds was made with."""
    return json.loads((MEASURED / "gpu_overlaps.json").read_text(encoding="utf-8"))["jax"]


def seed_steps() -> Rows:
    """Steps of SGD per second, over all seeds that run together, by the fastest variant of the program."""
    rates = json.loads((MEASURED / "gpu_overlaps.json").read_text(encoding="utf-8"))["rates"]
    fastest: dict[str, dict[str, float]] = {}
    for rate in sorted(rates, key=lambda rate: (rate["device"] != GPU, rate["seeds"])):
        column = f"{rate['device']}, {rate['seeds']:,} seeds: steps/s"
        columns = fastest.setdefault(rate["scenario"], {})
        steps = float(f"{rate['seed_steps_a_second']:.2g}")
        columns[column] = max(columns.get(column, 0.0), steps)
    return [{"scenario": name, **columns} for name, columns in fastest.items()]


def batch() -> Rows:
    """Solves per second of a phase diagram of 10,000 points."""
    with np.load(MEASURED / "curriculum_diagram.npz") as file:
        timing = json.loads(str(file["timing"]))
    return [
        {
            "device": timing["device"],
            "points": timing["points"],
            "solves/s": round(timing["points"] / timing["again"], 1),
            "first run, s (compilation included)": round(timing["first"], 1),
            "certified": timing["certified"],
        }
    ]


def main() -> None:
    """Put both on the page of measurements."""
    command = "python benchmarks/gpu_overlaps.py run chains --out results"
    record(
        "seeds on a GPU", command, seed_steps(), made_on=GPU, versions={**MADE_WITH, "jax": jax_of_study()}
    )
    command = "python -m benchmarks.batched --side 100 --compare 100 --out diagram.npz"
    record("batch on a GPU", command, batch(), made_on=GPU, versions=MADE_WITH)


if __name__ == "__main__":
    main()
