"""A decay that is planned from half of one constant run, trained beside eight others: byte-level GPTs.

Run: python examples/decay_gpt.py            (all steps with toy networks, on a CPU, two minutes)

Step by step, with small networks on a CPU (half an hour on one core; `--size gpu`: larger ones, on a GPU;
`plan` and `table` take seconds anywhere):

    python examples/decay_gpt.py --size cpu train FOLDER   (networks of the prior; the large one, constant)
    python examples/decay_gpt.py --size cpu plan FOLDER
    python examples/decay_gpt.py --size cpu train FOLDER   (the plan and eight others; logs there stay)
    python examples/decay_gpt.py --size cpu table FOLDER

Four runs each of two small networks are the prior. Of the large one, the first half of one constant run is
known; when its decay should begin is forecast for two horizons.
"""

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from loss_curves_gpt import CPU, PILOTS, TOY, Size, linear, rates_of, train, wsd

DECAYS = (5, 10, 15, 20, 30, 45, 60, 80)  # percent of training


@dataclass(frozen=True)
class Experiment:
    """Sizes of the networks, horizons of the large one, and seeds of its decays."""

    small: tuple[Size, ...]
    large: Size
    horizons: tuple[int, ...]
    seeds: int


EXPERIMENTS = {
    "toy": Experiment(tuple(replace(TOY, width=w, steps=600) for w in (16, 24)), TOY, (400, 600), 2),
    "cpu": Experiment(tuple(replace(CPU, width=w, steps=6000) for w in (24, 40)), CPU, (2000, 4000), 4),
    "gpu": Experiment(tuple(Size(width=w, steps=6000) for w in (96, 160)), Size(), (2000, 4000), 4),
}


def log_in(folder, name):
    """The file of a log, which may have been gzipped."""
    packed = folder / f"{name}.csv.gz"
    return packed if packed.exists() else folder / f"{name}.csv"


def train_all(experiment, folder):
    """Everything that is not there yet and can be trained."""
    folder.mkdir(parents=True, exist_ok=True)
    for size in experiment.small:
        log = log_in(folder, f"small-{size.width}")
        if not log.exists():
            train({name: rates_of(shape, size) for name, shape in PILOTS.items()}, 1, size, log)
    plans = folder / "plans.json"
    for horizon in experiment.horizons:
        size, log = replace(experiment.large, steps=horizon), log_in(folder, f"constant-{horizon}")
        if not log.exists():
            train({"constant": rates_of(PILOTS["constant"], size)}, 1, size, log)
        log = log_in(folder, f"decays-{horizon}")
        if plans.exists() and not log.exists():
            length = json.loads(plans.read_text())[str(horizon)]["length"]
            shapes = {f"{s} %": wsd(s / 100, linear) for s in DECAYS}
            shapes["planned"] = wsd(length / (size.steps - size.warmup), linear)
            # All at once: runs of another command differ by their round-off, which is as much as decays do.
            train(
                {name: rates_of(shape, size) for name, shape in shapes.items()}, experiment.seeds, size, log
            )


def plan(experiment, folder):
    """The decay for each horizon, from the small networks and half of one constant run."""
    import optlearn as ol

    # Such small networks learn to copy only after a while, and until then no power law holds.
    prior = [
        ol.laws.fit(log_in(folder, f"small-{size.width}"), first_step=size.steps // 3)
        for size in experiment.small
    ]
    found = {}
    for horizon in experiment.horizons:
        (constant,) = ol.laws.read_curves(log_in(folder, f"constant-{horizon}"))
        known = constant.until(horizon / 2)
        forecast = ol.laws.forecast(known, horizon, prior=prior, first_step=horizon // 4)
        print(forecast.summary())
        found[horizon] = forecast.decay._asdict() | {"final": forecast.finals["wsd"]}
    (folder / "plans.json").write_text(json.dumps(found))


def table(experiment, folder):
    """Final losses over seeds; the planned decay beside the best of the eight."""
    import optlearn as ol

    plans = json.loads((folder / "plans.json").read_text())
    for horizon in experiment.horizons:
        finals = {}
        for curve in ol.laws.read_curves(log_in(folder, f"decays-{horizon}")):
            finals.setdefault(curve.name.rpartition(" / seed ")[0], []).append(float(curve.loss[-1]))
        means = {name: np.mean(losses) for name, losses in finals.items()}
        planned, each = means.pop("planned"), plans[str(horizon)]
        best = min(means, key=means.get)
        loss, low, high = each["final"]
        print(
            f"{horizon} steps: decay over {each['length']} (from {horizon - each['latest']} to "
            f"{horizon - each['earliest']}), forecast {loss:.4f} ({low:.4f} to {high:.4f}), trained "
            f"{planned:.4f}, {planned / means[best] - 1:+.2%} of the best ({best})"
        )
        print("  " + ", ".join(f"{name} {mean:.4f}" for name, mean in means.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--size", choices=EXPERIMENTS, help="of the networks (default: gpu; of all steps: toy)"
    )
    parser.add_argument("command", nargs="?", choices=("train", "plan", "table"))
    parser.add_argument("folder", nargs="?", type=Path, default=Path("out") / "decay_gpt")
    given = parser.parse_args()
    experiment = EXPERIMENTS[given.size or ("gpu" if given.command else "toy")]
    steps = {"train": (train_all,), "plan": (plan,), "table": (table,)}
    for step in steps.get(given.command, (train_all, plan, train_all, table)):
        step(experiment, given.folder)


if __name__ == "__main__":
    main()
