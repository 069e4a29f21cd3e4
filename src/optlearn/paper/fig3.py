"""Figure 3: optimal noise and optimal augmentation for a denoising autoencoder."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from optlearn._control.compare import baselines
from optlearn._control.evaluate import evaluate
from optlearn._control.problem import Problem
from optlearn._control.solution import Solution
from optlearn._control.solve import solve
from optlearn._progress import Report
from optlearn._trajectory import Trajectory, improvement
from optlearn.models._autoencoder import optimal_skip
from optlearn.paper import shared
from optlearn.paper.shared import Claim, Stages, all_certified, at_end, pairs, panels, span
from optlearn.plotting.style import BLACK, BLUE, GREY, ORANGE, TIME, styled
from optlearn.scenarios._denoising import denoising, denoising_batch

TITLE = "Optimal schedules for denoising autoencoders"

SHOWN_NOISE = 0.25  # panels c and d
NOISES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
QUICK_NOISES = (0.1, 0.25, 0.4)
BATCH_NOISES = (0.1, 0.2, 0.3, 0.4, 0.5)
QUICK_BATCH_NOISES = (0.1, 0.3, 0.5)
INSET_NOISES = tuple(np.round(np.linspace(0.05, 0.95, 19), 2).tolist())
QUICK_INSET_NOISES = (0.1, 0.3, 0.5, 0.6, 0.7, 0.9)
MOVE = 1e-3  # smallest relevant change of Δ
FLAT = 0.05  # a schedule below this counts as close to Δ = 0
POINTS = 401


def compute(
    quick: bool = False,
    progress: Report | None = None,
    *,
    noises: Sequence[float] | None = None,
    batch_noises: Sequence[float] | None = None,
    inset_noises: Sequence[float] | None = None,
    intervals: int | None = None,
    batch_intervals: int | None = None,
    starts: int | None = None,
) -> xarray.Dataset:
    """Solve both problems for each test noise.

    Args:
        quick: fewer values, coarser grids.
        progress: called at every stage.
        noises: test noise Δ_F of panels a and b; 0.25 must be among them.
        batch_noises: Δ_F of panels e and f.
        inset_noises: Δ of the inset.
        intervals: of the noise schedule.
        batch_intervals: of the batch schedule.
        starts: first guesses for each noise schedule.
    """
    levels = tuple(noises or (QUICK_NOISES if quick else NOISES))
    curves = tuple(batch_noises or (QUICK_BATCH_NOISES if quick else BATCH_NOISES))
    inset = tuple(inset_noises or (QUICK_INSET_NOISES if quick else INSET_NOISES))
    others = tuple(level for level in inset if level not in curves)
    tell = Stages(progress, len(levels) + len(curves) + len(others))
    count, batch_count = intervals or (100 if quick else 400), batch_intervals or (60 if quick else 120)
    noise = [
        Solved.from_problem(denoising(Delta_F=level), count, starts or (1 if quick else 2))
        for level in tell.each("optimal noise at Δ_F = {:g}", levels)
    ]
    batch = {
        level: Solved.from_problem(denoising_batch(Delta_F=level), batch_count, 1)
        for level in tell.each("optimal batch at Δ_F = {:g}", (*curves, *others))
    }
    shown = noise[levels.index(SHOWN_NOISE)]
    shown_batch, all_batch = ([batch[level] for level in part] for part in (curves, sorted(batch)))
    batch_dims = ("batch_Delta_F", "batch_interval")
    return xarray.Dataset(
        {
            "noise": (("Delta_F", "interval"), [run.solution.schedule["noise"] for run in noise]),
            "edge": noise[0].solution.schedule.grid,
            "improvement": (("Delta_F", "alpha"), [run.improvement for run in noise]),
            "theta": (("schedule", "cluster", "alpha"), shown.both("theta11", "theta22")),
            "b": (("schedule", "alpha"), shown.both("b")[:, 0]),
            "b_target": optimal_skip(SHOWN_NOISE, 0.1),
            **shared.certificates([run.solution for run in noise], "Delta_F"),
            "batch": (batch_dims, [run.solution.schedule["batch"] for run in shown_batch]),
            "batch_edge": shown_batch[0].solution.schedule.grid,
            "batch_improvement": (("batch_Delta_F", "batch_alpha"), [run.improvement for run in shown_batch]),
            "inset_improvement": ("inset_Delta_F", [run.improvement[-1] for run in all_batch]),
            **shared.certificates([run.solution for run in all_batch], "inset_Delta_F", "batch_"),
        },
        coords={
            "Delta_F": list(levels),
            "alpha": shown.optimal.alpha,
            "schedule": ["optimal", "constant"],
            "cluster": [1, 2],
            "batch_Delta_F": list(curves),
            "batch_alpha": shown_batch[0].optimal.alpha,
            "inset_Delta_F": sorted(batch),
        },
    )


class Solved(NamedTuple):
    """An optimum, and training under it and under the constant schedule."""

    solution: Solution
    optimal: Trajectory
    constant: Trajectory

    @classmethod
    def from_problem(cls, problem: Problem, intervals: int, starts: int) -> "Solved":
        """Solve a problem."""
        solution = solve(problem, intervals, starts=starts)
        schedules = (solution.schedule, baselines(problem)["constant"])
        return cls(solution, *(evaluate(problem, schedule, record=POINTS) for schedule in schedules))

    @property
    def improvement(self) -> np.ndarray:
        """(T,) in percent, of the optimal over the constant schedule."""
        return improvement(self.constant["error"], self.optimal["error"])

    def both(self, *names: str) -> np.ndarray:
        """(2, n, T) quantities under the optimal and the constant schedule."""
        return np.array([[run[name] for name in names] for run in (self.optimal, self.constant)])


# --- drawing ---------------------------------------------------------------------------------------


@styled
def plot(data: xarray.Dataset) -> Figure:
    """Panels a-f with the inset."""
    figure, axes = panels([["a", "b", "c"], ["d", "e", "f"]], height=5.8)
    shared.draw_family(axes["a"], data.noise, data.edge)
    shared.draw_family(axes["b"], data.improvement, data.alpha)
    shared.draw_family(axes["e"], data.batch, data.batch_edge)
    shared.draw_family(axes["f"], data.batch_improvement, data.batch_alpha)
    axes["a"].set(xlabel=TIME, ylabel="optimal noise Δ", xlim=span(data.edge), ylim=(0, 1.25))
    axes["a"].set_yticks(np.linspace(0, 1, 6))
    axes["a"].legend(title=r"test noise $\Delta_F$", title_fontsize=7.5, ncols=3, loc="upper right")
    lowest = max(1.08 * float(data.improvement.min()), -60)
    over = "MSE improvement over Δ = $\\Delta_F$ (%)"
    axes["b"].set(xlabel=TIME, ylabel=over, xlim=span(data.alpha), ylim=(lowest, None))
    axes["b"].axhline(0, color=GREY, linewidth=0.8, linestyle=":")
    axes["b"].set_title("colours as in a", fontsize=8)
    _draw_cosines(axes["c"], data)
    _draw_skip(axes["d"], data)
    axes["e"].axhline(5, color=GREY, linewidth=0.8, linestyle=":")
    axes["e"].set(xlabel=TIME, ylabel="optimal batch size B", xlim=span(data.batch_edge), ylim=(0, None))
    axes["e"].legend(title=r"noise $\Delta_F$; dotted: mean $\bar{B}=5$", title_fontsize=7.5)
    axes["f"].axhline(0, color=GREY, linewidth=0.8, linestyle=":")
    over = r"MSE improvement over $B=\bar{B}=5$ (%)"
    axes["f"].set(xlabel=TIME, ylabel=over, xlim=span(data.batch_alpha))
    axes["f"].set_title("colours as in e", fontsize=8)
    _draw_inset(axes["f"], data)
    return figure


def _draw_cosines(axes: Axes, data: xarray.Dataset) -> None:
    for cluster, colour in ((1, BLACK), (2, ORANGE)):
        for schedule, line in (("optimal", "-"), ("constant", "--")):
            course = data.theta.sel(cluster=cluster, schedule=schedule)
            label = rf"$\theta_{{{cluster},{cluster}}}$, {schedule}"
            axes.plot(data.alpha, course, line, color=colour, label=label)
    axes.set(xlabel=TIME, ylabel=r"cosine similarity $\theta_{k,k}$", xlim=span(data.alpha))
    axes.set_title(rf"$\Delta_F={SHOWN_NOISE}$", fontsize=8)
    axes.legend(loc="lower right")


def _draw_skip(axes: Axes, data: xarray.Dataset) -> None:
    for schedule, line, colour in (("optimal", "-", BLACK), ("constant", "--", BLUE)):
        axes.plot(data.alpha, data.b.sel(schedule=schedule), line, color=colour, label=schedule)
    axes.axhline(float(data.b_target), color=GREY, linestyle=":", label="target $b^*$")
    axes.set(xlabel=TIME, ylabel="skip connection b", xlim=span(data.alpha), ylim=(0, None))
    axes.set_title(rf"$\Delta_F={SHOWN_NOISE}$", fontsize=8)
    axes.legend(loc="lower right")


def _draw_inset(axes: Axes, data: xarray.Dataset) -> None:
    low = min(0.0, float(data.batch_improvement.min()))
    axes.set_ylim(1.05 * low - 1, max(-1.05 * low, 1.1 * float(data.batch_improvement.max())))
    inset = axes.inset_axes((0.16, 0.69, 0.42, 0.28))
    inset.plot(data.inset_Delta_F, data.inset_improvement, "-o", color=BLACK, ms=2.2, linewidth=1)
    inset.set_xlabel("Δ", fontsize=7, labelpad=0)
    inset.set_ylabel(r"% at $\alpha_F$", fontsize=7, labelpad=1)
    inset.set(xlim=(0, 1), ylim=(0, None))
    inset.tick_params(labelsize=6.5)


# --- claims ----------------------------------------------------------------------------------------


def claims(data: xarray.Dataset) -> list[Claim]:
    """The paper's claims about this figure."""
    of_noise = (_falls_then_rises, _mean_noise, _improvement, _cosines, _skip)
    of_batch = (_batch_grows, _batch_gain, _non_monotone)
    certified = all_certified([*data.converged, *data.batch_converged], [*data.gap, *data.batch_gap])
    return [*(check(data) for check in (*of_noise, *of_batch)), certified]


