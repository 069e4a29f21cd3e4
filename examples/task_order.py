"""Continual learning of two tasks: forgetting, and the optimal protocol with its replay.

Run: python examples/task_order.py [--out FILE.png]
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap

import optlearn as ol

BEFORE, PHASE = 20.0, 5.0  # training time on the first task, and after that
STARTS = 6  # random starts over which forgetting is averaged
TASKS = LinearSegmentedColormap.from_list("tasks", ["C0", "C1"])


def forgetting(similarity: float, seed: int) -> float:
    """By how much the error of the first task grows while only the second is trained."""
    problem = ol.scenarios.task_order(similarity=similarity, alpha_F=2 * PHASE, seed=seed)
    run = ol.evaluate(problem, problem.baselines["blocked"](problem, 1))
    return float(run["error1"].max() - run["error1"][0])


def main(out: Path) -> None:
    problem = ol.scenarios.task_order(alpha_F=PHASE, pretraining=BEFORE)
    comparison = ol.compare(problem)
    print(comparison)
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.2), layout="constrained")
    for axis, name in zip(axes, ("blocked", "random", "optimum"), strict=False):
        run = ol.evaluate(problem, comparison.schedules[name])
        axis.plot(run.alpha, run["error1"], label="task 1, learned before")
        axis.plot(run.alpha, run["error2"], label="task 2, new")
        axis.set(xlabel="training time α", title=f"{name}: {run.objective:.4f}", ylim=(-0.035, 0.19))
        shares = comparison.solution.relaxed.schedule if name == "optimum" else comparison.schedules[name]
        # The strip below: the colour of the task that is trained; between the two, a mixture.
        axis.pcolormesh(shares.grid, [-0.03, -0.012], shares["task"][None], cmap=TASKS, vmin=0, vmax=1)
    axes[0].set_ylabel("error of each task")
    axes[0].legend(fontsize=8, loc="upper right")

    similarities = np.linspace(0, 1, 11)
    forgotten = np.array([[forgetting(float(s), seed) for s in similarities] for seed in range(STARTS)])
    mean = forgotten.mean(axis=0)
    worst = similarities[np.argmax(mean)]
    print(f"on average over {STARTS} starts, most is forgotten at similarity {worst:.1f}: {mean.max():.3f}")
    axes[3].plot(similarities, forgotten.T, color="0.8")
    axes[3].plot(similarities, mean, "o-", color="k", label=f"mean over {STARTS} starts")
    axes[3].set(xlabel="similarity of the tasks", ylabel="rise of the error of task 1", title="forgetting")
    axes[3].legend(fontsize=8)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/task_order.png"))
    main(parser.parse_args().out)
