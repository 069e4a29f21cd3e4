"""A growing batch at a fixed learning rate against a decaying rate at a fixed batch, same samples.

Run: python examples/batch_against_rate.py [--out FILE.png]
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt

import optlearn as ol

MEAN = 4.0
# Name → the committee, and the fixed learning rate of the growing batch.
CASES = {
    "K = M = 1, noise 0.5": ({"K": 1, "M": 1, "sigma_n": 0.5, "alpha_F": 20.0}, 0.7),
    "K = M = 2, noise 0.3": ({"K": 2, "M": 2, "sigma_n": 0.3, "alpha_F": 80.0}, 1.5),
}


def main(out: Path) -> None:
    figure, rows = plt.subplots(2, 3, figsize=(11, 6), layout="constrained")
    for (title, (committee, eta)), (errors, batches, rates) in zip(CASES.items(), rows, strict=True):
        growing = ol.scenarios.batch_size(**committee, eta=eta, mean_batch=MEAN)
        decaying = ol.scenarios.learning_rate(**committee, batch=MEAN, max_learning_rate=10.0)
        by_batch, by_rate = (ol.solve(p, method="direct", starts=1, steps=6) for p in (growing, decaying))
        constant = ol.evaluate(decaying, decaying.baselines["best constant rate"](decaying, 80))
        for label, run, batch, rate in (
            ("constant batch and rate", constant, [MEAN], None),
            ("growing batch", by_batch.trajectory, by_batch.schedule["batch"], [eta]),
            ("decaying rate", by_rate.trajectory, [MEAN], by_rate.schedule["learning_rate"]),
        ):
            print(f"{title}, {label}: final error {run.objective:.3g}")
            (line,) = errors.semilogy(run.alpha, run["error"], label=label)
            for axis, values in ((batches, batch), (rates, rate)):
                if values is not None:
                    edges = [growing.horizon * i / len(values) for i in range(len(values) + 1)]
                    axis.stairs(values, edges, baseline=None, color=line.get_color())
        errors.set(ylabel="error", title=title)
        batches.set(ylabel="batch size B", title=f"{MEAN:g} samples a step on average")
        rates.set(ylabel="learning rate η", yscale="log")
        rates.set_yticks([0.1, 0.3, 1, 3], ["0.1", "0.3", "1", "3"])
        rates.minorticks_off()
        errors.legend(fontsize=8)
    for axis in rows.ravel():
        axis.set_xlabel("training time α (steps / N)")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/batch_against_rate.png"))
    main(parser.parse_args().out)
