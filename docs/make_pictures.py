"""Draw the pictures of ``idea.md`` into ``images/idea``: python docs/make_pictures.py

Where a picture shows a curve, it is computed: the curriculum scenario with the paper's parameters.
"""

from pathlib import Path

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Arc, FancyArrowPatch

import optlearn as ol
from optlearn._arrays import float64
from optlearn._control.compiled import Rollout, compile_problem
from optlearn.plotting.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RC, TIME, VERMILION

FOLDER = Path(__file__).parent / "images" / "idea"
EASY, HARD = "#BFE3F5", "#D55E00"
COLOURS = {"easy first": BLUE, "hard first": ORANGE, "optimal": BLACK}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    plt.rcParams.update(RC | {"font.size": 10.0, "axes.labelsize": 10.0, "legend.fontsize": 9.0})
    problem = ol.scenarios.curriculum()
    solution = ol.solve(problem)
    usual = ol.baselines(problem)
    schedules = {
        "easy first": usual["curriculum"],
        "hard first": usual["anti-curriculum"],
        "optimal": solution.schedule,
    }
    runs = {name: ol.evaluate(problem, schedule) for name, schedule in schedules.items()}
    save(two_vectors(), "two_vectors")
    save(fewer_numbers(problem, usual["curriculum"]), "fewer_numbers")
    save(lever(schedules, runs), "lever")
    save(landscape(problem, runs), "landscape")
    save(prices(solution), "prices")
    save(decision(problem, solution), "decision")


