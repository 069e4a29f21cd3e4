"""Compute and draw what ``planning.md`` shows.

python docs/make_planning.py               the pictures, into images/planning
python docs/make_planning.py feedback [PLAN …]      the table of feedback at finite N
"""

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
    if sys.argv[1:2] == ["feedback"]:
        feedback(sys.argv[2:])
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


SIZES = (100, 1000, 10_000, 100_000)
# Name → the problem for N inputs.
PLANS = {
    "learning_rate": lambda N: ol.scenarios.learning_rate(),
    "learning_rate, K = M = 1": lambda N: ol.scenarios.learning_rate(K=1, M=1, sigma_n=0.3, alpha_F=10.0),
    "dropout": lambda N: ol.scenarios.dropout(),
    "denoising": lambda N: ol.scenarios.denoising(finite_size=True, N=N),
    "denoising_batch": lambda N: ol.scenarios.denoising_batch(finite_size=True, N=N),
    "curriculum": lambda N: ol.scenarios.curriculum(),
    "batch_size": lambda N: ol.scenarios.batch_size(),
    "task_order": lambda N: ol.scenarios.task_order(),
    "imbalance": lambda N: ol.scenarios.imbalance(),
    "gating": lambda N: ol.scenarios.gating(),
    "attention": lambda N: ol.scenarios.attention(),
}


def feedback(names: list[str]) -> None:
    """Open loop, linear feedback and planning again, under the same random numbers."""
    warnings.simplefilter("ignore", ol.NotConvergedWarning)
    for name in names or PLANS:
        intervals = 40 if name == "learning_rate" else 20
        for N in SIZES:
            solution = ol.solve(PLANS[name](N), intervals=intervals, starts=2)
            arms = ["planning again"]
            try:
                solution.feedback()
                arms.insert(0, "feedback")
            except ol.SpecificationError:
                pass  # a discrete control, or one with a budget
            try:
                found = ol.sweeps.closed_loop(solution, N, seeds=SEEDS, arms=arms, every=intervals // 5)
            except (ol.SpecificationError, ol.UnphysicalStateError) as error:
                print(f"| `{name}` | {N} | {type(error).__name__}: {error}", flush=True)
                continue
            cells = [
                f"{found.mean(arm)} ({found.gain(arm)})" if arm in arms else "–"
                for arm in ("feedback", "planning again")
            ]
            cells = [str(found.mean("open loop")), *cells]
            print(f"| `{name}` | {N} | {found.theory:.4g} | {' | '.join(cells)} |", found.failed, flush=True)


if __name__ == "__main__":
    main()
