"""Pilots, fit, optimum, trained: a byte-level GPT on Python's own source code, AdamW, many schedules at once.

Run: python examples/loss_curves_gpt.py        (all steps with a toy network, on a CPU, two minutes)

Step by step, with a network of 130,000 parameters and 4,000 steps, on a CPU in an hour (`--size gpu`: 3
million parameters and 8,000 steps, on a GPU; `plan` and `table` take seconds anywhere):

    python examples/loss_curves_gpt.py --size cpu pilots pilots.csv
    python examples/loss_curves_gpt.py --size cpu plan round1.json pilots.csv   (robust optimum, next pilot)
    python examples/loss_curves_gpt.py --size cpu train round1.json round1.csv
    python examples/loss_curves_gpt.py --size cpu plan round2.json pilots.csv round1.csv
    python examples/loss_curves_gpt.py --size cpu baselines baselines.csv      (the family to be beaten)
    python examples/loss_curves_gpt.py --size cpu table pilots.csv baselines.csv
    python examples/loss_curves_gpt.py --size cpu --seeds 5 train round1.json final.csv --beside "linear"
    python examples/loss_curves_gpt.py --size cpu table pilots.csv final.csv

All runs of a command are trained at once, vectorised over schedules and seeds. A seed fixes the initial
weights and the order of the data, the same for all schedules, so schedules of one command are compared in
pairs; runs of one seed are trained once for as long as their rates agree. A log has the columns run, step,
lr, loss; the loss is that of held-out files, in nats a byte. The rate is logged more often than the loss,
which is then left blank: a rate that is known every 100 steps only, in the middle of a fast decay, makes the
network look faster than it is.
"""

import argparse
import csv
import functools
import json
import operator
import sysconfig
import time
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Size:
    """Network, training and logs."""

    width: int = 256
    layers: int = 4
    heads: int = 4
    context: int = 256
    batch: int = 32
    steps: int = 8000
    warmup: int = 200
    peak: float = 2e-3
    log_every: int = 100
    held_out: int = 512  # sequences in the logged loss


TOY = Size(32, 1, 2, 32, 4, 300, 20, 5e-3, 10, 256)
CPU = Size(width=64, layers=2, context=64, batch=16, steps=4000, warmup=100, log_every=50)
SIZES = {"toy": TOY, "cpu": CPU, "gpu": Size()}

# --- schedules, as shares of the peak over the share x of training after the warm-up ---------------


def wsd(share, fall):
    return lambda x: fall(np.clip((x - 1 + share) / share, 0.0, 1.0))


def linear(y):
    return 1 - y


def root(y):
    return 1 - np.sqrt(y)


def exponential(y):
    return 0.1**y * (1 - y) ** 0.1  # to a tenth, and to 0 in the last steps


# How fast the noise relaxes at small rates decides when to decay, so a short and a long decay to 0 are among
# the pilots; a constant rate shows the noise, and a lower peak what progress the rate makes.
PILOTS = {
    "constant": lambda x: np.ones_like(x),
    "wsd linear 10 %": wsd(0.1, linear),
    "wsd linear 45 %": wsd(0.45, linear),
    "linear, peak 50 %": lambda x: 0.5 * (1 - x),
}
BASELINES = {
    **{f"wsd linear {s} %": wsd(s / 100, linear) for s in (10, 20, 30, 45, 60, 75)},
    **{f"wsd root {s} %": wsd(s / 100, root) for s in (20, 45, 60)},
    **{f"wsd exponential {s} %": wsd(s / 100, exponential) for s in (20, 45)},
    "linear": linear,
    "cosine": lambda x: (1 + np.cos(np.pi * x)) / 2,
    "linear, peak 70 %": lambda x: 0.7 * (1 - x),
    "linear, peak 50 %": PILOTS["linear, peak 50 %"],
    "wsd root 45 %, peak 70 %": lambda x: 0.7 * wsd(0.45, root)(x),
}


def rates_of(shape, size):
    """(steps,) rates of a shape, after a linear warm-up."""
    step = np.arange(size.steps) + 0.5
    x = (step - size.warmup) / (size.steps - size.warmup)
    return size.peak * np.where(x < 0, step / size.warmup, shape(np.maximum(x, 0.0)))


