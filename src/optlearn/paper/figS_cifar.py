"""Supplementary figure: easy-hard-easy training of a convolutional network on Cluttered CIFAR-10.

The training takes minutes on a GPU and many hours on a CPU, so its outcome is stored in ``data/``, written by
``cifar_training.py``. ``compute(run=True)`` repeats the training.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from scipy import stats

from optlearn._errors import SpecificationError
from optlearn._progress import Progress, Report
from optlearn.paper import cifar_training as training
from optlearn.paper.shared import OURS, WIDTH, Claim, draw_pictures, pairs, set_letter
from optlearn.plotting.style import BLACK, BLUE, GREY, VERMILION, styled
from optlearn.practice.datasets import CIFAR10, ImageSet, cifar10
from optlearn.practice.denoise import mean_interval

TITLE = "Easy-hard-easy training on Cluttered CIFAR-10"

ANTI_CURRICULUM, CURRICULUM = 0, 50
PAPER_BEST = 35
PAPER_CHANCE = 0.9
STORED = ("cifar_sweep.json", "cifar_sweep_per_seed.json")
# Order of the samples → seeds: the paper's 30, and more (this work) if the order varies too.
SEEDS: dict[training.Order, int] = {"shared": 30, "per-seed": 90}
LABELS = {"shared": "one sequence for all repetitions", "per-seed": "own sequence for each repetition"}
QUICK_A, QUICK_SEEDS, QUICK_SAMPLES, QUICK_TEST = (ANTI_CURRICULUM, PAPER_BEST, CURRICULUM), 3, 1600, 500
EXAMPLES = 5
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
LEVEL = 0.95
FLIPS = 20_000
POINTS = 100  # errors are shown in percent, differences in percentage points


def compute(
    quick: bool = False,
    progress: Report | None = None,
    data_dir: Path | None = None,
    *,
    run: bool = False,
    table: str | Path | None = None,
    seeds: int | None = None,
    samples: int | None = None,
) -> xarray.Dataset:
    """Read the stored outcome of the training, or train.

    Args:
        quick: if CIFAR-10 is there, train a few networks on few images, on a CPU in about a minute.
        progress: called at every stage.
        data_dir: folder of CIFAR-10's files; see ``practice.datasets.cifar10``. Without them the
            figure has no example images.
        run: repeat the whole training: 7 minutes on an H200, hours on a CPU.
        table: use this file, written by ``cifar_training.py``, instead of the stored ones.
        seeds: number of initialisations to train.
        samples: number of training images to use.
    """
    has_images = not CIFAR10.missing(CIFAR10.locate(data_dir))
    if table is None and (run or (quick and has_images)):
        data = _trained(quick and not run, progress, data_dir, seeds, samples)
    elif seeds is not None or samples is not None:
        raise SpecificationError("seeds and samples are of the training: they need run=True")
    else:
        stored = [files("optlearn.paper") / "data" / name for name in STORED]
        sources: Sequence[Any] = [Path(table)] if table is not None else stored
        data = _dataset([json.loads(source.read_text(encoding="utf-8")) for source in sources])
    return data.merge(_examples(data_dir), combine_attrs="drop_conflicts") if has_images else data


def _trained(
    quick: bool, progress: Report | None, data_dir: Path | None, seeds: int | None, samples: int | None
) -> xarray.Dataset:
    train, test = (_bytes_last(cifar10(split, data_dir)) for split in ("train", "test"))
    limit = samples if samples is not None else (QUICK_SAMPLES if quick else None)
    train = training.Images(*(part[:limit] for part in train))
    if quick:  # as many of each class
        each = QUICK_TEST // training.CLASSES
        picks = [np.flatnonzero(test.labels == label)[:each] for label in range(training.CLASSES)]
        test = training.Images(*(part[np.concatenate(picks)] for part in test))
    orders: Mapping[training.Order, int] = {"shared": QUICK_SEEDS} if quick else SEEDS
    values = QUICK_A if quick else training.SWEEP
    settings = training.Settings()
    tables = []
    for index, (order, count) in enumerate(orders.items()):

        def tell(done: int, total: int, index: int = index) -> None:
            if progress is not None:
                progress(Progress("trained", index * total + done, len(orders) * total))

        sweep = training.sweep(
            train, test, a=values, seeds=range(seeds or count), order=order, settings=settings, progress=tell
        )
        tables.append(training.to_json([sweep], settings, training.describe_run()))
    return _dataset(tables)


def _bytes_last(images: ImageSet) -> training.Images:
    return training.Images(images.images.transpose(0, 2, 3, 1), images.labels)


def _dataset(tables: Sequence[dict[str, Any]]) -> xarray.Dataset:
    """One data set from tables of ``cifar_training.to_json``; missing seeds are NaN."""
    parts = []
    for table in tables:
        if not {ANTI_CURRICULUM, CURRICULUM} < set(table["a"]):
            raise SpecificationError(
                f"a = {table['a']}: 0, 50 and a value between are needed to compare schedules"
            )
        for order, sweep in table["sweeps"].items():
            names = ("error", "error_easy", "error_hard")
            grid: dict[str, Any] = {name: (("order", "a", "seed"), [sweep[name]]) for name in names}
            grid["loss"] = (("order", "a", "part"), [sweep["loss"]])
            coords = {"order": [order], "a": table["a"], "seed": table["seeds"]}
            parts.append(xarray.Dataset(grid, coords))
    first, sources = tables[0], []
    for table in tables:
        seconds = {order: sweep["seconds"] for order, sweep in table["sweeps"].items()}
        sources.append(table["provenance"] | {"seconds": seconds})
    return xarray.concat(parts, dim="order", join="outer").assign_attrs(
        chance_error=first["chance_error"],
        settings=json.dumps(first["settings"]),
        provenance=json.dumps(sources),
    )


def _examples(data_dir: Path | None) -> xarray.Dataset:
    """(kind, example, row, column, channel) composites of test images of different classes."""
    images = _bytes_last(cifar10("test", data_dir))
    picks = np.array([np.flatnonzero(images.labels == label)[0] for label in range(EXAMPLES)])
    chosen = training.Images(images.pixels[picks], images.labels[picks])
    shown = [
        training.clutter(chosen, np.arange(count), training.Settings().sigma, np.random.default_rng(0)).images
        for count in (0, EXAMPLES)
    ]
    return xarray.Dataset(
        {"image": (("kind", "example", "row", "column", "channel"), np.stack(shown))},
        coords={"kind": ["easy", "hard"], "class": ("example", list(CLASSES[:EXAMPLES]))},
    )


# --- drawing ---------------------------------------------------------------------------------------


@styled
def plot(data: xarray.Dataset) -> Figure:
    """Examples, if they are in the data; error against a; ours: the same by kind of test sample."""
    pictures = "image" in data
    figure = Figure(figsize=(WIDTH, 5.6 if pictures else 3.6), layout="constrained")
    lower: Figure | SubFigure = figure
    if pictures:
        upper, lower = figure.subfigures(2, 1, height_ratios=[2.0, 3.6], squeeze=False)[:, 0]
        _draw_images(upper, data)
    left, right = lower.subplots(1, 2)
    _draw_errors(left, data)
    _draw_kinds(right, data)
    for axes, letter in zip((left, right), "bc" if pictures else "ab", strict=True):
        set_letter(axes, letter)
        axes.set(xlabel="initial easy samples $a$ (% of training)", ylabel="test error (%)")
        axes.set_xticks([int(a) for a in data.a.values if a % 10 == 0])
    return figure


def _draw_images(figure: SubFigure, data: xarray.Dataset) -> None:
    grid = figure.subplots(data.sizes["kind"], data.sizes["example"], squeeze=False)
    for row, kind in zip(grid, data.kind.values, strict=True):
        draw_pictures(row, data.image.sel(kind=kind).clip(0, 1))
        row[0].set_ylabel(str(kind), rotation=0, ha="right", va="center")
    for axes, name in zip(grid[0], data["class"].values, strict=True):
        axes.set_title(str(name), fontsize=8)
    set_letter(grid[0, 0], "a")


def _draw_errors(axes: Axes, data: xarray.Dataset) -> None:
    shift = 0.35 if data.sizes["order"] > 1 else 0.0
    for order, colour, marker, side in zip(data.order.values, (BLACK, BLUE), "os", (-1, 1), strict=False):
        errors = _errors(data, str(order))
        mark = f" {OURS}" if order == "per-seed" else ""
        label = f"{LABELS[str(order)]}, {errors.shape[1]} seeds{mark}"
        places = data.a.values + side * shift
        _draw_interval(axes, places, errors, color=colour, marker=marker, label=label)
        mean = POINTS * errors.mean(axis=1)
        best = int(np.argmin(mean))
        axes.plot(places[best], mean[best], marker, color=colour, markersize=9, fillstyle="none")
    axes.axvline(PAPER_BEST, ymax=0.6, color=GREY, lw=0.8, ls=":", label=f"the paper's best, {PAPER_BEST} %")
    axes.plot([], [], "o", color=GREY, markersize=9, fillstyle="none", label="lowest mean")
    title = f"mean and {LEVEL:.0%} interval; chance {data.chance_error:.0%}"
    axes.legend(title=title, title_fontsize=7.5)


def _draw_kinds(axes: Axes, data: xarray.Dataset) -> None:
    order = str(data.order.values[-1])
    for kind, colour, marker in (("easy", BLUE, "^"), ("hard", VERMILION, "v")):
        errors, label = _errors(data, order, f"error_{kind}"), f"{kind} test samples"
        _draw_interval(axes, data.a.values, errors, color=colour, marker=marker, label=label)
    axes.set_title(f"{LABELS[order]} {OURS}", fontsize=8)
    axes.legend()


def _draw_interval(axes: Axes, a: np.ndarray, errors: np.ndarray, **look: Any) -> None:
    mean, half = mean_interval(errors.T, LEVEL)
    half = np.where(np.isfinite(half), half, 0.0)  # a single seed has no interval
    axes.errorbar(a, POINTS * mean, POINTS * half, markersize=4, linewidth=1, elinewidth=1, capsize=2, **look)


# --- numbers ---------------------------------------------------------------------------------------


def _errors(data: xarray.Dataset, order: str, name: str = "error") -> np.ndarray:
    """(a, seeds) errors of the seeds trained with this order."""
    return np.asarray(data[name].sel(order=order).dropna("seed", how="any").values, float)


def claims(data: xarray.Dataset) -> list[Claim]:
    """The paper's claims about this figure, with one sequence and, ours, with one for each repetition."""
    checked = []
    for order in map(str, data.order.values):
        sweep = _Sweep(data.a.values, _errors(data, order))
        of_order = [
            _best_beats(sweep, "anti-curriculum", ANTI_CURRICULUM),
            _best_beats(sweep, "curriculum", CURRICULUM),
            *([_named_best(sweep)] if PAPER_BEST in sweep.a else []),
            _minimum(sweep),
            _extremes(sweep),
        ]
        if order == "per-seed":
            start = f"{OURS} With samples shuffled anew for each repetition: "
            of_order = [replace(c, id=f"{c.id}-shuffled", text=start + c.text) for c in of_order]
        checked += of_order
    checked.append(_chance(data))
    if {"shared", "per-seed"} <= set(data.order.values):
        checked.append(_sequence_matters(data))
    reduced = _reduced(data)
    return [replace(claim, note=f"{reduced}{claim.note}") for claim in checked]


