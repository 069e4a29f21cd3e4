"""Compute and draw what ``structure.md`` shows, into images/structure: python docs/make_structure.py [NAME …]

Names: plateau, phases, paper, scatter (numbers only). Numbers of the page are printed.
"""

import sys
from dataclasses import replace
from pathlib import Path

import matplotlib

matplotlib.use("agg")

import numpy as np

import optlearn as ol
from optlearn.plotting.style import BLUE, GREEN, GREY, ORANGE, TIME, ShownFigure, style

FOLDER = Path(__file__).parent / "images" / "structure"
COLOURS = (GREY, BLUE, GREEN, ORANGE)
# Variances and shares of mean 1: what the paper's problems are solved with.
SPECTRA = {
    "1": None,
    "1.8, 0.2": ol.Spectrum([1.8, 0.2], [0.5, 0.5]),
    "3, ⅓": ol.Spectrum([3.0, 1 / 3], [0.25, 0.75]),
    "4, 1.5, 0.5, 0.2": ol.Spectrum([4.0, 1.5, 0.5, 0.2], [0.1, 0.25, 0.3, 0.35]),
}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    pictures = {"plateau": plateau, "phases": phases, "paper": paper}
    with style():
        for name in sys.argv[1:] or [*pictures, "scatter"]:
            if name == "scatter":
                scatter()
            else:
                pictures[name]().savefig(FOLDER / f"{name}.png", dpi=150, pil_kwargs={"optimize": True})


def panels() -> tuple[ShownFigure, np.ndarray]:
    figure = ShownFigure(figsize=(8.4, 3.0), layout="constrained")
    return figure, figure.subplots(1, 2)


def steps(axes, schedule: ol.Schedule, control: str, **look: object) -> None:
    values = schedule[control]
    axes.step(schedule.grid, [*values, values[-1]], where="post", **look)


def plateau() -> ShownFigure:
    """Two erf nodes on 1, 2, 4 and 8 distinct variances of mean 1: error at η = 1, and the optimal rate."""
    figure, (left, right) = panels()
    for blocks, colour in zip((1, 2, 4, 8), COLOURS, strict=True):
        variance = np.geomspace(3.0, 0.3, blocks) if blocks > 1 else np.ones(1)
        share = np.full(blocks, 1 / blocks)
        spectrum = ol.Spectrum(variance / (share @ variance), share)
        model = ol.models.committee(2, 2, T=np.eye(2), sigma_n=0.1, spectrum=spectrum)
        start = model.state(Q=0.25 * np.eye(2), M=0.02 * np.eye(2))
        rate = ol.Continuous(0, 4, guess=1.0)
        problem = ol.Problem(
            model=model, start=start, horizon=60, controls={"learning_rate": rate}, intervals=60
        )
        run = ol.evaluate(problem, ol.Schedule.constant(60, {"learning_rate": 1.0}))
        solution = ol.solve(problem, starts=1)
        drive = share @ spectrum.variance**2
        print(f"{blocks} variances: Σc²T/ΣcT {drive:.3f}, η = 1 {run.objective:.5f}, ", end="")
        print(f"optimum {solution.objective:.6f}, converged {solution.certificate.converged}", flush=True)
        left.semilogy(run.alpha, run["error"], color=colour, label=f"{blocks}")
        steps(right, solution.schedule, "learning_rate", color=colour, label=f"{blocks}")
    for spread in (0.0, 0.9):
        print(f"variances 1 ± {spread:g}: the plateau ends at α = {plateau_end(spread):.0f}", flush=True)
    left.set(xlabel=TIME, ylabel="error at η = 1")
    right.set(xlabel=TIME, ylabel="optimal learning rate")
    left.legend(title="distinct variances")
    return figure


def plateau_end(spread: float) -> float:
    """When the error falls below half of the plateau's .0252, from M = 0.001, variances 1 ± spread, η = 1."""
    spectrum = ol.Spectrum([1 + spread, 1 - spread], [0.5, 0.5])
    model = ol.models.committee(2, 2, T=np.eye(2), sigma_n=0.1, spectrum=spectrum)
    start = model.state(Q=0.25 * np.eye(2), M=0.001 * np.eye(2))
    alpha = np.linspace(0.0, 250.0, 2501)
    run = ol.integrate(model, ol.Schedule.constant(250, {"learning_rate": 1.0}), start=start, record=alpha)
    return float(alpha[np.argmax(run["error"] < 0.0252 / 2)])


