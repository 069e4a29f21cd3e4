"""Tables and pictures of ``mixtures.md``: python docs/make_mixtures.py [--curves DIR] [--theory] …

Two experiments of ``examples/mixture_gpt.py`` on a GPU, on different texts, are read from
``benchmarks/measured``. ``--curves`` is a folder with the 22 schedules of one GPT, two seeds each, for the
table of designs; ``--mixinglaws`` a clone of github.com/yegcjs/mixinglaws, for the outside test; ``--theory``
solves for the order of two tasks, and draws it beside the plan.
"""

import argparse
import csv
import gzip
import itertools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import least_squares
from scipy.stats import spearmanr
from scipy.stats import t as student_t

import optlearn as ol

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "benchmarks" / "measured"
IMAGES = ROOT / "docs" / "images"
DOMAINS = ("python", "cpp")
WARMUP, PEAK = 150, 2e-3
PILOTS = (
    "20 %, constant", "20 %, linear", "alternating, constant", "all at the end, wsd 20",
    "50 % in the last 40 %, wsd 20", "5 %, wsd 20",
)  # fmt: skip
FAMILY = "40 % in the last 50 %, wsd 30"  # what the family plans in both rounds, and one of the 12 baselines
FRONT = (
    "60 % in the last 33 %, wsd 30", "50 % in the last 40 %, wsd 30", FAMILY, "front 70", "front 85",
)  # fmt: skip
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
    parser.add_argument("--mixinglaws", type=Path, help="a clone of yegcjs/mixinglaws, for the outside test")
    parser.add_argument("--theory", action="store_true", help="solve for the order of two tasks")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # a law that misses a pilot says so; the tables say by how much
    if arguments.curves:
        curves = {curve.name: curve for curve in ol.laws.read_mixtures(arguments.curves)}
        designs(curves)
        random_designs(curves)
    if arguments.mixinglaws:
        outside(arguments.mixinglaws)
    experiment("mixture_gpt.csv.gz")
    fit, short, predicted, trained, baselines = experiment("mixture_gpt_2.csv.gz")
    beside(short, baselines)
    print("\nfront: predicted, trained")
    for name in FRONT:
        print(f"{name:30} {np.round(predicted[name], 4)} {np.round(trained[name], 4)}")
    draw_orders(fit, short)
    draw_plan(fit, short, predicted, trained, [n for n in baselines if trained[n].mean() < 0.945])
    if arguments.theory:
        draw_theory(short["plan 2 / seed 2"])


def experiment(file: str) -> tuple[ol.laws.MixtureFit, Curves, Losses, Losses, list[str]]:
    """The fit to six pilots of an experiment, and what it says of the other runs."""
    curves = stored(MEASURED / file)
    short = {name: curve for name, curve in curves.items() if not name.startswith("long")}
    long = {name: curve for name, curve in curves.items() if name.startswith("long")}
    fit = fitted([short[f"{name} / seed {seed}"] for name in PILOTS for seed in (0, 1)])
    trained, trained_long = finals(short, " / seed "), finals(long, " / seed ")
    baselines = [name for name in trained if not name.startswith(("plan", "front", "next", "pilot"))]
    predicted = {
        name: predict(fit, next(c for n, c in short.items() if n.startswith(f"{name} /"))) for name in trained
    }
    unseen = [name for name in baselines if name not in PILOTS]
    print(f"\n{file}: {len(unseen)} baselines from six pilots:", words(predicted, trained, unseen))
    held = [
        low[-1] <= curve.losses[domain][-1] <= high[-1]
        for name, curve in short.items()
        if name.rsplit(" / ", 1)[0] not in PILOTS
        for domain, (low, high) in fit.interval(curve).items()
    ]
    print(f"intervals of 90 % hold {np.mean(held):.0%} of {len(held)} final losses that were not fitted")
    told = {name.rsplit(" / ", 1)[0]: predict(fit, curve) for name, curve in long.items()}
    print(f"{len(long)} runs twice as long:", words(told, trained_long, list(trained_long)))
    return fit, short, predicted, trained, [name for name in baselines if name not in PILOTS]


