"""A rare and a frequent group: when should the rare one be shown, so that the worse off is best off?

Run: python examples/imbalance.py [--out FILE.png]
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import optlearn as ol

GROUPS = {"majority": "C0", "minority": "C1"}


def main(out: Path) -> None:
    problem = ol.scenarios.imbalance()
    comparison = ol.compare(problem)
    print(comparison)
    ordered = ol.compare(ol.scenarios.imbalance(fixed_share=True))
    print(ordered)
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.3), layout="constrained", sharex=True)
    schedules, errors = axes[0], axes[1:3]
    for label, shown, style in (
        ("optimum", comparison.schedules["optimum"], "k-"),
        ("best constant", comparison.schedules["best constant"], "C2--"),
        ("every sample once", ordered.schedules["optimum"], "C4:"),
    ):
        values = np.append(shown["sampling"], shown["sampling"][-1])
        schedules.step(shown.grid, values, style, where="post", label=label)
    schedules.axhline(problem.settings["share"], color="0.7", linewidth=0.8)
    schedules.set(ylabel="probability of the minority", title="sampling")
    schedules.legend(fontsize=8, loc="upper left")
    runs = {name: ol.evaluate(problem, comparison.schedules[name]) for name in ("natural share", "optimum")}
    for axis, (name, run) in zip(errors, runs.items(), strict=True):
        sgd = ol.simulate(problem, comparison.schedules[name], N=1000, seeds=8, record=11)
        for group, color in GROUPS.items():
            axis.plot(run.alpha, run[f"error_{group}"], color, label=group)
            axis.plot(sgd.alpha, sgd.mean(f"error_{group}"), ".", color=color)
            print(f"{name}, {group}: {run[f'error_{group}'][-1]:.4f}")
        axis.set(ylabel="error of each group", title=f"{name} (points: SGD)", ylim=(0.1, 0.5))
    errors[0].legend(fontsize=8)
    for style, run in zip(("--", "-"), runs.values(), strict=True):
        for group, color in GROUPS.items():
            axes[3].plot(run.alpha, run[f"cosine_{group}"], color=color, linestyle=style)
        axes[3].plot(run.alpha, run["Q11"], "k", linestyle=style)
    axes[3].set_title("cosines with both teachers, $Q_{11}$ (black)\ndashed: natural share", fontsize=9)
    for axis in axes:
        axis.set_xlabel("training time α")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/imbalance.png"))
    main(parser.parse_args().out)
