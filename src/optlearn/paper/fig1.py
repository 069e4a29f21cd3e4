"""Figure 1: the optimal order of easy and hard samples, alone and together with the learning rate.

λ̄ = λη is quoted at η = 3: ``weight_decay`` λ = λ̄/3. Where the learning rate varies (the joint
problem, and the best constant rate), λ is what is held fixed.
"""

from collections.abc import Mapping, Sequence

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
from optlearn._schedule import Schedule
from optlearn._trajectory import reduction
from optlearn.paper import shared
from optlearn.paper.shared import OURS, Claim, Stages, all_certified, at_end, pairs, panels, span
from optlearn.plotting.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, TIME, styled
from optlearn.scenarios._curriculum import curriculum

TITLE = "Optimal curricula compared to benchmarks"

ETA = 3.0
LAMBDA_BARS = tuple(np.round(np.linspace(0.0, 0.5, 11), 2).tolist())
QUICK_LAMBDA_BARS = (0.0, 0.2, 0.3, 0.5)
# The joint optimum's rate stays below this for every λ here; otherwise a claim would fail.
MAX_RATE = 15.0
RATES = (0.6, 0.9, 1.3, 2.0, 3.0)
# Objectives closer than this count as equal; integration errors are below 1e-10.
EQUAL = 1e-8
MIXING = 1e-7

# Usual schedules → the scenario's baseline.
USUAL = {"curriculum": "curriculum", "anti-curriculum": "anti-curriculum", "two-switch": "best two-switch"}
SCHEDULES = (*USUAL, "optimal")
COLOURS = {
    "curriculum": BLUE,
    "anti-curriculum": ORANGE,
    "two-switch": GREY,
    "optimal": BLACK,
    "best constant rate": PURPLE,
    "joint": GREEN,
}


def compute(
    quick: bool = False,
    progress: Report | None = None,
    *,
    lambda_bars: Sequence[float] | None = None,
    intervals: int | None = None,
    joint_intervals: int | None = None,
    starts: int | None = None,
) -> xarray.Dataset:
    """Solve for all panels.

    Args:
        quick: fewer values of λ̄, coarser grids, one start.
        progress: called at every stage.
        lambda_bars: values of λ̄, the first of them 0.
        intervals: of the order of samples.
        joint_intervals: of the joint problem.
        starts: first guesses for each optimum; the joint problem has at least two.
    """
    bars = tuple(lambda_bars or (QUICK_LAMBDA_BARS if quick else LAMBDA_BARS))
    count = intervals or (240 if quick else 480)
    starts = starts or (1 if quick else 3)
    tell = Stages(progress, 1 + 3 * len(bars))
    tell("optimal order at λ̄ = 0")
    zero = order_at_zero(intervals, starts)
    fixed = _sweep(bars, count, min(starts, 2), tell)
    return xarray.merge([zero, fixed, _joint(bars, joint_intervals, max(starts, 2), tell)])


def order_at_zero(intervals: int | None = None, starts: int = 3) -> xarray.Dataset:
    """Panels a-d and g-h: η = 3, λ = 0."""
    problem = curriculum()
    solution = solve(problem, intervals, starts=starts)
    usual = baselines(problem)
    schedules = {name: usual[baseline] for name, baseline in USUAL.items()}
    schedules["optimal"] = solution.schedule
    runs = {name: evaluate(problem, schedule, record=481) for name, schedule in schedules.items()}
    edges, difficulty = shared.common_grid(schedules, "difficulty")
    assert solution.relaxed is not None
    mixed = solution.relaxed.schedule
    hard = max(problem.discrete["difficulty"].values)
    random = evaluate(problem, usual["random mix"], record=2).objective
    return xarray.Dataset(
        {
            **shared.courses(runs, "error", "Q22", "cosine"),
            "objective": ("schedule", [run.objective for run in runs.values()]),
            "hard_share": (("schedule", "interval"), difficulty / hard),
            "edge": edges,
            "mixed_hard_share": ("mixed_interval", mixed["difficulty"] / hard),
            "mixed_edge": mixed.grid,
            "mixed_objective": solution.relaxed.objective,
            "random_objective": random,
            "zero_converged": solution.certificate.converged,
            "zero_gap": solution.certificate.hamiltonian_gap,
        },
        coords={"schedule": list(SCHEDULES), "alpha": runs["optimal"].alpha},
    )


