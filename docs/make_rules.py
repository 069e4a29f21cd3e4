"""Draw the pictures of ``selection``, ``local_rules`` and ``memory``: python docs/make_rules.py"""

from pathlib import Path

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt

import optlearn as ol
from optlearn.plotting.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RC, TIME, VERMILION

FOLDER = Path(__file__).parent / "images" / "scenarios"
COLOURS = (GREY, BLUE, GREEN, BLACK)
RULES = {"hebb": BLUE, "perceptron": VERMILION, "margin": GREEN, "clipped": PURPLE}


def main() -> None:
    plt.rcParams.update(RC | {"font.size": 10.0, "axes.labelsize": 10.0, "legend.fontsize": 9.0})
    for name, draw in {"selection": selection, "local_rules": local_rules, "memory": memory}.items():
        path = FOLDER / f"{name}.png"
        figure = draw()
        figure.savefig(path, dpi=140, pil_kwargs={"optimize": True})
        plt.close(figure)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def panels() -> tuple[plt.Figure, plt.Axes, plt.Axes]:
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.1), layout="constrained")
    for axes in (left, right):
        axes.set_xlabel(TIME)
    return figure, left, right


def selection() -> plt.Figure:
    """The margin over time, and the mistakes that follow."""
    figure, left, right = panels()
    problem = ol.scenarios.selection()
    solution = ol.solve(problem)
    schedules = {**ol.baselines(problem), "optimum": solution.schedule}
    for (name, schedule), colour in zip(schedules.items(), COLOURS, strict=True):
        run = ol.evaluate(problem, schedule)
        ends = [*schedule["threshold"], schedule["threshold"][-1]]
        left.step(schedule.grid, ends, where="post", color=colour, label=name)
        right.plot(run.alpha, run["error"], color=colour, label=f"{name}: {run.objective:.4f}")
    left.set(ylabel="margin θ, in standard deviations", ylim=(0, 4.2), title="which samples are learned")
    right.set(ylabel="share of mistakes", ylim=(0.09, 0.3), title="error under each")
    right.legend()
    return figure


def local_rules() -> plt.Figure:
    """The best rates of four rules, and their errors beside those of the best constant."""
    figure, left, right = panels()
    for rule, colour in RULES.items():
        problem = ol.scenarios.local_rules(rule)
        solution = ol.solve(problem)
        constant = ol.evaluate(problem, ol.baselines(problem)["best constant rate"])
        ends = [*solution.schedule["learning_rate"], solution.schedule["learning_rate"][-1]]
        left.step(solution.schedule.grid, ends, where="post", color=colour, label=rule)
        right.semilogy(solution.trajectory.alpha, solution.trajectory["error"], color=colour, label=rule)
        right.semilogy(constant.alpha, constant["error"], color=colour, ls=":", lw=1.2)
    left.set(ylabel="learning rate η", ylim=(0, 3.1), title="optimal rates")
    right.set(ylabel="error", title="errors (dotted: best constant rate)")
    left.legend()
    return figure


def memory() -> plt.Figure:
    """Averages at several speeds beside plain SGD; momentum beside the rates that it amounts to."""
    figure, left, right = panels()
    base = ol.models.committee(1, 1, activation="linear", sigma_n=0.5)
    constant = ol.Schedule.constant(5.0, {"learning_rate": 0.8})
    for speed, colour in ((0.5, ORANGE), (1.0, BLUE), (3.0, GREEN)):
        model = ol.models.with_memory(base, averaging=speed)
        run = ol.integrate(model, constant, start=model.start())
        left.semilogy(run.alpha, 2 * run["error"], color=colour, label=f"average, a = {speed:g}")
    left.semilogy(run.alpha, 2 * run["weights_error"], color=GREY, label="weights")
    none = ol.Schedule.constant(5.0, {"learning_rate": 0.0})
    for friction, colour in ((2.0, ORANGE), (4.0, BLUE), (16.0, GREEN)):
        model = ol.models.with_memory(base, velocity_rate=friction / 2, friction=friction)
        run = ol.integrate(model, none, start=model.start())
        right.semilogy(run.alpha, 2 * run["error"], color=colour, label=f"momentum, γ = {friction:g}")
    half = ol.integrate(base, ol.Schedule.constant(5.0, {"learning_rate": 0.5}), start=base.state())
    right.semilogy(half.alpha, 2 * half["error"], color=GREY, label="plain SGD, η = 0.5")
    problem = ol.Problem(
        model=base, start={}, horizon=5, controls={"learning_rate": ol.Continuous(0, 1)}, intervals=60
    )
    best = ol.solve(problem, starts=1).trajectory
    for axes, title in ((left, "averages, η = 0.8"), (right, "momentum, ζ = γ/2, η = 0")):
        axes.semilogy(best.alpha, 2 * best["error"], color=BLACK, lw=1.4, label="best rate, no memory")
        axes.set(ylabel="mean squared error", title=title, ylim=(0.07, 1.1))
        axes.legend()
    return figure


if __name__ == "__main__":
    main()
