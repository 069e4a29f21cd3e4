"""Plans within common shapes, the best of given schedules, and the most informative next run.

A free optimum goes where a law is wrong; within a family of few numbers it cannot go far. All schedules of a
family are evaluated at once, for all plausible parameters.

The lowest of many predictions tends to be an error, so schedules are ordered by their predicted loss plus its
standard deviation over plausible parameters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from optlearn._arguments import Arguments
from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn.laws._control import _steps_and_bounds, most_telling

if TYPE_CHECKING:
    from optlearn.laws._mixture_fit import MixtureFit

PIECES = 60  # intervals of a trial
DRAWS = 32
SHAPES = ("constant", "step", "ramp", "two phases")
LEVELS = (0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 1.0)  # shares of a step
FIRST = (0.25, 0.5)  # shares of the budget that two phases spend before the second begins
DECAYS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)  # of a WSD rate, as shares of training


@dataclass(frozen=True)
class Member:
    """A schedule of a family.

    Attributes:
        shape: constant, step, ramp or two phases.
        settings: numbers of the shape: ``decay`` of the rate, ``share`` and ``start`` of a step.
        schedule: in steps, from the first on.
        losses: domain → predicted final loss, a mean over plausible parameters.
        objective: their weighted sum.
        error: standard deviation of the objective over plausible parameters.
    """

    shape: str
    settings: Mapping[str, float]
    schedule: Schedule
    losses: Mapping[str, float]
    objective: float
    error: float


class Candidate(NamedTuple):
    """A given schedule: predicted final losses by domain, their weighted sum, and its error."""

    name: str
    losses: Mapping[str, float]
    objective: float
    error: float


@checked
def compare(
    fit: "MixtureFit",
    schedules: Mapping[str, Any],
    *,
    weights: Mapping[str, float] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[Candidate]:
    """Schedules of your own, the most promising first.

    Args:
        fit: the fitted law.
        schedules: name → a schedule in steps with shares, a curve, or a pair of rates and shares, as the two
            arguments of ``fit.predict``.
        weights: domain or target → weight of its final loss (default: the same for all domains).
        draws: plausible parameters to try.
        seed: of the draws.
    """
    check = Arguments("compare")
    check.count("draws", draws, 2)
    check.count("seed", seed, 0)
    if not schedules:
        check.fail("schedules", schedules, "must name at least one schedule")
    weight = _weights(fit, weights, "compare")
    pairs = [each if isinstance(each, tuple) else (each, None) for each in schedules.values()]
    if any(len(pair) != 2 for pair in pairs):
        check.fail("schedules", list(schedules), "must be schedules, curves, or pairs of rates and shares")
    runs = [fit.mixture_run(lr, shares, "compare")[0] for lr, shares in pairs]
    finals = fit.finals(runs, fit.draws(draws, seed))
    candidates = [
        Candidate(
            name,
            dict(zip(fit.layout.losses, finals[0, i].tolist(), strict=True)),  # at the best parameters
            float(finals[0, i] @ weight),
            float((finals[:, i] @ weight).std()),
        )
        for i, name in enumerate(schedules)
    ]
    candidates.sort(key=lambda candidate: candidate.objective + candidate.error)
    fit.warn_beyond(runs[list(schedules).index(candidates[0].name)])
    return candidates


def _weights(fit: "MixtureFit", weights: Mapping[str, float] | None, owner: str) -> np.ndarray:
    """(losses,) weights of final losses."""
    check = Arguments(owner)
    chosen = dict(weights or {name: 1 / len(fit.domains) for name in fit.domains})
    for name, value in chosen.items():
        if name not in fit.layout.losses:
            check.fail("weights", name, f"must be of {', '.join(fit.layout.losses)}")
        check.number(f"weights[{name!r}]", value, 0.0)
    if not any(chosen.values()):
        check.fail("weights", chosen, "must not all be 0: nothing would be minimised")
    return np.array([chosen.get(name, 0.0) for name in fit.layout.losses])


@checked
def family(
    fit: "MixtureFit",
    domain: str,
    budget: float,
    steps: int | None = None,
    bounds: tuple[float, float] | None = None,
    *,
    weights: Mapping[str, float] | None = None,
    limits: Mapping[str, float] | None = None,
    shapes: Sequence[str] = SHAPES,
    decays: Sequence[float] = DECAYS,
    robust: bool | int = True,
    seed: int = 0,
) -> list[Member]:
    """Schedules of common shapes that spend a budget, best first.

    Args:
        fit: the fitted law, of two domains or more; the others split what ``domain`` leaves, in proportion to
            their mean shares in the curves.
        domain: the scarce one.
        budget: its share of all samples.
        steps: of the whole training (default: the longest run's).
        bounds: lowest and highest rate.
        weights: of final losses (default: the same for all domains).
        limits: domain → upper limit of its final loss; schedules that exceed one are left out.
        shapes: some of constant, step (one share from a time on), ramp (rising linearly) and two phases.
        decays: shares of training over which a WSD rate falls linearly to the lowest; 1 is a linear decay.
        robust: mean over plausible parameters, rather than the best ones.
        seed: of the ensemble.
    """
    check = Arguments("family")
    if domain not in fit.domains:
        check.fail("domain", domain, f"must be one of {', '.join(fit.domains)}")
    check.number("budget", budget, 0.0, 1.0, open_below=True)
    if unknown := [shape for shape in shapes if shape not in SHAPES]:
        check.fail("shapes", unknown[0], f"must be of {', '.join(SHAPES)}")
    falls = check.numbers("decays", list(decays), lowest=0.0, highest=1.0)
    if not falls.all():
        check.fail("decays", list(decays), "must be above 0")
    for name, limit in (limits or {}).items():
        if name not in fit.layout.losses:
            check.fail("limits", name, f"must be of {', '.join(fit.layout.losses)}")
        check.number(f"limits[{name!r}]", limit, 0.0, open_below=True)
    total, low, high = _steps_and_bounds(fit, steps, bounds)
    if total <= fit.warmup:
        check.fail("steps", total, f"must exceed the warm-up of {fit.warmup}")
    weight = _weights(fit, weights, "family")
    trials = [
        (shape, {**settings, "decay": float(decay)}, share)
        for shape in shapes
        for settings, share in share_shapes(shape, budget)
        for decay in falls
    ]
    if not trials:
        check.fail(
            "shapes", list(shapes), f"must hold one with a share that exceeds the budget of {budget:g}"
        )
    edges = trial_edges(fit.warmup, total)
    schedules = [
        schedule_of(fit, domain, share, budget, settings["decay"], edges, total, low, high)
        for _, settings, share in trials
    ]
    members = fit.draws(DRAWS if robust is True else int(robust) or 1, seed)
    finals = fit.finals([fit.data.planned(schedule) for schedule in schedules], members)
    kept = []
    for i, (shape, settings, _) in enumerate(trials):
        losses = dict(zip(fit.layout.losses, finals[:, i].mean(axis=0).tolist(), strict=True))
        if any(losses[name] > most for name, most in (limits or {}).items()):
            continue
        objective = finals[:, i] @ weight
        kept.append(
            Member(shape, settings, schedules[i], losses, float(objective.mean()), float(objective.std()))
        )
    if not kept:
        raise SpecificationError(f"limits {dict(limits or {})} are kept by no schedule of the family")
    return sorted(kept, key=lambda member: member.objective + member.error)


def share_shapes(shape: str, budget: float) -> list[tuple[dict[str, float], Any]]:
    """Settings of a shape, with the share as a function of the part x of training, for one budget."""
    if shape == "constant":
        return [({"share": budget}, lambda x: np.full_like(x, budget))]
    if shape == "ramp":
        top = min(2 * budget, 1.0)
        return [({"share": top}, lambda x: budget + (top - budget) * (2 * x - 1))]
    shapes: list[tuple[dict[str, float], Any]] = []
    for level in LEVELS:
        if level <= budget:
            continue
        if shape == "step":
            start = 1 - budget / level
            shapes.append(
                ({"share": level, "start": start}, lambda x, s=start, p=level: np.where(x > s, p, 0.0))
            )
            continue
        for part in FIRST:
            # Before the start a share a with a·start = part·budget, then `level` for the rest of the budget.
            start = 1 - (1 - part) * budget / level
            before = part * budget / start
            if before < level:
                shapes.append(
                    (
                        {"share": level, "start": start, "before": before},
                        lambda x, s=start, p=level, b=before: np.where(x > s, p, b),
                    )
                )
    return shapes


def trial_edges(warmup: int, total: int) -> np.ndarray:
    """Steps between which trials are constant: fine in the warm-up."""
    rise = np.linspace(0, warmup, 6)[:-1] if warmup else np.zeros(0)
    return np.unique(np.round(np.append(rise, np.linspace(warmup, total, PIECES + 1))))


def schedule_of(
    fit: "MixtureFit",
    domain: str,
    share: Any,
    budget: float,
    decay: float,
    edges: np.ndarray,
    total: int,
    low: float,
    high: float,
) -> Schedule:
    """The schedule of a WSD rate and a share that is a function of the part of training done.

    Shares are means over intervals, so budgets are kept exactly.
    """
    # The mean of the share over each interval, from its values at every step.
    step = np.arange(total) + 0.5
    of_step = np.clip(share(step / total), 0.0, 1.0)
    of_step *= min(1.0, budget * total / max(of_step.sum(), 1e-300))  # a step may begin within a step
    cumulative = np.append(0.0, np.cumsum(of_step))
    at = edges.astype(int)
    mean = np.diff(cumulative[at]) / np.diff(at)
    middle = (edges[1:] + edges[:-1]) / 2
    rise = np.minimum(middle / fit.warmup, 1.0) if fit.warmup else np.ones_like(middle)
    rates = rise * (low + (high - low) * np.minimum(1.0, (1 - middle / total) / decay))
    values = {"learning_rate": rates, f"share_{domain}": mean}
    others = [name for name in fit.domains if name != domain]
    usual = np.array([np.mean([np.mean(c.shares[name]) for c in fit.data.curves]) for name in others])
    for name, part in zip(others, usual / usual.sum(), strict=True):
        values[f"share_{name}"] = part * (1 - mean)
    return Schedule.piecewise(edges, values)


@checked
def next_mixture_pilot(
    fit: "MixtureFit",
    steps: int | None = None,
    bounds: tuple[float, float] | None = None,
    seed: int = 0,
    domain: str | None = None,
    budget: float | None = None,
) -> Schedule:
    """The most informative schedule to run next; see ``next_pilot``.

    Candidates are those of ``family``. By default the scarce domain is the one with the smallest mean share
    in the curves, and the budget is that share.
    """
    total, low, high = _steps_and_bounds(fit, steps, bounds)
    means = {
        name: float(
            np.mean(
                [np.average(c.shares[name], weights=np.diff(np.append(0, c.step))) for c in fit.data.curves]
            )
        )
        for name in fit.domains
    }
    scarce = min(means, key=lambda name: means[name]) if domain is None else domain
    share = means.get(scarce, 1.0) if budget is None else budget
    candidates = family(fit, scarce, share, total, (low, high), robust=1, seed=seed)
    runs = [fit.data.planned(member.schedule) for member in candidates]
    finals = fit.finals(runs, fit.draws(DRAWS, seed))[:, :, : len(fit.domains)].mean(axis=-1)
    return candidates[most_telling(finals, fit.point_noise * float(finals.mean()))].schedule