def _sweep(bars: Sequence[float], intervals: int, starts: int, tell: Stages) -> xarray.Dataset:
    """Panel e at constant η: final errors against λ̄."""
    final: dict[str, list[float]] = {name: [] for name in (*SCHEDULES, "mixed")}
    solutions: list[Solution] = []
    for bar in tell.each("optimal order at λ̄ = {:g}", bars):
        problem = curriculum(eta=ETA, weight_decay=bar / ETA)
        usual = baselines(problem)
        reached = {name: evaluate(problem, usual[each], record=2).objective for name, each in USUAL.items()}
        solution = _order(problem, intervals, starts, usual["best two-switch"], reached, solutions)
        solutions.append(solution)
        assert solution.relaxed is not None
        for name in USUAL:
            final[name].append(reached[name])
        final["optimal"].append(solution.objective)
        final["mixed"].append(solution.relaxed.objective)
    best = [_best_constant_rate(bar / ETA) for bar in tell.each("best constant rate at λ = {:g}/3", bars)]
    rates, final["best constant rate"] = (list(column) for column in zip(*best, strict=True))
    return xarray.Dataset(
        {
            "final_error": (("strategy", "lambda_bar"), list(final.values())),
            "constant_rate": ("lambda_bar", rates),
            **shared.certificates(solutions, "lambda_bar"),
        },
        coords={"strategy": list(final), "lambda_bar": list(bars)},
    )


def _order(
    problem: Problem,
    intervals: int,
    starts: int,
    two_switch: Schedule,
    reached: Mapping[str, float],
    before: Sequence[Solution],
) -> Solution:
    """The optimal order, started from that of the previous λ̄, or from scratch if the optimum has jumped.

    A solve from a neighbour takes a fraction of the time of several starts. It ends near the neighbour, so it
    is repeated from scratch if it is not converged or above one of the usual orders.
    """
    if before:
        solution = solve(problem, intervals, warm_start=before[-1])
        if solution.certificate.converged and solution.objective <= min(reached.values()) + EQUAL:
            return solution
    return solve(problem, intervals, starts=starts, warm_start=two_switch)


def _best_constant_rate(weight_decay: float) -> tuple[float, float]:
    """The best constant η with the best easy-hard-easy order for it, and the error."""
    from scipy.optimize import minimize_scalar

    def error(rate: float) -> float:
        problem = curriculum(eta=float(rate), weight_decay=weight_decay)
        order = problem.baselines["best two-switch"](problem, problem.intervals)
        return evaluate(problem, order, record=2).objective

    errors = [error(rate) for rate in RATES]
    i = int(np.argmin(errors))
    around = (RATES[max(i - 1, 0)], RATES[min(i + 1, len(RATES) - 1)])
    search = minimize_scalar(error, bounds=around, method="bounded", options={"xatol": 0.01})
    return float(search.x), min(float(search.fun), errors[i])


def joint_solution(
    weight_decay: float, intervals: int | None, starts: int, warm: Solution | None = None
) -> Solution:
    """The joint optimum of order and learning rate."""
    problem = curriculum(eta=ETA, weight_decay=weight_decay, joint=True, max_learning_rate=MAX_RATE)
    return solve(problem, intervals, starts=starts, warm_start=warm)