class _Sweep:
    """Errors of one order of the samples."""

    def __init__(self, a: np.ndarray, errors: np.ndarray) -> None:
        self.a, self.errors = a, errors
        self.mean = errors.mean(axis=1)
        self.middle = np.flatnonzero((a > ANTI_CURRICULUM) & (a < CURRICULUM))
        self.best = int(np.argmin(self.mean))

    def at(self, a: float) -> int:
        return int(np.flatnonzero(self.a == a)[0])

    def difference(self, first: int, second: int) -> tuple[float, tuple[float, float]]:
        """Mean over seeds of the difference of two errors in points, and its interval."""
        mean, half = mean_interval(POINTS * (self.errors[first] - self.errors[second]), LEVEL)
        return float(mean), (float(mean - half), float(mean + half))


def _best_beats(sweep: _Sweep, name: str, reference: float) -> Claim:
    """Is the lowest intermediate error below a reference, corrected for choosing among many?"""
    other = sweep.at(reference)
    best = int(sweep.middle[np.argmin(sweep.mean[sweep.middle])])
    mean, interval = sweep.difference(best, other)
    p = max_t_test(sweep.errors[sweep.middle].T - sweep.errors[other][:, None])
    return Claim(
        f"beats-{name}",
        f"An intermediate a has a lower error than {name}, a = {reference:g}",
        {
            "best intermediate a": sweep.a[best],
            "its error (%)": POINTS * sweep.mean[best],
            f"error at a = {reference:g} (%)": POINTS * sweep.mean[other],
            "difference (points)": mean,
            "95 % interval": interval,
            "p": p,
        },
        f"difference < 0 with p < {1 - LEVEL:.2f}",
        mean < 0 and p < 1 - LEVEL,
        f"p is for the best of {len(sweep.middle)} values (one-sided, signs of paired differences flipped at "
        "random); the interval is not corrected for that choice.",
    )


