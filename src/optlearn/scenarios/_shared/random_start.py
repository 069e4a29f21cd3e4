"""Small random weights, as overlaps: where training of a committee starts."""

import numpy as np

from optlearn._arguments import Arguments


def random_overlaps(
    check: Arguments, K: int, T: np.ndarray, norm: float, overlap: float, seed: int
) -> dict[str, np.ndarray]:
    """Q (K, K) and M (K, M) of students that hardly know each other or the teachers.

    Every student has the squared norm ``norm``; its cosine with another student, and with any direction
    in the teachers' space, is a normal number of standard deviation ``overlap``: 1/√N for random
    weights in N dimensions.

    Args:
        check: of the scenario, for messages about ``start_norm``, ``start_overlap`` and ``seed``.
        K: students.
        T: (M, M) overlaps of the teachers.
        norm: Q_kk.
        overlap: size of the cosines.
        seed: of the random numbers.
    """
    norm = check.number("start_norm", norm, 0.0, open_below=True)
    overlap = check.number("start_overlap", overlap, 0.0, 0.3)
    normal = np.random.default_rng(check.count("seed", seed, lowest=0)).standard_normal
    among = np.triu(normal((K, K)), 1)
    eigenvalues, axes = np.linalg.eigh(T)
    root = axes * np.sqrt(np.clip(eigenvalues, 0.0, None)) @ axes.T
    return {
        "Q": norm * (np.eye(K) + overlap * (among + among.T)),
        "M": np.sqrt(norm) * overlap * normal((K, len(T))) @ root,
    }