def _joint(bars: Sequence[float], intervals: int | None, starts: int, tell: Stages) -> xarray.Dataset:
    """Panels e and f: order and learning rate together.

    Also started from the solution of the previous λ̄, since a neutral start may end in a local optimum.
    """
    solutions: list[Solution] = []
    for bar in tell.each("order and learning rate at λ = {:g}/3", bars):
        # The first optimum is based on all starts; the others come from a neighbour and a neutral start.
        warm = solutions[-1] if solutions else None
        solutions.append(joint_solution(bar / ETA, intervals, min(starts, 2) if warm else starts, warm))
    hard = max(solutions[0].problem.discrete["difficulty"].values)
    dims = ("lambda_bar", "joint_interval")
    return xarray.Dataset(
        {
            "joint_error": ("lambda_bar", [s.objective for s in solutions]),
            "joint_rate": (dims, [s.schedule["learning_rate"] for s in solutions]),
            "joint_hard_share": (dims, [s.schedule["difficulty"] / hard for s in solutions]),
            "joint_edge": solutions[0].schedule.grid,
            **shared.certificates(solutions, "lambda_bar", "joint_"),
        },
        coords={"lambda_bar": list(bars)},
    )


# --- drawing ---------------------------------------------------------------------------------------


@styled
def plot(data: xarray.Dataset) -> Figure:
    """Panels a-f as in the paper; g and h are new."""
    figure, axes = panels([["a", "b", "c"], ["d", "e", "f"], ["g", "g", "h"]], height=8.2)
    shown = ("curriculum", "anti-curriculum", "optimal")
    draw_courses(axes["a"], data, "error", "generalisation error", shown)
    axes["a"].legend()
    draw_courses(axes["b"], data, "Q22", "irrelevant squared norm $Q_{22}$", shown)
    draw_courses(axes["c"], data, "cosine", r"cosine $M_{11}/\sqrt{T_{11}Q_{11}}$", shown)
    axes["c"].yaxis.labelpad = 7
    add_zoom(axes["c"], data, "cosine", shown)
    _draw_timelines(axes["d"], data)
    _draw_sweep(axes["e"], data)
    _draw_rate(axes["f"], data)
    _draw_mixture(axes["g"], data)
    _draw_excess(axes["h"], data)
    return figure


def draw_courses(axes: Axes, data: xarray.Dataset, quantity: str, label: str, shown: Sequence[str]) -> None:
    """One quantity against training time for several schedules."""
    for name in shown:
        course = data[quantity].sel(schedule=name)
        axes.plot(data.alpha, course, color=COLOURS[name], label=name, zorder=2 + (name == "optimal"))
    axes.set(xlabel=TIME, ylabel=label, xlim=span(data.alpha))


def add_zoom(axes: Axes, data: xarray.Dataset, quantity: str, shown: Sequence[str]) -> None:
    """An inset with the last fifth of training."""
    late = data[quantity].sel(schedule=list(shown)).where(data.alpha >= 0.8 * data.alpha[-1], drop=True)
    inset = axes.inset_axes((0.45, 0.19, 0.49, 0.44))  # keeps its labels clear of the axis below
    for name in shown:
        inset.plot(late.alpha, late.sel(schedule=name), color=COLOURS[name], zorder=2 + (name == "optimal"))
    low, high = float(late.min()), float(late.max())
    margin = 0.06 * (high - low)
    inset.set(xlim=span(late.alpha), ylim=(low - margin, high + margin))
    inset.tick_params(labelsize=6.5)
    inset.spines[["top", "right"]].set_visible(True)
    axes.indicate_inset_zoom(inset, edgecolor=GREY)


def _draw_timelines(axes: Axes, data: xarray.Dataset) -> None:
    labels = {"two-switch": "best easy-\nhard-easy", "anti-curriculum": "anti-\ncurriculum"}
    rows = list(reversed(SCHEDULES))
    for level, name in enumerate(rows):
        hard = data.hard_share.sel(schedule=name).values > 0.5
        for mask, colour in ((~hard, "#DDDDDD"), (hard, COLOURS[name])):
            for left, right in _runs(data.edge.values, mask):
                axes.barh(level, right - left, left=left, height=0.6, color=colour, linewidth=0)
    axes.set(xlabel=TIME, xlim=span(data.alpha), ylim=(-0.5, len(rows) - 0.1))
    axes.set_yticks(range(len(rows)), [labels.get(name, name) for name in rows], fontsize=7.5)
    axes.set_title("grey: easy, coloured: hard samples", fontsize=8)