def stored(path: Path) -> dict[str, ol.laws.MixtureCurve]:
    """The curves that were trained on the GPU, by schedule and seed."""
    with gzip.open(path, "rt", newline="") as file:
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
    """Six pilots, 16 other schedules: all 112 designs, and the one of the first experiment."""
    families = itertools.product(CONSTANT, DECAY, AT_END, ALTERNATING, LEVELS)
    trained, by_seed = finals(curves, "-seed"), [finals(of_seed(curves, s), "-seed") for s in "01"]
    # Seeds are paired, so what both do to all schedules alike is no noise of a comparison.
    apart = np.array([by_seed[0][name].mean() - by_seed[1][name].mean() for name in trained])
    noise = apart.std(ddof=1) / 2  # of a mean over two seeds
    rng = np.random.default_rng(0)
    rows, picks, seconds, floor, other_seed = [], [], [], [], []
    for design in [*([*four, *levels] for *four, levels in families), SHEET]:
        began = time.process_time()
        fit = fitted([curves[f"{name}-seed{seed}"] for name in design for seed in (0, 1)])
        seconds.append(time.process_time() - began)
        others = [name for name in trained if name not in design]
        ranked = fit.compare({name: curves[f"{name}-seed0"] for name in others})
        predicted = {each.name: np.array([each.losses[d] for d in DOMAINS]) for each in ranked}
        rows.append(scores(predicted, trained, others))
        means = np.array([trained[name].mean() for name in others])
        picks.append(trained[ranked[0].name].mean() / means.min() - 1)
        # Who knows what the means would be without noise still picks above the lowest of noisy ones.
        noisy = means + noise * rng.standard_normal((200, len(means)))
        floor.append(np.mean(noisy[:, means.argmin()] / noisy.min(axis=1) - 1))
        other_seed += [scores(by_seed[i], by_seed[1 - i], others)[3] for i in (0, 1)]
    each, mean, rank, regret = np.mean(rows, axis=0)
    worst, lowest = np.max(rows, axis=0)[1], np.min(rows, axis=0)[2]
    print(
        f"{len(rows)} designs: {each:.2%} a loss, {mean:.2%} of the mean (worst {worst:.2%}), rank {rank:.3f}"
        f" (worst {lowest:.2f}), {np.mean(seconds):.1f} CPU s a fit"
    )
    print(f"the pick is {np.mean(picks):.2%} above the best (by the predicted loss alone {regret:.2%})")
    print(f"who knows the means without their noise of {noise:.4f}: {np.mean(floor):.2%}")
    print(f"the best by one seed is {np.mean(other_seed):.2%} above the best by the other", flush=True)


def random_designs(curves: Curves) -> None:
    """Pilots drawn at random, one seed each: errors with and without a warning, and what intervals hold."""
    trained, rng = finals(curves, "-seed"), np.random.default_rng(7)
    for size, count in ((6, 50), (4, 50), (3, 30), (2, 30)):
        errors, warned, held, ranks, regrets = [], [], [], [], []
        for _ in range(count):
            design = rng.choice(sorted(trained), size, replace=False)
            fit = ol.laws.fit([curves[f"{n}-seed0"] for n in design], warmup=WARMUP, peak=PEAK, starts=1)
            others, predicted = [name for name in trained if name not in design], {}
            for name in others:
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    predicted[name] = predict(fit, curves[f"{name}-seed0"])
                # Some logs end their warm-up a little below the peak.
                beyond = any("a rate of" not in str(each.message) for each in told)
                ends = fit.interval(curves[f"{name}-seed0"]).values()
                held += [
                    low[-1] <= true <= high[-1] for (low, high), true in zip(ends, trained[name], strict=True)
                ]
                errors += np.abs(predicted[name] / trained[name] - 1).tolist()
                warned += [beyond] * len(DOMAINS)
            each = scores(predicted, trained, others)
            ranks.append(each[2])
            regrets.append(each[3])
        right, wrong = (np.array(errors)[np.array(warned) == flag] for flag in (False, True))
        print(
            f"{count} random designs of {size}: {right.mean():.2%} (95 % below "
            f"{np.quantile(right, 0.95):.1%}), with a warning {wrong.mean():.1%}, up to {wrong.max():.0%}; "
            f"intervals hold {np.mean(held):.0%}; rank {np.mean(ranks):.2f}, "
            f"pick {np.mean(regrets):.2%} above the best",
            flush=True,
        )