def rates_in(path, size):
    """{name: (steps,) rates} of a file {name: {"grid": steps, "learning_rate": values}}."""
    found = {}
    for name, schedule in json.loads(Path(path).read_text()).items():
        index = np.searchsorted(schedule["grid"], np.arange(size.steps) + 0.5) - 1
        found[name] = np.asarray(schedule["learning_rate"])[index]
    return found


# --- data ------------------------------------------------------------------------------------------


def source_code():
    """Bytes of Python's standard library: of most files to train on, of every 20th to test on."""
    files = sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    files = [file for file in files if "site-packages" not in file.parts]
    test = files[::20]
    return tuple(
        np.frombuffer(b"".join(file.read_bytes() for file in part), np.uint8)
        for part in ([file for file in files if file not in test], test)
    )


# --- network ---------------------------------------------------------------------------------------


def initial(key, size):
    """A pre-norm transformer, GPT-2's initialisation."""
    d, n = size.width, size.layers
    shapes = {
        "embed": (256, d), "place": (size.context, d), "qkv": (n, d, 3 * d), "out": (n, d, d),
        "up": (n, d, 4 * d), "down": (n, 4 * d, d), "head": (d, 256),
    }  # fmt: skip
    weights = {
        name: 0.02 * jax.random.normal(k, shape)
        for (name, shape), k in zip(shapes.items(), jax.random.split(key, len(shapes)), strict=True)
    }
    weights |= {name: weights[name] / (2 * n) ** 0.5 for name in ("out", "down")}
    return {**weights, "norm1": jnp.ones((n, d)), "norm2": jnp.ones((n, d)), "norm": jnp.ones(d)}


def rms(x, gain):
    size = jnp.mean(x.astype(jnp.float32) ** 2, axis=-1, keepdims=True)
    return (x * jax.lax.rsqrt(size + 1e-6)).astype(x.dtype) * gain


def loss(weights, tokens, size):
    """Mean cross-entropy of the next byte, in nats; tokens (sequences, context + 1)."""
    w = jax.tree.map(lambda a: a.astype(jnp.bfloat16), weights)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    # A product with one-hot rows and a masked sum: on a GPU several times as fast as gathers of bytes.
    x = jax.nn.one_hot(inputs, 256, dtype=w["embed"].dtype) @ w["embed"] + w["place"]
    split = (*inputs.shape, size.heads, size.width // size.heads)
    fast = "cudnn" if jax.default_backend() == "gpu" else None

    def layer(x, own):
        q, k, v = (part.reshape(split) for part in jnp.split(rms(x, own["norm1"]) @ own["qkv"], 3, axis=-1))
        attended = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=fast)
        x = x + attended.reshape(x.shape) @ own["out"]
        return x + jax.nn.gelu(rms(x, own["norm2"]) @ own["up"]) @ own["down"], None

    x, _ = jax.lax.scan(layer, x, {name: w[name] for name in ("norm1", "qkv", "out", "norm2", "up", "down")})
    scores = (rms(x, w["norm"]) @ w["head"]).astype(jnp.float32)
    chosen = jnp.sum(jnp.where(targets[..., None] == jnp.arange(256), scores, 0.0), axis=-1)
    return jnp.mean(jax.nn.logsumexp(scores, axis=-1) - chosen)


def adamw(weights, moments, gradient, rate, step, weight_decay=0.1):
    """β = 0.9, 0.95; weight decay of matrices; gradients clipped at norm 1."""
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradient)))
    gradient = jax.tree.map(lambda g: g / jnp.maximum(norm, 1.0), gradient)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradient)
    second = jax.tree.map(lambda m, g: 0.95 * m + 0.05 * g**2, moments[1], gradient)

    def moved(path, w, m, v):
        decay = 0.0 if "norm" in path[0].key else weight_decay
        update = m / (1 - 0.9 ** (step + 1)) / (jnp.sqrt(v / (1 - 0.95 ** (step + 1))) + 1e-8)
        return w - rate * (update + decay * w)

    return jax.tree_util.tree_map_with_path(moved, weights, first, second), (first, second)


def sequences(data, key, count, size):
    starts = jax.random.randint(key, (count,), 0, len(data) - size.context - 1)
    return data[starts[:, None] + jnp.arange(size.context + 1)].astype(jnp.int32)


def side_by_side(program):
    """A program for many lanes: all at once on a GPU, on a CPU one after the other.

    A CPU gains nothing from doing them at once, and each number of lanes would be compiled anew.
    """
    if jax.default_backend() == "gpu":
        return jax.jit(jax.vmap(program))
    compiled = jax.jit(program)

    def run(*lanes):
        count = len(jax.tree.leaves(lanes)[0])
        each = [compiled(*jax.tree.map(operator.itemgetter(i), lanes)) for i in range(count)]
        return jax.tree.map(lambda *parts: jnp.stack(parts), *each)

    return run


