"""Is there a set of weight vectors with these order parameters?"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from optlearn._theory.model import LearningModel

TOLERANCE = 1e-8
ROUND_OFF = 1e-11  # what an integration to a tolerance of 1e-13 leaves of a zero, relative to Q


def first_impossible(model: LearningModel, states: np.ndarray) -> tuple[int, str] | None:
    """Number of the first of finite flat states (T, n) that no weights can have, and the reason."""
    x = model.layout.unflatten(states)
    T, S, Omega = (np.asarray(p) for p in _constants(model))
    batch = len(states)
    gram = np.concatenate(
        [
            np.concatenate([x.Q, x.M, x.R], axis=2),
            np.concatenate([np.swapaxes(x.M, 1, 2), _repeat(T, batch), _repeat(S, batch)], axis=2),
            np.concatenate([np.swapaxes(x.R, 1, 2), _repeat(S.T, batch), _repeat(Omega, batch)], axis=2),
        ],
        axis=1,
    )
    scale = np.maximum(1.0, np.abs(gram).max(axis=(1, 2)))
    lowest = np.linalg.eigvalsh(gram)[:, 0]
    wrong = np.flatnonzero(lowest < -TOLERANCE * scale)
    if not len(wrong):
        return None
    time = int(wrong[0])
    name, value, reason = _culprit(model, gram[time])
    return time, f"{name} = {value:.6g}; {reason}"


def cone_edge(model: LearningModel) -> Callable[[np.ndarray], np.ndarray]:
    """A function that puts flat states (n,) within round-off of the edge of the cone exactly on it.

    Students that are linearly dependent, as equal ones are, stay so under SGD. In numbers they do so up to
    round-off, which an instability towards specialisation multiplies by e^(rate · α): it ends outside the
    cone, or at a solution that SGD does not have. So an eigenvalue of the part of Q that
    teachers and centroids do not explain, C = Q − B A⁺ Bᵀ with B = (M, R), is zero if it is as small as
    round-off.
    """
    T, S, Omega = _constants(model)
    inverse = np.linalg.pinv(np.block([[T, S], [S.T, Omega]]))
    layout = model.layout

    def settle(flat: np.ndarray) -> np.ndarray:
        x = layout.unflatten(flat)
        known = np.concatenate([x.M, x.R], axis=1)
        explained = known @ inverse @ known.T
        values, vectors = np.linalg.eigh(x.Q - explained)
        tiny = (np.abs(values) < ROUND_OFF * max(1.0, float(np.abs(x.Q).max()))) & (values != 0)
        if not np.any(tiny):
            return flat
        Q = explained + (vectors * np.where(tiny, 0.0, values)) @ vectors.T
        return np.asarray(layout.flatten(replace(x, Q=Q)))

    return settle


def _constants(model: LearningModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return model.overlaps.T, model.overlaps.S, model.overlaps.Omega


def _repeat(matrix: np.ndarray, times: int) -> np.ndarray:
    return np.broadcast_to(matrix, (times, *matrix.shape))


def _culprit(model: LearningModel, gram: np.ndarray) -> tuple[str, float, str]:
    """The order parameter that breaks an inequality, its value and the inequality."""
    K, M = model.students, model.overlaps.T.shape[0]
    name_of = model.layout.name_of
    for k in range(K):
        if gram[k, k] < 0:
            return name_of("Q", k, k), gram[k, k], "a squared norm cannot be negative"
    for k in range(K):
        for j in range(k + 1, gram.shape[0]):
            bound = gram[k, k] * gram[j, j]
            if gram[k, j] ** 2 > bound + TOLERANCE:
                if j < K:
                    kind, other, i = "Q", "Q", j
                elif j < K + M:
                    kind, other, i = "M", "T", j - K
                else:
                    kind, other, i = "R", "Omega", j - K - M
                norms = f"{name_of('Q', k, k)}·{name_of(other, i, i)}"
                reason = f"its square {gram[k, j] ** 2:.6g} exceeds {norms} = {bound:.6g}"
                return name_of(kind, k, i), gram[k, j], reason
    lowest = float(np.linalg.eigvalsh(gram)[0])
    return "Q", gram[0, 0], f"the Gram matrix has the negative eigenvalue {lowest:.6g}"