def of_seed(curves: Curves, seed: str) -> Curves:
    return {name: curve for name, curve in curves.items() if name.endswith(f"seed{seed}")}


def beside(curves: Curves, baselines: Sequence[str]) -> None:
    """Every schedule, and plans beside the best baseline over seeds by which nothing was chosen."""
    means: dict[str, dict[str, np.ndarray]] = {}
    for name, curve in curves.items():
        schedule, seed = name.rsplit(" / seed ", 1)
        means.setdefault(schedule, {})[seed] = np.array([curve.losses[d][-1] for d in DOMAINS])
    best = min(baselines, key=lambda name: np.mean([means[name][seed] for seed in "01"]))
    print(f"\npython, cpp and mean over seeds; above {best}, the best baseline by seeds 0 and 1 (95 %)")
    for name in sorted(means, key=lambda n: np.mean(list(means[n].values()))):
        values = np.mean(list(means[name].values()), axis=0)
        line = f"{name:34} {len(means[name]):2} seeds {np.round(values, 4)} {values.mean():.4f}"
        common = sorted((means[name].keys() & means[best].keys()) - {"0", "1"})
        if name != best and len(common) > 1:
            differences = np.array([np.mean(means[name][s] - means[best][s]) for s in common])
            half = student_t.ppf(0.975, len(common) - 1) * differences.std(ddof=1) / np.sqrt(len(common))
            size = np.mean([means[best][s] for s in common])
            middle, low, high = (differences.mean() + np.array([0, -half, half])) / size
            line += f"  {middle:+.2%} ({low:+.2%} to {high:+.2%}), {len(common)} fresh seeds"
        print(line)


# --- an outside test: github.com/yegcjs/mixinglaws, nothing tuned on it -----------------------------

THREE = ("Github", "Books3", "Pile-CC")
FIVE = {
    "academic": (
        "ArXiv", "PubMed_Abstracts", "PhilPapers", "NIH_ExPorter", "FreeLaw", "USPTO_Backgrounds",
        "PubMed_Central",
    ),
    "prose": ("PG19", "Books3", "BookCorpus2"),
    "dialogue": ("Ubuntu_IRC", "OpenSubtitles", "EuroParl", "Enron_Emails", "HackerNews", "YoutubeSubtitles"),
    "symbolic": ("DM_Mathematics", "Github"),
    "internet": ("Pile-CC", "OpenWebText2", "StackExchange", "Wikipedia_en"),
}  # fmt: skip
TARGETS = ("Wikipedia_en", "ArXiv", "Github")


def outside(folder: Path) -> None:
    """Some mixtures are fitted, the others predicted; beside it the published static law of final losses."""
    three = published(folder / "data/3Mix/160M.txt", {name: (name,) for name in THREE}, ())
    splits(three, 5, "3Mix/160M")
    continued = published(folder / "data/ct/70M.txt", {"pile": ("Pile-CC",), "python": ("python",)}, ())
    splits(continued, 3, "ct/70M")
    splits(published(folder / "data/5Mix/70M.txt", FIVE, TARGETS), 14, "5Mix/70M", count=2)
    try:
        published(folder / "data/RedPajama/70M.txt", {f"part {i}": ("Github",) for i in range(7)}, ())
    except ol.SpecificationError as error:
        print(f"RedPajama/70M: {error}")


