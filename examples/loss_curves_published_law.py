"""A published law of loss curves and its optimal schedule, beside ours.

The multi-power law of Luo et al. (2025) remembers every change of the rate, so it is no ODE of a few numbers;
but a schedule on a grid of intervals has finitely many changes, and a system may keep them all. Its best
falling schedule is found by the same solver. With the public loss curves of language models, both laws are
tested on schedules that they were not fitted to.

Run: python examples/loss_curves_published_law.py [--curves DIR] [--splits]  (DIR holds 25M/cosine_24000.csv
    and so on; half a minute; with all splits, five)
"""

import argparse
import dataclasses
import itertools
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import optlearn as ol

PEAK, WARMUP, STEPS = 3e-4, 2160, 24_000
TRAIN = ("cosine_24000", "constant_24000", "wsdcon_9")
TEST = ("constant_72000", "cosine_72000", "wsd_20000_24000", "wsdld_20000_24000", "wsdcon_3", "wsdcon_18")
# Every choice of one of each is a split: fitted to these three, tested on the six others.
DECAYS = ("cosine_24000", "cosine_72000", "wsd_20000_24000", "wsdld_20000_24000")
CONSTANT, DROPS = ("constant_24000", "constant_72000"), ("wsdcon_3", "wsdcon_9", "wsdcon_18")
# L₀, A, α, B, C, β, γ as the authors fitted them, and their test errors: R2, MAE, RMSE, PredE, WorstE.
PARAMETERS = {
    "25M": (3.04045406, 0.52468604, 0.50786857, 363.78751622, 2.06560812, 0.58279013, 0.64142257),
    "100M": (2.6514477, 0.60115152, 0.45295811, 437.9464276, 2.13245612, 0.59785199, 0.65523644),
}
ERRORS = {
    "25M": (0.9988, 0.00376, 0.00465, 0.00110, 0.00409),
    "100M": (0.9983, 0.00435, 0.00592, 0.00142, 0.00583),
}
PIECES = 40  # of the warm-up
LENGTH = (STEPS - WARMUP) / 10_000  # training time after it, in units of 10,000 steps
MOST = 2.0  # largest fall of the rate from one interval to the next, in its logarithm


def published_loss(parameters, rates, lengths):
    """Loss at the end of intervals of constant ``rates``, in units of the peak and of 10,000 steps.

    L₀ + A S^−α + B Σ_k (η_k − η_{k−1}) G(η_k^−γ S_k), G(x) = 1 − (1 + Cx)^−β; S_k is the sum of rates from
    the k-th change on.
    """
    floor, A, alpha, B, C, beta, gamma = (parameters[i] for i in range(7))
    unit = PEAK * 10_000
    from_change = unit * (np.triu(np.ones((len(lengths), len(lengths)))) @ (rates * lengths))
    changes = rates - jnp.concatenate([jnp.zeros(1), rates[:-1]])
    settled = 1 - (1 + C * (PEAK * rates) ** -gamma * from_change) ** -beta
    return floor + A * from_change[0] ** -alpha + B * PEAK * jnp.sum(changes * settled)


def with_warmup(rates):
    """The whole course: the warm-up in pieces, then ``rates`` on equal intervals."""
    rise = (np.arange(PIECES) + 0.5) / PIECES
    lengths = [np.full(PIECES, WARMUP / 10_000 / PIECES), np.full(len(rates), LENGTH / len(rates))]
    return jnp.concatenate([jnp.asarray(rise), rates]), np.concatenate(lengths)


class PublishedLaw(ol.System):
    """The rate of every interval is part of the state; the control is by how much its logarithm falls."""

    law: jax.Array
    intervals: int = dataclasses.field(metadata={"static": True})  # part of the structure, not traced
    parameters = {"fall": 0.0}  # noqa: RUF012

    @property
    def names(self):
        return {"rate": self.intervals, "time": None}

    def advance(self, x, u, length):
        one, i = LENGTH / self.intervals, np.arange(self.intervals, dtype=float)
        first = jnp.floor(x["time"] / one + 1e-6)
        last = jnp.ceil((x["time"] + length) / one - 1e-6)
        before = jnp.where(first == 0, 1.0, jnp.sum(jnp.where(i == first - 1, x["rate"], 0.0)))
        rate = before * jnp.exp(-u["fall"] * (i - first + 1))
        return {"rate": jnp.where((i >= first) & (i < last), rate, x["rate"]), "time": x["time"] + length}

    def error(self, x, u):
        return published_loss(self.law, *with_warmup(x["rate"]))


