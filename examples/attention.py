"""Attention that is sharp while it is learned, and soft at the end: the optimal inverse temperature.

Run: python examples/attention.py [--out FILE.png]
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import optlearn as ol

SHOWN = {"optimum": "k", "best line": "C0", "best constant": "C2", "temperature of the teacher": "C3"}


def main(out: Path) -> None:
    problem = ol.scenarios.attention()
    comparison = ol.compare(problem)
    print(comparison)
    figure, (betas, errors, cosines, scores) = plt.subplots(
        1, 4, figsize=(13, 3.3), layout="constrained", sharex=True
    )
    for name, color in SHOWN.items():
        schedule = comparison.schedules[name]
        run = ol.evaluate(problem, schedule)
        values = np.append(schedule["temperature"], schedule["temperature"][-1])
        betas.step(schedule.grid, values, color=color, where="post", label=name)
        errors.semilogy(run.alpha, run["error"], color=color)
        cosines.plot(run.alpha, run["query_cosine"], color=color)
        scores.plot(run.alpha, run["sharpness"], color=color)
        if name == "optimum":
            beta = schedule.at(run.alpha)["temperature"]
            scores.plot(run.alpha, beta * run["sharpness"], color=color, linestyle="--")
        ends = {
            key: f"{run[key][-1]:.3f}" for key in ("Q11", "M11", "query_cosine", "key_cosine", "sharpness")
        }
        print(name, ends)
    sgd = ol.simulate(problem, comparison.schedules["optimum"], N=1000, seeds=8, record=11, mode="weights")
    for axis, name in ((errors, "error"), (cosines, "query_cosine"), (scores, "sharpness")):
        axis.plot(sgd.alpha, sgd.mean(name), "k.")
    betas.set(ylabel="inverse temperature β", title="schedules", ylim=(0.7, 4.4))
    betas.legend(fontsize=7, loc="upper right")
    errors.set(ylabel="error at β = 1", title="error (points: SGD, N = 1000)")
    cosines.set(ylabel="cosine with the teacher's query", title="direction")
    scores.set(ylabel="size of scores / teacher's", title="size (dashed: times β)")
    for axis in (betas, errors, cosines, scores):
        axis.set_xlabel("training time α")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/attention.png"))
    main(parser.parse_args().out)