def published(
    path: Path, domains: Mapping[str, Sequence[str]], targets: Sequence[str]
) -> list[ol.laws.MixtureCurve]:
    """Curves of a file: checkpoint, validation set, loss. Domains are means over validation sets."""
    losses: dict[str, dict[str, dict[int, float]]] = {}
    for line in path.read_text().splitlines():
        model, data, loss = line.split("\t")
        *_, run, step = model.split("/")
        if step.isdigit() and run.count("-") >= len(domains):
            name = data.rsplit("/", 1)[-1].removesuffix(".bin").split(".valid")
            validated = name[-1].strip(".") or name[0].rsplit(".", 1)[-1]
            losses.setdefault(run, {}).setdefault(validated, {})[int(step)] = float(loss)
    curves = []
    needed = {*itertools.chain.from_iterable(domains.values()), *targets}
    # A static law knows one length of training, that of the shortest run.
    last = min(max(steps) for by_set in losses.values() for name, steps in by_set.items() if name in needed)
    for run, by_set in losses.items():
        shares = [float(part) for part in run.split("-")[1:]]
        steps = sorted(set.intersection(*({s for s in by_set[n] if s <= last} for n in needed)))
        every = {
            d: np.mean([[by_set[n][s] for s in steps] for n in names], axis=0) for d, names in domains.items()
        }
        every |= {f"target {name}": np.array([by_set[name][s] for s in steps]) for name in targets}
        whole = np.ones(len(steps))
        curves.append(
            ol.laws.MixtureCurve(
                run, np.array(steps, float), whole,
                {d: share / sum(shares) * whole for d, share in zip(domains, shares, strict=True)}, every,
            )
        )  # fmt: skip
    return curves


def splits(curves: Sequence[ol.laws.MixtureCurve], size: int, name: str, count: int = 3) -> None:
    """Mean errors of final losses of mixtures that were not fitted, over random splits."""
    ours, static, domains = [], [], list(curves[0].losses)
    began = time.process_time()
    for split in range(count):
        order = np.random.default_rng(split).permutation(len(curves))
        known, others = ([curves[i] for i in part] for part in (order[:size], order[size:]))
        fit = ol.laws.fit(known, warmup=0, peak=1.0, starts=1)
        told = [[fit.predict(c)[d][-1] / c.losses[d][-1] - 1 for d in domains] for c in others]
        ours.append(np.abs(told).mean(axis=0))
        x, new = (np.array([[s[0] for s in c.shares.values()] for c in part]) for part in (known, others))
        columns = []
        for domain in domains:
            law = static_law(x, np.array([c.losses[domain][-1] for c in known]))
            columns.append(np.abs(law(new) / [c.losses[domain][-1] for c in others] - 1))
        static.append(np.mean(columns, axis=1))
    seconds = (time.process_time() - began) / count
    print(f"{name}: {size} of {len(curves)} mixtures fitted, {count} splits, {seconds:.0f} CPU s each")
    for domain, own, theirs in zip(domains, np.mean(ours, axis=0), np.mean(static, axis=0), strict=True):
        print(f"  {domain:24} here {own:.2%}, static law {theirs:.2%}")
    print(f"  {'mean':24} here {np.mean(ours):.2%}, static law {np.mean(static):.2%}", flush=True)


