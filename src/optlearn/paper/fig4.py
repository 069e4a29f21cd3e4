"""Figure 4: the theory's noise schedules in real training, on the zeros and ones of MNIST."""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from optlearn._control.compare import baselines
from optlearn._control.evaluate import evaluate
from optlearn._control.solution import Solution
from optlearn._control.solve import solve
from optlearn._progress import Report
from optlearn._schedule import Schedule
from optlearn._trajectory import improvement
from optlearn.paper import shared
from optlearn.paper.shared import WIDTH, Claim, Stages, all_certified, pairs, set_letter
from optlearn.plotting.style import BLACK, GREY, TIME, shades, styled
from optlearn.practice import denoise
from optlearn.practice.datasets import mnist
from optlearn.practice.fit import AnisotropyWarning, MixtureFit, gaussian_mixture

TITLE = "Optimal denoising schedules for zeros and ones of MNIST"

NOISES = (0.1, 0.2, 0.3, 0.4)
SHOWN_NOISE = 0.4  # panel c
HORIZON = 1.0
SCALE = 255 * 5  # the paper's code divides pixels by 255, and by 5 again
# As printed. Rows of the printed R are clusters; here they are nodes.
START = {"Q": ((1.0, 0.00068), (0.00068, 1.0)), "R": ((0.339, 0.173), (0.200, 0.263))}
PRINTED = {"sigma": (0.05, 0.033), "probabilities": (0.47, 0.53), "Omega": (1.737, 1.158)}
TEST_IMAGES = 13_996
IMPROVEMENT = 40.0
INTERVALS, QUICK_INTERVALS = 499, 100
SETS, QUICK_SETS = 10, 3
FURTHER_SETS = 40  # ours: for a more precise comparison of theory and training than ten sets allow
RECORDS = 50  # divides 784 steps into pieces of 15 or 16
EXAMPLES = 3  # of each digit, in panel c
KINDS = ("original", "corrupted", "constant", "optimal")
MOVE = 1e-3  # smallest relevant change of Δ
AGREEMENT = 0.15  # of the improvement


def compute(
    quick: bool = False,
    progress: Report | None = None,
    data_dir: Path | None = None,
    *,
    intervals: int | None = None,
    sets: int | None = None,
    further_sets: int | None = None,
    seed: int = 0,
) -> xarray.Dataset:
    """Fit the mixture, solve for the schedules and train with them.

    Args:
        quick: coarser schedules and fewer training sets.
        progress: called at every stage.
        data_dir: folder of MNIST's files; see ``practice.datasets.mnist``.
        intervals: of the schedules.
        sets: random training sets of 784 images.
        further_sets: further training sets, of which only the final errors are stored.
        seed: of the training sets, initial weights and noise.
    """
    tell = Stages(progress, 2 + len(NOISES))
    tell("fitting the clusters")
    digits = mnist("all", data_dir).only(0, 1)
    images = digits.rows(SCALE)
    with warnings.catch_warnings():
        # Reported among the claims, with numbers.
        warnings.simplefilter("ignore", AnisotropyWarning)
        fit = gaussian_mixture(images, digits.labels)
    steps = intervals or (QUICK_INTERVALS if quick else INTERVALS)
    solved = [_solved(fit, level, steps) for level in tell.each("optimal noise at Δ_F = {:g}", NOISES)]
    schedules = {
        f"{kind} {level}": run.schedules[kind]
        for level, run in zip(NOISES, solved, strict=True)
        for kind in ("constant", "optimal")
    }
    count = sets or (QUICK_SETS if quick else SETS)
    more = further_sets if further_sets is not None else (0 if quick else FURTHER_SETS)
    tell("training")
    chosen = denoise.training_sets(len(images), count + more, fit.N, seed)

    def train(part: np.ndarray, first: int, records: int) -> denoise.Training:
        moment = denoise.held_out_moment(images, part)
        return _train(fit, images[part], moment, schedules, seed, first, records)

    training = train(chosen[:count], 0, RECORDS + 1)
    ends = [training.error[..., [0, -1]]]
    for first in range(count, count + more, SETS):
        ends.append(train(chosen[first : first + SETS], first, 2).error)
    end_errors = np.concatenate(ends).reshape(count + more, len(NOISES), 2, 2)
    errors = training.error.reshape(count, len(NOISES), 2, -1)
    control = _train(fit, *_gaussians(fit, count, seed), schedules, seed, 0, 2).error[..., -1]
    predicted = np.stack([run.error for run in solved], axis=1)
    pictures = _examples(images, digits.labels, chosen[0], training)
    return xarray.Dataset(
        {
            "noise": (("Delta_F", "interval"), [run.solution.schedule["noise"] for run in solved]),
            "edge": solved[0].solution.schedule.grid,
            **shared.certificates([run.solution for run in solved], "Delta_F"),
            "theory_error": (("terms", "Delta_F", "schedule", "theory_alpha"), predicted),
            "error": (("set", "Delta_F", "schedule", "alpha"), errors),
            "end_error": (("any_set", "Delta_F", "schedule", "end"), end_errors),
            "gaussian_error": (("set", "Delta_F", "schedule"), control.reshape(count, len(NOISES), 2)),
            "sigma": ("cluster", fit.sigma),
            "probabilities": ("cluster", fit.probabilities),
            "Omega": (("cluster", "other_cluster"), fit.Omega),
            "participation": ("cluster", fit.isotropy.participation),
            "isotropic_participation": ("cluster", fit.isotropy.expected),
            "image": (("kind", "example", "row", "column"), pictures),
        },
        coords={
            "Delta_F": list(NOISES),
            "schedule": ["constant", "optimal"],
            "terms": ["paper", "finite size"],
            "theory_alpha": solved[0].alpha,
            "alpha": training.alpha,
            "end": ["start", "final"],
            "kind": list(KINDS),
            "cluster": ["0", "1"],
        },
        attrs={"test_images": len(images) - fit.N, "training_images": fit.N, "seed": seed, "scale": SCALE},
    )  # fmt: skip