def max_t_test(differences: np.ndarray) -> float:
    """P-value for "some column has a negative mean", corrected for the number of columns.

    The smallest of the columns' t statistics is compared with those after random changes of the signs of
    whole rows (Westfall and Young).

    Args:
        differences: (n, columns) paired differences, one row per independent repetition.
    """
    n = len(differences)
    if n < 2:
        return 1.0
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(FLIPS, n))
    signs[0] = 1.0
    means = signs @ differences / n
    variances = np.maximum((differences**2).mean(axis=0) - means**2, np.finfo(float).tiny)
    smallest = (means / np.sqrt(variances)).min(axis=1)
    return float(np.mean(smallest <= smallest[0] + 1e-9 * abs(smallest[0])))


def _named_best(sweep: _Sweep) -> Claim:
    named = sweep.at(PAPER_BEST)
    differences, below = {}, []
    for name, value in (("curriculum", CURRICULUM), ("anti-curriculum", ANTI_CURRICULUM)):
        mean, interval = sweep.difference(named, sweep.at(value))
        differences[f"minus {name} (points)"] = {"mean": mean, "95 % interval": interval}
        below.append(interval[1] < 0)
    return Claim(
        "a35-beats-both",
        f"a = {PAPER_BEST} % outperforms both curriculum and anti-curriculum",
        differences,
        "both intervals of the paired difference below 0",
        all(below),
    )


