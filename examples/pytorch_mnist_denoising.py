"""A noise schedule from theory in plain PyTorch: denoising zeros and ones of MNIST.

The theory's model of inputs is fitted to the images, the optimal noise schedule is solved for, and a linear
autoencoder with tied weights is trained with it and with constant noise, on the same images with the same
random numbers. Run: python examples/pytorch_mnist_denoising.py --data-dir DIR  (DIR holds MNIST)
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy import stats

import optlearn as ol
from optlearn.practice.datasets import mnist

OVERLAPS = {
    "Q": [[1.0, 0.00068], [0.00068, 1.0]],
    "R": [[0.339, 0.173], [0.2, 0.263]],
}  # of the paper's start


class Autoencoder(torch.nn.Module):
    """f(x̃) = b x̃ + Wᵀ W x̃/N for a noisy input x̃; ``noise`` is the variance of the noise in training."""

    def __init__(self, weights):
        super().__init__()
        self.W = torch.nn.Parameter(torch.tensor(weights))
        self.b = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.noise = 0.0

    def forward(self, x, z, noise):
        noisy = (1 - noise) ** 0.5 * x + noise**0.5 * z
        return self.b * noisy + noisy @ self.W.T @ self.W / x.shape[-1]


def train(model, images, schedule, z, rate=5.0):
    """One pass of SGD, an image a step; the schedule sets ``model.noise`` before every step."""
    N = images.shape[1]
    groups = [{"params": [model.W], "lr": rate}, {"params": [model.b], "lr": rate / N**2}]
    optimizer = torch.optim.SGD(groups)
    scheduler = ol.practice.AttributeScheduler(schedule, "noise", model, steps=len(images))
    for x, noise in zip(images, z, strict=True):
        optimizer.zero_grad()
        (0.5 * (x - model(x, noise, model.noise)).square().sum()).backward()
        optimizer.step()
        scheduler.step()


def test_error(model, x, z, noise):
    """Squared error of an image, summed over pixels."""
    with torch.no_grad():
        return (x - model(x, z, noise)).square().sum(1).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", help="folder with MNIST (default: OPTLEARN_DATA, or a download)")
    parser.add_argument("--test-noise", type=float, default=0.3, help="variance of the noise at test time")
    parser.add_argument("--sets", type=int, default=10, help="training sets")
    parser.add_argument("--out", type=Path, default=Path("out/pytorch_mnist_denoising.png"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the matrices are small
    digits = mnist("all", arguments.data_dir).only(0, 1)
    images = torch.tensor(digits.rows(scale=255 * 5))

    fit = ol.fit.gaussian_mixture(images.numpy(), digits.labels)  # warns: images are not isotropic
    problem = fit.denoising(OVERLAPS, Delta_F=arguments.test_noise)
    solution = ol.solve(problem, intervals=200)
    print(solution.summary())
    usual = ol.baselines(problem)
    schedules = {
        "at the test's noise": usual["constant"],
        "at the best constant noise": usual["best constant"],
        "by the optimal schedule": solution.schedule,
    }
    start, errors = np.zeros(arguments.sets), np.zeros((arguments.sets, len(schedules)))
    for s in range(arguments.sets):
        random = torch.Generator().manual_seed(s)
        order = torch.randperm(len(images), generator=random)
        inside, held_out = images[order[: fit.N]], images[order[fit.N :]]
        z, z_test = (torch.randn(x.shape, generator=random, dtype=x.dtype) for x in (inside, held_out))
        weights = fit.weights(OVERLAPS["Q"], OVERLAPS["R"], seed=s)
        start[s] = test_error(Autoencoder(weights), held_out, z_test, arguments.test_noise)
        for i, schedule in enumerate(schedules.values()):
            model = Autoencoder(weights)
            train(model, inside, schedule, z)
            errors[s, i] = test_error(model, held_out, z_test, arguments.test_noise)
    print(f"\nMean squared error on held-out images, {arguments.sets} training sets of {fit.N} images:")
    for name, mean in zip(schedules, errors.mean(axis=0), strict=True):
        print(f"  trained {name}: {mean:.3f}")
    theory = np.stack([ol.evaluate(problem, schedule)["error"] for schedule in schedules.values()])
    print(
        "Improvement by the optimal schedule, in % of what the other one has learned (95 % interval, paired):"
    )
    figure, (noises, gains) = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
    for name, schedule in schedules.items():
        noises.stairs(schedule["noise"], schedule.grid, baseline=None, label=name)
    noises.set(xlabel="training time α", ylabel="variance of the training noise")
    noises.legend(loc="upper right", fontsize=8)
    noises.set_ylim(0, 0.62)
    for i, name in list(enumerate(schedules))[:-1]:
        gain = 100 * (errors[:, i] - errors[:, -1]) / (start - errors[:, i])
        half = stats.t.ppf(0.975, len(gain) - 1) * gain.std(ddof=1) / len(gain) ** 0.5
        predicted = 100 * (theory[i, -1] - theory[-1, -1]) / (theory[i, 0] - theory[i, -1])
        print(f"  over training {name}: {gain.mean():.1f} ± {half:.1f}; the theory predicts {predicted:.1f}")
        gains.barh(i, predicted, height=0.5, color="0.8")
        gains.errorbar(gain.mean(), i, xerr=half, fmt="o", ms=4, color=f"C{i}")
    gains.set_yticks([0, 1], ["over the\ntest's noise", "over the best\nconstant noise"])
    gains.set(xlabel="gain in % (bars: theory; points: MNIST)")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.out, dpi=110)


if __name__ == "__main__":
    main()