def convex_decay(problem, intervals):
    """Constant, then over the last 15 % a power of the time that is left."""
    left = 1 - (np.arange(intervals) + 0.5) / intervals
    rates = np.append(1.0, np.maximum(np.minimum(1, left / 0.15) ** 1.5, 2e-3))
    falls = np.clip(-np.diff(np.log(rates)), 0, MOST)
    return ol.Schedule.piecewise(np.linspace(0, LENGTH, intervals + 1), {"fall": falls})


def optimum(size, intervals=91):
    """The solution, and its rates in units of the peak."""
    problem = ol.Problem(
        model=PublishedLaw(law=np.array(PARAMETERS[size]), intervals=intervals),
        start={"rate": np.ones(intervals), "time": 0.0},
        horizon=LENGTH,
        controls={"fall": ol.Continuous(0, MOST)},
        baselines={"convex decay": convex_decay},
        name=f"published law, {size}",
    )
    start = convex_decay(problem, intervals)
    solution = ol.solve(problem, intervals, method="indirect", warm_start=start, starts=1)
    return solution, np.exp(-np.cumsum(solution.schedule["fall"]))


def authors_optimum(folder, size):
    """Loss of the authors' schedule by their own law."""
    table = np.loadtxt(folder / size / "published-optimum.csv", delimiter=",", skiprows=1)
    rates = np.interp(WARMUP + 20 * (np.arange(1092) + 0.5), table[:, 0], table[:, 1]) / PEAK
    return float(published_loss(np.array(PARAMETERS[size]), *with_warmup(rates)))


def splits(folder, size):
    """Print mean test errors over all splits, the published law's (in Markov form, fitted by us) and ours."""
    curves = {name: ol.laws.read_curves(folder / size / f"{name}.csv")[0] for name in (*TRAIN, *TEST)}
    errors = {"multi-power": [], "general": []}
    for chosen in itertools.product(DECAYS, CONSTANT, DROPS):
        for law, found in errors.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ol.laws.LawWarning)  # γ at its bound, every other time
                fit = ol.laws.fit([curves[name] for name in chosen], warmup=WARMUP, law=law)
            found.append(fit.errors([curve for name, curve in curves.items() if name not in chosen]))
    for metric in errors["general"][0]:
        theirs, ours = (np.array([e[metric] for e in errors[law]]) for law in errors)
        wins = np.sum(ours > theirs if metric == "R2" else ours < theirs)
        print(f"  {metric:<7} {theirs.mean():.5f} / {ours.mean():.5f}, ours better in {wins} of {len(ours)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--curves", type=Path, help="folder of the public loss curves")
    parser.add_argument("--splits", action="store_true", help="test both laws over all 24 splits instead")
    parser.add_argument("--out", type=Path, default=Path("out/loss_curves_published_law.png"))
    given = parser.parse_args()
    folder = given.curves
    if given.splits and folder is None:
        parser.error("--splits needs --curves DIR")
    figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
    for size in PARAMETERS:
        if given.splits:
            print(f"{size}, published law / ours over all splits")
            splits(folder, size)
            continue
        if folder is not None:
            began = time.perf_counter()
            files = {name: folder / size / f"{name}.csv" for name in (*TRAIN, *TEST)}
            fit = ol.laws.fit({name: files[name] for name in TRAIN}, warmup=WARMUP)
            print(f"{size}, fitted in {time.perf_counter() - began:.1f} s")
            for (metric, ours), theirs in zip(
                fit.errors({name: files[name] for name in TEST}).items(), ERRORS[size], strict=True
            ):
                print(f"  {metric:<7} {ours:.5f}, published law {theirs:.5f}")
        solution, rates = optimum(size)
        print(f"{size}: optimum of the published law {solution.objective:.6f} in {solution.seconds:.1f} s")
        gap = solution.certificate.hamiltonian_gap
        print(f"  gap {gap:.0e}, rate at the end {PEAK * rates[-1]:.1e}")
        axis.stairs(PEAK * rates, np.linspace(WARMUP, STEPS, len(rates) + 1), baseline=None, label=size)
        if folder is not None:
            theirs = authors_optimum(folder, size)
            print(f"  the authors' schedule {theirs:.6f}: {theirs - solution.objective:+.6f} above it")
    if not given.splits:
        axis.set(xlabel="step", ylabel="learning rate", title="best falling schedule under the published law")
        axis.legend()
        given.out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(given.out, dpi=110)


if __name__ == "__main__":
    main()
