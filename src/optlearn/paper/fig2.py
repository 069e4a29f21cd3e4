"""Figure 2: optimal dropout."""

from collections.abc import Sequence

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from optlearn._control.evaluate import evaluate
from optlearn._control.solve import solve
from optlearn._progress import Report
from optlearn._schedule import Schedule
from optlearn.paper import shared
from optlearn.paper.shared import Claim, Stages, all_certified, at_end, pairs, panels, span
from optlearn.plotting.style import BLACK, BLUE, GREY, ORANGE, TIME, VERMILION, styled
from optlearn.scenarios._committee import dropout

TITLE = "Optimal dropout schedules"

SIGMA = 0.3  # label noise of panels a-c
SIGMAS = (0.1, 0.2, 0.3, 0.4, 0.5)
QUICK_SIGMAS = (0.1, 0.3, 0.5)
CONSTANT = 0.68
PAPER_RESCALING = 0.678
# Dropout has begun when p falls below this. Its decay is measured over this much training time from there.
ONSET, DECAY_TIME = 0.99, 0.5
COLOURS = {"none": BLUE, "constant": ORANGE, "optimal": BLACK}
LABELS = {"none": "no dropout", "constant": f"constant p = p_f = {CONSTANT}", "optimal": "optimal"}


def compute(
    quick: bool = False,
    progress: Report | None = None,
    *,
    sigmas: Sequence[float] | None = None,
    intervals: int | None = None,
    starts: int | None = None,
) -> xarray.Dataset:
    """Solve for each level of label noise.

    Args:
        quick: fewer levels, coarser grid, one start.
        progress: called at every stage.
        sigmas: label noise σ_n of panel d; 0.3 must be among them.
        intervals: control intervals.
        starts: first guesses for each optimum.
    """
    levels = tuple(sigmas or (QUICK_SIGMAS if quick else SIGMAS))
    count = intervals or (50 if quick else 200)
    tell = Stages(progress, len(levels) + 1)
    solutions = [
        solve(dropout(sigma_n=sigma), count, starts=starts or (1 if quick else 3))
        for sigma in tell.each("optimal dropout at σ_n = {:g}", levels)
    ]
    tell("trajectories")
    at = solutions[levels.index(SIGMA)]
    problem = at.problem
    schedules = {
        "none": _constant(problem.horizon, 1.0),
        "constant": _constant(problem.horizon, CONSTANT),
        "optimal": at.schedule.with_parameters(**at.parameters),
    }
    runs = {name: evaluate(problem, schedule, record=501) for name, schedule in schedules.items()}
    return xarray.Dataset(
        {
            **shared.courses(runs, "error", "correlation", "cosine"),
            "activation": (("sigma_n", "interval"), [s.schedule["activation"] for s in solutions]),
            "edge": solutions[0].schedule.grid,
            "rescaling": ("sigma_n", [s.parameters["rescaling"] for s in solutions]),
            "objective": ("sigma_n", [s.objective for s in solutions]),
            **shared.certificates(solutions, "sigma_n"),
        },
        coords={"schedule": list(runs), "alpha": runs["optimal"].alpha, "sigma_n": list(levels)},
    )


def _constant(horizon: float, p: float) -> Schedule:
    return Schedule.constant(horizon, {"activation": p}).with_parameters(rescaling=p)


# --- drawing ---------------------------------------------------------------------------------------


@styled
def plot(data: xarray.Dataset) -> Figure:
    """Panels a-f."""
    figure, axes = panels([["a", "b", "c"], ["d", "e", "f"]], height=5.6)
    labels = {
        "a": ("error", r"generalisation error $\varepsilon_g$"),
        "b": ("correlation", r"node correlation $\tilde\Delta$"),
        "c": ("cosine", r"cosine $M_{11}/\sqrt{Q_{11}T_{11}}$"),
    }
    rescaling = float(data.rescaling.sel(sigma_n=SIGMA))
    for letter, (quantity, label) in labels.items():
        for name in LABELS:
            text = f"optimal, p_f = {rescaling:.3f}" if name == "optimal" else LABELS[name]
            course, text = data[quantity].sel(schedule=name), text.replace("p_f", "$p_f$")
            axes[letter].plot(data.alpha, course, color=COLOURS[name], label=text)
        axes[letter].set(xlabel=TIME, ylabel=label, xlim=span(data.alpha))
        axes[letter].set_title(rf"$\sigma_n={SIGMA}$", fontsize=8)
    axes["a"].legend()
    shared.draw_family(axes["d"], data.activation, data.edge)
    axes["d"].set(xlabel=TIME, xlim=span(data.edge), ylim=(0, 1.04))
    axes["d"].set_ylabel("optimal activation probability p")
    axes["d"].legend(title=r"label noise $\sigma_n$", loc="lower left", ncols=2, title_fontsize=7.5)
    _draw_network(axes["e"], training=True)
    _draw_network(axes["f"], training=False)
    return figure


