"""How much better a schedule is than another: the two measures used everywhere, in percent."""

from typing import Any

import numpy as np


def reduction(baseline: Any, better: Any) -> np.ndarray:
    """By how many percent of the baseline's objective the better one is lower; NaN if that is 0."""
    baseline, better = np.asarray(baseline, dtype=float), np.asarray(better, dtype=float)
    return _percent(baseline - better, np.abs(baseline), baseline != 0)


def improvement(baseline: Any, better: Any, start: Any = None) -> np.ndarray:
    """The paper's measure: the same as a percentage of what the baseline itself has learned so far.

    100 (E_baseline − E_better)/(E(0) − E_baseline); NaN where the baseline has not learned anything yet, less
    than a thousandth of the most that it learns.

    Args:
        baseline: (…, T) errors along training under the schedule to compare with.
        better: (…, T) errors under the other one.
        start: error at α = 0 (default: the first one of the baseline).
    """
    baseline, better = np.asarray(baseline, dtype=float), np.asarray(better, dtype=float)
    learned = (baseline[..., :1] if start is None else start) - baseline
    enough = learned > 1e-3 * np.max(np.abs(learned), axis=-1, keepdims=True)
    return _percent(baseline - better, learned, enough)


def _percent(part: np.ndarray, whole: np.ndarray, defined: np.ndarray) -> np.ndarray:
    return np.divide(100 * part, whole, out=np.full(np.shape(part), np.nan), where=defined)
