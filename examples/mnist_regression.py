"""Theory predicts training on MNIST: the learning rate of a linear head, on pixels and on random features.

The label is the parity of the digit. Spectrum, best linear predictor and noise are measured on 50,000 images;
the theory then says what SGD (one image a step, drawn with replacement) will do under any learning rate, and
which is best. Every schedule is trained as well, by many runs.

    python examples/mnist_regression.py --data-dir DIR [--out FILE.png]
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import optlearn as ol
from optlearn.practice.datasets import mnist


def features(pixels: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """(n, count) random ReLU features."""
    weights = np.random.default_rng(seed).normal(size=(pixels.shape[1], count)) / np.sqrt(pixels.shape[1])
    return np.maximum(pixels @ weights, 0.0)


def report(name: str, X: np.ndarray, y: np.ndarray, steps: int, seeds: int, axes: list[plt.Axes]) -> None:
    """Fit, solve, train and compare; draw rates on the first of the axes and risks on the second."""
    fit = ol.fit.regression(X, y)
    problem = fit.problem(steps)
    model = problem.model
    print(
        f"\n{name}: {fit.measured.directions} directions, the largest has {fit.largest:.1%} of the variance;"
    )
    print(
        f"the best linear predictor leaves {fit.noise:.4f} of 1; {model.spectrum.blocks} blocks are off by "
        f"{model.spectrum.reduction_error:.1%}"
    )
    solution = ol.solve(problem)
    shapes = ol.baselines(problem)
    schedules = {
        "optimum": solution.schedule,
        **{n: shapes[n] for n in ("constant", "linear", "cosine", "WSD")},
    }
    print(f"{'excess risk after ' + str(steps) + ' steps':>34s}   predicted   trained")
    rates, risks = axes
    for level, row in enumerate(fit.check(schedules, seeds=seeds)):
        print(f"{row.name:>34s}   {row.predicted:.5f}     {row.trained:.5f} ± {row.standard_error:.5f}")
        rate = schedules[row.name]["learning_rate"]
        rates.stairs(rate, schedules[row.name].grid, baseline=None, color=f"C{level}", label=row.name)
        risks.barh(level, row.predicted, height=0.6, color="0.8")
        risks.errorbar(row.trained, level, xerr=2 * row.standard_error, fmt="o", ms=4, color=f"C{level}")
    rates.set(xlabel="training time α", ylabel="learning rate", title=name)
    rates.legend()
    risks.set_yticks(range(len(schedules)), schedules)
    risks.set(xlabel="excess risk (bars: theory; points: trained, ± 2 s.e.)", title=name)
    risks.invert_yaxis()


def main() -> None:
    """Read MNIST and report on both kinds of features."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", help="folder with MNIST")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=16, help="runs of each schedule")
    parser.add_argument("--features", type=int, default=1000, help="random features; 0: pixels only")
    parser.add_argument("--out", type=Path, default=Path("out/mnist_regression.png"))
    options = parser.parse_args()
    images = mnist("train", options.data_dir)
    chosen = np.random.default_rng(0).permutation(len(images))[:50_000]
    pixels = images.rows()[chosen]
    parity = np.where(images.labels[chosen] % 2 == 1, 1.0, -1.0)
    kinds = {"pixels": pixels}
    if options.features:
        kinds[f"{options.features} random features"] = features(pixels, options.features)
    figure, axes = plt.subplots(
        len(kinds), 2, figsize=(10, 3.2 * len(kinds)), layout="constrained", squeeze=False
    )
    for (name, table), row in zip(kinds.items(), axes, strict=True):
        report(name, table, parity, options.steps, options.seeds, row)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=110)


if __name__ == "__main__":
    main()
