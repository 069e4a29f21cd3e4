"""From schedules and trajectories to labelled arrays."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from optlearn._progress import Progress, Report
from optlearn._schedule import Schedule
from optlearn._trajectory import Trajectory


class Steps:
    """Tells how far a computation of several stages is."""

    def __init__(self, progress: Report | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self, text: str) -> None:
        """Say what comes next."""
        if self.progress is not None:
            self.progress(Progress(text, self.done, self.total))
        self.done += 1


def stack(trajectories: Iterable[Trajectory], name: str) -> np.ndarray:
    """(n, T) courses of one quantity, for trajectories on the same grid."""
    return np.stack([trajectory[name] for trajectory in trajectories])


def common_grid(schedules: Mapping[str, Schedule], control: str) -> tuple[np.ndarray, np.ndarray]:
    """Edges (E + 1,) that hold all edges of the schedules, and values (n, E) of a control."""
    edges = np.unique(np.concatenate([schedule.grid for schedule in schedules.values()]))
    edges = edges[np.append(True, np.diff(edges) > 1e-9)]
    middles = (edges[1:] + edges[:-1]) / 2
    return edges, np.stack([schedule.at(middles)[control] for schedule in schedules.values()])


def crossing(alpha: np.ndarray, course: Sequence[float] | np.ndarray, level: float) -> float:
    """First training time at which a course falls below a level, interpolated; NaN if never."""
    values = np.asarray(course)
    below = np.flatnonzero(values < level)
    if not len(below):
        return float("nan")
    i = int(below[0])
    if i == 0:
        return float(alpha[0])
    share = (values[i - 1] - level) / (values[i - 1] - values[i])
    return float(alpha[i - 1] + share * (alpha[i] - alpha[i - 1]))
