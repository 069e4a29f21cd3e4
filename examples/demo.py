"""The paper's problems in one run: theory against SGD, and the optimal schedule of each scenario.

Run: python examples/demo.py --out out
"""

import argparse
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import optlearn as ol

COLOURS = {
    "optimal": "black",
    "curriculum": "tab:blue",
    "anti-curriculum": "tab:orange",
    "random mix": "tab:green",
    "best two-switch": "tab:red",
}


def theory_against_simulation(out: Path) -> None:
    """The three validation settings of the paper's supplement, at a smaller N and with error bands."""
    # finite_size: at N = 1000 the skip connection b feels terms of order 1/N that the paper leaves out.
    denoiser = ol.scenarios.denoising(finite_size=True)
    cases = {
        "curriculum (hard to easy)": (ol.scenarios.curriculum(), ("M11", "Q11", "Q22"), None),
        "dropout (p = 0.7)": (ol.scenarios.dropout(), ("M11", "Q11", "Q12"), {"activation": 0.7}),
        "denoising autoencoder (Δ = 0.3)": (denoiser, ("R11", "Q11", "b"), {"noise": 0.3}),
    }
    figure, axes = plt.subplots(3, 4, figsize=(13, 8), layout="constrained")
    for row, (title, (problem, names, constant)) in zip(axes, cases.items(), strict=True):
        schedule = (
            ol.baselines(problem)["anti-curriculum"]
            if constant is None
            else ol.Schedule.constant(problem.horizon, constant).with_parameters(
                **{name: 0.7 for name in problem.free}
            )
        )
        theory = ol.evaluate(problem, schedule)
        run = ol.simulate(problem, schedule, N=1000, seeds=32, mode="overlaps", record=41)
        for axis, name in zip(row, ("error", *names), strict=True):
            axis.plot(theory.alpha, theory[name], "k", lw=1)
            axis.errorbar(
                run.alpha, run.mean(name), 2 * run.standard_error(name), fmt="r.", ms=3, lw=0.8
            )
            axis.set(xlabel="training time α", ylabel=name)
        row[0].set_title(title, fontsize=10, loc="left")
    figure.suptitle("Theory (line) and SGD at N = 1000 (mean of 32 seeds ± 2 standard errors)")
    figure.savefig(out / "theory_against_simulation.png", dpi=150)


def curriculum(out: Path) -> None:
    """The optimal order of easy and hard samples."""
    problem = ol.scenarios.curriculum()
    solution = ol.solve(problem)
    print(solution.summary())
    schedules = {"optimal": solution.schedule, **ol.baselines(problem)}
    figure, axes = plt.subplots(1, 4, figsize=(15, 3.6), layout="constrained")
    for level, (name, schedule) in enumerate(schedules.items()):
        trajectory = ol.evaluate(problem, schedule)
        colour = COLOURS.get(name)
        label = f"{name}: {trajectory.objective:.5f}"
        for axis, quantity in zip(axes, ("error", "Q22", "cosine"), strict=False):
            axis.plot(trajectory.alpha, trajectory[quantity], color=colour, label=label)
            axis.set(xlabel="training time α", ylabel=quantity)
        hard = schedule["difficulty"] / 2
        axes[3].stairs(level + 0.8 * hard, schedule.grid, baseline=level, fill=True, color=colour)
        axes[3].text(0.1, level + 0.82, name, fontsize=8)
    axes[3].set(xlabel="training time α", yticks=[], title="share of hard samples")
    axes[0].set_ylim(0.14, 0.3)
    axes[0].legend(fontsize=7)
    figure.savefig(out / "curriculum.png", dpi=150)


def dropout(out: Path) -> None:
    """Optimal dropout for three levels of label noise."""
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    for sigma_n in (0.1, 0.2, 0.3):
        problem = ol.scenarios.dropout(sigma_n=sigma_n)
        solution = ol.solve(problem)
        print(solution.summary())
        axes[2].stairs(
            solution.schedule["activation"], solution.schedule.grid,
            baseline=None, label=f"σ_n = {sigma_n}",
        )  # fmt: skip
    for name, schedule in {"optimal": solution.schedule, **ol.baselines(problem)}.items():
        trajectory = ol.evaluate(problem, schedule)
        for axis, quantity in zip(axes, ("error", "correlation"), strict=False):
            axis.plot(
                trajectory.alpha, trajectory[quantity], color=COLOURS.get(name),
                label=f"{name}: {trajectory.objective:.5f}",
            )  # fmt: skip
            axis.set(xlabel="training time α", ylabel=quantity, title=f"σ_n = {sigma_n}")
    axes[2].set(xlabel="training time α", ylabel="activation probability", title="optimal schedules")
    axes[0].legend(fontsize=7)
    axes[2].legend(fontsize=7)
    figure.savefig(out / "dropout.png", dpi=150)


def denoising(out: Path) -> None:
    """Optimal noise and batch schedules of the denoising autoencoder."""
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    for Delta_F in (0.1, 0.2, 0.3, 0.4, 0.5):
        problem = ol.scenarios.denoising(Delta_F=Delta_F)
        solution = ol.solve(problem, starts=1)
        print(solution.summary())
        label = f"Δ_F = {Delta_F}"
        axes[0].stairs(
            solution.schedule["noise"], solution.schedule.grid, baseline=None, label=label
        )
        constant = ol.evaluate(problem, ol.baselines(problem)["constant"])
        gain = constant["error"] - solution.trajectory["error"]
        drop = constant["error"][0] - constant["error"]
        share = np.divide(100 * gain, drop, out=np.zeros_like(gain), where=drop > 0)
        axes[1].plot(constant.alpha, share, label=label)
    for Delta_F in (0.1, 0.3, 0.5):
        solution = ol.solve(ol.scenarios.denoising_batch(Delta_F=Delta_F), starts=1)
        print(solution.summary())
        axes[2].stairs(
            solution.schedule["batch"], solution.schedule.grid,
            baseline=None, label=f"Δ_F = {Delta_F}",
        )  # fmt: skip
    axes[0].set(xlabel="training time α", ylabel="noise Δ", title="optimal noise")
    axes[1].set(xlabel="training time α", ylabel="%", title="improvement over Δ = Δ_F")
    axes[2].set(xlabel="training time α", ylabel="views B", title="optimal batch, mean 5")
    for axis in axes:
        axis.legend(fontsize=7)
    figure.savefig(out / "denoising.png", dpi=150)


def main() -> None:
    """Draw everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the figures")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for draw in (curriculum, dropout, denoising, theory_against_simulation):
        began = time.perf_counter()
        draw(out)
        print(f"{draw.__name__}: {time.perf_counter() - began:.1f} s", flush=True)
    print(f"figures are in {out}/")


if __name__ == "__main__":
    main()
