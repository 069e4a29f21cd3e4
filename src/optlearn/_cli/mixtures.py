"""``fit-curves`` for logs of mixtures: plan the rate and the shares of data."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optlearn._progress import Progress, Report

if TYPE_CHECKING:
    from rich.console import Console

    from optlearn._control.solution import Solution
    from optlearn.laws import MixtureFit

FILES = ("schedule.csv", "schedule.json", "phases.csv", "next_pilot.csv", "curves.png")
SHOWN = 5  # number of members of the family to show
Plan = tuple["Solution", dict[str, Any], Callable[["Console"], None], dict[str, Callable[[Path], object]]]


def plan_mixture(
    fit: "MixtureFit",
    numbers: Mapping[str, Mapping[str, float]],
    intervals: int | None,
    options: Mapping[str, Any],
    tell: Report,
) -> Plan:
    """The optimum of a fit, as JSON, in words, and as files.

    Args:
        fit: fit to the curves.
        numbers: ``budget``, ``weight`` and ``limit``, each by domain.
        intervals: intervals of the plan.
        options: ``steps``, ``lowest`` and ``highest`` rate, ``robust``, ``seed``.
        tell: receives progress.
    """
    from optlearn._control.solve import solve
    from optlearn.laws import next_pilot

    steps, seed = options["steps"], options["seed"]
    highest = fit.data.scale.peak if options["highest"] is None else options["highest"]
    bounds = (options["lowest"], highest)
    weights = numbers["weight"] or None
    chosen = {} if intervals is None else {"intervals": intervals}
    problem = fit.problem(
        steps, bounds, options["robust"], weights=weights, budgets=numbers["budget"], limits=numbers["limit"],
        seed=seed, **chosen,
    )  # fmt: skip
    # Forward-backward sweeps do not keep limits on final losses; nonlinear programs do.
    method = "auto" if problem.limits or problem.paths else "indirect"
    solution = solve(problem, method=method, starts=2, seed=seed, progress=tell)
    schedule = fit.schedule(solution)
    tell(Progress("choosing the next pilot run"))
    scarce = min(numbers["budget"], key=lambda name: numbers["budget"][name]) if numbers["budget"] else None
    pilot_options = {} if scarce is None else {"domain": scarce, "budget": numbers["budget"][scarce]}
    pilot = next_pilot(fit, steps, bounds, seed, **pilot_options)
    family = []
    if scarce is not None:
        members = fit.family(
            scarce, numbers["budget"][scarce], steps, bounds, weights=weights, robust=options["robust"],
            seed=seed,
        )  # fmt: skip
        kept = [m for m in members if all(m.losses[name] <= most for name, most in numbers["limit"].items())]
        family = [
            {"shape": m.shape, **m.settings, "losses": dict(m.losses), "objective": m.objective}
            for m in kept[:SHOWN]
        ]
    ends = fit.interval(schedule)
    predicted = {
        name: {"loss": float(loss[-1]), "low": float(ends[name][0][-1]), "high": float(ends[name][1][-1])}
        for name, loss in fit.predict(schedule).items()
    }
    phases = schedule.to_phases()
    result: dict[str, Any] = {
        "fit": fit.to_dict(),
        "schedule": {"grid": schedule.grid, **{name: schedule[name] for name in schedule.controls}},
        "phases": [{"start": p.start, "steps": p.steps, **p.shares} for p in phases],
        "predicted": predicted,
        "family": family,
        "next_pilot": {"grid": pilot.grid, **{name: pilot[name] for name in pilot.controls}},
        "certificate": solution.certificate.to_dict(),
        "seconds": solution.seconds,
    }

    def show(screen: "Console") -> None:
        screen.print(fit.summary(), markup=False)
        for name, loss in predicted.items():
            between = f"{loss['low']:.4f} to {loss['high']:.4f}"
            screen.print(f"plan: {name} {loss['loss']:.4f} predicted ({between})")
        for phase in phases:
            shares = ", ".join(f"{name} {share:.3f}" for name, share in phase.shares.items())
            screen.print(f"  from step {phase.start}: {shares}")
        if scarce is not None and not family:
            screen.print("  no schedule of a common shape keeps the limits")
        for member in family:
            numbers_of = ", ".join(f"{k} {member[k]:.3g}" for k in ("share", "start", "decay") if k in member)
            screen.print(f"  as {member['shape']}: {member['objective']:.4f} ({numbers_of})", markup=False)

    def write_phases(path: Path) -> None:
        names = list(fit.domains)
        rows = [f"{p.start},{p.steps}," + ",".join(f"{p.shares[n]:.6g}" for n in names) for p in phases]
        path.write_text("\n".join([",".join(["start", "steps", *names]), *rows]) + "\n")

    writers: tuple[Callable[[Path], object], ...] = (
        partial(schedule.to_csv, steps=round(schedule.horizon)),
        schedule.to_json,
        write_phases,
        partial(pilot.to_csv, steps=round(pilot.horizon)),
        lambda path: fit.plot(schedule).savefig(path, dpi=150),
    )
    return solution, result, show, dict(zip(FILES, writers, strict=True))
