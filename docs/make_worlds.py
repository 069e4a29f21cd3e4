"""Draw the pictures of Adam, rewards and effort: python docs/make_worlds.py [NAME …], such as scenarios/adam

``python docs/make_worlds.py momentum`` prints the table of momentum under a spectrum, of ``memory.md``.
Optima over the plane of power laws, and those of two units, are kept in ``images/adam.json``. What that file
lacks is computed, which takes minutes for the whole plane.
"""

import json
import sys
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np

import optlearn as ol
from optlearn._arguments import Arguments
from optlearn.plotting.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, RC, TIME, VERMILION
from optlearn.scenarios._least_squares import dyadic_blocks

IMAGES = Path(__file__).parent / "images"
KEPT = IMAGES / "adam.json"
EXPONENTS, TEACHERS = (0.5, 1.0, 1.5, 2.0), (-0.3, 0.3, 1.0, 2.0)
OPTIMISERS = {"adam": VERMILION, "sgd": BLUE}
NAMES = {"adam": "Adam", "sgd": "SGD"}
# A rate that is so close to its largest value counts as a plateau.
FLAT = 0.95


def main() -> None:
    if sys.argv[1:] == ["momentum"]:
        momentum()
        return
    plt.rcParams.update(RC | {"font.size": 10.0, "axes.labelsize": 10.0, "legend.fontsize": 9.0})
    drawings = {
        IMAGES / "adam.png": adam,
        IMAGES / "scenarios" / "adam.png": power_laws,
        IMAGES / "scenarios" / "reinforcement.png": reinforcement,
        IMAGES / "scenarios" / "learning_effort.png": learning_effort,
    }
    for path, draw in drawings.items():
        name = path.relative_to(IMAGES).with_suffix("").as_posix()
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        figure = draw()
        figure.savefig(path, dpi=140, pil_kwargs={"optimize": True})
        plt.close(figure)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


# --- momentum -------------------------------------------------------------------------------------


def momentum() -> None:
    """Best rates alone, and with momentum; the first hard case also by SGD on weights."""
    hard = (1.5, -0.3)
    cases = ((None, 0, 20.0), (hard, 31, 10.0), (hard, 31, 40.0), (hard, 127, 10.0))
    cases += (((1.5, 0.5), 63, 10.0), ((1.5, 1.0), 31, 10.0), ((1.5, 1.0), 31, 40.0))
    for exponents, N, horizon in cases:
        alone, both = (rate_and_momentum(exponents, N, horizon, memory) for memory in (False, True))
        certified = all(solution.certificate.converged for solution in (alone, both))
        found = f"{alone.objective:.6f} {both.objective:.6f} {1 - both.objective / alone.objective:.1%}"
        print(f"{exponents} {N} {horizon}: {found}{'' if certified else ' (not certified)'}")
    for memory in (False, True):
        solution = rate_and_momentum(hard, 31, 10.0, memory, highest=1.0)
        runs = ol.simulate(solution.problem, solution.schedule, N=2480, seeds=16, mode="weights", record=2)
        error = runs.standard_error("error")[-1]
        print(f"predicted {solution.objective:.5f}, SGD at N = 2480: {runs.objective:.5f} ± {error:.5f}")


def rate_and_momentum(
    exponents: tuple[float, float] | None, N: int, horizon: float, memory: bool, highest: float = 1.5
) -> "ol.Solution":
    """The best rate for two blocks, or for a power law, by itself or with a velocity and its friction."""
    if exponents is None:
        spectrum, teacher = ol.Spectrum([3.0, 0.3], [0.25, 0.75]), {}
    else:
        spectrum, blocks = dyadic_blocks(Arguments("momentum"), *exponents, N)
        teacher = {"T": blocks[:, None, None]}
    model = ol.models.committee(1, 1, activation="linear", sigma_n=0.1**0.5, spectrum=spectrum, **teacher)
    controls = {"learning_rate": ol.Continuous(0.0, highest, guess=0.3)}
    start = {}
    if memory:
        model = ol.models.with_memory(model, velocity_rate=1.0, friction=2.0)
        controls |= {
            "velocity_rate": ol.Continuous(0.0, 10.0, guess=0.5),
            "friction": ol.Continuous(0.0, 20.0, guess=3.0),
        }
        start = model.start()
    problem = ol.Problem(model=model, start=start, horizon=horizon, controls=controls, intervals=20)
    return ol.solve(problem, starts=1)


# --- Adam -----------------------------------------------------------------------------------------