def train(schedules, seeds, size, log):
    """Train all schedules (name → (steps,) rates) with all seeds at once, and write the log."""
    names = [(name, seed) for seed in range(seeds) for name in schedules]
    rates = np.stack([schedules[name] for name, _ in names]).astype(np.float32)
    seed = jnp.asarray([s for _, s in names])
    train_data, test_data = (jnp.asarray(part) for part in source_code())
    print(f"{len(names)} runs; {len(train_data):,} bytes to train on, {len(test_data):,} to test on")

    def chunk(weights, moments, seed, rate, first):
        def one(carry, rate_and_step):
            weights, moments = carry
            rate, step = rate_and_step
            tokens = sequences(train_data, jax.random.fold_in(jax.random.key(seed), step), size.batch, size)
            gradient = jax.grad(loss)(weights, tokens, size)
            return adamw(weights, moments, gradient, rate, step), None

        steps = first + jnp.arange(size.log_every)
        return jax.lax.scan(one, (weights, moments), (rate, steps))[0]

    def tested(weights):
        keys = jax.random.split(jax.random.key(0), size.held_out // size.batch)
        each = jax.lax.map(lambda key: loss(weights, sequences(test_data, key, size.batch, size), size), keys)
        return each.mean()

    advance, test = side_by_side(chunk), side_by_side(tested)
    weights = jax.vmap(lambda s: initial(jax.random.key(1000 + s), size))(seed)
    moments = (jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights))
    lane, lanes = np.arange(len(names)), len(names)  # of each run, among those trained side by side
    rows, began = [], time.time()
    for first in range(0, size.steps, size.log_every):
        step = first + size.log_every
        so_far = np.column_stack([seed, rates[:, :step]])
        _, leader, now = np.unique(so_far, axis=0, return_index=True, return_inverse=True)
        source, lane = lane[leader], now.reshape(-1)
        if len(source) != lanes or np.any(source != np.arange(lanes)):  # rates that agreed so far part
            weights, moments = jax.tree.map(operator.itemgetter(source), (weights, moments))
        lanes = len(source)
        began_at = np.full(lanes, first)
        weights, moments = advance(weights, moments, seed[leader], rates[leader, first:step], began_at)
        losses = np.asarray(test(weights))[lane]
        for i, (name, s) in enumerate(names):
            for at in range(first + size.log_every // 5, step + 1, size.log_every // 5):
                value = f"{losses[i]:.6f}" if at == step else ""
                rows.append((f"{name} / seed {s}", at, f"{rates[i, at - 1]:.8g}", value))
        if first == 0 or step % (10 * size.log_every) == 0:
            seconds = time.time() - began
            print(f"step {step}: {losses.min():.4f} to {losses.max():.4f}, {seconds:.0f} s", flush=True)
    rows.sort(key=lambda row: (row[0], row[1]))
    with Path(log).open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("run", "step", "lr", "loss"), *rows])


# --- what optlearn makes of the logs ---------------------------------------------------------------