def _shape(schedule: np.ndarray) -> str:
    """The shape of a noise schedule, in words."""
    low = int(np.argmin(schedule))
    fall, rise = schedule[:low].max(initial=schedule[low]) - schedule[low], schedule[-1] - schedule[low]
    if rise <= MOVE:
        return "no rise at the end"
    if fall > MOVE:
        return "falls, then rises"
    return "flat near 0, then rises" if schedule[low] < FLAT else "rises"


def _falls_then_rises(data: xarray.Dataset) -> Claim:
    rows = pairs(data.Delta_F.values.tolist(), data.noise.values)
    shapes = {level: _shape(row) for level, row in rows.items()}
    fine = all(shape in ("falls, then rises", "flat near 0, then rises") for shape in shapes.values())
    falls = ["falls" in shape for shape in shapes.values()]
    flat_ones_first = any(falls) and all(falls[falls.index(True) :])
    rising = (row.max() - row[0] > 0.01 and np.argmax(row) < np.argmin(row) for row in rows.values())
    early = [f"{level:g}" for level, rises in zip(rows, rising, strict=True) if rises]
    return Claim(
        "falls-then-rises",
        "The optimal noise first falls and rises moderately towards the end; at low Δ_F it stays near 0 "
        "before it rises",
        shapes,
        "falls, then rises; flat near 0 only below the smallest Δ_F at which it falls",
        fine and flat_ones_first,
        f"at Δ_F = {', '.join(early)} a slight rise comes before the fall" if early else "",
    )