def save(figure: plt.Figure, name: str) -> None:
    path = FOLDER / f"{name}.png"
    figure.set_size_inches(0.86 * figure.get_size_inches())  # so that words can be read on a phone
    figure.savefig(path, dpi=140, pil_kwargs={"optimize": True})
    plt.close(figure)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def two_vectors() -> plt.Figure:
    """Weights as a long column of numbers; the same as two arrows and three lengths."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), width_ratios=(1, 2), layout="constrained")
    rng = np.random.default_rng(3)
    target = rng.standard_normal(34)
    student = 0.6 * target + 0.8 * rng.standard_normal(34)
    limits = {"cmap": "RdBu_r", "vmin": -2.2, "vmax": 2.2, "aspect": "auto"}
    for place, (name, column) in enumerate({"student": student, "teacher": target}.items()):
        left.imshow(column[:, None], extent=(place * 1.8, place * 1.8 + 1, 0, 34), **limits)
        left.text(place * 1.8 + 0.5, 35.2, name, ha="center")
        left.text(place * 1.8 + 0.5, -2.4, "⋮", ha="center", va="center")
    left.set(xlim=(-0.6, 3.4), ylim=(-6, 38))
    left.text(1.4, -5.6, "thousands of weights", ha="center", color=GREY)
    teacher, w = np.array([3.0, 0.0]), np.array([2.0, 1.6])
    for end, colour in ((teacher, VERMILION), (w, BLUE)):
        right.add_patch(
            FancyArrowPatch((0, 0), end, arrowstyle="-|>", mutation_scale=18, lw=2.4, color=colour)
        )
    right.plot([w[0], w[0]], [0, w[1]], ":", color=GREY)
    right.annotate("", (w[0], -0.22), (0, -0.22), arrowprops={"arrowstyle": "<->", "color": GREEN, "lw": 1.8})
    right.text(1.0, -0.56, "shadow on the teacher: M", ha="center", color=GREEN)
    right.text(
        0.72, 1.05, "squared length: Q", ha="center", rotation=38.7, color=BLUE, rotation_mode="anchor"
    )
    right.text(3.1, 0.0, "teacher", color=VERMILION, va="center")
    right.text(2.08, 1.66, "student", color=BLUE, va="center")
    right.add_patch(Arc((0, 0), 1.5, 1.5, theta2=np.degrees(np.arctan2(w[1], w[0])), color=PURPLE, lw=1.6))
    right.text(0.84, 0.14, "the angle\nis the error", color=PURPLE)
    right.set(xlim=(-0.2, 4.3), ylim=(-0.9, 2.1), aspect="equal")
    for axes in (left, right):
        axes.axis("off")
    return figure


def fewer_numbers(problem: ol.Problem, schedule: ol.Schedule) -> plt.Figure:
    """Runs of SGD at three input dimensions, and the theory."""
    figure, panels = plt.subplots(1, 3, figsize=(8, 2.7), sharey=True, layout="constrained")
    theory = ol.evaluate(problem, schedule)
    for axes, N in zip(panels, (20, 200, 2000), strict=True):
        runs = ol.simulate(problem, schedule, N=N, seeds=12, seed=1)
        axes.plot(runs.alpha, runs["error"].T, color=BLUE, lw=0.7, alpha=0.6)
        axes.plot(theory.alpha, theory["error"], color=BLACK, lw=1.8)
        axes.set(title=f"{N} inputs", xlabel="training time α", ylim=(0.08, 0.52))
    panels[0].set_ylabel("error")
    panels[0].plot([], [], color=BLUE, lw=0.9, label="12 trainings")
    panels[0].plot([], [], color=BLACK, lw=1.8, label="theory")
    panels[0].legend(loc="upper right")
    return figure


def lever(schedules: dict[str, ol.Schedule], runs: dict[str, ol.Trajectory]) -> plt.Figure:
    """Positions of the lever, and what becomes of the error."""
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(7, 4.2), height_ratios=(1, 2.4), sharex=True, layout="constrained"
    )
    for row, (name, schedule) in enumerate(schedules.items()):
        strips(top, schedule, -row - 0.36, 0.72)
        bottom.plot(runs[name].alpha, runs[name]["error"], color=COLOURS[name], label=name)
    for name, colour in (("easy", EASY), ("hard", HARD)):
        top.fill_between([], [], color=colour, label=name)
    top.legend(loc="lower right", ncols=2, bbox_to_anchor=(1, 1), title="the lever shows samples that are …")
    top.set(yticks=[0, -1, -2], yticklabels=list(schedules), ylim=(-2.5, 0.5))
    top.spines[["left", "bottom"]].set_visible(False)
    top.tick_params(length=0)
    bottom.set(xlabel=TIME, ylabel="error", xlim=(0, 12.9), ylim=(0.09, 0.51))
    bottom.legend(title="the error that follows")
    ends = sorted(runs.items(), key=lambda item: item[1].objective)
    for place, (name, run) in enumerate(ends):
        bottom.text(
            12.08, 0.128 + 0.03 * place, f"{run.objective:.3f}", color=COLOURS[name], va="center", fontsize=9
        )
    return figure


def strips(axes: plt.Axes, schedule: ol.Schedule, low: float, height: float) -> None:
    merged = schedule.merged()
    for left, right, value in zip(merged.grid[:-1], merged.grid[1:], merged["difficulty"], strict=True):
        axes.broken_barh([(left, right - left)], (low, height), color=EASY if value == 0 else HARD, lw=0)


def landscape(problem: ol.Problem, runs: dict[str, ol.Trajectory]) -> plt.Figure:
    """The error over two numbers that decide it, and the ways that schedules take through it."""
    figure, axes = plt.subplots(figsize=(7, 4.4), layout="constrained")
    zoom = axes.inset_axes(
        (0.46, 0.615, 0.4, 0.375), xlim=(0.915, 0.968), ylim=(0.1, 0.36), xticks=[], yticks=[]
    )
    for panel in (axes, zoom):
        terrain(panel, float(problem.settings["test_difficulties"][1]), 0.05 if panel is axes else 0.01)
        for name, run in runs.items():
            x, y = run["cosine"], run["Q22"] / run["Q11"]
            panel.plot(x, y, color=COLOURS[name], lw=2, label=name)
            panel.plot(x[-1], y[-1], "o", color=COLOURS[name], ms=7)
    axes.indicate_inset_zoom(zoom, edgecolor="black")
    axes.plot(0, 1, "s", color=GREEN, ms=8, clip_on=False, zorder=5)
    axes.text(0.015, 1.27, "all start here", color=GREEN)
    axes.set(xlabel="alignment with the teacher", ylabel="clutter: weight on what does not matter")
    axes.set(xlim=(0, 1), ylim=(0, 1.9))
    axes.legend(loc="upper left")
    return figure


def terrain(axes: plt.Axes, hard: float, step: float) -> None:
    """Lines of equal error, ``step`` apart."""
    cosine, clutter = np.meshgrid(np.linspace(0, 1, 401), np.linspace(0, 1.9, 201))
    error = np.mean(
        [0.5 - np.arcsin(cosine / np.sqrt(1 + Delta * clutter)) / np.pi for Delta in (0.0, hard)], axis=0
    )
    axes.contourf(cosine, clutter, error, levels=np.arange(0, 0.56, 0.05), cmap="Greys", alpha=0.5)
    lines = axes.contour(
        cosine, clutter, error, levels=np.arange(0.05, 0.51, step), colors="white", linewidths=1
    )
    axes.clabel(lines, fmt=lambda level: f"{level:.2f}", fontsize=7.5, colors="0.25")


def prices(solution: ol.Solution) -> plt.Figure:
    """Costates: what a unit of each order parameter is worth at the end."""
    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    costates = solution.costates
    axes.axhline(0, color=GREY, lw=0.8)
    axes.plot(costates.alpha, costates["Q22"], color=VERMILION, label="price of clutter (Q22)")
    axes.plot(costates.alpha, costates["M11"], color=GREEN, label="price of alignment (M11)")
    axes.set(xlabel=TIME, ylabel="effect on the final error,\nfor each unit added now", xlim=(0, 12))
    axes.text(11.9, 0.016, "↑ costs", color=GREY, ha="right", fontsize=9)
    axes.text(11.9, -0.012, "↓ pays", color=GREY, ha="right", fontsize=9)
    axes.legend(loc="lower left", bbox_to_anchor=(0.1, 0.02))
    return figure


def decision(problem: ol.Problem, solution: ol.Solution) -> plt.Figure:
    """At every moment, the cost of an easy sample minus that of a hard one."""
    figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
    schedule = solution.relaxed.schedule
    share = 1 - schedule["difficulty"] / max(problem.discrete["difficulty"].values)
    inside = (share > 0.01) & (share < 0.99)
    mixed = inside & np.roll(inside, 1) & np.roll(inside, -1)
    left, right = schedule.grid[:-1][mixed].min(), schedule.grid[1:][mixed].max()
    time, difference = bill(problem, schedule)
    difference = 1000 * (difference - np.median(difference[(time > left) & (time < right)]))
    axes.plot(time, difference, color=BLACK)
    axes.axhline(0, color=PURPLE, lw=1.2, ls="--")
    axes.fill_between(
        time, difference, 0, where=difference < 0, color=EASY, label="easy is cheaper: show easy"
    )
    axes.fill_between(
        time, difference, 0, where=difference > 0, color=HARD, alpha=0.45, label="hard is cheaper: show hard"
    )
    axes.axvspan(left, right, color=GREEN, alpha=0.2, lw=0, label="no difference: mix both")
    axes.set_yscale("symlog", linthresh=0.02)
    axes.set(xlabel=TIME, ylabel="cost of easy minus cost of hard\n(× 1000)", xlim=(0, 12), ylim=(-10, 0.2))
    axes.legend(loc="lower center")
    return figure


@float64
def bill(problem: ol.Problem, schedule: ol.Schedule) -> tuple[np.ndarray, np.ndarray]:
    """Times, and the cost of an easy sample minus that of a hard one: price times effect, added up."""
    compiled = compile_problem(problem)
    rolled = Rollout(compiled, schedule.intervals, 1).run(
        compiled.relaxation.own_vectors(schedule), np.zeros(0)
    )
    states = ol.evaluate(problem, schedule).at(schedule.grid)
    bills = []
    for difficulty in problem.discrete["difficulty"].values:
        u = {**problem.settings, "difficulty": np.asarray(difficulty)}
        drifts = [
            problem.model.drift(
                problem.model.state(**{name: course[i] for name, course in states.items()}), u
            )
            for i in range(len(schedule.grid))
        ]
        effects = np.array([[float(drift[name]) for name in states] for drift in drifts])
        bills.append(np.sum(effects * rolled.costates, axis=1))
    return schedule.grid, bills[0] - bills[1]


if __name__ == "__main__":
    main()
