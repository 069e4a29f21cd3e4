"""Parameters of the law from residuals: robust least squares, from several starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import least_squares, nnls
from scipy.special import erf
from scipy.stats import norm

from optlearn._schedule import Schedule
from optlearn.laws._curves import Curve
from optlearn.laws._law import NAMES, PARAMETERS, Course, Parameter, loss_after

# Lengths, rates and batches of intervals.
Run = tuple[np.ndarray, np.ndarray, np.ndarray]

# Until the noise of the curves is known, residuals of the log losses above this count linearly, not squared
# (spikes are no evidence).
OUTLIER = 1e-3
# Until the noise is known, a parameter a `spread` off its expectation costs as much as a point off by this.
PRIOR = 4.5e-3
STEP = 1e-6  # of finite differences
EVALUATIONS = 150


@dataclass(frozen=True)
class Pull:
    """Cost of being k spreads off the expected value, in units of a point that is off by the noise.

    It grows as k² below ``corner``, and linearly beyond it, with the slope ``rate``.
    """

    rate: float
    corner: float

    @property
    def mean_square(self) -> float:
        """Mean square of the slope over parameters that are off by a normal k."""
        within = float(erf(self.corner / np.sqrt(2)))
        inside = (within - 2 * self.corner * float(norm.pdf(self.corner))) / self.corner**2
        return self.rate**2 * (inside + 1 - within)


# The prior is normal, but curves that insist on more than three spreads are believed.
NORMAL = Pull(3.0, 3.0)


@dataclass(frozen=True)
class Scale:
    """Units of the fit: the peak rate, the longest run, the usual batch, the largest network."""

    peak: float
    steps: float
    batch: float
    size: float = 1.0


@dataclass(frozen=True)
class Data:
    """Curves as the fit sees them.

    Attributes:
        curves: as they were read.
        scale: units.
        warmup: steps of the linear warm-up, if it was not logged.
        first: first step whose losses count.
        sizes: (curves,) of the networks, in units of the largest; None: one size.
    """

    curves: Sequence[Curve]
    scale: Scale
    warmup: float
    first: float
    sizes: np.ndarray | None = None

    @cached_property
    def _points(self) -> list[tuple[np.ndarray, np.ndarray]]:
        return [curve.binned(self.first) for curve in self.curves]

    @cached_property
    def course(self) -> Course:
        """All runs, with an interval for every point, after those of the warm-up."""
        points = zip(self.curves, self._points, strict=True)
        runs = [self.intervals(c, c.edges(steps, self.warmup)) for c, (steps, _) in points]
        return Course.stack(runs, self.sizes)

    def only(self, indices: Sequence[int]) -> "Data":
        """Some of the curves, maybe more than once, in the same units."""
        sizes = None if self.sizes is None else self.sizes[list(indices)]
        return replace(self, curves=[self.curves[i] for i in indices], sizes=sizes)

    def intervals(self, curve: Curve, edges: np.ndarray) -> Run:
        """A logged run, in units of the fit."""
        lengths, rates, batches = curve.intervals(edges, self.warmup, self.scale.batch)
        return lengths / self.scale.steps, rates / self.scale.peak, batches

    def planned(self, schedule: Schedule) -> Run:
        """A run under a schedule in steps, in units of the fit."""
        rates, usual = schedule["learning_rate"], self.scale.batch
        batches = schedule["batch"] / usual if "batch" in schedule.controls else np.ones(len(rates))
        return np.diff(schedule.grid) / self.scale.steps, rates / self.scale.peak, batches

    def stepwise(self, rates: np.ndarray) -> Run:
        """A run with a rate for every step, in units of the fit."""
        return np.full(len(rates), 1 / self.scale.steps), rates / self.scale.peak, np.ones(len(rates))

    @property
    def several_batches(self) -> bool:
        """Whether runs, or parts of one, differ in their batch size."""
        return any(np.any(c.batch != self.scale.batch) for c in self.curves if c.batch is not None)

    @cached_property
    def _places(self) -> list[np.ndarray]:
        """Which intervals of each run end at the points of its curve."""
        points = zip(self.curves, self._points, strict=True)
        return [curve.ends(steps, self.warmup) for curve, (steps, _) in points]

    @cached_property
    def steps(self) -> list[np.ndarray]:
        """Steps of the points of each curve."""
        return [steps for steps, _ in self._points]

    @cached_property
    def losses(self) -> list[np.ndarray]:
        """Losses of each curve."""
        return [loss for _, loss in self._points]

    def residuals(self, parameters: np.ndarray) -> np.ndarray:
        """(K, points) logarithms of predicted over measured losses, for parameters (K, 15)."""
        predicted = loss_after(parameters, self.course)
        at_points = np.concatenate([predicted[:, i, place] for i, place in enumerate(self._places)], axis=1)
        losses = np.concatenate(self.losses)
        # A guess may be absurd; its logarithm must still be a number.
        return np.log(np.maximum(at_points, 1e-3 * losses) / losses)

    def linear_start(self, parameters: np.ndarray) -> np.ndarray:
        """The parameters with the best floor, amplitude and noise, given the others."""
        linear = [NAMES.index(name) for name in ("floor", "amplitude", "noise")]
        columns = []
        for i in linear:
            alone = parameters.copy()
            alone[linear] = 0.0
            alone[i] = 1.0
            predicted = loss_after(alone[None], self.course)[0]
            columns.append(np.concatenate([predicted[j, place] for j, place in enumerate(self._places)]))
        losses = np.concatenate(self.losses)
        coefficients, _ = nnls(np.stack(columns, axis=1) / losses[:, None], np.ones_like(losses))
        start = parameters.copy()
        start[linear] = np.maximum(coefficients, [0.0, 1e-3, 1e-3])
        return start


@dataclass(frozen=True)
class Optimum:
    """Where a fit ended: parameters (15,) and the robust cost there."""

    parameters: np.ndarray
    cost: float


class Fitter:
    """Robust least squares in the free parameters, as numbers z in which they are fitted.

    Args:
        data: curves.
        fixed: parameters to keep, by name.
        expected: priors of the others, by name.
        outlier: size above which a residual counts linearly.
        prior: size of the residual that costs as much as being a ``spread`` off the expected value.
    """

    _pull = NORMAL

    def __init__(
        self,
        data: Data,
        fixed: Mapping[str, float],
        expected: Mapping[str, Parameter] = PARAMETERS,
        outlier: float = OUTLIER,
        prior: float = PRIOR,
    ) -> None:
        self.data, self.fixed, self.expected, self.outlier, self.prior = data, fixed, expected, outlier, prior
        self.free = [name for name in NAMES if name not in fixed]
        free = [expected[name] for name in self.free]
        self.lower = np.array([p.encode(max(p.lower, 1e-300) if p.log else p.lower) for p in free])
        self.upper = np.array([p.encode(p.upper) for p in free])
        self._middle = np.array([p.encode(p.start) for p in free])
        self.precision = np.array([1 / p.spread for p in free])

    def on(self, indices: Sequence[int]) -> "Fitter":
        """This fitter for some of the curves, maybe more than once."""
        return self._like(self.data.only(indices), self.outlier, self.prior)

    def informed(self, outlier: float, prior: float = PRIOR) -> "Fitter":
        """This fitter for known noise, which sets the size of outliers and the cost of a `spread`."""
        return self._like(self.data, outlier, prior)

    def _like(self, data: Data, outlier: float, prior: float) -> "Fitter":
        return Fitter(data, self.fixed, self.expected, outlier, prior)

    def encode(self, parameters: np.ndarray) -> np.ndarray:
        """The fitted numbers z of parameters (15,)."""
        return np.array([PARAMETERS[n].encode(parameters[NAMES.index(n)]) for n in self.free])

    def decode(self, z: np.ndarray) -> np.ndarray:
        """(…, 15) parameters of z (…, free)."""
        values = {name: np.full(z.shape[:-1], value) for name, value in self.fixed.items()}
        values |= {name: PARAMETERS[name].decode(z[..., i]) for i, name in enumerate(self.free)}
        return np.stack([values[name] for name in NAMES], axis=-1)

    @property
    def linear(self) -> np.ndarray:
        """(free,) which fitted numbers are logarithms of parameters that the loss is linear in."""
        return np.isin(self.free, ("amplitude", "noise"))

    def unlogged(self, z: np.ndarray) -> np.ndarray:
        """Fitted numbers z (…, free), without the logarithm where the loss is linear in a parameter."""
        return np.where(self.linear, np.exp(np.where(self.linear, z, 0.0)), z)

    def residuals(self, z: np.ndarray) -> np.ndarray:
        """(K, points + free) residuals of z (K, free): the curves, then spreads off the priors."""
        expected = (z - self._middle) * self.precision
        return np.concatenate([self.data.residuals(self.decode(z)), expected], axis=1)

    def uninformed(self, z: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """(free,) whether a parameter is where it was expected, and hardly better known than by its prior."""
        moved = np.abs(z - self._middle) * self.precision
        return (moved < 1) & (np.sqrt(np.diag(covariance)) * self.precision > 0.8)

    def jacobian(self, z: np.ndarray) -> np.ndarray:
        """(points + free, free) slopes by differences, all in one pass through the runs."""
        inward = np.where(z + STEP <= self.upper, STEP, -STEP)
        moved = self.residuals(np.concatenate([z[None], z + np.diag(inward)]))
        return ((moved[1:] - moved[0]) / inward[:, None]).T

    def secants(self, z: np.ndarray, reach: np.ndarray) -> np.ndarray:
        """(points, free) mean slopes of the curves' residuals within ``reach`` (free,) around z."""
        above, below = (np.clip(z + np.diag(way), self.lower, self.upper) for way in (reach, -reach))
        moved = self.data.residuals(self.decode(np.concatenate([above, below])))
        return ((moved[: len(z)] - moved[len(z) :]) / np.diag(above - below)[:, None]).T

    @property
    def pull(self) -> np.ndarray:
        """(free,) the steepest slope of the cost of the priors."""
        return self._pull.rate * self.prior**2 * self.precision

    @property
    def pull_varies(self) -> np.ndarray:
        """(free,) mean square of that slope over plausible parameters."""
        return self._pull.mean_square * (self.prior**2 * self.precision) ** 2

    def hold(self, z: np.ndarray) -> np.ndarray:
        """(free,) mean curvature of the cost of the priors within a spread of z."""
        off = (z - self._middle) * self.precision
        above, below = (np.clip((off + way) / self._pull.corner, -1, 1) for way in (1, -1))
        return self.pull * self.precision * (above - below) / 2

    def cost(self, z: np.ndarray) -> np.ndarray:
        """(K,) the robust cost of z (K, free)."""
        points, expected = self.costs(z)
        return points + expected

    def costs(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(K,) the robust cost of the curves, and that of the priors."""
        each = self._huber(self.residuals(z) ** 2)[0] / 2
        points = each.shape[1] - len(self.free)
        return each[:, :points].sum(axis=1), each[:, points:].sum(axis=1)

    def _huber(self, squares: np.ndarray) -> np.ndarray:
        """(3, …, points + free) twice the cost of squared residuals, with its first two derivatives.

        Large residuals count linearly: spikes, and exponents far from their usual values.
        """
        points = squares.shape[-1] - len(self.free)
        limit = np.repeat([self.outlier, self._pull.corner], [points, len(self.free)])
        expected = self._pull.rate / self._pull.corner * self.prior**2
        weight = np.repeat([1.0, expected], [points, len(self.free)])
        size = np.sqrt(np.maximum(squares, limit**2))
        inside = squares <= limit**2
        cost = np.where(inside, squares, limit * (2 * size - limit))
        return weight * np.stack([cost, limit / size, np.where(inside, 0.0, -limit / (2 * size**3))])

    def from_start(self, parameters: np.ndarray) -> Optimum:
        """The nearest optimum."""
        inside = 1e-6 * np.minimum(1.0, self.upper - self.lower)
        optimum = least_squares(
            lambda z: self.residuals(z[None])[0],
            np.clip(self.encode(parameters), self.lower + inside, self.upper - inside),
            self.jacobian,
            bounds=(self.lower, self.upper),
            loss=self._huber,
            x_scale="jac",
            max_nfev=EVALUATIONS,
        )
        return Optimum(self.decode(optimum.x), float(optimum.cost))

    def from_starts(self, count: int, seed: int) -> Optimum:
        """The best optimum from the most promising of random starts."""
        rng = np.random.default_rng(seed)
        middle = self.decode(self._middle)
        guesses = [middle]
        for _ in range(8 * count - 1):
            guess = middle.copy()
            for name, width in (("exponent", 0.6), ("speed", 1.0), ("shape", 0.5)):
                if name in self.free:
                    within = min(width, self.expected[name].spread)
                    guess[NAMES.index(name)] *= np.exp(within * rng.standard_normal())
            guesses.append(guess)
        starts = [self.data.linear_start(guess) for guess in guesses]
        starts.sort(key=lambda start: float(self.cost(self.encode(start)[None])[0]))
        return min((self.from_start(start) for start in starts[:count]), key=lambda optimum: optimum.cost)
