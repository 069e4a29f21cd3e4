"""Averages of weights and weight decay, beside the law of plain runs: byte-level GPTs, AdamW.

Run: python examples/average_gpt.py               (a toy network, on a CPU, two minutes)

On a GPU, with the real one (3M parameters, 4,000 steps; `table` needs no GPU):

    python examples/average_gpt.py train runs.csv
    python examples/average_gpt.py table runs.csv

Every run carries exponential averages of its weights, of several memories, whose losses are logged beside its
own. The law is fitted to the plain losses alone. Does it know what an average is worth, which is a decay that
costs nothing? And is weight decay, with its own memory of 1/(rate × decay) steps, a part of it?
"""

import argparse
import csv
import gzip
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from loss_curves_gpt import PILOTS, TOY, Size, adamw, initial, loss, rates_of, sequences, source_code

MEMORIES = (50, 200, 800)  # steps
DECAYS = (0.1, 0.0, 0.03, 0.3, 1.0)  # of weights; the first is the usual one
GPU = Size(steps=4000)


def train(size, memories, decays, log):
    """All pilots with each weight decay at once; the log has a column for every average."""
    runs = [(f"{name}, decay {decay:g}", shape, decay) for decay in decays for name, shape in PILOTS.items()]
    rates = np.stack([rates_of(shape, size) for _, shape, _ in runs]).astype(np.float32)
    own_decays = jnp.asarray([decay for _, _, decay in runs])
    kept = 1 - 1 / jnp.asarray(memories, jnp.float32)
    train_data, test_data = (jnp.asarray(part) for part in source_code())
    print(f"{len(runs)} runs; {len(train_data):,} bytes to train on, {len(test_data):,} to test on")

    def chunk(weights, moments, averages, decay, rate, first):
        def one(carry, rate_and_step):
            weights, moments, averages = carry
            rate, step = rate_and_step
            tokens = sequences(train_data, jax.random.fold_in(jax.random.key(0), step), size.batch, size)
            gradient = jax.grad(loss)(weights, tokens, size)
            weights, moments = adamw(weights, moments, gradient, rate, step, decay)
            averages = jax.tree.map(
                lambda a, w: w + kept.reshape(-1, *[1] * w.ndim) * (a - w), averages, weights
            )
            return (weights, moments, averages), None

        steps = first + jnp.arange(size.log_every)
        return jax.lax.scan(one, (weights, moments, averages), (rate, steps))[0]

    def tested(weights):
        keys = jax.random.split(jax.random.key(0), size.held_out // size.batch)
        each = jax.lax.map(lambda key: loss(weights, sequences(test_data, key, size.batch, size), size), keys)
        return each.mean()

    advance = jax.jit(jax.vmap(chunk, in_axes=(0, 0, 0, 0, 0, None)), donate_argnums=(0, 1, 2))
    test, test_averages = (jax.jit(jax.vmap(f)) for f in (tested, lambda a: jax.lax.map(tested, a)))
    weights = jax.tree.map(
        lambda w: jnp.repeat(w[None], len(runs), axis=0), initial(jax.random.key(1000), size)
    )
    moments = (jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights))
    averages = jax.tree.map(lambda w: jnp.repeat(w[:, None], len(memories), axis=1), weights)
    rows, began = [], time.time()
    for first in range(0, size.steps, size.log_every):
        step = first + size.log_every
        weights, moments, averages = advance(
            weights, moments, averages, own_decays, rates[:, first:step], first
        )
        plain, averaged = np.asarray(test(weights)), np.asarray(test_averages(averages))
        for i, (name, _, _) in enumerate(runs):
            for at in range(first + size.log_every // 5, step + 1, size.log_every // 5):
                known = [plain[i], *averaged[i]] if at == step else []
                blank = [""] * (1 + len(memories) - len(known))
                losses = [f"{value:.6f}" for value in known] + blank
                rows.append((name, at, f"{rates[i, at - 1]:.8g}", *losses))
        if first == 0 or step % (10 * size.log_every) == 0:
            print(
                f"step {step}: {plain.min():.4f} to {plain.max():.4f}, {time.time() - began:.0f} s",
                flush=True,
            )
    rows.sort(key=lambda row: (row[0], row[1]))
    with Path(log).open("w", newline="") as file:
        header = ("run", "step", "lr", "loss", *(f"average_{memory}" for memory in memories))
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def table(log, memories, first_step):
    """What averages gain, trained and predicted; and how fits to runs of each weight decay differ."""
    import optlearn as ol

    with gzip.open(log, "rt") if log.suffix == ".gz" else log.open() as file:
        rows = list(csv.DictReader(file))
    runs = {}
    for row in rows:
        name, _, decay = row["run"].rpartition(", decay ")
        runs.setdefault(decay, {}).setdefault(name, []).append(row)

    def columns(rows):
        return {
            "step": [float(row["step"]) for row in rows],
            "lr": [float(row["lr"]) for row in rows],
            "loss": [row["loss"] for row in rows],  # blank where only the rate is logged
        }

    fits = {
        decay: ol.laws.fit({name: columns(r) for name, r in own.items()}, first_step=first_step)
        for decay, own in runs.items()
    }
    usual = f"{DECAYS[0]:g}"
    print("gain by an average of the weights, in nats: trained (predicted from losses of the weights)")
    print(f"{'':22}{'step':>6}{'loss':>9}" + "".join(f"{f'{m} steps':>20}" for m in memories))
    for name, own in runs[usual].items():
        last = columns(own)
        for at in (last["step"][-1] / 2, last["step"][-1]):
            (row,) = [row for row in own if float(row["step"]) == at]
            curve = {key: [v for v, step in zip(values, last["step"], strict=True) if step <= at]
                     for key, values in last.items()}  # fmt: skip
            plain = fits[usual].predict(curve)[-1]
            told = [plain - fits[usual].predict(curve, averaged_over=m)[-1] for m in memories]
            trained = [float(row["loss"]) - float(row[f"average_{m}"]) for m in memories]
            cells = "".join(f"{f'{t:+.4f} ({p:+.4f})':>20}" for t, p in zip(trained, told, strict=True))
            print(f"{name:22}{at:6.0f}{float(row['loss']):9.4f}{cells}")
    print(
        "\nweight decay: parameters of the law, final losses, and (predicted from its constant run with the"
    )
    print(f"runs of decay {usual} as prior)")
    for decay in sorted(runs, key=float):
        own, fit = {name: columns(r) for name, r in runs[decay].items()}, fits[decay]
        told = {}
        if decay != usual:
            alone = ol.laws.fit({"constant": own["constant"]}, prior=fits[usual], first_step=first_step)
            told = {name: alone.predict(curve)[-1] for name, curve in own.items() if name != "constant"}
        finals = ", ".join(
            f"{name} {float(curve['loss'][-1]):.4f}" + (f" ({told[name]:.4f})" if name in told else "")
            for name, curve in own.items()
        )
        numbers = ", ".join(f"{name} {fit.parameters[name]:.2f}" for name in ("noise", "progress_power"))
        print(f"{decay:>5}: {numbers}; {finals}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a toy network, for a CPU")
    parser.add_argument("command", nargs="?", choices=("train", "table"))
    parser.add_argument("log", nargs="?", type=Path, default=Path("out") / "average_gpt" / "runs.csv")
    given = parser.parse_args()
    quick = given.quick or given.command is None
    size, memories = (replace(TOY, steps=600), (5, 20, 80)) if quick else (GPU, MEMORIES)
    if given.command != "table":
        given.log.parent.mkdir(parents=True, exist_ok=True)
        train(size, memories, DECAYS, given.log)
    if given.command != "train":
        table(given.log, memories, size.steps // 10)


if __name__ == "__main__":
    main()