def _mean_noise(data: xarray.Dataset) -> Claim:
    lengths = np.diff(data.edge.values)
    means = data.noise.values @ lengths / lengths.sum()
    ends = data.edge.values[:-1][np.argmin(data.noise.values, axis=1)]
    falls = np.array(["falls" in _shape(row) for row in data.noise.values])
    return Claim(
        "more-noise-with-test-noise",
        "The duration of the initial decreasing phase and the average noise increase with Δ_F",
        {
            "mean noise": pairs(data.Delta_F.values, means),
            "decreasing until α": pairs(data.Delta_F.values[falls], ends[falls]),
        },
        "both increase with Δ_F",
        bool(np.all(np.diff(means) > 0) and np.all(np.diff(ends[falls]) > 0)),
    )


def _improvement(data: xarray.Dataset) -> Claim:
    final = data.improvement.values[:, -1]
    fine = (final >= 8) & (final <= 32)
    inside = data.Delta_F.values[fine]
    return Claim(
        "improvement",
        "The optimal schedule improves the MSE by approximately 10 to 30 %",
        pairs(data.Delta_F.values, final),
        "10 to 30 % at α_F for every Δ_F, give or take 2 points",
        bool(fine.all()),
        "" if fine.all() or not len(inside)
        else f"within that range at Δ_F = {', '.join(f'{level:g}' for level in inside)}; "
        "the paper does not print its values of Δ_F",
    )  # fmt: skip