def _runs(edges: np.ndarray, mask: np.ndarray) -> list[tuple[float, float]]:
    """Active intervals, with neighbours joined."""
    ends = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    return [(float(edges[i]), float(edges[j])) for i, j in ends.reshape(-1, 2)]


def _draw_sweep(axes: Axes, data: xarray.Dataset) -> None:
    looks = {
        "curriculum": ("-^", "curriculum, η = 3"),
        "anti-curriculum": ("-v", "anti-curriculum, η = 3"),
        "optimal": ("-o", "optimal, η = 3"),
        "best constant rate": ("--x", f"best constant η {OURS}"),
    }
    for name, (look, label) in looks.items():
        course = data.final_error.sel(strategy=name)
        axes.plot(data.lambda_bar, course, look, ms=3.5, color=COLOURS[name], label=label)
    axes.plot(data.lambda_bar, data.joint_error, "-s", ms=3.5, color=COLOURS["joint"], label="joint Δ and η")
    top = float(data.final_error.sel(strategy="curriculum").max())
    axes.set(
        xlabel=r"regularisation $\bar\lambda=\lambda\eta$ at η = 3 (fixed λ where η varies)",
        ylabel=r"final generalisation error, $\alpha_F=12$",
        ylim=(None, top + 0.45 * (top - float(data.joint_error.min()))),
    )
    axes.xaxis.label.set_fontsize(7.5)
    axes.legend(loc="upper left", fontsize=6.5, ncols=1)


def _draw_rate(axes: Axes, data: xarray.Dataset) -> None:
    rate, hard = data.joint_rate[0].values, data.joint_hard_share[0].values
    edges = data.joint_edge.values
    for left, right in _runs(edges, hard > 0.5):
        axes.axvspan(left, right, color=GREEN, alpha=0.15, linewidth=0)
    axes.stairs(rate, edges, baseline=None, color=COLOURS["joint"], linewidth=1.5)
    axes.axhline(ETA, color=GREY, linestyle=":", linewidth=1)
    axes.text(0.98 * edges[-1], ETA + 0.05, "η = 3 (a-d)", fontsize=7, color=GREY, ha="right", va="bottom")
    axes.set(xlabel=TIME, ylabel="optimal learning rate η, λ = 0", xlim=(0, edges[-1]), ylim=(0, None))
    axes.set_title("shaded: hard samples", fontsize=8)


def _draw_mixture(axes: Axes, data: xarray.Dataset) -> None:
    edges, share = data.mixed_edge.values, data.mixed_hard_share.values
    axes.stairs(share, edges, baseline=0, fill=True, color=BLACK, alpha=0.12)
    axes.stairs(share, edges, baseline=None, color=BLACK, label="optimum that may mix")
    two = data.hard_share.sel(schedule="two-switch").values
    axes.stairs(two, data.edge.values, baseline=None, color=GREY, linestyle="--", label="best easy-hard-easy")
    axes.set(xlabel=TIME, ylabel="share of hard samples", xlim=(0, edges[-1]), ylim=(-0.03, 1.25))
    axes.legend(loc="upper right", ncols=2)
    axes.set_title(OURS, fontsize=8)


def _draw_excess(axes: Axes, data: xarray.Dataset) -> None:
    excess = _excess(data)
    names = list(reversed(excess))
    colours = {"random mix": PURPLE, "optimal, on the grid": BLACK, "best easy-hard-easy": GREY}
    axes.barh(
        range(len(names)), [max(excess[n], 1e-9) for n in names], height=0.6,
        color=[COLOURS.get(name, colours.get(name)) for name in names],
    )  # fmt: skip
    for level, name in enumerate(names):
        axes.text(excess[name] * 1.3, level, f"{excess[name]:.1e}", va="center", fontsize=7)
    axes.set_xscale("log")
    axes.set(xlabel="excess error over the mixing optimum", xlim=(1e-8, 1))
    axes.set_yticks(range(len(names)), names, fontsize=7.5)
    axes.set_title(OURS, fontsize=8)