def scatter() -> None:
    """How much single runs of least squares on a power law differ, η = 0.6."""
    problem = ol.scenarios.power_law(recursion=True)
    schedule = ol.Schedule.constant(10, {"learning_rate": 0.6})
    ends = ol.simulate(problem, schedule, N=1023, seeds=512, record=2)["error"][:, -1]
    print(f"risk at η = 0.6: mean {2 * ends.mean():.4f}, ", end="")
    print(f"theory {2 * ol.evaluate(problem, schedule).objective:.4f}, ", end="")
    print(f"standard deviation {ends.std(ddof=1) / ends.mean():.0%} of the mean")


def phases() -> ShownFigure:
    """Least squares on power laws: optimal rates, easy to hard; what usual shapes lose."""
    figure, (left, right) = panels()
    exponents = (0.5, 0.2, 0.0, -0.15, -0.3)
    lost: dict[str, list[float]] = {"linear": [], "cosine": [], "WSD": [], "power decay": []}
    for exponent in exponents:
        problem = ol.scenarios.power_law(teacher_exponent=exponent)
        solution = ol.solve(problem, method="indirect", starts=1)
        for name, values in lost.items():
            played = problem.baselines[name](problem, problem.intervals)
            values.append(100 * (ol.evaluate(problem, played).objective / solution.objective - 1))
        print(exponent, f"{solution.objective:.6f}", solution.certificate.converged, end=" ")
        print({name: round(values[-1], 2) for name, values in lost.items()}, flush=True)
        shade = (exponent + 0.3) / 0.8
        colour = tuple(shade * np.array([0.0, 0.45, 0.7]) + (1 - shade) * np.array([0.84, 0.37, 0.0]))
        steps(left, solution.schedule, "learning_rate", color=colour, label=f"b = {exponent:g}")
    for (name, values), colour in zip(lost.items(), (GREY, BLUE, ORANGE, GREEN), strict=True):
        right.plot(exponents, values, "o-", color=colour, label=name)
    left.set(xlabel=TIME, ylabel="optimal learning rate")
    right.set(xlabel="teacher's exponent b (hard ← → easy)", ylabel="% above the optimum", ylim=(0, 25))
    left.legend()
    right.legend()
    return figure


def paper() -> ShownFigure:
    """The paper's curriculum and dropout on structured inputs."""
    figure, (left, right) = panels()
    for row, (name, spectrum) in enumerate(SPECTRA.items()):
        problem = with_spectrum(ol.scenarios.curriculum(), spectrum)
        solution = ol.solve(problem, intervals=60)
        usual = {n: ol.evaluate(problem, s).objective for n, s in ol.baselines(problem).items()}
        print(f"curriculum {name}: {solution.objective:.5f}, switches ", end="")
        print(np.count_nonzero(np.diff(solution.schedule["difficulty"])), usual, flush=True)
        hard = solution.schedule["difficulty"] / solution.schedule["difficulty"].max()
        left.fill_between(
            solution.schedule.grid,
            -row,
            -row + 0.8 * np.append(hard, hard[-1]),
            step="post",
            color=COLOURS[row],
        )
        problem = with_spectrum(ol.scenarios.dropout(), spectrum)
        solution = ol.solve(problem, intervals=40)
        full = ol.evaluate(problem, ol.baselines(problem)["no dropout"]).objective
        print(f"dropout {name}: {full:.5f} → {solution.objective:.5f}", end=" ")
        print(solution.schedule["activation"][-1], dict(solution.schedule.parameters), flush=True)
        steps(right, solution.schedule, "activation", color=COLOURS[row], label=name)
    left.set(xlabel=TIME, yticks=[0.4 - row for row in range(len(SPECTRA))], yticklabels=list(SPECTRA))
    left.set_title("curriculum: when hard samples are shown")
    right.set(xlabel=TIME, ylabel="activation probability", title="dropout")
    right.legend(title="variances")
    return figure


def with_spectrum(problem: ol.Problem, spectrum: ol.Spectrum | None) -> ol.Problem:
    """The problem on inputs with a spectrum, teachers and start in random directions."""
    if spectrum is None:
        return problem
    model, x = replace(problem.model, spectrum=spectrum), problem.start
    return replace(problem, model=model, start=model.state(Q=x.Q, M=x.M, R=x.R, v=x.v))


if __name__ == "__main__":
    main()
