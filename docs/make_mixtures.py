"""Tables and pictures of ``mixtures.md``: python docs/make_mixtures.py [--curves DIR]

The runs of ``examples/mixture_gpt.py`` on a GPU are read from ``benchmarks/measured/mixture_gpt.csv.gz``.
``--curves`` is a folder with the 22 schedules of one GPT, two seeds each, for the table of designs.
"""

import argparse
import csv
import gzip
import itertools
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import spearmanr
from scipy.stats import t as student_t

import optlearn as ol

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "benchmarks" / "measured" / "mixture_gpt.csv.gz"
IMAGES = ROOT / "docs" / "images"
DOMAINS = ("python", "cpp")
WARMUP, PEAK = 150, 2e-3
PILOTS = (
    "20 %, constant", "20 %, linear", "alternating, constant", "all at the end, wsd 20",
    "50 % in the last 40 %, wsd 20", "5 %, wsd 20",
)  # fmt: skip
BEST = "45 % in the last 44 %, wsd 30"  # of the 12 baselines
FRONT = ("front 15", "front 30", "plan 1", "front 70", "front 85")
# Of each design: a constant rate, a decay, all at the end, alternating, and two levels of share.
CONSTANT, DECAY = ("con_u.2", "con_half40"), ("lin_u.2", "wsd20_u.2")
AT_END, ALTERNATING = ("con_end", "lin_end", "wsd20_end", "wsd40_end"), ("con_alt",)
LEVELS = (
    ("wsd20_u.05", "wsd20_u.5"), ("wsd20_half40", "wsd20_third60"), ("wsd20_half40", "wsd20_quarter80"),
    ("wsd20_u.5", "wsd20_up"), ("wsd20_p7", "wsd20_u.05"), ("wsd30_half40", "wsd20_u.05"),
    ("wsd20_u.5", "wsd20_quarter80"),
)  # fmt: skip
SHEET = ["con_u.2", "wsd20_u.2", "con_alt", "wsd20_end", "wsd20_half40", "lin_u.2"]