def _excess(data: xarray.Dataset) -> dict[str, float]:
    """Final error of each schedule minus that of the best mixing one, at λ = 0."""
    final = _final(data)
    reached = {
        **{name: final[name] for name in ("anti-curriculum", "curriculum")},
        "random mix": float(data.random_objective),
        "best easy-hard-easy": final["two-switch"],
        "optimal, on the grid": final["optimal"],
    }
    return {name: error - float(data.mixed_objective) for name, error in reached.items()}


def _final(data: xarray.Dataset) -> dict[str, float]:
    return pairs(map(str, data.schedule.values), map(float, data.objective))


# --- claims ----------------------------------------------------------------------------------------


def claims(data: xarray.Dataset) -> list[Claim]:
    """The paper's claims about this figure, and ours."""
    return [
        _non_monotone(data),
        *_balance(data),
        _anti_at_high_regularisation(data),
        _joint_order(data),
        *_rate_claims(data),
        _joint_gain(data),
        _mixing(data),
        all_certified(
            [data.zero_converged, *data.converged, *data.joint_converged],
            [data.zero_gap, *data.gap, *data.joint_gap],
        ),
    ]


def _non_monotone(data: xarray.Dataset) -> Claim:
    final = _final(data)
    hard = data.hard_share.sel(schedule="optimal").values > 0.5
    shape = not hard[0] and bool(hard.any()) and not hard[-1]
    below = final["optimal"] < min(final["curriculum"], final["anti-curriculum"])
    return Claim(
        "non-monotone",
        "At η = 3, λ = 0 the optimal order is non-monotone, easy at first and at the end, and beats both "
        "curriculum and anti-curriculum",
        final,
        "easy first and last; optimal below curriculum and anti-curriculum",
        shape and below,
    )


def _balance(data: xarray.Dataset) -> list[Claim]:
    names = ("curriculum", "optimal", "anti-curriculum")
    cosine, norm = at_end(data.cosine, names), at_end(data.Q22, names)
    return [
        Claim(
            "alignment",
            "Anti-curriculum favours the alignment with the teacher; the optimum lies in between",
            cosine,
            "final cosine: curriculum < optimal < anti-curriculum",
            cosine["curriculum"] < cosine["optimal"] < cosine["anti-curriculum"],
        ),
        Claim(
            "irrelevant-norm",
            "Curriculum favours a small norm of the irrelevant weights; the optimum lies in between",
            norm,
            "final Q22: curriculum < optimal < anti-curriculum",
            norm["curriculum"] < norm["optimal"] < norm["anti-curriculum"],
            "" if norm["curriculum"] < norm["optimal"] else "the optimum's norm is the smallest of the three",
        ),
    ]


def _anti_at_high_regularisation(data: xarray.Dataset) -> Claim:
    anti = data.final_error.sel(strategy="anti-curriculum")
    best = data.final_error.sel(strategy=["two-switch", "optimal", "mixed"]).min("strategy")
    optimal = (anti - best).values <= EQUAL
    # The smallest λ̄ from which it is optimal at every larger one too.
    first = len(optimal) - int(np.argmin(optimal[::-1])) if not optimal.all() else 0
    smallest = float(data.lambda_bar[first]) if first < len(optimal) else None
    return Claim(
        "anti-curriculum-at-high-regularisation",
        "At high regularisation anti-curriculum is optimal",
        {"smallest λ̄ on the grid": smallest},
        "from some λ̄ on",
        smallest is not None and smallest > 0,
        f"grid of λ̄: {', '.join(f'{bar:g}' for bar in data.lambda_bar.values)}",
    )


