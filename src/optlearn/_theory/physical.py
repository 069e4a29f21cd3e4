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
    # (times, blocks, n, n); without a spectrum all is one block.
    of_teachers, of_centroids = _rows(model, x.Q)
    gram = np.block([[x.Q, x.M, x.R], [_turned(x.M), *of_teachers], [_turned(x.R), *of_centroids]])
    gram = gram.reshape(len(states), -1, *gram.shape[-2:])
    scale = np.maximum(1.0, np.abs(gram).max(axis=(2, 3)))
    lowest = np.linalg.eigvalsh(gram)[..., 0]
    wrong = np.argwhere(lowest < -TOLERANCE * scale)
    if not len(wrong):
        return None
    time, block = (int(place) for place in wrong[0])
    name, value, reason = _culprit(model, gram[time, block])
    where = "" if model.spectrum is None else f" in block {block + 1}"
    return time, f"{name} = {value:.6g}{where}; {reason}"


def cone_edge(model: LearningModel) -> Callable[[np.ndarray], np.ndarray]:
    """A function that puts flat states (n,) within round-off of the edge of the cone exactly on it.

    Students that are linearly dependent, as equal ones are, stay so under SGD. In numbers they do so up to
    round-off, which an instability towards specialisation multiplies by e^(rate · α): it ends outside the
    cone, or at a solution that SGD does not have. So an eigenvalue of the part of Q that
    teachers and centroids do not explain, C = Q − B A⁺ Bᵀ with B = (M, R), is zero if it is as small as
    round-off.
    """
    T, S, Omega = _constants(model)
    inverse = np.linalg.pinv(np.block([[T, S], [_turned(S), Omega]]))
    layout = model.layout
    # Places in (0, *flat), 0 being an entry that is not tracked: thousands of steps ask, and making
    # order parameters of each would take longer than the step.
    places = layout.unflatten(np.arange(1.0, layout.size + 1))
    of_Q, of_known = places.Q.astype(int), np.concatenate([places.M, places.R], axis=-1).astype(int)

    def settle(flat: np.ndarray) -> np.ndarray:
        entries = np.append(0.0, flat)
        Q, known = entries[of_Q], entries[of_known]
        explained = known @ inverse @ _turned(known)
        values, vectors = np.linalg.eigh(Q - explained)
        size = np.maximum(1.0, np.abs(Q).max(axis=(-1, -2)))[..., None]
        tiny = (np.abs(values) < ROUND_OFF * size) & (values != 0)
        if not np.any(tiny):
            return flat
        settled = explained + (vectors * np.where(tiny, 0.0, values)[..., None, :]) @ _turned(vectors)
        # Blocks that are off the edge stay as they are, bit for bit.
        Q = np.where(np.any(tiny, axis=-1)[..., None, None], settled, Q)
        return np.asarray(layout.flatten(replace(layout.unflatten(flat), Q=Q)))

    return settle


def _constants(model: LearningModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    overlaps = model.block_overlaps
    return np.asarray(overlaps.T), np.asarray(overlaps.S), np.asarray(overlaps.Omega)


def _rows(model: LearningModel, Q: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(T, S) and (Sᵀ, Ω), repeated along the leading axes of Q."""
    T, S, Omega = _constants(model)

    def repeated(part: np.ndarray) -> np.ndarray:
        return np.broadcast_to(part, (*Q.shape[:-2], *part.shape[-2:]))

    return [repeated(T), repeated(S)], [repeated(_turned(S)), repeated(Omega)]


def _turned(matrix: np.ndarray) -> np.ndarray:
    return np.swapaxes(matrix, -1, -2)


def _culprit(model: LearningModel, gram: np.ndarray) -> tuple[str, float, str]:
    """The order parameter that breaks an inequality, its value and the inequality."""
    K, M = model.students, model.teachers
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
