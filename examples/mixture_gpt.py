"""The order of data, planned from logs: a byte-level GPT on Python and C++ sources, of which C++ is scarce.

Run: python examples/mixture_gpt.py        (all steps with a toy network, on a CPU, two minutes)

On a GPU, with the real one (3M parameters, 3,000 steps; `plan` and `table` need no GPU):

    python examples/mixture_gpt.py pilots pilots.csv
    python examples/mixture_gpt.py plan round1.json pilots.csv           (fit, robust plan, next pilot)
    python examples/mixture_gpt.py train round1.json round1.csv
    python examples/mixture_gpt.py plan round2.json pilots.csv round1.csv
    python examples/mixture_gpt.py baselines baselines.csv               (12 tuned mixtures, to be beaten)
    python examples/mixture_gpt.py --seeds 4 train round2.json round2.csv --beside "45 % in the last 44 %, wsd 30"
    python examples/mixture_gpt.py table pilots.csv round1.csv baselines.csv round2.csv --fitted 1
    python examples/mixture_gpt.py front front.json pilots.csv round1.csv (five points between both losses)

A fifth of all samples may be C++. All runs of a command are trained at once, vectorised over schedules and
seeds; a seed fixes the initial weights and the stream of samples of each domain, the same for all schedules,
so schedules are compared in pairs. Logs have the columns run, step, lr, share_python, share_cpp, loss_python
and loss_cpp; losses are those of held-out files, in nats a byte. ``--texts FILE`` reads the texts from an
.npz file (arrays python_train, python_test, cpp_train, cpp_test) instead of from this machine.
"""

import argparse
import csv
import json
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from loss_curves_gpt import adamw, initial, loss

BUDGET = 0.2  # share of all samples that may be C++
DOMAINS = ("python", "cpp")


@dataclass(frozen=True)
class Size:
    """Network, training and logs."""

    width: int = 256
    layers: int = 4
    heads: int = 4
    context: int = 256
    batch: int = 32
    steps: int = 3000
    warmup: int = 150
    peak: float = 2e-3
    log_every: int = 50
    held_out: int = 384  # sequences of each domain in the logged losses


QUICK = Size(32, 1, 2, 32, 8, 300, 20, 5e-3, 10, 128)

# --- schedules: rates and shares of C++ as functions of the share x of training ----------------------


def constant(x):
    return np.ones_like(x)


def wsd(percent):
    return lambda x: np.minimum(1.0, (1 - x) / (percent / 100))


def level(share):
    return lambda x: np.full_like(x, share)


def late(share):
    """All of the budget at one share, at the end."""
    return lambda x: np.where(x > 1 - BUDGET / share, share, 0.0)


def alternating(x):
    return 2 * BUDGET * (np.floor(10 * x) % 2)


def rising(x):
    return 2 * BUDGET * x


def burst(x):
    """Half of the budget all along, the rest in the last fifth."""
    return np.where(x > 0.8, 0.6, BUDGET / 2)


# A constant rate and decays, all at the end, alternating, two levels of share: what each tells is on the page.
PILOTS = {
    "20 %, constant": (constant, level(0.2)),
    "20 %, linear": (wsd(100), level(0.2)),
    "alternating, constant": (constant, alternating),
    "all at the end, wsd 20": (wsd(20), late(1.0)),
    "50 % in the last 40 %, wsd 20": (wsd(20), late(0.5)),
    "5 %, wsd 20": (wsd(20), level(0.05)),
}
BASELINES = {
    "20 %, wsd 20": (wsd(20), level(0.2)),
    "20 %, wsd 40": (wsd(40), level(0.2)),
    "rising, wsd 30": (wsd(30), rising),
    "10 %, then 60 %, wsd 30": (wsd(30), burst),
    **{
        f"{share:.0%} in the last {BUDGET / share:.0%}, wsd {decay}".replace("%", " %"): (
            wsd(decay),
            late(share),
        )
        for share, decay in (
            (0.25, 30), (1 / 3, 30), (0.4, 30), (0.45, 20), (0.45, 30), (0.45, 40), (0.5, 30), (0.6, 30),
        )
    },
}  # fmt: skip


def per_step(shapes, size):
    """(steps,) rates, after a linear warm-up, and (steps,) shares of C++."""
    rate, share = shapes
    step = np.arange(size.steps) + 0.5
    warm = np.minimum(step / size.warmup, 1.0)
    return size.peak * warm * rate(step / size.steps), share(step / size.steps)


def read_schedules(path, size):
    """{name: (rates, shares of C++)} of a file of schedules in steps."""
    schedules = {}
    for name, schedule in json.loads(Path(path).read_text()).items():
        at = np.arange(schedule["grid"][-1]) + 0.5
        index = np.searchsorted(schedule["grid"], at) - 1
        schedules[name] = tuple(np.asarray(schedule[c])[index] for c in ("learning_rate", "share_cpp"))
    return schedules


# --- data ------------------------------------------------------------------------------------------