def _joint_order(data: xarray.Dataset) -> Claim:
    rising = [bool(np.all(np.diff(row) >= 0) and row[0] < row[-1]) for row in data.joint_hard_share.values]
    bars = [float(bar) for bar, easy_first in zip(data.lambda_bar, rising, strict=True) if easy_first]
    return Claim(
        "joint-easy-to-hard",
        "With the learning rate optimised as well, easy-to-hard is optimal for all λ considered",
        {"easy to hard at λ̄": bars},
        [float(bar) for bar in data.lambda_bar],
        all(rising),
    )


def _rate_claims(data: xarray.Dataset) -> list[Claim]:
    rate, hard = data.joint_rate[0].values, data.joint_hard_share[0].values
    times = shared.middles(data.joint_edge.values)
    peak = int(np.argmax(rate))
    switches = np.flatnonzero(np.diff(hard))
    switch = int(switches[0]) if len(switches) else len(rate) - 2
    changes = np.diff(rate)
    others, after = np.abs(np.delete(changes, switch)), changes[peak:switch]
    return [
        Claim(
            "warm-up",
            "The optimal learning rate at λ = 0 begins with a warm-up",
            {"η at first": rate[0], "largest η": rate[peak], "at α": times[peak]},
            "rises by more than 1 % to a maximum inside the easy phase",
            0 < peak < switch and bool(rate[peak] > 1.01 * rate[0]),
        ),
        Claim(
            "annealing",
            "It then anneals gradually",
            {"from η": rate[peak], "to η": rate[switch], "until α": data.joint_edge.values[switch + 1]},
            "falls all the way from its maximum to the switch",
            len(after) > 0 and bool(np.all(after < 0)),
        ),
        Claim(
            "drop",
            "It drops sharply precisely at the switch from easy to hard samples",
            {"η before": rate[switch], "η after": rate[switch + 1], "largest other change": others.max()},
            "a drop of more than three times the largest other change",
            len(switches) == 1 and -float(changes[switch]) > 3 * float(others.max()),
        ),
    ]


def _joint_gain(data: xarray.Dataset) -> Claim:
    constant = data.final_error.sel(strategy=["optimal", "two-switch", "best constant rate"]).min("strategy")
    gain, bars = reduction(constant, data.joint_error), data.lambda_bar.values
    at_three = reduction(data.final_error.sel(strategy="optimal"), data.joint_error)
    return Claim(
        "joint-gain",
        "Optimising order and learning rate together is substantially better than any constant learning rate",
        {
            "reduction in % against η = 3, at each λ̄": pairs(bars, at_three),
            "against the best constant η": pairs(bars, gain),
        },
        "at least 5 % at every λ",
        bool(np.all(gain >= 5)),
        "the best constant η is searched for with the best easy-hard-easy order at each η (this work)",
    )


def _mixing(data: xarray.Dataset) -> Claim:
    excess, share = _excess(data), data.mixed_hard_share.values
    mixed_time = float(np.diff(data.mixed_edge.values)[(share > 0.01) & (share < 0.99)].sum())
    gaps = (data.final_error.sel(strategy="two-switch") - data.final_error.sel(strategy="mixed")).values
    numbers = {
        "best easy-hard-easy": _final(data)["two-switch"],
        "mixing": float(data.mixed_objective),
        "on the grid": _final(data)["optimal"],
        "training time with both": mixed_time,
        "easy-hard-easy minus mixing, at each λ̄": pairs(data.lambda_bar.values, gaps),
    }
    return Claim(
        "mixing",
        "(this work) Easy-hard-easy is not the optimum at λ = 0: mixing easy and hard samples late in the "
        "hard phase is better",
        numbers,
        "mixing below the best easy-hard-easy by more than 1e-7, with a mixed arc",
        excess["best easy-hard-easy"] > MIXING and mixed_time > 0,
    )
