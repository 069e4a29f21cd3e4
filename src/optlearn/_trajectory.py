"""Order parameters along training, from the theory (one curve) or a simulation (a curve a seed).

Also the two measures, in percent, of how much better one schedule is than another.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray


@dataclass(frozen=True)
class Trajectory:
    """Labelled time courses.

    Attributes:
        alpha: (T,) training times.
        values: name → (T,), or (S, T) with a seed axis: order parameters (``Q11`` …), ``error``
            (the generalisation error) and the model's observables.
        order_parameters: names of the order parameters among ``values``, in flat order.
        info: how it was computed (backend, tolerances, N, seeds, …).
    """

    alpha: np.ndarray
    values: Mapping[str, np.ndarray]
    order_parameters: tuple[str, ...]
    info: Mapping[str, Any] = field(default_factory=dict)
    _dense: Callable[[np.ndarray], np.ndarray] | None = field(default=None, repr=False)

    def __getitem__(self, name: str) -> np.ndarray:
        """(T,) or (S, T) course of a quantity."""
        try:
            return self.values[name]
        except KeyError:
            raise KeyError(f"no {name!r} in this trajectory; it has {list(self.values)}") from None

    @property
    def seeds(self) -> int:
        """Number of seeds; 0 for the theory."""
        first = next(iter(self.values.values()))
        return 0 if first.ndim == 1 else first.shape[0]

    @property
    def states(self) -> np.ndarray:
        """(T, n) or (S, T, n) flat states."""
        return np.stack([self.values[name] for name in self.order_parameters], axis=-1)

    @property
    def objective(self) -> float:
        """The problem's objective, or the generalisation error at the end (mean over seeds)."""
        return float(self.info.get("objective", np.mean(self["error"][..., -1])))

    def at(self, alpha: float | np.ndarray) -> dict[str, np.ndarray]:
        """Order parameters at any training time: dense output of the integrator."""
        if self._dense is None:
            raise ValueError("only integrated trajectories have dense output; use the grid, .alpha")
        times = np.asarray(alpha, dtype=float)
        if not np.all((times >= 0) & (times <= self.alpha[-1])):
            raise ValueError(f"alpha={alpha!r} lies outside training, 0 to {self.alpha[-1]:g}")
        states = self._dense(np.atleast_1d(times))
        return {name: states[:, i].reshape(times.shape) for i, name in enumerate(self.order_parameters)}

    def mean(self, name: str) -> np.ndarray:
        """(T,) mean over seeds."""
        course = self[name]
        return course if course.ndim == 1 else course.mean(axis=0)

    def standard_error(self, name: str) -> np.ndarray:
        """(T,) standard error of the mean over seeds."""
        course = self[name]
        if course.ndim == 1 or len(course) < 2:
            raise ValueError(f"a standard error needs at least two seeds; there are {self.seeds}")
        return np.asarray(course.std(axis=0, ddof=1) / np.sqrt(len(course)))

    def band(self, name: str, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """(T,) lower and upper ends of the confidence band of the mean (Student's t)."""
        from scipy.stats import t

        if not 0 < level < 1:
            raise ValueError(f"level={level!r}: a number between 0 and 1, such as 0.95")
        half = t.ppf((1 + level) / 2, self.seeds - 1) * self.standard_error(name)
        return self.mean(name) - half, self.mean(name) + half

    def z_scores(self, name: str, expected: np.ndarray) -> np.ndarray:
        """(T,) deviations of the mean over seeds from the expected values, as standard normal scores.

        With few seeds the standard error is itself uncertain, so a deviation follows Student's t and not the
        normal distribution. The score is the normal one of the same probability. NaN where all seeds agree,
        as at the start.
        """
        from scipy.stats import norm, t

        if np.shape(expected) != self.alpha.shape:
            raise ValueError(
                f"expected: shape {np.shape(expected)}; one number at each of {len(self.alpha)} times"
            )
        mean, error = self.mean(name), self.standard_error(name)
        scattered = (self.alpha > 0) & (error > 1e-12 * np.maximum(1.0, np.abs(mean)))
        ratio = np.where(scattered, (mean - expected) / np.where(scattered, error, 1.0), np.nan)
        size = np.fmin(np.abs(ratio), norm.isf(t.sf(np.abs(ratio), self.seeds - 1)))
        return np.asarray(np.sign(ratio) * size)

    def to_dataset(self) -> "xarray.Dataset":
        """An xarray Dataset with dimensions ``alpha`` and, if simulated, ``seed``."""
        import xarray

        dims = ("alpha",) if self.seeds == 0 else ("seed", "alpha")
        data = {name: (dims, course) for name, course in self.values.items()}
        return xarray.Dataset(data, coords={"alpha": self.alpha})


def reduction(baseline: Any, better: Any) -> np.ndarray:
    """How much lower the better objective is, in percent of the baseline's; NaN if the latter is 0."""
    baseline, better = np.asarray(baseline, dtype=float), np.asarray(better, dtype=float)
    return _percent(baseline - better, np.abs(baseline), baseline != 0)


def improvement(baseline: Any, better: Any, start: Any = None) -> np.ndarray:
    """The paper's measure: the same as a percentage of what the baseline itself has learned so far.

    100 (E_baseline − E_better)/(E(0) − E_baseline); NaN where the baseline has hardly learned anything yet:
    less than a thousandth of the most that it learns.

    Args:
        baseline: (…, T) errors along training under the schedule to compare with.
        better: (…, T) errors under the other schedule.
        start: error at α = 0 (default: the baseline's first error).
    """
    baseline, better = np.asarray(baseline, dtype=float), np.asarray(better, dtype=float)
    learned = (baseline[..., :1] if start is None else start) - baseline
    enough = learned > 1e-3 * np.max(np.abs(learned), axis=-1, keepdims=True)
    return _percent(baseline - better, learned, enough)


def _percent(part: np.ndarray, whole: np.ndarray, defined: np.ndarray) -> np.ndarray:
    return np.divide(100 * part, whole, out=np.full(np.shape(part), np.nan), where=defined)
