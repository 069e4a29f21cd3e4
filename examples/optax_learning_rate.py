"""A learning-rate schedule from theory in optax: where it was made for, and on MNIST, where it was not.

The optimal learning rate of a soft committee (two erf nodes that learn two others from noisy labels) is
solved for and handed to ``optax.sgd`` in two trainings: of the very network of the theory, in 200 dimensions
and exactly as the theory says; and of a small network on MNIST, of which the theory knows nothing, so that
the scale of every schedule is tuned first.

Run: python examples/optax_learning_rate.py --data-dir DIR   (DIR holds MNIST; two minutes)
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from scipy import stats

import optlearn as ol
from optlearn.practice.datasets import mnist

BATCH, DIMENSION = 4, 784
STEPS = 60_000 // BATCH  # one pass through MNIST
NOISE, START = 0.3, 0.1  # of the committee's labels; squared norm of its weights at the start
SCALES = (0.2, 0.4, 0.8, 1.6, 3.2, 6.4)  # tried for every schedule on MNIST


def sgd(loss, weights, rate, batches):
    """Plain SGD by optax, ``rate`` a function of the step; ``batches`` is a tree of (steps, …) arrays."""
    optimiser = optax.sgd(rate)

    def step(carry, batch):
        weights, state = carry
        updates, state = optimiser.update(jax.grad(loss)(weights, batch), state)
        return (optax.apply_updates(weights, updates), state), None

    (weights, _), _ = jax.lax.scan(step, (weights, optimiser.init(weights)), batches)
    return weights


def committee(w, x):
    return jnp.sum(jax.scipy.special.erf(x @ w.T / jnp.sqrt(2.0 * w.shape[1])), axis=-1)


def in_the_model(rate, key, N, steps):
    """Final error of a committee that learns another one from Gaussian inputs and noisy labels."""
    keys = iter(jax.random.split(key, 3))
    teacher = jax.random.normal(next(keys), (2, N))
    teacher *= jnp.sqrt(N) / jnp.linalg.norm(teacher, axis=1, keepdims=True)
    student = jnp.sqrt(START) * jax.random.normal(next(keys), (2, N))

    def loss(w, key):
        for_x, for_noise = jax.random.split(key)
        x = jax.random.normal(for_x, (BATCH, N))
        label = committee(teacher, x) + NOISE * jax.random.normal(for_noise, (BATCH,))
        return jnp.mean((label - committee(w, x)) ** 2) / 2

    student = sgd(loss, student, rate, jax.random.split(next(keys), steps))
    # One set of test inputs for all runs: a set for each would take gigabytes.
    x = jax.random.normal(jax.random.key(0), (20_000, N))
    return jnp.mean((committee(teacher, x) - committee(student, x)) ** 2) / 2


def on_mnist(rate, key, train, test):
    """Share of digits whose parity a network of 8 tanh nodes gets wrong after one pass through ``train``."""

    def network(w, x):
        return jnp.tanh(x @ w["in"].T / jnp.sqrt(1.0 * DIMENSION)) @ w["out"] / jnp.sqrt(1.0 * len(w["out"]))

    def loss(w, batch):
        return jnp.mean((network(w, train[0][batch]) - train[1][batch]) ** 2) / 2

    keys = jax.random.split(key, 3)
    w = {"in": jax.random.normal(keys[0], (8, DIMENSION)), "out": jax.random.normal(keys[1], (8,))}
    order = jax.random.permutation(keys[2], len(train[1]))
    w = sgd(loss, w, rate, order[: len(order) // BATCH * BATCH].reshape(-1, BATCH))
    return jnp.mean(jnp.sign(network(w, test[0])) != test[1])


def every_run(train, schedules, seeds, scales=(1.0,), data=()):
    """(schedules, scales, seeds) results, all in one compiled program.

    Data are an argument of that program: as constants of it they would be copied several times.
    """

    def run(which, scale, seed, data):
        rate = lambda step: scale * jnp.stack([f(step) for f in schedules])[which]  # noqa: E731
        return train(rate, jax.random.key(seed), *data)

    table = np.meshgrid(np.arange(len(schedules)), np.float32(scales), seeds, indexing="ij")
    every = jax.jit(jax.vmap(run, in_axes=(0, 0, 0, None)))
    found = every(*(column.ravel() for column in table), data)
    return np.array(found, dtype=float).reshape(table[0].shape)


def paired(ours, other):
    """Mean by which ours is lower, in %, and the half-width of its 95 % interval over paired runs."""
    gain = 100 * (other - ours) / other.mean()
    half = stats.t.ppf(0.975, len(gain) - 1) * gain.std(ddof=1) / len(gain) ** 0.5
    return f"{gain.mean():+.1f} ± {half:.1f} %"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", help="folder with MNIST (default: OPTLEARN_DATA, or a download)")
    parser.add_argument("--out", type=Path, default=Path("out/optax_learning_rate.png"))
    options = parser.parse_args()

    N = 200
    problem = ol.scenarios.learning_rate(
        sigma_n=NOISE, alpha_F=STEPS / DIMENSION, batch=BATCH, start_norm=START, start_overlap=N**-0.5
    )
    solution = ol.solve(problem, 40, method="indirect", starts=1)
    print(solution.summary())
    usual = {name: problem.baselines[name](problem, 40) for name in ("best constant rate", "cosine rate")}
    schedules = {"optimal rate": solution.schedule, **usual}
    figure, (rates, model, digits) = plt.subplots(1, 3, figsize=(12, 3.3), layout="constrained")
    for name, schedule in schedules.items():
        rates.stairs(schedule["learning_rate"], schedule.grid, baseline=None, label=name)
    rates.set(xlabel="training time α", ylabel="learning rate", title="schedules")
    rates.legend()

    # The theory's own network, its weights in the theory's units: no number is tuned, steps follow from N.
    rates = [schedule.to_optax("learning_rate", N=N, scale=1) for schedule in schedules.values()]
    steps = round(problem.horizon * N)
    errors = every_run(lambda rate, key: in_the_model(rate, key, N, steps), rates, np.arange(40))[:, 0]
    print(f"\nThe committee in N = {N} dimensions, {steps} steps, 40 runs: mean error, and theory for N → ∞")
    for name, schedule, error in zip(schedules, schedules.values(), errors, strict=True):
        print(f"  {name}: {error.mean():.5f}; {ol.evaluate(problem, schedule, record=2).objective:.5f}")
    model.boxplot(list(errors), tick_labels=[name.replace(" rate", "") for name in schedules])
    model.set(ylabel="error of a run", title=f"the theory's own network, N = {N}")
    for name, error in zip(usual, errors[1:], strict=True):
        print(f"  the optimal rate lowers the error of the {name} by {paired(errors[0], error)}")

    # MNIST: only the shape is the theory's.
    images = mnist("train", options.data_dir), mnist("test", options.data_dir)
    mean = images[0].rows().mean(axis=0)
    size = np.sqrt(np.mean((images[0].rows() - mean) ** 2))
    data = [((i.rows() - mean) / size, 1.0 - 2.0 * (i.labels % 2)) for i in images]
    (x, y), test = [(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)) for x, y in data]
    shapes = {
        "optimal rate": solution.schedule.to_optax("learning_rate", steps=STEPS, peak=1.0),
        "constant rate": optax.constant_schedule(1.0),
        "cosine rate": optax.cosine_decay_schedule(1.0, STEPS),
    }
    held_out = (x[:50_000], y[:50_000]), (x[50_000:], y[50_000:])
    tuning = every_run(on_mnist, [*shapes.values()], np.arange(3), SCALES, held_out).mean(axis=2)
    print(f"\nMNIST, one pass in steps of {BATCH} images, 8 hidden nodes: share of wrong parities, 10 runs")
    errors = []
    for i, (name, shape) in enumerate(shapes.items()):
        scale = SCALES[int(tuning[i].argmin())]  # the best on held-out training images
        found = every_run(on_mnist, [shape], np.arange(100, 110), [scale], ((x, y), test))
        errors.append(found[0, 0])
        print(f"  {name}, highest {scale:g}: {100 * errors[-1].mean():.2f} %")
    for name, error in zip(list(shapes)[1:], errors[1:], strict=True):
        print(f"  the optimal rate lowers the error of the {name} by {paired(errors[0], error)}")
    digits.boxplot([100 * e for e in errors], tick_labels=[name.replace(" rate", "") for name in shapes])
    digits.set(ylabel="wrong parities, %", title="MNIST, scale tuned for each")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=110)


if __name__ == "__main__":
    main()
