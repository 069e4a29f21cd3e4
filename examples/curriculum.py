"""When should the hard samples come? The best order alone, and together with the learning rate.

The order alone is worth little beyond the best easy-hard-easy order; order and learning rate together are
worth a quarter of the error. Run: python examples/curriculum.py [--out FILE.png]
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import optlearn as ol

EASY, HARD = "#BFE3F5", "#D55E00"
ORDERS = {
    "curriculum": "easy first",
    "anti-curriculum": "hard first",
    "best two-switch": "best easy-hard-easy",
    "optimum": "optimal order",
}


def draw_order(axis: plt.Axes, level: int, schedule: ol.Schedule) -> None:
    """One bar: which samples are shown when."""
    colours = [HARD if value > 0 else EASY for value in schedule["difficulty"]]
    lengths = np.diff(schedule.grid)
    axis.barh(level, lengths, left=schedule.grid[:-1], height=0.65, color=colours, linewidth=0)


def main(out: Path) -> None:
    problem = ol.scenarios.curriculum()
    comparison = ol.compare(problem)
    print(comparison)
    joint = ol.compare(ol.scenarios.curriculum(joint=True))
    print(joint)
    schedules = {label: comparison.schedules[name] for name, label in ORDERS.items()}
    both = joint.solution
    final = {label: ol.evaluate(problem, s, record=2).objective for label, s in schedules.items()}
    final["order and\nlearning rate"] = both.objective

    figure, (orders, rates, ends) = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
    rows = [*schedules.items(), ("order and\nlearning rate", both.schedule)]
    for level, (_, schedule) in enumerate(reversed(rows)):
        draw_order(orders, level, schedule)
    orders.set_yticks(range(len(rows)), [label for label, _ in reversed(rows)])
    orders.set(xlabel="training time α", title="easy (blue) and hard (red)")
    edges = both.schedule.grid
    rates.stairs(both.schedule["learning_rate"], edges, baseline=None, color="C2", linewidth=1.8)
    rates.axhline(3.0, color="0.5", linestyle=":", label="η = 3: the other rows")
    rates.set(xlabel="training time α", ylabel="learning rate η", ylim=(0, None), title="learning rate")
    rates.legend(loc="lower left")
    ends.barh(range(len(final)), list(final.values())[::-1], height=0.65, color="0.6")
    for level, error in enumerate(reversed(final.values())):
        ends.text(error - 0.002, level, f"{error:.4f}", ha="right", va="center")
    ends.set_yticks(range(len(final)), list(final)[::-1])
    ends.set(xlabel="error at the end of training", title="what it is worth")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/curriculum.png"))
    main(parser.parse_args().out)
