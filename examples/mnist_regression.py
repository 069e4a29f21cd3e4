"""Theory predicts training on MNIST: the learning rate of a linear head, on pixels and on random features.

The label is the parity of the digit. Spectrum, best linear predictor and noise are measured on 50,000 images;
the theory then says what SGD (one image a step, drawn with replacement) will do under any learning rate, and
which is best. Every schedule is trained as well, by many runs.

    python examples/mnist_regression.py --data-dir DIR
"""

import argparse

import numpy as np

import optlearn as ol
from optlearn.practice.datasets import mnist


def features(pixels: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """(n, count) random ReLU features."""
    weights = np.random.default_rng(seed).normal(size=(pixels.shape[1], count)) / np.sqrt(pixels.shape[1])
    return np.maximum(pixels @ weights, 0.0)


def report(name: str, X: np.ndarray, y: np.ndarray, steps: int, seeds: int) -> None:
    """Fit, solve, train and compare."""
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
    for row in fit.check(schedules, seeds=seeds):
        print(f"{row.name:>34s}   {row.predicted:.5f}     {row.trained:.5f} ± {row.standard_error:.5f}")


def main() -> None:
    """Read MNIST and report on both kinds of features."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", help="folder with MNIST")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=16, help="runs of each schedule")
    parser.add_argument("--features", type=int, default=1000, help="random features; 0: pixels only")
    options = parser.parse_args()
    images = mnist("train", options.data_dir)
    chosen = np.random.default_rng(0).permutation(len(images))[:50_000]
    pixels = images.rows()[chosen]
    parity = np.where(images.labels[chosen] % 2 == 1, 1.0, -1.0)
    report("pixels", pixels, parity, options.steps, options.seeds)
    if options.features:
        table = features(pixels, options.features)
        report(f"{options.features} random features", table, parity, options.steps, options.seeds)


if __name__ == "__main__":
    main()
