"""Many passes over finite data: rate and decay, stopping early, the peak at κ = 1, and shuffled epochs.

Run: python examples/finite_data.py [--out FILE.png]
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import optlearn as ol

N, SEEDS = 400, 48  # of the runs of SGD
# Of the spectrum: 4√(s_max ∫η dα) + 4 for 2000 passes at κ = 4, the longest training here.
NODES = 124


def final(problem: ol.Problem, schedule: ol.Schedule) -> float:
    return ol.evaluate(problem, schedule, record=2).objective


def long_training(kappa: float, passes: float, rate: float, decay: float = 0.0) -> float:
    """Test error under a constant rate."""
    model = ol.models.FiniteData(kappa, nodes=NODES)
    schedule = ol.Schedule.constant(passes * kappa, {"learning_rate": rate})
    run = ol.integrate(model, schedule, start=model.start(), parameters={"weight_decay": decay}, record=2)
    return run["test_error"][-1]


def plain(schedule: ol.Schedule) -> ol.Schedule:
    """The controls alone, without free parameters."""
    return ol.Schedule(schedule.grid, schedule.values)


def trained(problem: ol.Problem, schedule: ol.Schedule, decay: float, sampling: str) -> np.ndarray:
    """(SEEDS,) test errors at the end of SGD; the same seeds for every schedule."""
    runs = ol.simulate_finite_data(
        problem, schedule, N=N, seeds=SEEDS, sampling=sampling, parameters={"weight_decay": decay}, record=2
    )
    return runs["test_error"][:, -1]


def standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def main(out: Path) -> None:
    figure, (peak, rates, shuffled) = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")

    kappas = np.geomspace(0.25, 4, 25)
    for label, passes, rate, decay in (
        ("2000 passes", 2000, 0.05, 0.0),
        ("10 passes", 10, 0.5, 0.0),
        ("2000 passes, λ = σ²/κ", 2000, 0.05, 0.25),
    ):
        errors = [long_training(k, passes, rate, decay / k) for k in kappas]
        top = int(np.argmax(errors))
        print(f"{label}, η = {rate}: highest test error {errors[top]:.3f} at κ = {kappas[top]:.2f}")
        peak.plot(kappas, errors, label=label)
    peak.plot(kappas, [ol.models.FiniteData(k, nodes=NODES).bayes_error for k in kappas], "k:", label="Bayes")
    peak.set(xscale="log", xlabel="samples for each weight κ", ylabel="test error", ylim=(0, 2.1))
    peak.set_xticks([0.25, 0.5, 1, 2, 4], ["¼", "½", "1", "2", "4"])
    peak.minorticks_off()
    peak.legend(fontsize=8, ncols=2, loc="upper center")

    alone, with_decay = ol.scenarios.finite_data(), ol.scenarios.finite_data(weight_decay="free")
    usual = ol.baselines(alone)
    solutions = {
        "optimal rate": ol.solve(alone, method="direct", starts=1),
        "optimal rate, best constant decay": ol.solve(with_decay, method="direct", starts=1),
    }
    decay = solutions["optimal rate, best constant decay"].parameters["weight_decay"]
    for name, solution in solutions.items():
        schedule = solution.schedule
        rates.stairs(schedule["learning_rate"], schedule.grid, label=name, baseline=None)
    stop = usual["early stopping"]
    rates.stairs(stop["learning_rate"], stop.grid, label="stop early", baseline=None, color="0.6")
    rates.set(xlabel="training time α", ylabel="learning rate η", title="κ = 1, ten passes", ylim=(0, 1.4))
    rates.legend(fontsize=8, loc="upper right")

    played = {
        "best constant": (usual["best constant rate"], 0.0),
        "optimal rate": (solutions["optimal rate"].schedule, 0.0),
        "rate and decay": (plain(solutions["optimal rate, best constant decay"].schedule), decay),
    }
    ends = {
        "theory": [np.array([final(alone.with_parameters(weight_decay=d), s)]) for s, d in played.values()]
    }
    for sampling in ("replacement", "shuffle"):
        ends[sampling] = [trained(alone, s, d, sampling) for s, d in played.values()]
    for shift, (process, runs) in enumerate(ends.items()):
        means, errors = [e.mean() for e in runs], [standard_error(e) for e in runs]
        for name, run, mean, error in zip(played, runs, means, errors, strict=True):
            won = run - runs[0]
            gain = f"{won.mean():+.4f} ± {standard_error(won):.4f}"
            print(f"{process}, {name}: {mean:.4f} ± {error:.4f}, against the constant {gain}")
        shuffled.bar(np.arange(3) + (shift - 1) * 0.27, means, 0.27, yerr=errors, label=process)
    shuffled.set_xticks(range(3), [name.replace(" ", "\n", 1) for name in played])
    shuffled.set(ylabel="test error", ylim=(0.34, 0.44), title=f"SGD, N = {N}")
    shuffled.legend(fontsize=8)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/finite_data.png"))
    main(parser.parse_args().out)