def _cosines(data: xarray.Dataset) -> Claim:
    final = data.theta.isel(alpha=-1)
    gain = final.sel(schedule="optimal") - final.sel(schedule="constant")
    return Claim(
        "higher-cosine",
        "At Δ_F = 0.25 the optimal schedule ends with a higher cosine similarity of nodes and centroids",
        {str(s): final.sel(schedule=s).values for s in final.schedule.values},
        "both higher than with the constant schedule",
        bool((gain > 0).all()),
    )


def _skip(data: xarray.Dataset) -> Claim:
    target, alpha = float(data.b_target), data.alpha.values
    reached = {
        str(name): shared.crossing(alpha, np.abs(data.b.sel(schedule=name).values - target), 0.3 * target)
        for name in data.schedule.values
    }
    final = at_end(data.b, map(str, data.schedule.values))
    distance = {name: abs(value - target) for name, value in final.items()}
    sooner = np.isfinite(reached["optimal"]) and not reached["optimal"] >= reached["constant"]
    return Claim(
        "faster-skip",
        "At Δ_F = 0.25 the optimal schedule brings the skip faster to its target b*",
        {"b at α_F": final, "b*": target, "α at which b is within 30 % of b*": reached},
        "within 30 % sooner, and closer at α_F, than with the constant schedule",
        bool(sooner and distance["optimal"] < distance["constant"]),
    )


def _batch_grows(data: xarray.Dataset) -> Claim:
    first, last = data.batch.values[:, 0], data.batch.values[:, -1]
    levels = data.batch_Delta_F.values
    return Claim(
        "batch-grows",
        "The optimal batch size grows throughout training, with a moderate dependence on Δ_F",
        {"B at first": pairs(levels, first), "B at the end": pairs(levels, last)},
        "B never falls, at any Δ_F",
        bool(np.all(np.diff(data.batch.values, axis=1) > -1e-3) and np.all(last > first)),
    )


def _batch_gain(data: xarray.Dataset) -> Claim:
    final = data.batch_improvement.values[:, -1]
    highest = float(data.inset_improvement.max())
    return Claim(
        "batch-gain",
        "The optimal batch schedule improves the MSE by up to 10 %",
        pairs(data.batch_Delta_F.values, final),
        "largest improvement among these Δ_F between 9 and 11 %",
        bool(9 <= final.max() <= 11),
        f"up to {highest:.1f} % if all Δ of the inset are considered",
    )


def _non_monotone(data: xarray.Dataset) -> Claim:
    gain = data.inset_improvement.values
    peak = int(np.argmax(gain))
    rises, falls = bool(np.all(np.diff(gain[: peak + 1]) > 0)), bool(np.all(np.diff(gain[peak:]) < 0))
    return Claim(
        "batch-non-monotone",
        "The improvement is non-monotone in Δ and largest at intermediate noise",
        {"largest": float(gain[peak]), "at Δ": float(data.inset_Delta_F[peak]),
         "at the ends": [float(gain[0]), float(gain[-1])]},
        "a single maximum inside the range of Δ",
        0 < peak < len(gain) - 1 and rises and falls,
    )  # fmt: skip
