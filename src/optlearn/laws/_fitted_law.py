"""A fitted law: its parameters with their uncertainties, predictions and their intervals."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from optlearn._arguments import Arguments
from optlearn._errors import SpecificationError, warn
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn.laws._average import loss_of_average
from optlearn.laws._curves import Curve, LawWarning, as_rates
from optlearn.laws._law import PARAMETERS, Course, Parameter, at_size, loss_after
from optlearn.laws._least_squares import STEP, Data, Fitter, Optimum, Run
from optlearn.laws._noise import Noise
from optlearn.laws._readers import read_curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from optlearn._control.problem import Problem
    from optlearn._control.solution import Solution

METRICS = ("R2", "MAE", "RMSE", "PredE", "WorstE")
MISFIT = 0.01  # share of the loss, beyond noise, above which a warning is due
DRAWS = 64
CHAIN = 80  # steps of a chain
LEAST = 0.02  # share of the best amplitude, below which none is plausible
REACH = 1.96  # standard deviations to either side that contain 95 %


@dataclass(frozen=True, eq=False)
class LawFit:
    """A fitted law; made by ``fit``."""

    fitter: Fitter
    optimum: Optimum
    law: str
    prior: "tuple[LawFit, ...]" = ()
    _drawn: dict[tuple[int, int], np.ndarray] = field(default_factory=dict, init=False, repr=False)

    most_misfit: ClassVar[float] = MISFIT
    harmless_at_bounds: ClassVar[tuple[str, ...]] = ()  # beginnings of names

    # --- parameters and how well they are known ----------------------------------------------------

    @property
    def data(self) -> Data:
        """The curves."""
        return self.fitter.data

    @property
    def warmup(self) -> int:
        """Steps of the curves' warm-up, logged or not; planned runs have one of the same length."""
        return round(self.data.warmup or np.median([curve.rise for curve in self.data.curves]))

    @property
    def batch(self) -> float:
        """The usual batch size, the median of those logged; 1 if none was logged."""
        return self.data.scale.batch

    @property
    def several_batches(self) -> bool:
        """Whether curves, or parts of one, differ in their batch size."""
        return self.data.several_batches

    @property
    def parameters(self) -> dict[str, float]:
        """By name; rates in units of the peak, time in units of the longest run."""
        return dict(zip(self.known_parameters, self.optimum.parameters.tolist(), strict=True))

    @property
    def known_parameters(self) -> Mapping[str, Parameter]:
        """Prior knowledge of every parameter, by name."""
        return PARAMETERS

    @cached_property
    def _curve_residuals(self) -> list[np.ndarray]:
        whole = self.data.residuals(self.optimum.parameters[None])[0]
        return np.split(whole, np.cumsum([len(loss) for loss in self.data.losses])[:-1])

    @cached_property
    def point_noise(self) -> float:
        """Standard deviation of the logarithm of a logged loss, from differences of neighbours."""
        return float(np.sqrt(np.mean([np.mean(np.diff(r) ** 2) / 2 for r in self._curve_residuals])))

    @cached_property
    def misfit(self) -> dict[str, float]:
        """Root mean square residual of each curve beyond its noise, as a share of the loss."""
        return {
            curve.name: beyond_noise(r)
            for curve, r in zip(self.data.curves, self._curve_residuals, strict=True)
        }

    @cached_property
    def ends_missed(self) -> float:
        """Root mean square of the last residuals of all curves beyond the noise of a point."""
        ends = np.array([residuals[-1] for residuals in self._curve_residuals])
        return float(np.sqrt(max(np.mean(ends**2) - self.point_noise**2, 0.0)))

    @cached_property
    def law_error(self) -> float:
        """Model error of a prediction: a standard deviation, as a share of the loss.

        It combines the misfit of the curves with the misfit at the ends of the prior's curves, since part of
        a run does not show how a whole one ends.
        """
        ends = np.sqrt(np.mean([each.ends_missed**2 for each in self.prior])) if self.prior else 0.0
        return float(np.hypot(max(self.misfit.values()), ends))

    @cached_property
    def _jacobian(self) -> np.ndarray:
        """(points, free) slopes of the residuals in the fitted numbers."""
        points = sum(len(loss) for loss in self.data.losses)
        return self.fitter.jacobian(self.fitter.encode(self.optimum.parameters))[:points]

    @cached_property
    def _inside(self) -> float:
        """Share of the points that are not outliers: the mean slope of a clipped residual."""
        return float(np.mean(np.abs(np.concatenate(self._curve_residuals)) <= self.fitter.outlier))

    @cached_property
    def noise(self) -> Noise:
        """Noise of unclipped points that leaves the parameters as uncertain as the clipped ones do.

        The noise of the curves or of the prior's, whichever leaves the parameters more uncertain: a short run
        and a drop do not show how the law errs, whole runs of the family do.
        """
        clipped = np.clip(np.concatenate(self._curve_residuals), -self.fitter.outlier, self.fitter.outlier)
        own = Noise.of(clipped / self._inside, self._jacobian, self.fitter.precision**2, self.data.steps)
        others = self.prior if len(self.data.curves) > 1 else ()
        return max([own, *(replace(each.noise, gaps=own.gaps) for each in others)], key=self._effective)

    @cached_property
    def effective_noise(self) -> float:
        """Root of the cost of one standard deviation, given correlated neighbours and clipped spikes.

        A mean over the directions in which parameters move the curves. For independent Gaussian residuals
        without outliers it is their standard deviation.
        """
        return self._effective(self.noise)

    def _effective(self, noise: Noise) -> float:
        directions, _ = np.linalg.qr(self._jacobian)
        return float(np.sqrt(self._inside * np.diag(noise.of_sums(directions)).mean()))

    @cached_property
    def covariance(self) -> np.ndarray:
        """(free, free) covariance of the fitted numbers (logarithms where a parameter is above 0).

        A sandwich estimate: the inverse curvature of the cost on both sides of the variance of its slope. The
        slope varies with the noise, and with the parameters, which are pulled towards their expected values.
        Neither the law nor that pull is linear in the parameters: curvatures are means over plausible values.
        """
        nearby = np.sqrt(np.diag(self._sandwich(self._jacobian)))
        reach = np.clip(nearby, STEP, self._widths)
        return self._sandwich(self.fitter.secants(self.fitter.encode(self.optimum.parameters), reach))

    def _sandwich(self, jacobian: np.ndarray) -> np.ndarray:
        """The covariance from slopes (points, free) of the residuals."""
        fitter, slopes = self.fitter, self._inside * jacobian
        hold = fitter.hold(fitter.encode(self.optimum.parameters))
        inverse = np.linalg.pinv(slopes.T @ jacobian + np.diag(hold), hermitian=True)
        varies = self.noise.of_sums(slopes) + np.diag(fitter.pull_varies)
        return inverse @ varies @ inverse

    @property
    def _widths(self) -> np.ndarray:
        """(free,) widths of the ranges of the fitted numbers."""
        return self.fitter.upper - self.fitter.lower

    @cached_property
    def standard_errors(self) -> dict[str, float]:
        """Of the parameters, by name; 0 for those that were fixed.

        A parameter ± 1.96 standard errors is an interval of 95 %. For a parameter that is fitted as its
        logarithm, it reaches farther up than a normal one of the same relative error, and down to 0.
        """
        errors = np.minimum(np.sqrt(np.diag(self.covariance)), self._widths)
        by_name = dict.fromkeys(self.fitter.fixed, 0.0)
        for name, error in zip(self.fitter.free, errors.tolist(), strict=True):
            log = self.known_parameters[name].log
            by_name[name] = self.parameters[name] * _relative(error) if log else error
        return {name: by_name[name] for name in self.known_parameters}

    @checked
    def draws(self, count: int = DRAWS, seed: int = 0) -> np.ndarray:
        """(count, 15) plausible parameters, the best first.

        The draws are the ends of Metropolis chains that start around the best fit, since the law is not
        linear in its parameters; a step of all chains is one pass through the curves. The chains see the cost
        of the fit, in which all points count alike and no more than the law's accuracy allows. Their ends are
        then stretched to the covariance near the best fit, which includes the correlation of the noise.
        """
        check = Arguments("draws")
        check.count("count", count)
        check.count("seed", seed, 0)
        if (count, seed) not in self._drawn:
            self._drawn[count, seed] = self._draw(count, seed)
        return self._drawn[count, seed]

    def _draw(self, count: int, seed: int) -> np.ndarray:
        fitter, rng = self.fitter, np.random.default_rng(seed)
        # Curves may be given more noise than they have: the law is not exact, however exact they are.
        noise, linear = max(self.effective_noise, fitter.prior), fitter.linear
        best = fitter.encode(self.optimum.parameters)
        if count == 1:
            return self.optimum.parameters[None]
        # Far from the expected values, the chain's density falls as exp(−rate |z|), of variance 2 / rate².
        held = np.minimum((fitter.pull / noise**2) ** 2 / 2, (fitter.prior / noise * fitter.precision) ** 2)
        information = self._inside * self._jacobian.T @ self._jacobian / noise**2 + np.diag(held)
        # One amplitude can gain what another loses, along a line in the amplitudes that is curved in their
        # logarithms. Chains walk along the line, and start scattered over it, since it is long.
        size = np.where(linear, np.exp(np.where(linear, best, 0.0)), 1.0)
        root = size[:, None] * _root(np.linalg.pinv(information, hermitian=True))
        lowest, highest = (fitter.unlogged(z) for z in (fitter.lower, fitter.upper))

        def likelihood(z: np.ndarray) -> np.ndarray:
            """Logarithms, per unit of the numbers that chains walk in."""
            points, expected = fitter.costs(z)
            return -(points + expected) / noise**2 - z[:, linear].sum(axis=1)

        def logged(y: np.ndarray) -> np.ndarray:
            inside = np.clip(y, lowest, highest)
            return np.where(linear, np.log(np.where(linear, inside, 1.0)), inside)

        y = fitter.unlogged(best) + rng.standard_normal((count - 1, len(best))) @ root.T
        y = np.clip(y, np.where(linear, np.maximum(lowest, LEAST * size), lowest), highest)
        log_density, scale = likelihood(logged(y)), 1.0 / np.sqrt(len(best))
        for _ in range(CHAIN):
            moved = y + scale * rng.standard_normal(y.shape) @ root.T
            inside = np.all((moved >= lowest) & (moved <= highest), axis=1)
            new = np.where(inside, likelihood(logged(moved)), -np.inf)
            taken = rng.random(len(y)) < np.exp(np.minimum(new - log_density, 0.0))
            y, log_density = np.where(taken[:, None], moved, y), np.where(taken, new, log_density)
            scale *= np.exp(0.3 * (taken.mean() - 0.3))  # a share of 0.3 taken explores fastest
        # Chains that started too far out to arrive are replaced by others: those whose density is more than
        # three standard deviations below what is usual in this number of dimensions.
        reach = len(best) / 2 + 3 * np.sqrt(len(best) / 2)
        lost = log_density < log_density.max() - reach
        y[lost] = y[rng.choice(np.flatnonzero(~lost), lost.sum())] if lost.any() else y[lost]
        wide = size[:, None] * _root(self._sandwich(self._jacobian))
        middle = fitter.unlogged(best)
        y = middle + (y - middle) @ np.linalg.pinv(root).T @ wide.T
        y = np.maximum(y, np.where(linear, LEAST * size, -np.inf))
        return np.concatenate([self.optimum.parameters[None], fitter.decode(logged(y))])

    @checked
    def bootstrap(self, count: int = 20, seed: int = 0) -> np.ndarray:
        """(count, parameters) of fits to curves drawn with replacement."""
        check = Arguments("bootstrap")
        check.count("count", count)
        check.count("seed", seed, 0)
        rng, many = np.random.default_rng(seed), len(self.data.curves)
        fits: list[np.ndarray] = []
        while len(fits) < count:
            indices = rng.integers(many, size=many).tolist()
            if len(set(indices)) > 1:  # a single curve does not show the effect of the rate
                fitter = self.fitter.on(indices)
                fits.append(fitter.from_start(self.optimum.parameters).parameters)
        return np.stack(fits)

    @cached_property
    def doubts(self) -> tuple[str, ...]:
        """Sentences, with numbers, on where the law does not describe the curves."""
        doubts = []
        worst = max(self.misfit, key=lambda name: self.misfit[name])
        if self.misfit[worst] > self.most_misfit:
            doubts.append(
                f"the law misses curve {worst!r} by {100 * self.misfit[worst]:.2g} % of the loss beyond its "
                f"noise of {100 * self.point_noise:.2g} %: an optimum may exploit that error"
            )
        z = self.fitter.encode(self.optimum.parameters)
        width = 1e-3 * np.minimum(1.0, self.fitter.upper - self.fitter.lower)
        at_bound = (z < self.fitter.lower + width) | (z > self.fitter.upper - width)
        names = [
            name
            for name, at in zip(self.fitter.free, at_bound, strict=True)
            if at and not name.startswith(self.harmless_at_bounds)
        ]
        if names:
            values = ", ".join(f"{name} = {self.parameters[name]:.3g}" for name in names)
            doubts.append(f"parameters at their bounds: {values}; more varied curves would pin them down")
        return tuple(doubts)

    # --- predictions -------------------------------------------------------------------------------

    def predict(self, lr: Any, size: float | None = None, averaged_over: float | None = None) -> np.ndarray:
        """Loss under rates that were not tried.

        Args:
            lr: (steps,) the learning rate of every step from the very first, for the loss after every step; a
                schedule in steps, for the loss at the end of each interval; or a curve (columns step and lr),
                for the loss at its steps.
            size: parameters of the network, if several sizes were fitted (default: the largest).
            averaged_over: memory m, in steps, of an exponential average of the weights whose loss is asked
                for, w̄ ← w̄ + (w − w̄)/m after every step (default: that of the weights themselves).
        """
        run, places = self._run(lr, "predict")
        self.warn_beyond(run)
        numbers = self.sized(self.optimum.parameters[None], size)
        if averaged_over is None:
            return loss_after(numbers, Course.stack([run]))[0, 0, places]
        Arguments("predict").number("averaged_over", averaged_over, 1.0)
        step = 1 / self.data.scale.steps
        return loss_of_average(numbers, Course.stack([run]), averaged_over, step)[0, places]

    def sized(self, parameters: np.ndarray, size: float | None) -> np.ndarray:
        """(K, 15) parameters of the law for networks of one size; None is the largest that was fitted."""
        if size is None:
            return at_size(parameters, 1.0)
        Arguments("fit").number("size", size, 0.0, open_below=True)
        if self.data.sizes is None:
            Arguments("fit").fail("size", size, "needs a fit to several sizes, laws.fit(…, sizes=…)")
        return at_size(parameters, size / self.data.scale.size)

    @checked
    def interval(
        self, lr: Any, level: float = 0.9, draws: int = DRAWS, size: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper end of an interval around the predicted loss; arguments as in ``predict``.

        It includes the uncertainty of the parameters, the misfit of the curves, and the misfit at the ends of
        the prior's curves.
        """
        check = Arguments("interval")
        check.level(level)
        check.count("draws", draws)
        run, places = self._run(lr, "interval")
        self.warn_beyond(run)
        losses = loss_after(self.sized(self.draws(draws), size), Course.stack([run]))[:, 0, places]
        return around_best(losses, level, self.law_error)

    def _run(self, lr: Any, owner: str) -> tuple[Run, np.ndarray]:
        """A run in units of the fit, and the intervals at whose ends its loss is asked for."""
        if isinstance(lr, Mapping) or hasattr(lr, "columns"):
            columns = {name: np.asarray(lr[name]) for name in (lr.columns if hasattr(lr, "columns") else lr)}
            columns.setdefault("loss", np.ones(max((np.shape(c) for c in columns.values()), default=(0,))))
            lr, *others = read_curves({"lr": columns})
            if others:
                Arguments(owner).fail("lr", [c.name for c in (lr, *others)], "must be a single run")
        if isinstance(lr, Curve):
            edges = lr.edges(lr.step, self.data.warmup)
            return self.data.intervals(lr, edges), lr.ends(lr.step, self.data.warmup)
        if isinstance(lr, Schedule):
            if "learning_rate" not in lr.controls:
                Arguments(owner).fail("lr", lr, "must be a schedule of learning_rate, in steps")
            run = self.data.planned(lr)
        else:
            rates = as_rates(lr)
            if rates is None or not len(rates):
                allowed = "must be one rate for every step, finite and at least 0; a schedule; or a curve"
                Arguments(owner).fail("lr", lr, allowed)
            run = self.data.stepwise(rates)
        return run, np.arange(len(run[0]))

    def warn_beyond(self, run: Run) -> None:
        """Warn if a run, in units of the fit, has rates that no curve has, or more than twice the steps."""
        scale = self.data.scale
        tried = max(float(curve.known[1].max()) for curve in self.data.curves)
        for what, unit, asked, most in (
            ("a rate of", "", run[1].max() * scale.peak, tried),
            ("a training of", " steps", run[0].sum() * scale.steps, 2 * scale.steps),
        ):
            if asked > 1.01 * most:
                warn(
                    f"{what} {asked:g}{unit} is beyond the curves, which say nothing beyond {most:g}{unit}",
                    LawWarning,
                )

    def errors(self, curves: Any) -> dict[str, float]:
        """R2, MAE, RMSE, PredE (mean relative error) and WorstE (the largest), means over ``curves``."""
        each = self.errors_by_curve(curves).values()
        return {metric: float(np.mean([errors[metric] for errors in each])) for metric in METRICS}

    def errors_by_curve(self, curves: Any) -> dict[str, dict[str, float]]:
        """The same for every curve."""
        errors = {}
        for curve in read_curves(curves):
            kept = curve.from_step(self.data.first)
            if kept.any():  # no warning: the aim is to test how far the law reaches
                run, places = self._run(curve, "errors")
                numbers = self.sized(self.optimum.parameters[None], self.size_of.get(curve.name))
                predicted = loss_after(numbers, Course.stack([run]))[0, 0, places]
                errors[curve.name] = _metrics(curve.loss[kept], predicted[kept])
        return errors

    @property
    def size_of(self) -> dict[str, float]:
        """Sizes of the curves' networks, by name; an unknown curve counts as one of the largest network."""
        if self.data.sizes is None:
            return {}
        pairs = zip(self.data.curves, self.data.sizes * self.data.scale.size, strict=True)
        return {curve.name: float(size) for curve, size in pairs}

    def leave_one_out(self) -> dict[str, dict[str, Any]]:
        """Errors of every curve, predicted by a fit to all others."""
        if len(self.data.curves) < 3:
            raise SpecificationError(f"leave_one_out needs at least 3 curves, got {len(self.data.curves)}")
        errors: dict[str, dict[str, Any]] = {}
        for i, curve in enumerate(self.data.curves):
            fitter = self.fitter.on([j for j in range(len(self.data.curves)) if j != i])
            fitted = replace(self, fitter=fitter, optimum=fitter.from_start(self.optimum.parameters))
            errors |= fitted.errors_by_curve(curve)
        return errors

    # --- control -----------------------------------------------------------------------------------

    def problem(
        self,
        steps: int | None = None,
        bounds: tuple[float, float] | None = None,
        robust: bool | int = True,
        **options: Any,
    ) -> "Problem":
        """The search for the best schedule, for ``ol.solve``; see ``law_problem`` for all options."""
        from optlearn.laws._control import law_problem

        return law_problem(self, steps, bounds, robust, **options)

    @checked
    def schedule(self, solution: "Solution | Schedule", history: Any = None) -> Schedule:
        """A solution in steps and true rates, from the very first step on; see ``true_schedule``."""
        from optlearn.laws._control import true_schedule

        return true_schedule(self, solution, history)

    # --- words and pictures ------------------------------------------------------------------------

    def summary(self) -> str:
        """Parameters with their standard errors, and how well the curves are described."""
        from optlearn.laws._report import summary

        return summary(self)

    @checked
    def plot(self, schedule: Schedule | None = None) -> "Figure":
        """Curves, fit and residuals; and, of a schedule in steps, its rates and predicted loss."""
        from optlearn.laws._report import figure

        return figure(self, schedule)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        scale = self.data.scale
        return {
            "law": self.law,
            "parameters": self.parameters,
            "standard_errors": self.standard_errors,
            "peak": scale.peak,
            "steps": scale.steps,
            "warmup": self.warmup,
            "point_noise": self.point_noise,
            "misfit": self.misfit,
            "doubts": list(self.doubts),
        }


def around_best(losses: np.ndarray, level: float, missed: float) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the interval of losses (draws, …) around the first, the loss at the best parameters.

    Args:
        losses: at plausible parameters, the best first. Where curves say little, the draws lie to one side of
            the best, and their median is not a better prediction.
        level: probability.
        missed: standard deviation of all other errors, as a share of the loss.
    """
    low, middle, high = np.quantile(losses, [(1 - level) / 2, 0.5, (1 + level) / 2], axis=0)
    reach = norm.ppf((1 + level) / 2) * missed * losses[0]
    return losses[0] - np.hypot(middle - low, reach), losses[0] + np.hypot(high - middle, reach)


def beyond_noise(residuals: np.ndarray) -> float:
    """Root mean square of residuals along a curve, less the noise that shows in differences of neighbours."""
    return float(np.sqrt(max(np.mean(residuals**2) - np.mean(np.diff(residuals) ** 2) / 2, 0.0)))


def _metrics(loss: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    off = predicted - loss
    values = (
        1 - (off**2).sum() / max(((loss - loss.mean()) ** 2).sum(), 1e-300),
        np.abs(off).mean(),
        np.sqrt((off**2).mean()),
        np.abs(off / loss).mean(),
        np.abs(off / loss).max(),
    )
    return dict(zip(METRICS, map(float, values), strict=True))


def _relative(error: float) -> float:
    """Half width, over REACH, of the symmetric interval around 1 that contains 95 % of a log-normal number.

    Args:
        error: standard deviation of its logarithm, whose mean is 0.
    """
    if error < STEP:
        return error

    def missed(reach: float) -> float:
        below = norm.cdf(np.log1p(-reach) / error) if reach < 1 else 0.0
        return below + norm.sf(np.log1p(reach) / error) - 2 * norm.sf(REACH)

    return brentq(missed, 0.0, np.expm1(REACH * error)) / REACH


def _root(covariance: np.ndarray) -> np.ndarray:
    """The symmetric root of a covariance."""
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