def adam_results() -> dict[str, Any]:
    """Optima over the plane ("a,b,optimiser"), and of a committee of two units."""
    results = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {"plane": {}}
    for a, b, optimiser in product(EXPONENTS, TEACHERS, OPTIMISERS):
        if f"{a},{b},{optimiser}" in results["plane"]:
            continue
        problem = ol.scenarios.adam(a, b, N=255, optimiser=optimiser)
        solution = ol.solve(problem, intervals=20, starts=1)
        rate = [round(float(value), 5) for value in solution.schedule["learning_rate"]]
        results["plane"][f"{a},{b},{optimiser}"] = {"objective": solution.objective, "rate": rate}
        flag = "converged" if solution.certificate.converged else "not converged"
        print(f"a = {a}, b = {b}, {optimiser}: {solution.objective:.6f}, {flag}", flush=True)
    if "committee" not in results:
        results["committee"] = {name: committee(name) for name in OPTIMISERS}
    KEPT.write_text(json.dumps(results), encoding="utf-8")
    return results


def committee(optimiser: str) -> dict[str, Any]:
    """Two erf units on two blocks: the optimum, its rate and its errors."""
    spectrum, eye = ol.Spectrum([3.0, 0.3], [0.25, 0.75]), np.eye(2)
    model: Any = ol.models.committee(2, 2, sigma_n=0.1, spectrum=spectrum, T=np.stack([0.5 * eye, 0.5 * eye]))
    start = {"Q": np.stack([0.0625 * eye, 0.1875 * eye]), "M": np.stack([0.01 * eye, 0.01 * eye])}
    if optimiser == "adam":
        model = ol.models.adam(model)
    highest, guess = (2.0, 0.2) if optimiser == "adam" else (4.0, 1.0)
    problem = ol.Problem(
        model=model,
        start=start,
        horizon=60.0,
        controls={"learning_rate": ol.Continuous(0.0, highest, guess=guess)},
        intervals=60,
    )
    solution = ol.solve(problem, starts=1)
    run = ol.evaluate(problem, solution.schedule, record=121)
    return {
        "objective": solution.objective,
        "rate": [round(float(value), 5) for value in solution.schedule["learning_rate"]],
        "alpha": [round(float(value), 5) for value in run.alpha],
        "error": [round(float(value), 7) for value in run["error"]],
    }


def adam() -> plt.Figure:
    """What Adam's optimum wins over SGD's; some pairs of rates; the committee's plateau."""
    results = adam_results()
    plane = results["plane"]
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10.5, 3.3), layout="constrained")
    ratio = np.array(
        [
            [plane[f"{a},{b},adam"]["objective"] / plane[f"{a},{b},sgd"]["objective"] for a in EXPONENTS]
            for b in TEACHERS
        ]
    )
    left.imshow(np.log(ratio), cmap="RdBu", vmin=-1.5, vmax=1.5, origin="lower", aspect="auto")
    for row, b in enumerate(TEACHERS):
        for column, a in enumerate(EXPONENTS):
            marks = [shape(plane[f"{a},{b},{name}"]["rate"]) for name in OPTIMISERS]
            found = ratio[row, column]
            left.text(
                column,
                row,
                f"{found:.2f}\n{marks[0]} | {marks[1]}",
                ha="center",
                va="center",
                color="white" if abs(np.log(found)) > 1 else "black",
            )
    left.set_xticks(range(len(EXPONENTS)), [f"{a:g}" for a in EXPONENTS])
    left.set_yticks(range(len(TEACHERS)), [f"{b:g}" for b in TEACHERS])
    left.set(
        xlabel="exponent a of variances",
        ylabel="exponent b of teacher",
        title="error of Adam divided by that of SGD",
    )
    for (a, b), style in (((1.5, -0.3), "-"), ((1.5, 1.0), ":")):
        for name, colour in OPTIMISERS.items():
            rate = np.array(plane[f"{a},{b},{name}"]["rate"])
            ends = [*rate / rate.max(), rate[-1] / rate.max()]
            middle.step(
                np.linspace(0, 1, len(ends)),
                ends,
                where="post",
                color=colour,
                ls=style,
                label=f"{NAMES[name]}, b = {b:g}",
            )
    middle.set(
        xlabel="share of training",
        ylabel="rate over its largest",
        title="optimal rates, a = 1.5",
        ylim=(0, 1.4),
        yticks=(0, 0.25, 0.5, 0.75, 1),
    )
    middle.legend(loc="upper center", ncols=2)
    for name, colour in OPTIMISERS.items():
        run = results["committee"][name]
        right.semilogy(
            run["alpha"], run["error"], color=colour, label=f"{NAMES[name]}: {run['objective']:.6f}"
        )
    right.set(xlabel=TIME, ylabel="error", title="two units: the plateau at best rates")
    right.legend()
    return figure


