"""Two phase diagrams of optimal schedules: when is which order of samples, which dropout, best?

Run: python examples/phase_diagram.py [--size 15] [--jobs 2] [--out phase_diagrams]. Stop it at any time and
run it again: it continues where it stopped. Those of the documentation have size 15.
"""

import argparse
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import optlearn as ol


def curriculum(eta, lambda_bar):
    """Easy and hard samples; the paper's regularisation is λ̄ = λη, the scenario's argument is λ."""
    return ol.scenarios.curriculum(eta=eta, weight_decay=lambda_bar / eta)


def order(solution):
    """Share of all easy samples that come before the first hard one, and switches between the two."""
    easy = solution.schedule["difficulty"] == solution.problem.discrete["difficulty"].values[0]
    first_hard = np.argmin(easy)
    switches = np.count_nonzero(easy[1:] != easy[:-1])
    return {"easy_first": easy[:first_hard].sum() / easy.sum(), "switches": switches}


def nodes(solution):
    """Mean activation, and the share of training before the first node is dropped."""
    activation = solution.schedule["activation"]
    dropped = activation < 0.999
    onset = np.argmax(dropped) / len(dropped) if dropped.any() else 1.0
    return {"mean_activation": activation.mean(), "onset": onset}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("phase_diagrams"))
    options = parser.parse_args()
    common = {"jobs": options.jobs, "resume": True, "progress": True}
    eta = np.linspace(0.5, 5.0, options.size)
    began = time.perf_counter()
    orders = ol.sweep(
        curriculum,
        {"eta": eta, "lambda_bar": np.linspace(0.0, 0.5, options.size)},
        baselines=["curriculum", "anti-curriculum"],
        reduce=order,
        out=options.out / "curriculum",
        **common,
    )
    report("curriculum", orders, began)
    began = time.perf_counter()
    dropouts = ol.sweep(
        "dropout",
        {"sigma_n": np.linspace(0.05, 0.75, options.size), "alpha_F": np.linspace(1.0, 8.0, options.size)},
        baselines=["no dropout", "best constant p = p_f"],
        reduce=nodes,
        out=options.out / "dropout",
        **common,
    )
    report("dropout", dropouts, began)
    draw(orders, dropouts, options.out)


def report(name, data, began):
    solved, cpu = int(data["finished"].sum()), float(data["cpu_seconds"].sum())
    print(
        f"{name}: {solved} points, {int((~data['converged']).sum())} not converged, "
        f"{time.perf_counter() - began:.0f} s, {cpu:.0f} s of CPU for the points"
    )


def draw(orders, dropouts, out):
    monotone = orders["baseline_objective"].min("baseline")
    orders = orders.assign(gain=100 * (1 - orders["objective"] / monotone))
    panels = {
        "easy_first": "share of easy samples shown first",
        "gain": "gain over one switch, easy or hard first (%)",
    }
    pair(orders, panels, "regularisation λ̄", "learning rate η", out / "curriculum.png")
    constant = dropouts["baseline_objective"].min("baseline")
    dropouts = dropouts.assign(gain=100 * (1 - dropouts["objective"] / constant))
    panels = {
        "mean_activation": "mean activation probability",
        "gain": "gain over the best constant p = p_f (%)",
    }
    pair(dropouts, panels, "training time α_F", "label noise σ_n", out / "dropout.png")


def pair(data, panels, x, y, path):
    """Two heat maps side by side."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for ax, (variable, title), colours in zip(axes, panels.items(), ("cividis", "viridis"), strict=True):
        ol.sweeps.plot(data, variable, ax, label="", cmap=colours)
        ax.set(title=title, xlabel=x, ylabel=y)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