def _minimum(sweep: _Sweep) -> Claim:
    best = sweep.best
    tied = [i == best or sweep.difference(i, best)[1][0] <= 0 for i in range(len(sweep.a))]
    ties = sweep.a[tied].astype(float).tolist()
    lowest: dict[str, Any] = {"a": sweep.a[best], "error (%)": POINTS * sweep.mean[best], "tied": ties}
    if PAPER_BEST in sweep.a:
        lowest[f"error at {PAPER_BEST} % above it (points)"] = sweep.difference(sweep.at(PAPER_BEST), best)[0]
    return Claim(
        "minimum",
        f"The error is lowest at an intermediate a (the paper's best: {PAPER_BEST} %)",
        lowest,
        f"{ANTI_CURRICULUM} < a < {CURRICULUM}",
        ANTI_CURRICULUM < sweep.a[best] < CURRICULUM,
        "Tied are the values whose paired difference from the lowest has an interval that holds 0: where "
        f"among them the minimum lies is not resolved. {PAPER_BEST} % is "
        f"{'among' if PAPER_BEST in ties else 'not among'} them.",
    )


def _extremes(sweep: _Sweep) -> Claim:
    worst = sorted(float(value) for value in sweep.a[np.argsort(sweep.mean)[-2:]])
    lower = min(sweep.at(ANTI_CURRICULUM), sweep.at(CURRICULUM), key=lambda i: sweep.mean[i])
    rival = int(sweep.middle[np.argmax(sweep.mean[sweep.middle])])
    mean, interval = sweep.difference(rival, lower)
    return Claim(
        "extremes-highest",
        "The extremes a = 0 and a = 50 have the highest errors of all",
        {"two highest at": worst, "error (%)": pairs(sweep.a.tolist(), POINTS * sweep.mean)},
        [ANTI_CURRICULUM, CURRICULUM],
        worst == [ANTI_CURRICULUM, CURRICULUM],
        f"By the means alone. The highest intermediate error, at a = {sweep.a[rival]:g}, minus that at "
        f"a = {sweep.a[lower]:g} is {mean:.2f} points, 95 % interval {interval[0]:.2f} to {interval[1]:.2f}.",
    )


def _chance(data: xarray.Dataset) -> Claim:
    chance = float(data.attrs["chance_error"])
    highest = max(float(_errors(data, str(order)).mean(axis=1).max()) for order in data.order.values)
    return Claim(
        "chance",
        "Random-chance error is 90 %, and all schedules learn",
        {"chance (%)": POINTS * chance, "highest mean error (%)": POINTS * highest},
        "90, and lower",
        math.isclose(chance, PAPER_CHANCE, abs_tol=5e-3) and highest < chance,
        "The caption has 90 %; the paper's text says 10 %, which is the accuracy.",
    )


def _sequence_matters(data: xarray.Dataset) -> Claim:
    """Does one fixed sequence give errors unlike the average one?"""
    shared, shuffled = _errors(data, "shared"), _errors(data, "per-seed")
    p = stats.ttest_ind(shared, shuffled, axis=1, equal_var=False).pvalue * data.sizes["a"]
    difference = POINTS * (shared.mean(axis=1) - shuffled.mean(axis=1))
    largest = int(np.argmin(p))
    return Claim(
        "sequence-matters",
        f"{OURS} Intervals over initialisations alone are too narrow: one fixed sequence of samples has "
        "errors unlike those of other sequences",
        {"a": data.a.values[largest], "difference (points)": difference[largest], "p": min(1.0, p[largest])},
        f"p < {1 - LEVEL:.2f}",
        p[largest] < 1 - LEVEL,
        "Welch's test at each a, Bonferroni's correction; the a with the smallest p is given.",
    )


def _reduced(data: xarray.Dataset) -> str:
    """A caveat about a shortened training."""
    samples = json.loads(data.attrs["settings"])["train_samples"]
    seeds = min(_errors(data, str(order)).shape[1] for order in data.order.values)
    if samples >= 50_000 and seeds >= SEEDS["shared"]:
        return ""
    return f"Cut down to {samples} samples and {seeds} seeds: says little about the full experiment. "
