"""The paper's forward-backward sweep for the curriculum problem, in plain NumPy, as a physicist writes it.

Euler steps, costates by the transposed Jacobian (central differences), the switching function ranked so that
half of training is easy, and damping 0.95. It is what `optlearn` is measured against on this machine.
"""

import numpy as np

T, ETA, HORIZON, STEPS = 2.0, 3.0, 12.0, 240
EASY, HARD = 0.0, 2.0


def drift(x: np.ndarray, Delta: float) -> np.ndarray:
    """dx/dα of (Q11, Q22, M11)."""
    Q11, Q22, M = x
    q = Q11 + Delta * Q22
    root = np.sqrt(T * (q + 2) - M**2)
    spread = (
        np.pi / 2
        + np.arcsin(q / (2 + 3 * q))
        - 2 * np.arcsin(M / (np.sqrt(3 * q + 2) * np.sqrt(T * (q + 1) - M**2)))
    )
    noise = 2 / np.pi**2 * ETA**2 / np.sqrt(q + 1) * spread
    pull = 4 * ETA / (np.pi * (q + 2))
    return np.array(
        [
            pull * (M * (Delta * Q22 + 2) / root - Q11 / np.sqrt(q + 1)) + noise,
            -pull * Delta * Q22 * (M / root + 1 / np.sqrt(q + 1)) + Delta * noise,
            pull / 2 * (root - M / np.sqrt(q + 1)),
        ]
    )


def error(x: np.ndarray) -> float:
    """Misclassification, averaged over easy and hard samples."""
    angles = [np.arcsin(x[2] / np.sqrt(T * (x[0] + D * x[1]))) for D in (EASY, HARD)]
    return float(0.5 - np.mean(angles) / np.pi)


def gradient(function, x: np.ndarray) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Central differences, one row an entry of x."""
    shifts = 1e-6 * np.eye(len(x))
    return np.array([(function(x + s) - function(x - s)) / 2e-6 for s in shifts])


def sweep_curriculum(damping: float = 0.95, tolerance: float = 1e-4, most: int = 400) -> tuple[int, float]:
    """Iterations needed and the Euler objective of the ranked schedule."""
    h = HORIZON / STEPS
    hard = np.full(STEPS, 0.5)
    objective = np.inf
    for iteration in range(1, most + 1):  # noqa: B007
        x = np.array([1.0, 1.0, 0.0])
        states = [x]
        for share in hard:
            x = x + h * ((1 - share) * drift(x, EASY) + share * drift(x, HARD))
            states.append(x)
        costate = gradient(error, x)
        switching = np.zeros(STEPS)
        for i in range(STEPS - 1, -1, -1):
            x, share = states[i], hard[i]
            switching[i] = costate @ (drift(x, HARD) - drift(x, EASY))
            mixed = lambda y, s=share: (1 - s) * drift(y, EASY) + s * drift(y, HARD)  # noqa: E731
            costate = costate + h * gradient(mixed, x) @ costate
        wanted = np.zeros(STEPS)
        wanted[np.argsort(switching)[: STEPS // 2]] = 1.0
        hard = damping * hard + (1 - damping) * wanted
        value = error(states[-1])
        if abs(objective - value) < tolerance * 1e-3:
            break
        objective = value
    return iteration, objective