class Solved(NamedTuple):
    """The optimum at one level of test noise, and the theory's prediction."""

    solution: Solution
    schedules: dict[str, Schedule]  # the constant and the optimal one
    alpha: np.ndarray  # (T,)
    error: np.ndarray  # (terms, schedules, T): the paper's theory, and with the terms that it neglects


def _solved(fit: MixtureFit, level: float, intervals: int) -> Solved:
    problem = fit.denoising(START, level, HORIZON)
    solution = solve(problem, intervals, starts=1)
    schedules = {"constant": baselines(problem)["constant"], "optimal": solution.schedule}
    exact = fit.denoising(START, level, HORIZON, finite_size=True)
    courses = [[evaluate(p, s, record=201) for s in schedules.values()] for p in (problem, exact)]
    error = np.array([[course["error"] for course in row] for row in courses])
    return Solved(solution, schedules, courses[0][0].alpha, error)


def _train(
    fit: MixtureFit,
    images: np.ndarray,
    moment: np.ndarray,
    schedules: dict[str, Schedule],
    seed: int,
    first: int,
    records: int,
) -> denoise.Training:
    """Train on sets (S, P, N) of images, the first of which has the number ``first``."""
    weights = [fit.weights(START["Q"], START["R"], [seed, first + s]) for s in range(len(images))]
    options: dict[str, Any] = {"seed": seed, "first_set": first, "records": records}
    return denoise.train(images, np.stack(weights), schedules, moment, np.repeat(NOISES, 2), **options)


