"""The symmetric plateau of a soft committee, and how learning rates leave it; late decay under noise.

Run: python examples/learning_rate_plateau.py [--out FILE.png]
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import optlearn as ol

HALF_PLATEAU = 0.006  # half the error of the plateau


def leaving_time(trajectory: ol.Trajectory) -> float:
    """When the error falls below half that of the plateau, for good; infinite if it never does."""
    above = np.flatnonzero(trajectory["error"] > HALF_PLATEAU)[-1]
    return np.inf if above + 1 == len(trajectory.alpha) else float(trajectory.alpha[above + 1])


def main(out: Path) -> None:
    problem = ol.scenarios.learning_rate()
    comparison = ol.compare(problem)
    print(comparison)
    constants = np.arange(1.0, 2.4, 0.1)
    runs = [
        ol.evaluate(problem, ol.Schedule.constant(problem.horizon, {"learning_rate": eta}), record=1601)
        for eta in constants
    ]
    figure, (errors, rates, noisy) = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    for run in runs[::3]:
        errors.semilogy(run.alpha, run["error"], color="0.8", zorder=0)
    for name in ("optimum", "best constant rate", "greedy"):
        schedule = comparison.schedules[name]
        run = ol.evaluate(problem, schedule, record=1601)
        errors.semilogy(run.alpha, run["error"], label=name)
        rates.stairs(schedule["learning_rate"], schedule.grid, label=name, baseline=None)
        print(f"{name}: final error {run.objective:.3g}, leaves the plateau at α = {leaving_time(run):.2f}")
    soonest = min(map(leaving_time, runs))
    print(f"of {len(runs)} constant rates the best leaves it at α = {soonest:.2f}")
    errors.axhline(HALF_PLATEAU, color="k", linewidth=0.5, linestyle=":")
    errors.set(xlabel="training time α", ylabel="error", title="K = M = 2, no noise", ylim=(3e-4, 0.5))
    rates.set(xlabel="training time α", ylabel="learning rate η", title="schedules", ylim=(0, 2.5))
    errors.legend(fontsize=8, loc="lower left")

    problem = ol.scenarios.learning_rate(K=1, M=1, sigma_n=0.5, alpha_F=100.0)
    solution = ol.solve(problem, intervals=200)
    alpha = (solution.schedule.grid[1:] + solution.schedule.grid[:-1]) / 2
    rate = solution.schedule["learning_rate"]
    late = (alpha > 30) & (alpha < 80)
    exponent = np.polyfit(np.log(alpha[late]), np.log(rate[late]), 1)[0]
    print(f"under noise the rate decays as α^{exponent:.3f} for 30 < α < 80")
    noisy.loglog(alpha, rate, label="optimum")
    noisy.loglog(alpha, np.pi * np.sqrt(3) / 2 / alpha, "k:", label="π√3 / 2α")
    noisy.set(xlabel="training time α", ylabel="learning rate η", title="K = M = 1, noise 0.5")
    noisy.legend(fontsize=8)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/learning_rate_plateau.png"))
    main(parser.parse_args().out)
