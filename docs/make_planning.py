"""Compute and draw what ``planning.md`` shows.

python docs/make_planning.py               the pictures, into images/planning
python docs/make_planning.py feedback      the table of feedback at finite N
"""

import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import matplotlib

matplotlib.use("agg")

import numpy as np

import optlearn as ol
from optlearn.plotting.style import ShownFigure, save_figure, style

FOLDER = Path(__file__).parent / "images" / "planning"
SEEDS = 16


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    if sys.argv[1:] == ["feedback"]:
        feedback()
        return
    with style():
        worlds()
        fronts()


def worlds() -> None:
    """Dropout for three noises of the labels: schedules of each and of all, and what a wrong guess costs."""
    problem, noises = ol.scenarios.dropout(), [0.1, 0.3, 0.5]
    regret = ol.regret(problem, {"sigma_n": noises}, starts=1)
    figure = ShownFigure(figsize=(8.4, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    for label, solution in zip(regret.labels, regret.solutions, strict=True):
        left.step(solution.schedule.grid[:-1], solution.schedule["activation"], where="post", label=label)
    for risk, line in (("mean", "--"), ("worst", ":")):
        found = ol.solve(ol.robust(problem, {"sigma_n": noises}, risk=risk), starts=1)
        grid, values = found.schedule.grid[:-1], found.schedule["activation"]
        left.step(grid, values, line, where="post", label=f"{risk} of all three")
        errors = [float(found.trajectory[f"error_{i}"][-1]) for i in (1, 2, 3)]
        print(risk, found.objective, errors, found.weights)
    left.set(xlabel="training time α = steps/N", ylabel="activation probability")
    left.legend()
    regret.plot(right)
    print(regret.matrix)
    save_figure(figure, FOLDER / "worlds.png")


def fronts() -> None:
    """Error against samples, and one group against the other."""
    figure = ShownFigure(figsize=(8.4, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    batch = replace(ol.scenarios.batch_size(K=1, M=1, alpha_F=10.0), budgets=())
    front = ol.pareto(batch, {"error": None, "samples a step": ol.Objective.price()}, points=8, intervals=20)
    report("batch_size", front)
    front.plot(left).set(xscale="log", yscale="log")
    groups = {"majority": {"test_share": 0.0}, "minority": {"test_share": 1.0}}
    problem = ol.scenarios.imbalance(objective="mean")
    goals = {f"error of the {name}": ol.Objective.under(test) for name, test in groups.items()}
    front = ol.pareto(problem, goals, points=8, intervals=20)
    report("imbalance", front)
    front.plot(right)
    save_figure(figure, FOLDER / "fronts.png")


def report(name: str, front: ol.Front) -> None:
    print(name, {key: np.round(values, 6).tolist() for key, values in front.values.items()})
    print([solution.certificate.converged for solution in front.solutions])


PLANS = {
    "learning_rate": (lambda: ol.scenarios.learning_rate(), 40, (100, 1000)),
    "learning_rate, K = M = 1": (
        lambda: ol.scenarios.learning_rate(K=1, M=1, sigma_n=0.3, alpha_F=10.0),
        20,
        (100, 1000),
    ),
    "dropout": (lambda: ol.scenarios.dropout(), 20, (100, 1000)),
    "denoising": (lambda: ol.scenarios.denoising(finite_size=True), 20, (1000,)),
}


def feedback() -> None:
    """Open loop, linear feedback and planning again, under the same random numbers."""
    warnings.simplefilter("ignore", ol.NotConvergedWarning)
    rows = []
    for name, (make, intervals, sizes) in PLANS.items():
        solution = ol.solve(make(), intervals=intervals, starts=2)
        for N in sizes:
            found = ol.sweeps.closed_loop(solution, N, seeds=SEEDS)
            cells = [str(found.mean("open loop"))]
            cells += [f"{found.mean(arm)} ({found.gain(arm)})" for arm in ("feedback", "planning again")]
            rows.append({"scenario": name, "N": N, "theory": found.theory, "failed": found.failed}
                        | {arm: errors.tolist() for arm, errors in found.errors.items()})  # fmt: skip
            print(f"| `{name}` | {N} | {found.theory:.3g} | {' | '.join(cells)} |", found.failed, flush=True)
            (FOLDER / "feedback.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