def static_law(shares: np.ndarray, losses: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The published law c + k exp(t · p) of final losses, by least squares from several starts."""

    def law(z: np.ndarray, x: np.ndarray) -> np.ndarray:
        return z[0] + np.exp(np.clip(z[1] + x @ z[2:], -30, 30))

    best = min(
        (
            least_squares(
                lambda z: law(z, shares) / losses - 1,
                np.r_[c * losses.min(), np.log(losses.mean() - c * losses.min()), np.zeros(shares.shape[1])],
                bounds=(
                    [0.0, *[-20.0] * (1 + shares.shape[1])],
                    [losses.min(), *[20.0] * (1 + shares.shape[1])],
                ),
            )
            for c in (0.3, 0.6, 0.9)
        ),
        key=lambda found: found.cost,
    )
    return lambda x: law(best.x, x)


def draw_orders(fit: ol.laws.MixtureFit, curves: Curves) -> None:
    """Five orders of the same data: losses as trained and predicted, and shares."""
    orders = {
        "20 %, wsd 20": "20 %, wsd 20",
        "all at the end, wsd 20": "all at the end, wsd 20",
        "50 % in the last 40 %, wsd 20": "50 % in the last 40 %, wsd 20",
        "rising, wsd 30": "rising, wsd 30",
        FAMILY: "40 % in the last 50 %: the plan",
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
    axes[0].set_ylim(0.85, 1.5)
    axes[1].set_ylim(0.85, 2.1)
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
    for name, style, label in (("plan 2", "-", "free"), (FAMILY, "--", "family")):
        curve = curves[f"{name} / seed 2"]
        axes[0].plot(curve.step, curve.rate / PEAK, color="k", ls=style, label=f"rate / 2e-3, {label}")
        smooth = np.convolve(curve.shares["cpp"], np.ones(5) / 5, "valid")
        axes[0].plot(curve.step[2:-2], smooth, color="C1", ls=style, label=f"share of cpp, {label}")
    axes[0].set(xlabel="step")
    axes[0].legend(fontsize="x-small", loc="center left")
    curve = curves["plan 2 / seed 2"]
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


def theory(**options: bool) -> ol.Problem:
    """Two tasks with a head each, learned from scratch; at most a fifth of the samples from the second."""
    problem = ol.scenarios.task_order(sigma_n=0.3, alpha_F=20.0, pretraining=0.0, eta=1.5, **options)
    shares = problem.controls if options.get("own_rates") else {"task": ol.Continuous(0.0, 1.0, 0.2)}
    budget = ol.Budget("task", mean=0.2, sense="at most")
    return replace(problem, controls={**problem.controls, **shares}, budgets=(budget,), intervals=30)


def pure(schedule: ol.Schedule, pieces: int) -> float:
    """The objective of one task at a time: every interval in so many pieces, each of both tasks in turn."""
    edges, tasks, rates = [0.0], [], []
    for i, length in enumerate(np.diff(schedule.grid)):
        for _ in range(pieces):
            for task, share in enumerate((1 - schedule["task"][i], schedule["task"][i])):
                edges.append(edges[-1] + share * length / pieces)
                tasks.append(float(task))
                rates.append(schedule[f"learning_rate{task + 1}"][i])
    edges[-1] = schedule.horizon
    values = {"task": np.array(tasks), "learning_rate": np.array(rates)}
    return ol.evaluate(theory(joint=True), ol.Schedule.piecewise(edges, values), record=2).objective


def draw_theory(plan: ol.laws.MixtureCurve) -> None:
    """Rate and share of the scarce kind: the plan for the GPT, and optima of two tasks."""
    print(ol.solve(theory(joint=True), starts=1).summary())
    given, own = ol.solve(theory(), starts=1), ol.solve(theory(own_rates=True))
    for solution in (given, own):
        print(solution.summary())
    print("one task at a time:", {pieces: round(pure(own.schedule, pieces), 6) for pieces in (1, 4, 16)})
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained", sharey=True)
    smooth = np.convolve(plan.shares["cpp"], np.ones(5) / 5, "valid")
    axes[0].plot(plan.step / plan.steps, plan.rate / plan.rate.max(), "k", label="rate, over the highest")
    axes[0].plot(plan.step[2:-2] / plan.steps, smooth, "C1", label="share of the scarce kind")
    edges = given.schedule.grid / given.schedule.horizon
    axes[1].stairs(np.ones(len(edges) - 1), edges, color="k", baseline=None)
    highest = max(own.schedule[f"learning_rate{task}"].max() for task in (1, 2))
    for task, style, kind in ((1, "-", "plentiful"), (2, "--", "scarce")):
        rate = own.schedule[f"learning_rate{task}"] / highest
        axes[2].stairs(rate, edges, color="k", ls=style, baseline=None, label=f"rate of the {kind} kind")
    for ax, solution in zip(axes[1:], (given, own), strict=True):
        ax.stairs(solution.schedule["task"], edges, color="C1", baseline=None)
    titles = ("plan for the GPT", "two tasks, rate given", "two tasks, a rate for each controlled too")
    for ax, title in zip(axes, titles, strict=True):
        ax.set(xlabel="share of training", title=title, ylim=(-0.02, 1.05))
    axes[0].legend(fontsize="small", loc="center left")
    axes[2].legend(fontsize="small", loc="upper right")
    figure.savefig(IMAGES / "mixtures_theory.png", dpi=110)


if __name__ == "__main__":
    main()