def plan(logs, path, size):
    """Fit the logs, and write the robust optimum and the next pilot."""
    import optlearn as ol

    fit = ol.laws.fit(list(logs), first_step=size.steps // 10)
    print(fit.summary())
    bounds = (0.0, size.peak)
    solution = ol.solve(fit.problem(size.steps, bounds), method="indirect")
    best = fit.schedule(solution)
    pilot = ol.laws.next_pilot(fit, size.steps, bounds)
    print(solution.summary())
    number = len(logs)
    written = {f"optimum {number}": best, f"pilot {number}": pilot}
    for name, schedule in written.items():
        low, high = (ends[-1] for ends in fit.interval(schedule))
        print(f"{name}: predicted {fit.predict(schedule)[-1]:.4f} ({low:.4f} to {high:.4f})")
    Path(path).write_text(json.dumps({n: json.loads(s.to_json()) for n, s in written.items()}))
    fit.plot(best).savefig(Path(path).with_suffix(".png"), dpi=110)


def table(logs, fitted, size):
    """Trained final losses; those of the fit to the first ``fitted`` logs beside them."""
    import optlearn as ol

    fit = ol.laws.fit([*logs[:fitted]], first_step=size.steps // 10)
    finals, predicted = {}, {}
    # A schedule that is trained again, beside others, counts as it was trained there.
    for curve in [curve for log in logs for curve in ol.laws.read_curves(log)]:
        name, _, seed = curve.name.rpartition(" / seed ")
        finals.setdefault(name, {})[seed] = curve.loss[-1]
        predicted[name] = fit.predict(curve)[-1]
    best = min(finals, key=lambda name: np.mean(list(finals[name].values())))
    print(f"{'schedule':<28} trained  predicted  above {best}")
    for name in sorted(finals, key=lambda name: np.mean(list(finals[name].values()))):
        values = finals[name]
        gaps = np.array([values[s] - finals[best][s] for s in values if s in finals[best]])
        error = gaps.std(ddof=1) / len(gaps) ** 0.5 if len(gaps) > 1 else np.nan
        mean = np.mean(list(values.values()))
        print(f"{name:<28} {mean:.4f}   {predicted[name]:.4f}     {gaps.mean():+.4f} ± {error:.4f}")
    known = {curve.name.rpartition(" / seed ")[0] for curve in fit.data.curves}
    unseen = [name for name in finals if name not in known]
    if len(unseen) > 2:
        from scipy.stats import spearmanr

        trained = [np.mean(list(finals[name].values())) for name in unseen]
        told = [predicted[name] for name in unseen]
        error, rank = np.mean(np.abs(np.divide(told, trained) - 1)), spearmanr(told, trained)[0]
        spread = np.std(trained) / np.mean(trained)
        print(
            f"{len(unseen)} schedules not fitted: mean error {error:.2%} where they spread by {spread:.2%}, "
            f"rank correlation {rank:.2f}"
        )


def everything(size, folder):
    """All steps in a row; logs and schedules go to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    logs = [folder / name for name in ("pilots.csv", "round1.csv", "baselines.csv")]
    train({name: rates_of(shape, size) for name, shape in PILOTS.items()}, 1, size, logs[0])
    plan(logs[:1], folder / "schedules.json", size)
    train(rates_in(folder / "schedules.json", size), 1, size, logs[1])
    some = ("wsd linear 20 %", "wsd root 45 %", "linear", "cosine")
    train({name: rates_of(BASELINES[name], size) for name in some}, 1, size, logs[2])
    table(logs, 2, size)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=SIZES, help="of the network (default: gpu; of all steps: toy)")
    parser.add_argument("--steps", type=int, help="optimiser steps (default: those of the size)")
    parser.add_argument("--seeds", type=int, default=2, help="of weights and data")
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("pilots").add_argument("log", type=Path)
    for name in ("plan", "train"):
        added = commands.add_parser(name)
        added.add_argument("schedules", type=Path)
        added.add_argument("log", type=Path, nargs="+" if name == "plan" else None)
    added.add_argument(
        "--beside", nargs="*", default=[], choices=BASELINES, metavar="NAME", help="baselines too"
    )
    added = commands.add_parser("baselines")
    added.add_argument("log", type=Path)
    added.add_argument("--part", default="1/1", help="which part of the family, such as 1/2")
    added = commands.add_parser("table")
    added.add_argument("log", type=Path, nargs="+")
    added.add_argument("--fitted", type=int, default=1, help="how many of the logs are fitted")
    given = parser.parse_args()
    size = SIZES[given.size or ("gpu" if given.command else "toy")]
    if given.steps:
        size = replace(size, steps=given.steps)
    of = functools.partial(rates_of, size=size)
    if given.command is None:
        everything(size, Path("out") / "loss_curves_gpt")
    elif given.command == "pilots":
        train({name: of(shape) for name, shape in PILOTS.items()}, given.seeds, size, given.log)
    elif given.command == "baselines":
        part, parts = map(int, given.part.split("/"))
        # The members of the family that are pilots are trained already.
        rest = [name for name in BASELINES if name not in PILOTS]
        train({n: of(BASELINES[n]) for n in rest[part - 1 :: parts]}, given.seeds, size, given.log)
    elif given.command == "train":
        beside = {name: of(BASELINES[name]) for name in given.beside}
        train(rates_in(given.schedules, size) | beside, given.seeds, size, given.log)
    elif given.command == "plan":
        plan(given.log, given.schedules, size)
    else:
        table(given.log, given.fitted, size)


if __name__ == "__main__":
    main()