Curves = Mapping[str, ol.laws.MixtureCurve]
Losses = Mapping[str, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curves", type=Path, help="a folder of logs, for the table of designs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # a law that misses a pilot says so; the tables say by how much
    if arguments.curves:
        designs({curve.name: curve for curve in ol.laws.read_mixtures(arguments.curves)})
    curves = stored()
    short = {name: curve for name, curve in curves.items() if not name.startswith("long")}
    long = {name: curve for name, curve in curves.items() if name.startswith("long")}
    fit = fitted([short[f"{name} / seed {seed}"] for name in PILOTS for seed in (0, 1)])
    trained = finals(short, " / seed ")
    baselines = [name for name in trained if not name.startswith(("plan", "front", "next"))]
    predicted = {
        name: predict(fit, next(c for n, c in short.items() if n.startswith(f"{name} /"))) for name in trained
    }
    unseen = [name for name in baselines if name not in PILOTS]
    print(f"\n{len(unseen)} baselines from six pilots:", words(predicted, trained, unseen))
    held = [
        low[-1] <= curve.losses[domain][-1] <= high[-1]
        for name, curve in short.items()
        if name.rsplit(" / ", 1)[0] not in PILOTS
        for domain, (low, high) in fit.interval(curve).items()
    ]
    print(f"intervals of 90 % hold {np.mean(held):.0%} of {len(held)} final losses that were not fitted")
    trained_long = finals(long, " / seed ")
    predicted_long = {name.rsplit(" / ", 1)[0]: predict(fit, curve) for name, curve in long.items()}
    print(f"{len(long)} runs twice as long:", words(predicted_long, trained_long, list(trained_long)))
    beside(short)
    print("\nfront: predicted, trained")
    for name in FRONT:
        print(f"{name:10} {np.round(predicted[name], 4)} {np.round(trained[name], 4)}")
    draw_orders(fit, short)
    draw_plan(fit, short, predicted, trained, [n for n in baselines if trained[n].mean() < 1.01])


def stored() -> dict[str, ol.laws.MixtureCurve]:
    """The curves that were trained on the GPU, by schedule and seed."""
    with gzip.open(LOGS, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return {curve.name: curve for curve in ol.laws.read_mixtures({"gpu": columns})}


def fitted(curves: Sequence[ol.laws.MixtureCurve]) -> ol.laws.MixtureFit:
    fit = ol.laws.fit(list(curves), warmup=WARMUP, peak=PEAK, starts=2)
    assert isinstance(fit, ol.laws.MixtureFit)
    return fit


def predict(fit: ol.laws.MixtureFit, curve: ol.laws.MixtureCurve) -> np.ndarray:
    """(2,) final losses under the rates and shares of a curve."""
    return np.array([fit.predict(curve)[domain][-1] for domain in DOMAINS])


def finals(curves: Curves, seed: str) -> dict[str, np.ndarray]:
    """Schedule → (2,) final losses, mean over seeds."""
    ends: dict[str, list[list[float]]] = {}
    for name, curve in curves.items():
        ends.setdefault(name.rsplit(seed, 1)[0], []).append([curve.losses[d][-1] for d in DOMAINS])
    return {name: np.mean(values, axis=0) for name, values in ends.items()}


def scores(predicted: Losses, trained: Losses, names: Sequence[str]) -> np.ndarray:
    """Error of a loss and of the mean of both, rank correlation of the means, excess of the pick."""
    guess, true = (np.array([table[name] for name in names]) for table in (predicted, trained))
    guesses, means = guess.mean(axis=1), true.mean(axis=1)
    rank = spearmanr(guesses, means)[0]
    return np.array(
        [np.abs(guess / true - 1).mean(), np.abs(guesses / means - 1).mean(), rank,
         means[guesses.argmin()] / means.min() - 1]
    )  # fmt: skip


def words(predicted: Losses, trained: Losses, names: Sequence[str]) -> str:
    each, mean, rank, regret = scores(predicted, trained, names)
    return f"{each:.2%} a loss, {mean:.2%} of the mean, rank {rank:.3f}, the pick {regret:.2%} above the best"


def designs(curves: Curves) -> None:
    """Six pilots, 16 other schedules: 12 designs at random, and the one of the first experiment."""
    families = itertools.product(CONSTANT, DECAY, AT_END, ALTERNATING, LEVELS)
    every = [[*four, *levels] for *four, levels in families]
    drawn = np.random.default_rng(5).choice(len(every), 12, replace=False)
    trained = finals(curves, "-seed")
    rows, seconds = [], []
    for design in [*(every[i] for i in drawn), SHEET]:
        began = time.process_time()
        fit = fitted([curves[f"{name}-seed{seed}"] for name in design for seed in (0, 1)])
        seconds.append(time.process_time() - began)
        others = [name for name in trained if name not in design]
        predicted = {name: predict(fit, curves[f"{name}-seed0"]) for name in others}
        rows.append(scores(predicted, trained, others))
    each, mean, rank, regret = np.mean(rows, axis=0)
    worst, lowest = np.max(rows, axis=0)[1], np.min(rows, axis=0)[2]
    print(
        f"{len(rows)} designs: {each:.2%} a loss, {mean:.2%} of the mean (worst {worst:.2%}), rank {rank:.3f}"
    )
    print(f"(worst {lowest:.2f}), the pick {regret:.2%} above the best, {np.mean(seconds):.1f} CPU s a fit")


def beside(curves: Curves) -> None:
    """Every schedule with several seeds, and its difference from the best baseline over common seeds."""
    means: dict[str, dict[str, float]] = {}
    for name, curve in curves.items():
        schedule, seed = name.rsplit(" / seed ", 1)
        means.setdefault(schedule, {})[seed] = float(np.mean([curve.losses[d][-1] for d in DOMAINS]))
    print("\nmean of both losses; above the best baseline over common seeds (95 %)")
    for name in sorted(means, key=lambda n: np.mean(list(means[n].values()))):
        common = sorted(means[name].keys() & means[BEST].keys())
        line = f"{name:34} {len(means[name])} seeds  {np.mean(list(means[name].values())):.4f}"
        if name != BEST and len(common) > 1:
            differences = np.array([means[name][s] - means[BEST][s] for s in common])
            half = student_t.ppf(0.975, len(common) - 1) * differences.std(ddof=1) / np.sqrt(len(common))
            size = np.mean([means[BEST][s] for s in common])
            middle, low, high = (differences.mean() + np.array([0, -half, half])) / size
            line += f"  {middle:+.2%} ({low:+.2%} to {high:+.2%}), {len(common)} seeds"
        print(line)


def draw_orders(fit: ol.laws.MixtureFit, curves: Curves) -> None:
    """Five orders of the same data: losses as trained and predicted, and shares."""
    orders = {
        "20 %, wsd 20": "20 %, wsd 20",
        "all at the end, wsd 20": "all at the end, wsd 20",
        "50 % in the last 40 %, wsd 20": "50 % in the last 40 %, wsd 20",
        "rising, wsd 30": "rising, wsd 30",
        "plan 1 family": "plan after six pilots",
    }
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    for i, (name, label) in enumerate(orders.items()):
        curve = curves[f"{name} / seed 0"]
        logged, steps = curve.any_loss, curve.rates.step
        late = steps >= 600
        predicted = fit.predict(curve)
        for ax, domain in zip(axes, DOMAINS, strict=False):
            ax.plot(steps[late], curve.losses[domain][logged][late], color=f"C{i}", alpha=0.4, lw=2)
            ax.plot(steps[late], predicted[domain][late], color=f"C{i}", lw=0.9, label=label)
            ax.set(xlabel="step", ylabel=f"loss of {domain}")
        axes[2].plot(
            curve.step[2:-2], np.convolve(curve.shares["cpp"], np.ones(5) / 5, "valid"), f"C{i}", lw=1
        )
    axes[0].legend(fontsize="x-small")
    axes[0].set_ylim(0.95, 1.6)
    axes[1].set_ylim(0.9, 2.1)
    axes[2].set(xlabel="step", ylabel="share of cpp")
    figure.savefig(IMAGES / "mixtures_orders.png", dpi=110)


def draw_plan(
    fit: ol.laws.MixtureFit,
    curves: Curves,
    predicted: Losses,
    trained: Losses,
    tuned: Sequence[str],
) -> None:
    """The plans, the losses of the free one with intervals, and the front."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    for name, style, label in (("plan 1", "-", "free"), ("plan 1 family", "--", "family")):
        curve = curves[f"{name} / seed 0"]
        axes[0].plot(curve.step, curve.rate / PEAK, color="k", ls=style, label=f"rate / 2e-3, {label}")
        smooth = np.convolve(curve.shares["cpp"], np.ones(5) / 5, "valid")
        axes[0].plot(curve.step[2:-2], smooth, color="C1", ls=style, label=f"share of cpp, {label}")
    axes[0].set(xlabel="step")
    axes[0].legend(fontsize="x-small", loc="center left")
    curve = curves["plan 1 / seed 0"]
    edges = np.append(0.0, curve.step)
    shares = {f"share_{name}": share for name, share in curve.shares.items()}
    schedule = ol.Schedule.piecewise(edges, {"learning_rate": curve.rate, **shares})
    interval, middle, late = fit.interval(schedule), fit.predict(schedule), curve.step >= 900
    logged, steps = curve.any_loss, curve.rates.step
    for i, domain in enumerate(DOMAINS):
        low, high = interval[domain]
        axes[1].fill_between(curve.step[late], low[late], high[late], color=f"C{i}", alpha=0.25, lw=0)
        axes[1].plot(curve.step[late], middle[domain][late], color=f"C{i}", label=f"{domain}, predicted")
        seen = steps >= 900
        points = curve.losses[domain][logged][seen]
        axes[1].plot(steps[seen], points, ".", ms=3, color=f"C{i}", label=f"{domain}, trained")
    axes[1].set(xlabel="step", ylabel="loss")
    axes[1].legend(fontsize="x-small")
    axes[2].plot(*np.array([predicted[name] for name in FRONT]).T, "o-", label="predicted")
    axes[2].plot(*np.array([trained[name] for name in FRONT]).T, "s-", label="trained")
    axes[2].plot(*np.array([trained[name] for name in tuned]).T, "k.", ms=4, label="tuned baselines")
    axes[2].set(xlabel="loss of python", ylabel="loss of cpp")
    axes[2].legend(fontsize="x-small")
    figure.savefig(IMAGES / "mixtures_plan.png", dpi=110)


if __name__ == "__main__":
    main()