def power_laws() -> plt.Figure:
    """Optimal rates of both optimisers in the easy and in the hard phase, and the errors under them."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.1), layout="constrained")
    for (phase, b), style in {("easy", 0.5): "-", ("hard", -0.3): "--"}.items():
        for name, colour in OPTIMISERS.items():
            solution = ol.solve(ol.scenarios.adam(teacher_exponent=b, optimiser=name), starts=1)
            rate, run = solution.schedule["learning_rate"], solution.trajectory
            left.step(
                solution.schedule.grid,
                [*rate / rate.max(), rate[-1] / rate.max()],
                where="post",
                color=colour,
                ls=style,
            )
            label = f"{NAMES[name]}, {phase}: {solution.objective:.5f}"
            right.semilogy(run.alpha, run["error"], color=colour, ls=style, label=label)
    left.set(xlabel=TIME, ylabel="rate over its largest", title="optimal rates")
    right.set(xlabel=TIME, ylabel="error", title="errors under them", ylim=(1.5e-3, 6.0))
    right.legend(ncols=2, loc="upper center", fontsize=8.0)
    return figure


def shape(rate: list[float]) -> str:
    """Of an optimal rate: w, it rises first; p, it stays near its largest value for 30 %; d, it falls."""
    values = np.array(rate)
    highest = values.max()
    flat = np.mean(values >= FLAT * highest) >= 0.3
    rises = values[0] < FLAT * highest
    return "w" if rises else "p" if flat else "d"


# --- rewards, and effort --------------------------------------------------------------------------


def reinforcement() -> plt.Figure:
    """Rates, lengths and cosines of three problems."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(10.5, 3.1), layout="constrained")
    cases = {
        "rate, T = 3": ("learning_rate", BLUE),
        "rate and T": ("both", GREEN),
        "rate and penalty": ("penalty", VERMILION),
    }
    for name, (control, colour) in cases.items():
        problem = ol.scenarios.reinforcement(control=control)
        solution = ol.solve(problem, intervals=50, starts=1)
        schedule, run = solution.schedule, solution.trajectory
        stairs(left, schedule, "learning_rate", colour, name)
        if control == "both":
            stairs(middle, schedule, "decisions", colour, "decisions T")
        if control == "penalty":
            stairs(middle, schedule, "penalty", colour, "penalty p")
        misaligned = 1 - run["M11"] / np.sqrt(run["Q11"])
        right.semilogy(run.alpha, misaligned, color=colour, label=f"{name}: {solution.objective:.4f}")
    left.set(xlabel=TIME, ylabel="learning rate", title="optimal rates")
    middle.set(xlabel=TIME, title="episodes and penalties")
    right.set(xlabel=TIME, ylabel="1 − ρ", title="distance from the teacher")
    for axes in (left, middle, right):
        axes.legend()
    return figure


def learning_effort() -> plt.Figure:
    """Gains at several depths; modes under the best order of tasks."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.1), layout="constrained")
    for depth, colour in ((1, GREY), (2, BLUE), (3, GREEN), (4, ORANGE)):
        solution = ol.solve(ol.scenarios.learning_effort(depth=depth), starts=1)
        stairs(
            left,
            solution.schedule,
            "gain",
            colour,
            f"{depth} layer{'s' * (depth > 1)}: {solution.objective:.4f}",
        )
    solution = ol.solve(ol.scenarios.learning_effort(control="task"), starts=1)
    run = solution.trajectory
    for name, colour, label, place in (
        ("a1", BLACK, "strong mode", (3.0, 0.90)),
        ("a2", PURPLE, "weak mode", (4.7, 0.13)),
    ):
        right.plot(run.alpha, run[name], color=colour)
        right.text(*place, label, color=colour, fontsize=9.0)
    # Which task is trained: a band above the curves, which it would cross otherwise.
    tasks, grid = solution.schedule["task"], solution.schedule.grid
    right.stairs(1.12 + 0.08 * (tasks == 0), grid, baseline=1.12, fill=True, color=BLACK)
    right.stairs(1.12 + 0.08 * (tasks == 1), grid, baseline=1.12, fill=True, color=PURPLE)
    right.text(0.0, 1.23, "task trained", fontsize=9.0)
    left.set(xlabel="time", ylabel="gain", title="optimal effort")
    right.set(xlabel="time", ylabel="strength", title="optimal order of two tasks", ylim=(0, 1.35))
    right.set_yticks((0, 0.25, 0.5, 0.75, 1))
    left.legend()
    return figure


def stairs(axes: plt.Axes, schedule: "ol.Schedule", control: str, colour: str, label: str) -> None:
    values = schedule[control]
    axes.step(schedule.grid, [*values, values[-1]], where="post", color=colour, label=label)


if __name__ == "__main__":
    main()
