"""Theory predicts Adam on MNIST: a linear head on pixels, whose covariance is not along the axes.

The label is the parity of the digit. Adam divides the gradient of each weight by the root of its mean square,
which is C_ii E[(f − y)²], C_ii being the variance of pixel i. In pixels divided by C_ii^¼ that is SGD at the
rate lr/√E[(f − y)²], so spectrum, best predictor and noise of these pixels say what Adam will do under any
rate, and which is best. Every schedule is trained as well, by true Adam with β₁ = 0.9 and β₂ = 0.999.

Run: python examples/mnist_adam.py --data-dir DIR   (DIR holds MNIST; two minutes)
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import optlearn as ol
from optlearn.practice.datasets import mnist

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
PEAKS = np.geomspace(0.02, 1.0, 9)


def predicted(data: "ol.models.Measured", rates: np.ndarray) -> float:
    """Excess risk after steps at these rates, in all directions: SGD at the rate of the present error."""
    variance, power = data.variances, data.variances * data.noise * data.noise_shape
    missing = (data.basis.T @ data.weights) ** 2
    for rate in rates:
        risk = variance @ missing
        gamma = rate / np.sqrt(risk + data.noise)
        missing = missing * (1 - 2 * gamma * variance + 2 * (gamma * variance) ** 2)
        missing += gamma**2 * (variance * risk + power)
    return float(variance @ missing)


def trained(X: np.ndarray, y: np.ndarray, best: np.ndarray, rates: np.ndarray, seeds: int) -> np.ndarray:
    """(seeds,) excess risk after true Adam on single samples, drawn with replacement."""
    rng = np.random.default_rng(0)
    w, m, v = (np.zeros((seeds, X.shape[1])) for _ in range(3))
    for step, rate in enumerate(rates):
        drawn = rng.integers(len(X), size=seeds)
        rows = X[drawn]
        gradient = (np.einsum("sp,sp->s", rows, w) - y[drawn])[:, None] * rows
        m += (1 - BETA_1) * (gradient - m)
        v += (1 - BETA_2) * (gradient**2 - v)
        corrected = np.sqrt(v / (1 - BETA_2 ** (step + 1))) + EPSILON
        w -= rate / (1 - BETA_1 ** (step + 1)) * m / corrected
    return np.mean((X @ (w - best).T) ** 2, axis=0)


def main() -> None:
    """Measure, solve, train and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", help="folder with MNIST")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=16, help="runs of each schedule")
    parser.add_argument("--active", type=float, default=0.0, help="leave out pixels of a smaller variance")
    parser.add_argument("--out", type=Path, default=Path("out/mnist_adam.png"))
    options = parser.parse_args()
    images = mnist("train", options.data_dir)
    chosen = np.random.default_rng(0).permutation(len(images))[:50_000]
    pixels = images.rows()[chosen]
    parity = np.where(images.labels[chosen] % 2 == 1, 1.0, -1.0)
    X, y = pixels - pixels.mean(axis=0), parity - parity.mean()
    X = X[:, X.var(axis=0) > options.active]
    roots = X.var(axis=0) ** 0.25
    data = ol.models.measured(X / roots, y, centre=False)
    print(f"{X.shape[1]} pixels, {data.directions} directions; the best predictor leaves {data.noise:.4f}")

    # Time is steps over directions; a rate η of the theory is η over the inputs' power in Adam's own units.
    horizon, steps = options.steps / data.directions, np.arange(options.steps)
    linear = data.linear(16, training=1.5 * horizon)
    student = ol.models.committee(
        1,
        1,
        T=np.asarray(linear.teacher)[:, None, None],
        activation="linear",
        sigma_n=float(np.sqrt(data.noise)),
        spectrum=linear.spectrum,
    )
    problem = ol.Problem(
        model=ol.models.adam(student, aligned=False),
        start={},
        horizon=horizon,
        controls={"learning_rate": ol.Continuous(0.0, 1.0, guess=0.1)},
        intervals=20,
    )
    solution = ol.solve(problem, starts=1)
    print(f"optimal rate: {'converged' if solution.certificate.converged else 'NOT converged'}")
    optimum = solution.schedule.at((steps + 0.5) * horizon / options.steps)["learning_rate"]
    shapes = {"constant": np.ones(options.steps), "linear": 1 - steps / options.steps}
    schedules = {"optimum": optimum / data.input_power}
    for name, shape in shapes.items():
        courses = [peak * shape / data.input_power for peak in PEAKS]
        schedules[name] = min(courses, key=lambda rates: predicted(data, rates))
    best = data.weights / roots
    print(f"{'excess risk after ' + str(options.steps) + ' steps':>34s}   predicted   trained")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
    for row, (name, rates) in enumerate(schedules.items()):
        runs = trained(X, y, best, rates, options.seeds)
        error = runs.std(ddof=1) / np.sqrt(options.seeds)
        expected = predicted(data, rates)
        print(
            f"{name:>34s}   {expected:.5f}     {runs.mean():.5f} ± {error:.5f}   "
            f"({runs.mean() / expected - 1:+.1%})",
            flush=True,
        )
        left.plot(steps, rates, label=name)
        right.errorbar(row, runs.mean(), 1.96 * error, fmt="o", color=f"C{row}")
        right.plot(row, expected, "k_", ms=24)
    left.set(xlabel="step", ylabel="learning rate of Adam", title="schedules")
    left.legend()
    right.set(xticks=range(3), xticklabels=list(schedules), xlim=(-0.6, 2.6), ylabel="excess risk at the end")
    right.set_title("trained, with 95 % intervals; bars: predicted")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=110)


if __name__ == "__main__":
    main()
