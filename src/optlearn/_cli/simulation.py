"""Theory and simulation side by side."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optlearn._control.problem import Problem
    from optlearn._schedule import Schedule
    from optlearn._trajectory import Trajectory


def theory_and_simulation(
    problem: "Problem",
    schedule: "Schedule",
    *,
    N: int,
    seeds: int,
    mode: str,
    seed: int,
    times: int,
) -> "tuple[Trajectory, Trajectory]":
    """The same schedule in the theory and at finite N, at the same training times."""
    from optlearn._control.evaluate import evaluate
    from optlearn._dynamics.integrate import integrate
    from optlearn._simulate.run import simulate as run_simulation

    free = evaluate(problem, schedule, record=2).info["parameters"]
    simulated = run_simulation(
        problem,
        schedule,
        N=N,
        seeds=seeds,
        mode=mode,
        seed=seed,
        parameters=free,
        record=times,
    )
    theory = integrate(
        problem.model,
        schedule,
        start=problem.start,
        parameters={**problem.parameters, **free},
        record=simulated.alpha.clip(max=schedule.horizon),
        rule=problem.rule,
    )
    return theory, simulated


def side_by_side(theory: "Trajectory", simulated: "Trajectory") -> dict[str, Any]:
    """Theory, mean over seeds, standard error and z-score of everything that both know."""
    names = [name for name in simulated.values if name in theory.values]
    mean = {name: simulated.mean(name) for name in names}
    result: dict[str, Any] = {
        "alpha": simulated.alpha,
        "theory": {name: theory[name] for name in names},
        "mean": mean,
    }
    if simulated.seeds > 1:
        errors = {name: simulated.standard_error(name) for name in names}
        result["standard_error"] = errors
        result["z"] = {name: simulated.z_scores(name, theory[name]) for name in names}
    return result