def _gaussians(fit: MixtureFit, sets: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Data sets that satisfy the theory's assumptions, and their second moment."""
    rng = np.random.default_rng([seed, sets, fit.N])
    labels = rng.choice(len(fit.classes), (sets, fit.N), p=fit.probabilities)
    spread = fit.sigma[labels][..., None] * rng.standard_normal((sets, fit.N, fit.N))
    second = (fit.centroids.T * fit.probabilities) @ fit.centroids / fit.N
    moment = second + (fit.probabilities @ fit.sigma**2) * np.eye(fit.N)
    return fit.centroids[labels] / np.sqrt(fit.N) + spread, moment


def _examples(
    images: np.ndarray, labels: np.ndarray, trained: np.ndarray, training: denoise.Training
) -> np.ndarray:
    """(kind, example, row, column) held-out images, and the outputs of the networks of the first set."""
    held_out = np.setdiff1d(np.arange(len(images)), trained)
    held_out = np.random.default_rng(0).permutation(held_out)
    picks = np.concatenate([held_out[labels[held_out] == digit][:EXAMPLES] for digit in (0, 1)])
    clean = images[picks]
    shown = [clean]
    for kind in ("constant", "optimal"):
        v = training.names.index(f"{kind} {SHOWN_NOISE}")
        noisy, denoised = denoise.reconstruct(clean, training.weights[0, v], training.skip[0, v], SHOWN_NOISE)
        shown += [denoised] if len(shown) > 1 else [noisy, denoised]
    side = round(np.sqrt(clean.shape[1]))
    return np.stack(shown).reshape(len(KINDS), len(picks), side, side)


# --- drawing ---------------------------------------------------------------------------------------


@styled
def plot(data: xarray.Dataset) -> Figure:
    """Panels a-c."""
    figure = Figure(figsize=(WIDTH, 3.5), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[2.0, 1.5])[0]
    first, second = left.subplots(1, 2)
    shared.draw_family(first, data.noise, data.edge)
    first.set(xlabel=TIME, ylabel="optimal noise Δ", xlim=(0, HORIZON), ylim=(0, None))
    first.legend(title=r"test noise $\Delta_F$", title_fontsize=7.5)
    _draw_improvement(second, data)
    _draw_images(right, data)
    for axes, letter in ((first, "a"), (second, "b")):
        set_letter(axes, letter)
    return figure


def _draw_improvement(axes: Axes, data: xarray.Dataset) -> None:
    predicted = _predicted(data)
    mean, half = denoise.mean_interval(_measured(data))
    for i, colour in enumerate(shades(data.sizes["Delta_F"])):
        axes.fill_between(data.alpha, mean[i] - half[i], mean[i] + half[i], color=colour, alpha=0.25, lw=0)
        axes.plot(data.alpha, mean[i], color=colour)
        axes.plot(data.theory_alpha, predicted[i], "--", color=colour, lw=1)
    axes.plot([], [], color=BLACK, label=f"training, mean of {data.sizes['set']} sets")
    axes.fill_between([], [], color=BLACK, alpha=0.25, lw=0, label="its 95 % interval")
    axes.plot([], [], "--", color=BLACK, lw=1, label="theory")
    axes.axhline(0, color=GREY, linewidth=0.8, linestyle=":")
    limits = (np.nanmin(mean) - 3, np.nanmax((mean + half)[:, -1]) + 3)
    over = "test MSE improvement over Δ = $\\Delta_F$ (%)"
    axes.set(xlabel=TIME, ylabel=over, xlim=(0, HORIZON), ylim=limits)
    axes.set_title("colours as in a", fontsize=8)
    axes.legend(loc="upper left")


def _draw_images(figure: SubFigure, data: xarray.Dataset) -> None:
    """Draw images; corrupted ones and the two kinds of denoised ones have separate grey scales."""
    grid = figure.subplots(len(KINDS), data.sizes["example"], squeeze=False)
    noise = 2 * np.sqrt(SHOWN_NOISE)
    denoised = float(data.image.sel(kind=["constant", "optimal"]).max())
    ranges = {"original": (0.0, float(data.image.sel(kind="original").max())), "corrupted": (-noise, noise)}
    error = data.error.sel(Delta_F=SHOWN_NOISE).isel(alpha=-1).mean("set")
    for row, kind in zip(grid, map(str, data.kind.values), strict=True):
        low, high = ranges.get(kind, (0.0, denoised))
        shared.draw_pictures(row, data.image.sel(kind=kind), cmap="gray", vmin=low, vmax=high)
        label = kind
        if kind in data.schedule.values:
            label = f"denoised,\n{kind} noise\nMSE {float(error.sel(schedule=kind)):.2f}"
        row[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)
    set_letter(grid[0, 0], "c")
    words = rf"held-out images, $\Delta_F={SHOWN_NOISE}$"
    above = grid[0, 0].text(0.5, 1.13, words, transform=grid[0, 0].transAxes, fontsize=8)
    above.set_in_layout(False)  # it extends over the next images


# --- numbers ---------------------------------------------------------------------------------------


def _improvement(error: xarray.DataArray) -> np.ndarray:
    """In %, along the last axis; the axis of schedules is gone."""
    return improvement(error.sel(schedule="constant").values, error.sel(schedule="optimal").values)


def _measured(data: xarray.Dataset) -> np.ndarray:
    """(sets, Δ_F, α) improvement in % on each training set."""
    return _improvement(data.error)


def _predicted(data: xarray.Dataset, terms: str = "paper") -> np.ndarray:
    """(Δ_F, α) improvement in % by the theory."""
    return _improvement(data.theory_error.sel(terms=terms))


def claims(data: xarray.Dataset) -> list[Claim]:
    """The paper's claims about this figure, and how its theory compares with real training."""
    of_schedules = (_rises_then_falls, _more_noise, _up_to_forty)
    of_theory = (_theory_against_training, _errors_against_training, _images_are_better, _isotropic)
    checked = [check(data) for check in (*of_schedules, *of_theory)]
    return [*checked, *_printed(data), all_certified(data.converged.values, data.gap.values)]


def _by_level(data: xarray.Dataset, values: Any) -> dict[float, Any]:
    return pairs(data.Delta_F.values.tolist(), values)


def _rises_then_falls(data: xarray.Dataset) -> Claim:
    peaks, fine, back = {}, [], []
    for level, row in _by_level(data, data.noise.values).items():
        peak = int(np.argmax(row))
        peaks[level] = {
            "first": row[0],
            "highest": row[peak],
            "at α": float(data.edge[peak]),
            "last": row[-1],
        }
        # Total movement against the trend.
        dips = np.max(np.maximum.accumulate(row[: peak + 1]) - row[: peak + 1])
        back.append(np.max(row[peak:] - np.minimum.accumulate(row[peak:])))
        rises, falls = row[peak] - row[0] > MOVE, row[peak] - row[-1] > MOVE
        fine.append(rises and falls and dips < 0.05 * row[peak] and back[-1] < 0.05 * row[peak])
    return Claim(
        "rises-then-falls",
        "For every Δ_F the optimal noise first increases, then decreases gradually towards the end",
        peaks,
        "up to one peak, then down; moves the other way are below 5 % of the peak",
        all(fine),
        f"at the very end it rises again, by up to {max(back):.3f}" if max(back) > MOVE else "",
    )


def _more_noise(data: xarray.Dataset) -> Claim:
    steps = np.diff(data.noise.values, axis=0)
    lengths = np.diff(data.edge.values)
    below = data.edge.values[:-1][np.any(steps < -MOVE, axis=0)]
    return Claim(
        "more-noise-with-test-noise",
        "Higher test noise leads to higher noise throughout the schedule",
        _by_level(data, data.noise.values @ lengths / lengths.sum()),
        "schedules do not cross; found is their mean noise",
        not len(below),
        f"between α = {below.min():.2f} and {below.max():.2f} two of them are in the other order by up to "
        f"{-steps.min():.3f}" if len(below) else "",
    )  # fmt: skip


def _up_to_forty(data: xarray.Dataset) -> Claim:
    mean, half = denoise.mean_interval(_measured(data)[:, :, -1])
    best = int(np.argmax(mean))
    sizes = data.attrs["training_images"], data.attrs["test_images"]
    return Claim(
        "up-to-40-percent",
        "In real training the optimal schedule improves the test MSE by up to 40 %",
        _by_level(data, [{"%": m, "95 % ±": h} for m, h in zip(mean, half, strict=True)]),
        "40 lies in the 95 % interval of the largest improvement",
        bool(abs(mean[best] - IMPROVEMENT) <= half[best]),
        f"mean over {data.sizes['set']} training sets of {sizes[0]} images, tested on the other {sizes[1]:,} "
        f"(in the paper {TEST_IMAGES:,})",
    )


def _theory_against_training(data: xarray.Dataset) -> Claim:
    sets = _improvement(data.end_error)[..., -1]
    mean, half = denoise.mean_interval(sets)
    predicted, finite = (_predicted(data, terms)[:, -1] for terms in ("paper", "finite size"))
    off = np.abs(predicted - mean)
    outside = ", ".join(f"{level:g}" for level in data.Delta_F.values[off > half])
    numbers = [
        {"theory %": p, "theory with all terms %": f, "training %": m, "95 % ±": h}
        for p, f, m, h in zip(predicted, finite, mean, half, strict=True)
    ]
    return Claim(
        "theory-against-training",
        "The theory applies to real data: the improvement that it predicts is what training gives",
        _by_level(data, numbers),
        f"they differ by no more than {AGREEMENT:.0%} of the improvement, up to the 95 % interval",
        bool(np.all(off <= AGREEMENT * mean + half)),
        f"mean over {len(sets)} training sets; the prediction is outside the 95 % interval at Δ_F = "
        f"{outside or 'none'}",
    )


def _errors_against_training(data: xarray.Dataset) -> Claim:
    theory = data.theory_error.sel(terms="finite size").isel(theory_alpha=-1)
    trained = data.end_error.sel(end="final").mean("any_set")
    gaussian = data.gaussian_error.mean("set")
    off, control = (theory.values / mean.values - 1 for mean in (trained, gaussian))
    compared = {"theory": theory, "training": trained, "on Gaussian data": gaussian}

    def errors_at(level: float, schedule: str) -> dict[str, float]:
        return {name: float(e.sel(Delta_F=level, schedule=schedule)) for name, e in compared.items()}

    errors = {
        level: {f"{schedule} noise": errors_at(level, schedule) for schedule in data.schedule.values}
        for level in data.Delta_F.values.tolist()
    }
    return Claim(
        "errors-against-training",
        "(this work) The final test MSE itself, too, is what the theory predicts, if it keeps the terms of "
        "order 1 that the paper neglects",
        errors,
        "within 5 % for every Δ_F and both schedules",
        bool(np.all(np.abs(off) < 0.05)),
        f"theory is off by {100 * off.min():.1f} to {100 * off.max():.1f} % on the images, and by at most "
        f"{100 * np.abs(control).max():.1f} % on isotropic Gaussian clusters with the same parameters: what "
        "differs are the data, not the theory",
    )


def _images_are_better(data: xarray.Dataset) -> Claim:
    original = data.image.sel(kind="original")
    square = {
        kind: ((data.image.sel(kind=kind) - original) ** 2).sum(("row", "column")).values
        for kind in ("corrupted", "constant", "optimal")
    }
    return Claim(
        "denoised-images",
        f"The improvement is apparent in the denoised images (Δ_F = {SHOWN_NOISE})",
        {kind: values.mean() for kind, values in square.items()},
        "mean squared error of the images shown is lowest with the optimal schedule",
        bool(square["optimal"].mean() < min(square["constant"].mean(), square["corrupted"].mean())),
        f"lower than with constant noise in {np.sum(square['optimal'] < square['constant'])} of "
        f"{data.sizes['example']} images",
    )


def _isotropic(data: xarray.Dataset) -> Claim:
    clusters, measured = data.cluster.values, data.participation.values
    expected = data.isotropic_participation.values
    return Claim(
        "isotropic-clusters",
        "(this work) The images meet the theory's assumption that a cluster spreads alike in all directions",
        {"participation ratio": pairs(clusters, measured)},
        {"participation ratio": pairs(clusters, expected)},
        bool(np.all(measured > 0.5 * expected)),
        "the spread lies in few of 784 directions: that the predicted improvement is nearly right all the "
        "same is a finding, not a consequence of the theory",
    )


def _printed(data: xarray.Dataset) -> list[Claim]:
    sigma, probabilities = data.sigma.values, data.probabilities.values
    norms = np.diag(data.Omega.values)
    norm = "Squared norm of the centroid of the {}, divided by N"
    notes = {
        "sigma": "within one unit of the last printed digit (0.0338 is printed as 0.033)",
        "Omega11": "a misprint of the first digit; everything here uses the value of the data",
    }
    rows = [
        ("sigma", "Standard deviations of the clusters, fitted to the data", sigma, PRINTED["sigma"], 1e-3),
        ("cluster-probabilities", "Shares of zeros and ones", probabilities, PRINTED["probabilities"], 5e-3),
        ("Omega22", norm.format("ones"), norms[1], PRINTED["Omega"][1], 5e-4),
        ("Omega11", norm.format("zeros"), norms[0], PRINTED["Omega"][0], 1.5e-3),
    ]
    return [
        Claim(name, text, value, printed, bool(np.all(np.abs(value - printed) < within)), notes.get(name, ""))
        for name, text, value, printed, within in rows
    ]