def _draw_network(axes: Axes, training: bool) -> None:
    """Inputs, two hidden nodes and the output; in training one node is dropped."""
    inputs = [(0.0, y) for y in (0.0, 1.0, 2.0, 3.0)]
    hidden, output = [(1.6, 2.4), (1.6, 0.6)], (3.2, 1.5)
    for x, y in inputs:
        axes.add_patch(Circle((x, y), 0.2, facecolor="white", edgecolor=BLUE, linewidth=1.4, zorder=2))
    for k, (x, y) in enumerate(hidden):
        dropped = training and k == 1
        line, face, edge = ("#BBBBBB", "#EEEEEE", GREY) if dropped else (BLACK, ORANGE, BLACK)
        for start, end in [*((place, (x, y)) for place in inputs), ((x, y), output)]:
            ends = zip(start, end, strict=True)
            axes.plot(*ends, ":" if dropped else "-", color=line, linewidth=0.9, zorder=1)
        axes.add_patch(Circle((x, y), 0.27, facecolor=face, edgecolor=edge, linewidth=1.2, zorder=2))
        if dropped:
            for up in (0.2, -0.2):
                axes.plot([x - 0.2, x + 0.2], [y - up, y + up], color=VERMILION, lw=1.8, zorder=3)
        if training:
            on = f"$r^{{({k + 1})}}={0 if dropped else 1}$"
            axes.text(x, y + (-0.62 if dropped else 0.4), on, ha="center", fontsize=8)
        else:
            axes.text(2.45, 2.35 if k == 0 else 0.65, r"$p_f$", ha="center", va="center", fontsize=9)
    axes.add_patch(Circle(output, 0.27, facecolor="white", edgecolor=BLACK, linewidth=1.4, zorder=2))
    axes.text(0, -0.6, r"inputs $\boldsymbol{x}$", ha="center", fontsize=8)
    axes.text(1.6, -0.6, "hidden nodes", ha="center", fontsize=8)
    axes.text(3.2, 1.0, "output", ha="center", fontsize=8)
    in_training = r"each node is on with probability $p(\alpha)$"
    below = in_training if training else r"all nodes on, rescaled by $p_f$"
    axes.text(1.6, -1.1, below, ha="center", fontsize=8)
    axes.set(xlim=(-0.6, 3.8), ylim=(-1.25, 3.5), aspect="equal")
    axes.set_title("training" if training else "testing", fontsize=9)
    axes.axis("off")


# --- claims ----------------------------------------------------------------------------------------


def claims(data: xarray.Dataset) -> list[Claim]:
    """The paper's claims about this figure."""
    rescaling, final = float(data.rescaling.sel(sigma_n=SIGMA)), at_end(data.error, LABELS)
    return [
        Claim(
            "rescaling",
            "At σ_n = 0.3 the optimal rescaling is p_f = 0.678",
            rescaling,
            PAPER_RESCALING,
            abs(rescaling - PAPER_RESCALING) <= 5e-4,
        ),
        Claim(
            "order",
            "At σ_n = 0.3 the optimal schedule is better than constant p = p_f = 0.68, and that better than "
            "no dropout",
            final,
            "optimal < constant < none",
            final["optimal"] < final["constant"] < final["none"],
        ),
        *_mechanism(data),
        *_shape(data),
        *_with_noise(data),
        all_certified(data.converged, data.gap),
    ]


def _mechanism(data: xarray.Dataset) -> list[Claim]:
    later = data.isel(alpha=slice(1, None))
    final = {quantity: at_end(data[quantity], LABELS) for quantity in ("correlation", "cosine")}
    none, constant = (later.sel(schedule=name) for name in ("none", "constant"))
    below = {quantity: (constant[quantity] < none[quantity]).values for quantity in final}
    # Both curves saturate; growth refers to the time before.
    level = 0.9 * float(none.cosine.max())
    times = {
        name: shared.crossing(data.alpha.values, -data.cosine.sel(schedule=name).values, -level)
        for name in ("none", "constant")
    }
    soon, late = times["none"], times["constant"]
    slower = soon < late or (np.isfinite(soon) and not np.isfinite(late))
    share, ends = float(np.mean(below["cosine"])), final["cosine"]
    crossed = (
        f"with dropout it ends at {ends['constant']:.4f}, without at {ends['none']:.4f}: the curves cross"
    )
    return [
        Claim(
            "correlation-lower",
            "Constant dropout lowers the detrimental correlation Δ̃ during training (σ_n = 0.3)",
            {"final Δ̃": final["correlation"], "share of training below": np.mean(below["correlation"])},
            "below that without dropout, all the time",
            bool(below["correlation"].all()),
        ),
        Claim(
            "cosine-slower",
            "Dropout slows the growth of the cosine similarity with the teacher (σ_n = 0.3)",
            {f"α at which the cosine reaches {level:.3f}": times, "share of training below": share},
            "later than without dropout",
            slower,
            "" if share == 1 else crossed,
        ),
    ]