def texts(path=None):
    """{name_train, name_test: bytes} of both domains: files of this machine, every 20th of them to test on."""
    if path is not None:
        return dict(np.load(path))
    library = Path(sysconfig.get_path("stdlib"))
    headers = (sysconfig.get_path("include"), "/usr/include", sysconfig.get_path("purelib"))
    files = {
        "python": sorted(f for f in library.rglob("*.py") if "site-packages" not in f.parts),
        "cpp": sorted({f for top in headers for kind in ("*.h", "*.hpp") for f in Path(top).rglob(kind)}),
    }
    parts = {}
    for name, found in files.items():
        if len(found) < 40:
            raise SystemExit(f"only {len(found)} {name} files on this machine: give texts by --texts")
        found = found[:: max(len(found) // 3000, 1)]
        test = found[::20]
        for part, chosen in (("train", [f for f in found if f not in set(test)]), ("test", test)):
            parts[f"{name}_{part}"] = np.frombuffer(b"".join(f.read_bytes() for f in chosen), np.uint8)
    return parts


def counts(shares, batch):
    """(steps,) how many samples of each batch are C++: exact on the budget, never off by a whole sample."""
    return np.diff(np.floor(np.cumsum(np.append(0.0, batch * shares)) + 1e-6)).astype(np.int32)


# --- training --------------------------------------------------------------------------------------


class Trainer:
    """Trains many schedules at once; compiled once for a number of runs."""

    def __init__(self, size, parts):
        self.size = size
        data = {name: jnp.asarray(part) for name, part in parts.items()}
        lengths = [len(parts[f"{name}_train"]) - size.context - 1 for name in DOMAINS]
        offset = len(parts["python_train"])
        both = jnp.concatenate([data["python_train"], data["cpp_train"]])

        def batch(key, count):
            each = [
                jax.random.randint(k, (size.batch,), 0, length)
                for k, length in zip(jax.random.split(key), lengths, strict=True)
            ]
            start = jnp.where(jnp.arange(size.batch) < count, offset + each[1], each[0])
            return both[start[:, None] + jnp.arange(size.context + 1)].astype(jnp.int32)

        def chunk(weights, moments, seed, rate, count, first):
            def one(carry, given):
                rate, count, step = given
                tokens = batch(jax.random.fold_in(jax.random.key(seed), step), count)
                gradient = jax.grad(loss)(carry[0], tokens, size)
                return adamw(*carry, gradient, rate, step), None

            steps = first + jnp.arange(size.log_every)
            return jax.lax.scan(one, (weights, moments), (rate, count, steps))[0]

        def tested(weights):
            def of(part):
                starts = jnp.linspace(0, len(part) - size.context - 1, size.held_out).astype(jnp.int32)
                starts = starts.reshape(-1, size.batch)
                at = starts[..., None] + jnp.arange(size.context + 1)
                return jax.lax.map(lambda i: loss(weights, part[i].astype(jnp.int32), size), at).mean()

            return jnp.stack([of(data[f"{name}_test"]) for name in DOMAINS])

        self.advance = jax.jit(jax.vmap(chunk, in_axes=(0, 0, 0, 0, 0, None)), donate_argnums=(0, 1))
        self.test = jax.jit(jax.vmap(tested))
        self.initial = jax.jit(jax.vmap(lambda s: initial(jax.random.key(1000 + s), size)))

    def train(self, runs, report=print):
        """Rows of the log of ``runs``: (name, seed, rates, shares of C++), all of one length."""
        size = self.size
        seed = jnp.asarray([s for _, s, _, _ in runs])
        rates = np.stack([r for _, _, r, _ in runs]).astype(np.float32)
        shown = np.stack([counts(share, size.batch) for *_, share in runs])
        weights = self.initial(seed)
        moments = (jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights))
        every, fine = size.log_every, max(size.log_every // 5, 1)
        rows, began = [], time.time()
        for first in range(0, rates.shape[1], every):
            part = slice(first, first + every)
            weights, moments = self.advance(weights, moments, seed, rates[:, part], shown[:, part], first)
            losses = np.asarray(self.test(weights))
            for i, (name, s, *_) in enumerate(runs):
                for end in range(first + fine, first + every + 1, fine):
                    block = slice(end - fine, end)
                    share = shown[i, block].mean() / size.batch
                    at_end = [f"{x:.5f}" if end == first + every else "" for x in losses[i]]
                    rate = f"{rates[i, block].mean():.6g}"
                    rows.append((f"{name} / seed {s}", end, rate, f"{1 - share:.6g}", f"{share:.6g}", *at_end))
            if first == 0 or (first + every) % (10 * every) == 0:
                seconds = time.time() - began
                report(f"step {first + every}: {losses.mean(1).min():.4f} to {losses.mean(1).max():.4f}, {seconds:.0f} s")
        return rows


def write(log, rows):
    """A log of all rows, sorted by run."""
    columns = ("run", "step", "lr", "share_python", "share_cpp", "loss_python", "loss_cpp")
    with Path(log).open("w", newline="") as file:
        rows = sorted(rows, key=lambda row: (row[0], row[1]))
        csv.writer(file, lineterminator="\n").writerows([columns, *rows])
