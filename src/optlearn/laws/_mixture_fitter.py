"""Parameters of the law of mixtures from residuals: robust least squares, a domain at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.optimize import nnls
from typing_extensions import override

from optlearn._errors import SpecificationError
from optlearn._schedule import Schedule
from optlearn.laws._expectations import FALLEN, LOSSES
from optlearn.laws._least_squares import STEP, Fitter, Optimum, Pull, Scale
from optlearn.laws._mixture_curves import MixtureCurve
from optlearn.laws._mixture_law import (
    LINEAR,
    Layout,
    MixtureCourse,
    MixtureRun,
    losses_after,
    run_domain,
    tenths,
)

OUTLIER = 0.02  # until the noise is known, as for the law of one loss
# Being a spread off the expected value costs as much as a residual of this size, at first and at most. A law
# of mixtures misses curves by a percent for thousands of steps, so points carry less information than their
# number suggests.
PRIOR = 0.08
# Being k spreads off costs k² up to this many spreads, and grows in proportion to k beyond: curves that
# insist are believed. The law of one loss has its corner at three spreads; here many parameters share what
# curves insist on.
CORNER = 2.0


@dataclass(frozen=True)
class MixtureData:
    """Curves as the fit sees them.

    Attributes:
        curves: as they were read.
        layout: domains and parameters.
        scale: units.
        warmup: steps of the linear warm-up, if it was not logged.
        first: first step whose losses count.
        weights: domain → factor of its residuals that makes all domains equally noisy.
    """

    curves: Sequence[MixtureCurve]
    layout: Layout
    scale: Scale
    warmup: float
    first: float
    weights: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def _runs(self) -> list[tuple[MixtureRun, np.ndarray]]:
        return [self.logged(curve) for curve in self.curves]

    @cached_property
    def _unique(self) -> tuple[MixtureCourse, np.ndarray]:
        """The distinct courses, and which of them each curve has: seeds of one schedule share one."""
        keys = [b"".join(part.tobytes() for part in run) for run, _ in self._runs]
        first = {key: i for i, key in reversed(list(enumerate(keys)))}
        chosen = sorted(first.values())
        course = MixtureCourse.stack([self._runs[i][0] for i in chosen])
        return course, np.array([chosen.index(first[key]) for key in keys])

    @property
    def course(self) -> MixtureCourse:
        """Courses of the curves, each once."""
        return self._unique[0]

    @cached_property
    def _points(self) -> dict[str, list[tuple[np.ndarray, np.ndarray, np.ndarray]]]:
        """Domain → for each curve its steps, the intervals that end there, and the losses."""
        points: dict[str, list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = {}
        for name in self.layout.losses:
            points[name] = []
            for curve, (_, ends) in zip(self.curves, self._runs, strict=True):
                loss = curve.losses[name][curve.any_loss]
                kept = np.isfinite(loss) & (curve.rates.step >= self.first)
                if kept.sum() < 3:
                    raise SpecificationError(
                        f"curve {curve.name!r}: loss_{name} must have at least 3 values from step "
                        f"{self.first:g} on, got {kept.sum()}"
                    )
                points[name].append((curve.rates.step[kept], ends[kept], loss[kept]))
        return points

    @cached_property
    def decays(self) -> bool:
        """Whether losses were logged at small rates; without them noise and a floor look alike."""
        after = np.concatenate([c.rates.rate[c.rates.from_step(self.first)] for c in self.curves])
        return bool(np.sum(after <= FALLEN * max(float(c.rate.max()) for c in self.curves)) >= LOSSES)

    @cached_property
    def shown(self) -> np.ndarray:
        """(curves, 10, domains) mean shares in each tenth of each curve."""
        return np.stack([tenths(run) for run, _ in self._runs])

    @cached_property
    def series(self) -> list[tuple[str, str]]:
        """Domain and curve of each series of losses, in the order of the residuals."""
        return [(name, curve.name) for name in self.layout.losses for curve in self.curves]

    @cached_property
    def steps(self) -> list[np.ndarray]:
        """Steps of the points of each series."""
        return [steps for name in self.layout.losses for steps, _, _ in self._points[name]]

    @cached_property
    def losses(self) -> list[np.ndarray]:
        """Losses of each series."""
        return [loss for name in self.layout.losses for _, _, loss in self._points[name]]

    def weight(self, name: str) -> float:
        """Factor of the residuals of a domain."""
        return self.weights.get(name, 1.0)

    def residuals(self, parameters: np.ndarray) -> np.ndarray:
        """(K, points) weighted logarithms of predicted over measured losses, for parameters (K, n)."""
        return np.concatenate([self.residuals_of(parameters, name) for name in self.layout.losses], axis=1)

    def residuals_of(self, parameters: np.ndarray, name: str) -> np.ndarray:
        """The residuals of one domain."""
        course, places = self._unique
        predicted = losses_after(self.layout, parameters, course, name)
        points = self._points[name]
        at_points = [predicted[:, i, ends] for i, (_, ends, _) in zip(places, points, strict=True)]
        losses = np.concatenate([loss for _, _, loss in points])
        # A guess may be absurd; its logarithm must still be a number.
        ratio = np.maximum(np.concatenate(at_points, axis=1), 1e-3 * losses) / losses
        return self.weight(name) * np.log(ratio)

    def linear_start(self, parameters: np.ndarray) -> np.ndarray:
        """The parameters with the best floors and amplitudes, given the others."""
        course, places = self._unique
        start = parameters.copy()
        for name in self.layout.losses:
            value, (progress, noise, memory), _ = run_domain(self.layout, parameters[None], course, name)
            left = (progress + value["head_start"]) ** -value["exponent"]
            points = self._points[name]
            losses = np.concatenate([loss for _, _, loss in points])
            columns = [
                np.concatenate([part[0, i, ends] for i, (_, ends, _) in zip(places, points, strict=True)])
                for part in (np.ones_like(left), left, noise, memory)
            ]
            best, _ = nnls(np.stack(columns, axis=1) / losses[:, None], np.ones_like(losses))
            at = [self.layout.names.index(f"{what}_{name}") for what in LINEAR]
            start[at] = np.maximum(best, [0.0, 1e-3, 1e-3, 1e-3])
        return start

    # --- logged and planned runs, in units of the fit --------------------------------------------------

    def logged(self, curve: MixtureCurve) -> tuple[MixtureRun, np.ndarray]:
        """A logged run, and which of its intervals end at logged losses."""
        return curve.run(self.layout.domains, self.warmup, self.scale.steps, self.scale.peak)

    def planned(self, schedule: Schedule) -> MixtureRun:
        """A run under a schedule in steps, with the controls learning_rate and share_NAME."""
        rates = schedule["learning_rate"] / self.scale.peak
        shares = np.stack([schedule[f"share_{name}"] for name in self.layout.domains], axis=1)
        return np.diff(schedule.grid) / self.scale.steps, rates, np.ones(len(rates)), shares

    def stepwise(self, rates: np.ndarray, shares: np.ndarray) -> MixtureRun:
        """A run with rates (steps,) and shares (steps, domains)."""
        lengths = np.full(len(rates), 1 / self.scale.steps)
        return lengths, rates / self.scale.peak, np.ones(len(rates)), shares


class MixtureFitter(Fitter):
    """Robust least squares in the free parameters of the law of mixtures."""

    data: MixtureData  # type: ignore[assignment]

    def __init__(
        self,
        data: MixtureData,
        fixed: Mapping[str, float],
        outlier: float = OUTLIER,
        prior: float = PRIOR,
    ) -> None:
        self.data, self.fixed, self.outlier, self.prior = data, fixed, outlier, prior
        self.expected = data.layout.parameters
        self._pull = Pull(CORNER, CORNER)
        self.free = [name for name in data.layout.names if name not in fixed]
        free = [self.expected[name] for name in self.free]
        self.lower = np.array([p.encode(p.lower) for p in free])
        self.upper = np.array([p.encode(p.upper) for p in free])
        self._middle = np.array([p.encode(p.start) for p in free])
        self.precision = np.array([1 / p.spread for p in free])
        self._at = [data.layout.names.index(name) for name in self.free]
        self._log = np.array([p.log for p in free])

    @override
    def on(self, indices: Sequence[int]) -> "MixtureFitter":
        curves = [self.data.curves[i] for i in indices]
        return MixtureFitter(replace(self.data, curves=curves), self.fixed, self.outlier, self.prior)

    @override
    def informed(self, outlier: float, prior: float = PRIOR) -> "MixtureFitter":
        return MixtureFitter(self.data, self.fixed, outlier, prior)

    @override
    def encode(self, parameters: np.ndarray) -> np.ndarray:
        values = parameters[self._at]
        return np.where(self._log, np.log(np.where(self._log, values, 1.0)), values)

    @override
    def decode(self, z: np.ndarray) -> np.ndarray:
        names = self.data.layout.names
        values = np.empty((*z.shape[:-1], len(names)))
        for name, value in self.fixed.items():
            values[..., names.index(name)] = value
        values[..., self._at] = np.where(self._log, np.exp(np.where(self._log, z, 0.0)), z)
        return values

    @property
    @override
    def linear(self) -> np.ndarray:
        losses = self.data.layout.losses
        return np.isin(self.free, [f"{what}_{loss}" for what in LINEAR for loss in losses]) & self._log

    @override
    def jacobian(self, z: np.ndarray) -> np.ndarray:
        """Slopes by differences; the loss of a domain depends on few parameters, so only these are moved."""
        names, layout = self.data.layout.names, self.data.layout
        inward = np.where(z + STEP <= self.upper, STEP, -STEP)
        blocks = []
        for loss in layout.losses:
            own = {names[i] for i in layout.columns(loss)}
            columns = [j for j, name in enumerate(self.free) if name in own]
            moved = np.concatenate([z[None], z + np.diag(inward)[columns]])
            residuals = self.data.residuals_of(self.decode(moved), loss)
            block = np.zeros((residuals.shape[1], len(z)))
            block[:, columns] = ((residuals[1:] - residuals[0]) / inward[columns, None]).T
            blocks.append(block)
        return np.concatenate([*blocks, np.diag(self.precision)])

    @override
    def from_starts(self, count: int, seed: int) -> Optimum:
        rng = np.random.default_rng(seed)
        middle = self.decode(self._middle)
        names = self.data.layout.names
        guesses = [middle]
        for _ in range(4 * count - 1):
            guess = middle.copy()
            for i, name in enumerate(names):
                if name in self.free and self.expected[name].log and np.isfinite(self.expected[name].spread):
                    guess[i] *= np.exp(self.expected[name].spread * rng.standard_normal())
                    guess[i] = min(guess[i], self.expected[name].upper)
            guesses.append(guess)
        starts = [self.data.linear_start(guess) for guess in guesses]
        starts.sort(key=lambda start: float(self.cost(self.encode(start)[None])[0]))
        return min((self.from_start(start) for start in starts[:count]), key=lambda optimum: optimum.cost)
