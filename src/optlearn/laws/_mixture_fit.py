"""Fit the law of mixtures to runs with several losses, and use the fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.stats import norm
from typing_extensions import override

from optlearn._arguments import Arguments
from optlearn._errors import SpecificationError, warn
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn.laws._curves import LawWarning, as_rates
from optlearn.laws._expectations import FALLEN, LOSSES
from optlearn.laws._fitted_law import METRICS, MISFIT, LawFit, _metrics, beyond_noise
from optlearn.laws._law import Parameter
from optlearn.laws._least_squares import Scale
from optlearn.laws._mixture_curves import MixtureCurve, read_mixtures
from optlearn.laws._mixture_fitter import PRIOR, MixtureData, MixtureFitter
from optlearn.laws._mixture_law import Layout, MixtureCourse, MixtureRun, losses_after, tenths
from optlearn.laws._noise import OUTLYING, robust_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from optlearn._control.objective import Objective
    from optlearn._control.problem import Problem
    from optlearn._control.solution import Solution
    from optlearn.laws._mixture_families import Candidate, Member

DRAWS = 32
FIRST = 0.3  # share of the shortest run before which losses follow no law
WANDERING = 2.0
BEYOND = 0.1  # a share this far beyond those of the curves calls for a warning
ALIKE = 0.02  # shares that never differ by more do not show the effect of a share


def fit_mixture(
    curves: Sequence[MixtureCurve],
    warmup: float,
    peak: float | None,
    fixed: Mapping[str, float] | None,
    first_step: float | None,
    starts: int,
    seed: int,
) -> "MixtureFit":
    """The law of mixtures of curves; arguments are those of ``fit``."""
    if len(curves) < 2:
        raise SpecificationError(
            f"curves must be at least 2 with different shares, got 1 ({curves[0].name!r}): with a single "
            "one, what the shares do cannot be told from what time does. Log runs on other mixtures, some "
            "with a "
            "decay of the rate"
        )
    domains = tuple(curves[0].shares)
    layout = Layout(domains, tuple(name for name in curves[0].losses if name not in domains))
    every = {d: np.concatenate([curve.shares[d] for curve in curves]) for d in domains}
    if max(np.ptp(shares) for shares in every.values()) < ALIKE:
        raise SpecificationError(
            f"curves must differ in their shares, but share_{domains[0]} is {every[domains[0]][0]:g} in all: "
            "what shares do cannot be identified"
        )
    highest = max(float(curve.rate.max()) for curve in curves)
    if highest <= 0:
        raise SpecificationError("curves: rates must not all be 0")
    if first_step is None:
        first_step = max([float(warmup), FIRST * min(curve.steps for curve in curves)])
    known = layout.parameters
    for name, value in (fixed or {}).items():
        if name not in known:
            raise SpecificationError(f"fixed must name parameters ({', '.join(known)}), got {name!r}")
        if not known[name].lower <= value <= known[name].upper:
            raise SpecificationError(
                f"fixed[{name!r}] must lie between {known[name].lower:g} and {known[name].upper:g}, got "
                f"{value!r}"
            )
    scale = Scale(float(peak or highest), max(curve.steps for curve in curves), 1.0)
    fitter = MixtureFitter(
        MixtureData(curves, layout, scale, float(warmup), float(first_step)), dict(fixed or {})
    )
    first = fitter.from_starts(starts, seed)
    # Domains differ in noise. Its size defines outliers, and the weight of curves beside the expectations, as
    # for the law of one loss.
    sizes = {
        name: robust_size(fitter.data.residuals_of(first.parameters[None], name)[0]) for name in layout.losses
    }
    middle = float(np.exp(np.mean(np.log(list(sizes.values())))))
    weights = {name: float(np.clip(middle / size, 0.3, 3.0)) for name, size in sizes.items()}
    fitter = MixtureFitter(replace(fitter.data, weights=weights), fitter.fixed, OUTLYING * middle, PRIOR)
    guess = MixtureFit(fitter, fitter.from_start(first.parameters), "mixture")
    # Residuals that wander show a wrong law, which deserves less trust than the size of the noise suggests.
    doubt = WANDERING if guess.noise.share > 0.5 else 1.0
    prior = min(doubt * guess.effective_noise, max(guess.point_noise, PRIOR))
    fitter = fitter.informed(fitter.outlier, prior)
    informed = MixtureFit(fitter, fitter.from_start(guess.optimum.parameters), "mixture")
    for message in informed.doubts:
        warn(message, LawWarning)
    return informed


@dataclass(frozen=True, eq=False)
class MixtureFit(LawFit):
    """A fitted law of mixtures; made by ``fit``."""

    fitter: MixtureFitter

    most_misfit: ClassVar[float] = 4 * MISFIT
    # A floor of 0, or a domain that teaches another as much as itself, is not a sign of an error.
    harmless_at_bounds: ClassVar[tuple[str, ...]] = ("floor_", "transfer_", "kinship_", "noise_", "memory_")

    @property
    @override
    def data(self) -> MixtureData:  # type: ignore[override]
        """The curves."""
        return self.fitter.data

    @property
    def layout(self) -> Layout:
        """Domains, targets and names of parameters."""
        return self.data.layout

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the domains that have a share."""
        return self.layout.domains

    @property
    @override
    def warmup(self) -> int:
        """Steps of the curves' warm-up, logged or not; planned runs have one of the same length."""
        return round(self.data.warmup or np.median([curve.rates.rise for curve in self.data.curves]))

    @property
    @override
    def known_parameters(self) -> Mapping[str, Parameter]:
        """Prior knowledge of every parameter, by name."""
        return self.layout.parameters

    @cached_property
    @override
    def misfit(self) -> dict[str, float]:
        """Root mean square residual of each series beyond its noise, as a share of the loss."""
        return {
            f"{curve}: {name}": beyond_noise(r) / self.data.weight(name)
            for (name, curve), r in zip(self.data.series, self._curve_residuals, strict=True)
        }

    # --- predictions -------------------------------------------------------------------------------

    @override
    def warn_beyond(self, run: tuple[np.ndarray, ...]) -> None:
        """Warn as for one loss, and if a fall of the rate, or shares or their falls, go beyond all curves.

        Args:
            run: lengths, rates, batches, and shares (intervals, domains) if they are known.
        """
        lengths, rates, batches, *shares = run
        super().warn_beyond((lengths, rates, batches))
        if not self.data.decays and rates[-1] <= FALLEN:
            warn(
                f"a rate that falls to {rates[-1] * self.data.scale.peak:.3g} is beyond the curves, of which "
                f"fewer than {LOSSES} losses are at rates below {FALLEN:g} of the highest: noise is not told "
                "from a floor, and what a decay gains is not known, nor is its interval",
                LawWarning,
            )
        if not shares:
            return
        for i, name in enumerate(self.domains):
            asked, tried = tenths((lengths, rates, batches, shares[0]))[:, i], self.data.shown[:, :, i]
            beyond = max(asked.max() - tried.max(), tried.min() - asked.min())
            # A domain whose share falls is forgotten.
            falls, fallen = ((np.maximum.accumulate(s, axis=-1) - s).max() for s in (asked, tried))
            part, parts = asked.mean(), tried.mean(axis=1)
            if beyond > BEYOND:
                what, known = (
                    f"from {asked.min():.2f} to {asked.max():.2f}",
                    f"{tried.min():.2f} to {tried.max():.2f}",
                )
            elif falls > fallen + BEYOND:
                what, known = f"that falls by {falls:.2f}", f"a fall by {fallen:.2f}"
            elif not parts.min() / 2 <= part <= 2 * parts.max():
                what, known = (
                    f"of {part:.2f} on average",
                    f"averages of {parts.min():.2f} to {parts.max():.2f}",
                )
            else:
                continue
            warn(
                f"a share of {name} {what} (in tenths of the run) is beyond the curves, which say nothing "
                f"beyond {known}",
                LawWarning,
            )
            return

    @checked
    @override
    def predict(  # type: ignore[override]
        self, lr: Any, shares: Mapping[str, Any] | None = None, average: bool = False
    ) -> dict[str, np.ndarray]:
        """Domain → predicted loss.

        Args:
            lr: (steps,) the learning rate of every step from the very first, for the loss after every step; a
                schedule in steps with shares, for the loss at the end of each interval; or a curve.
            shares: domain → (steps,) its share at every step, or a number; one domain may be left out.
            average: the mean over plausible parameters, instead of the loss by the best ones.
        """
        run, places = self.mixture_run(lr, shares, "predict")
        self.warn_beyond(run)
        return self._predicted(run, places, self.draws(DRAWS) if average else self.optimum.parameters[None])

    def _predicted(
        self, run: MixtureRun, places: np.ndarray, parameters: np.ndarray
    ) -> dict[str, np.ndarray]:
        course = MixtureCourse.stack([run])
        return {
            name: losses_after(self.layout, parameters, course, name)[:, 0, places].mean(axis=0)
            for name in self.layout.losses
        }

    def finals(self, runs: Sequence[MixtureRun], parameters: np.ndarray) -> np.ndarray:
        """(K, runs, losses) final losses of runs in units of the fit."""
        course = MixtureCourse.stack(runs)
        each = [losses_after(self.layout, parameters, course, name)[:, :, -1] for name in self.layout.losses]
        return np.stack(each, axis=-1)

    @checked
    @override
    def interval(  # type: ignore[override]
        self, lr: Any, shares: Mapping[str, Any] | None = None, level: float = 0.9, draws: int = DRAWS
    ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Domain → lower and upper end of the central interval of its loss; arguments as in ``predict``.

        It includes the uncertainty of the parameters and the misfit of the curves.
        """
        check = Arguments("interval")
        check.level(level)
        check.count("draws", draws)
        run, places = self.mixture_run(lr, shares, "interval")
        self.warn_beyond(run)
        course, ends = MixtureCourse.stack([run]), {}
        for name in self.layout.losses:
            losses = losses_after(self.layout, self.draws(draws), course, name)[:, 0, places]
            # With few draws other quantiles lie too far inside: 85 instead of 90 % with 32 draws.
            ends[name] = _central_interval(losses, level, self.typical_misfit[name])
        return ends

    @cached_property
    def typical_misfit(self) -> dict[str, float]:
        """Domain → root mean square over curves of ``misfit``."""
        return {
            name: float(np.sqrt(np.mean([self.misfit[f"{c.name}: {name}"] ** 2 for c in self.data.curves])))
            for name in self.layout.losses
        }

    def mixture_run(
        self, lr: Any, shares: Mapping[str, Any] | None, owner: str
    ) -> tuple[MixtureRun, np.ndarray]:
        """A run in units of the fit, and the intervals at whose ends losses are asked for."""
        check = Arguments(owner)
        if isinstance(lr, MixtureCurve):
            if set(lr.shares) != set(self.domains):
                check.fail("lr", list(lr.shares), f"must be a curve with shares of {', '.join(self.domains)}")
            return self.data.logged(lr)
        if isinstance(lr, Schedule):
            wanted = ["learning_rate", *(f"share_{name}" for name in self.domains)]
            if missing := [name for name in wanted if name not in lr.controls]:
                check.fail(
                    "lr", lr, f"must be a schedule of {', '.join(wanted)}, in steps; it lacks {missing[0]}"
                )
            run = self.data.planned(lr)
        else:
            rates = as_rates(lr)
            if rates is None or not len(rates):
                check.fail("lr", lr, "must be one rate for every step, finite and at least 0; or a schedule")
            if shares is None:
                check.fail("shares", shares, f"must map domains ({', '.join(self.domains)}) to shares")
            run = self.data.stepwise(rates, self.shares_per_step(shares, len(rates), owner))
        return run, np.arange(len(run[0]))

    def shares_per_step(self, shares: Mapping[str, Any], steps: int, owner: str) -> np.ndarray:
        """(steps, domains) checked shares; a domain that is left out has the rest up to 1."""
        check = Arguments(owner)
        unknown = [name for name in shares if name not in self.domains]
        if unknown:
            check.fail("shares", unknown[0], f"must be of the domains {', '.join(self.domains)}")
        missing = [name for name in self.domains if name not in shares]
        if len(missing) > 1:
            check.fail("shares", list(shares), f"must be given for all of {', '.join(self.domains)} but one")
        columns = {}
        for name, value in shares.items():
            try:
                column = np.asarray(value, dtype=float)
            except (TypeError, ValueError):
                check.fail(f"shares[{name!r}]", value, "must be numbers")
            if column.ndim > 1 or (column.ndim == 1 and len(column) != steps):
                check.fail(
                    f"shares[{name!r}]", column.shape, f"must be one number, or one for each of {steps} steps"
                )
            if not np.all((column >= -1e-9) & (column <= 1 + 1e-9)):  # catches NaN too
                worst = float(np.ravel(column)[np.abs(np.ravel(column) - 0.5).argmax()])
                check.fail(f"shares[{name!r}]", worst, "must be at least 0 and at most 1")
            columns[name] = np.broadcast_to(column, (steps,))
        if missing:
            columns[missing[0]] = 1 - np.sum(list(columns.values()), axis=0)
        table = np.stack([columns[name] for name in self.domains], axis=1)
        if not np.all(table >= -1e-9):
            check.fail("shares", float(table.min()), "must be at least 0 and add up to at most 1")
        if np.abs(table.sum(axis=1) - 1).max(initial=0.0) > 1e-6:
            check.fail(
                "shares", float(table.sum(axis=1)[np.abs(table.sum(axis=1) - 1).argmax()]), "must add up to 1"
            )
        return np.clip(table, 0.0, 1.0)

    @override
    def errors(self, curves: Any) -> dict[str, float]:
        """R2, MAE, RMSE, PredE (mean relative error), WorstE, means over ``curves`` and domains."""
        each = [e for by_domain in self.errors_by_curve(curves).values() for e in by_domain.values()]
        return {metric: float(np.mean([errors[metric] for errors in each])) for metric in METRICS}

    @override
    def errors_by_curve(self, curves: Any) -> dict[str, dict[str, dict[str, float]]]:  # type: ignore[override]
        """The errors of every curve and domain, and FinalE, the relative error of the last loss."""
        read = read_mixtures(curves)
        if read is None:
            raise SpecificationError("curves must have columns share_NAME and loss_NAME")
        by_curve: dict[str, dict[str, dict[str, float]]] = {}
        for curve in read:
            run, places = self.mixture_run(curve, None, "errors")
            predicted = self._predicted(run, places, self.optimum.parameters[None])
            by_curve[curve.name] = {}
            for name in (name for name in self.layout.losses if name in curve.losses):
                loss = curve.losses[name][curve.any_loss]
                kept = np.isfinite(loss) & (curve.rates.step >= self.data.first)
                if kept.any():
                    true, forecast = loss[kept], predicted[name][kept]
                    final = {"FinalE": float(forecast[-1] / true[-1] - 1)}
                    by_curve[curve.name][name] = _metrics(true, forecast) | final
        return by_curve

    # --- control -----------------------------------------------------------------------------------

    @override
    def problem(
        self,
        steps: int | None = None,
        bounds: tuple[float, float] | None = None,
        robust: bool | int = True,
        **options: Any,
    ) -> "Problem":
        """The search for the best rate and shares, for ``ol.solve``; options as in ``mixture_problem``."""
        from optlearn.laws._mixture_control import mixture_problem

        return mixture_problem(self, steps, bounds, robust, **options)

    @checked
    @override
    def schedule(self, solution: "Solution | Schedule", history: Any = None) -> Schedule:
        """A solution in steps, true rates and shares, from the very first step on; see ``true_mixture``."""
        from optlearn.laws._mixture_control import true_mixture

        return true_mixture(self, solution, history)

    def objective(self, name: str) -> "Objective":
        """The final loss of one domain or target, for ``ol.pareto`` and limits."""
        from optlearn.laws._mixture_control import objective_of

        if name not in self.layout.losses:
            Arguments("objective").fail("name", name, f"must be one of {', '.join(self.layout.losses)}")
        return objective_of(self.layout, name)

    def compare(self, schedules: Mapping[str, Any], **options: Any) -> "list[Candidate]":
        """Schedules of your own, the most promising first; see ``compare`` for all options."""
        from optlearn.laws._mixture_families import compare

        return compare(self, schedules, **options)

    def family(self, domain: str, budget: float, *arguments: Any, **options: Any) -> "list[Member]":
        """Schedules of common shapes that spend a budget, best first; see ``family`` for all options."""
        from optlearn.laws._mixture_families import family

        members = family(self, domain, budget, *arguments, **options)
        self.warn_beyond(self.data.planned(members[0].schedule))
        return members

    # --- words and pictures ------------------------------------------------------------------------

    @override
    def summary(self) -> str:
        """Parameters with their standard errors, and how well the curves are described."""
        scale, errors = self.data.scale, self.standard_errors
        missed = ", ".join(f"{name} {100 * miss:.2g} %" for name, miss in self.typical_misfit.items())
        targets = f" and targets {', '.join(self.layout.targets)}" if self.layout.targets else ""
        lines = [
            f"law of mixtures of {len(self.data.curves)} curves with domains {', '.join(self.domains)}"
            f"{targets}, up to {scale.steps:g} steps, peak rate {scale.peak:g}",
            f"  noise of a point {100 * self.point_noise:.2g} %, typical misfit beyond it: {missed}",
        ]
        z = self.fitter.encode(self.optimum.parameters)
        little = dict(zip(self.fitter.free, self.fitter.uninformed(z, self.covariance), strict=True))
        for name, value in self.parameters.items():
            note = " (fixed)" if name in self.fitter.fixed else f" ± {errors[name]:.2g}"
            if little.get(name):
                note += " (known beforehand; the curves add little)"
            lines.append(f"  {name:<28}{value:10.4g}{note}")
        return "\n".join([*lines, *(f"  ! {doubt}" for doubt in self.doubts)])

    @checked
    @override
    def plot(self, schedule: Schedule | None = None) -> "Figure":
        """Losses of each domain with their fit, and a schedule in steps with its predicted losses."""
        import matplotlib.pyplot as plt

        names = self.layout.losses
        figure, axes = plt.subplots(
            1, len(names) + 1, figsize=(4.4 * (len(names) + 1), 3.8), layout="constrained"
        )
        for axis, name in zip(axes[:-1], names, strict=True):
            for i, curve in enumerate(self.data.curves):
                at, loss = curve.rates.step, curve.losses[name][curve.any_loss]
                kept = np.isfinite(loss) & (at >= self.data.first)
                run, places = self.mixture_run(curve, None, "plot")
                fitted = self._predicted(run, places, self.optimum.parameters[None])[name]
                axis.plot(at[kept], loss[kept], color=f"C{i % 10}", alpha=0.35, linewidth=2)
                axis.plot(at[kept], fitted[kept], color=f"C{i % 10}", linewidth=0.8, label=curve.name)
            if schedule is not None:
                ends = schedule.grid[1:]
                kept = ends >= self.data.first
                low, high = (end[kept] for end in self.interval(schedule)[name])
                axis.fill_between(ends[kept], low, high, color="k", alpha=0.2, linewidth=0)
                axis.plot(ends[kept], self.predict(schedule)[name][kept], "k", label="plan, predicted")
            axis.set(xlabel="step", ylabel=f"loss of {name}")
        if len(self.data.curves) <= 12:
            axes[0].legend(fontsize="xx-small")
        if schedule is not None:
            top = float(schedule["learning_rate"].max())
            axes[-1].stairs(
                schedule["learning_rate"] / top,
                schedule.grid,
                color="k",
                baseline=None,
                label=f"rate / {top:.2g}",
            )
            for i, name in enumerate(self.domains):
                share = schedule[f"share_{name}"]
                axes[-1].stairs(share, schedule.grid, color=f"C{i}", baseline=None, label=f"share of {name}")
            # Above the axes, since steps at the top and at the bottom leave no room inside.
            axes[-1].legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        else:
            for i, curve in enumerate(self.data.curves):
                axes[-1].plot(curve.step, curve.shares[self.domains[-1]], color=f"C{i % 10}", linewidth=1)
            axes[-1].set(ylabel=f"share of {self.domains[-1]}")
        axes[-1].set(xlabel="step")
        return figure

    @override
    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return super().to_dict() | {"domains": list(self.domains), "targets": list(self.layout.targets)}


def _central_interval(losses: np.ndarray, level: float, misfit: float) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the interval of losses (draws, points), with the ``misfit`` as a share of the loss."""
    ends = [(1 - level) / 2, 0.5, (1 + level) / 2]
    low, middle, high = np.quantile(losses, ends, axis=0, method="weibull")
    missed = norm.ppf((1 + level) / 2) * misfit * middle
    return middle - np.hypot(middle - low, missed), middle + np.hypot(high - middle, missed)