def _onsets(data: xarray.Dataset) -> np.ndarray:
    times = shared.middles(data.edge.values)
    return np.array([shared.crossing(times, row, ONSET) for row in data.activation.values])


def _shape(data: xarray.Dataset) -> list[Claim]:
    sigmas, onsets = data.sigma_n.values, _onsets(data)
    first = data.activation.values[:, 0]
    falling = [
        bool(np.all(np.diff(row[np.flatnonzero(row < ONSET)[0] :]) <= 1e-6)) if np.any(row < ONSET) else False
        for row in data.activation.values
    ]
    exceptions = [float(sigma) for sigma, ok in zip(sigmas, falling, strict=True) if not ok]
    rises = f"at σ_n = {', '.join(f'{sigma:g}' for sigma in exceptions)} p rises again before the end"
    lows = data.activation.min("interval").values
    return [
        Claim(
            "no-dropout-first",
            "Each optimal schedule begins without dropout, p = 1",
            {"p at first": pairs(sigmas, first), "until α": pairs(sigmas, onsets)},
            f"p = 1 at first, and above {ONSET} up to some α > 0",
            bool(np.all(first > 0.999) and np.all(onsets > 0)),
        ),
        Claim(
            "gradual-decrease",
            "From there on p decreases gradually",
            {
                "falls to the end at σ_n": [float(s) for s, ok in zip(sigmas, falling, strict=True) if ok],
                "lowest p": pairs(sigmas, lows),
                "p at the end": pairs(sigmas, data.activation.values[:, -1]),
            },
            "p falls from its onset to the end of training, for every σ_n",
            not exceptions,
            rises if exceptions else "",
        ),
    ]


def _with_noise(data: xarray.Dataset) -> list[Claim]:
    sigmas, onsets, times = data.sigma_n.values, _onsets(data), shared.middles(data.edge.values)
    rows = zip(onsets, data.activation.values, strict=True)
    later = np.array([np.interp(onset + DECAY_TIME, times, row) for onset, row in rows])
    decay = (ONSET - later) / DECAY_TIME
    lows, means = data.activation.min("interval").values, data.activation.mean("interval").values
    return [
        Claim(
            "less-active-with-noise",
            "Noisier tasks require a lower activation probability",
            {"mean p": pairs(sigmas, means)},
            "mean p over training decreases with σ_n",
            bool(np.all(np.diff(means) < 0)),
        ),
        Claim(
            "onset-earlier",
            "As σ_n grows, the initial phase without dropout becomes shorter",
            pairs(sigmas, onsets),
            f"α at which p falls below {ONSET} decreases with σ_n",
            bool(np.all(np.diff(onsets) < 0)),
            _holds_from(sigmas, np.diff(onsets) < 0),
        ),
        Claim(
            "decay-sharper",
            "As σ_n grows, p decreases more sharply",
            pairs(sigmas, decay),
            f"mean fall of p per unit of α, over {DECAY_TIME:g} from the onset, grows with σ_n",
            bool(np.all(np.diff(decay) > 0)),
            _holds_from(sigmas, np.diff(decay) > 0),
        ),
        Claim(
            "close-to-one-at-low-noise",
            "At low label noise p remains close to one",
            {"lowest p": pairs(sigmas, lows)},
            "lowest p above 0.8 at the smallest σ_n, and above that of every larger σ_n",
            bool(lows[0] > 0.8 and np.all(lows[0] > lows[1:])),
        ),
    ]


def _holds_from(sigmas: np.ndarray, steps: np.ndarray) -> str:
    """A note on where a monotone course begins."""
    if steps.all():
        return ""
    last = int(np.flatnonzero(~steps)[-1])
    if last + 2 > len(steps):
        return f"not between σ_n = {sigmas[last]:g} and {sigmas[last + 1]:g}"
    return f"holds from σ_n = {sigmas[last + 1]:g} on, not below"
