"""Forecasts of exactly solvable learners, whose final losses are known: python docs/make_learners.py

Least squares by SGD, with power-law spectra, as in ``examples/forecast.py``. The prior is fitted to three
short runs of a small learner with four fifths of the label noise; of a large one, part of a run at a constant
rate is known. Prints how often intervals of 95 % contain final losses, and by how much decays that were
planned end above the best of eight; without a prior, and with a decayed branch as a second curve, too.
"""

import warnings
from typing import NamedTuple

import numpy as np

import optlearn as ol

SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 0.8)


class Learner(NamedTuple):
    """A large learner, and what is known of it."""

    spectrum: float = 1.4  # variances ∝ 1/i^spectrum
    start: float = 0.0  # squared errors ∝ 1/i^start
    noise: float = 0.25
    dimension: int = 1024
    small: int = 256  # dimension of the prior's
    peak: float = 0.3
    steps: int = 6000
    known: float = 0.4  # share of the run


USUAL = Learner()
LEARNERS = {
    "as in the example": USUAL,
    "half known": USUAL._replace(known=0.5),
    "peak 0.1": USUAL._replace(peak=0.1),
    "peak 0.6": USUAL._replace(peak=0.6),
    "spectrum 1.1": USUAL._replace(spectrum=1.1),
    "spectrum 1.2, noise 0.1": USUAL._replace(spectrum=1.2, noise=0.1),
    "spectrum 1.8": USUAL._replace(spectrum=1.8),
    "spectrum 2.2": USUAL._replace(spectrum=2.2),
    "noise 0.02": USUAL._replace(noise=0.02),
    "noise 1": USUAL._replace(noise=1.0),
    "no noise": USUAL._replace(noise=0.0),
    "dimensions 256 and 64": USUAL._replace(dimension=256, small=64),
    "start 0.5": USUAL._replace(start=0.5),
    "start 0.5, spectrum 1.2, noise 0.05": Learner(1.2, 0.5, 0.05),
    "3,000 steps": USUAL._replace(steps=3000),
    "prior of the same size": USUAL._replace(small=1024),
}


def losses(dimension: int, learner: Learner, noise: float, rates: np.ndarray) -> np.ndarray:
    """(schedules, steps) mean losses after every step, under rates of that shape."""
    index = np.arange(1, dimension + 1.0)
    variance = index**-learner.spectrum
    variance /= variance.sum()
    left = np.repeat((index**-learner.start)[None], len(rates), axis=0)
    course = np.empty(rates.shape)
    for step, rate in enumerate(rates.T[:, :, None]):
        kick = rate**2 * variance * (left @ variance + noise)[:, None]
        left = left * (1 - 2 * rate * variance + 2 * (rate * variance) ** 2) + kick
        course[:, step] = (left @ variance + noise) / 2
    return course


def decay(learner: Learner, steps: int, length: float) -> np.ndarray:
    """(steps,) the peak, then a linear decay to 0 over the last ``length`` steps."""
    return learner.peak * np.minimum(1.0, (steps - np.arange(steps) - 0.5) / length)


def log(rates: np.ndarray, course: np.ndarray) -> dict[str, np.ndarray]:
    return {"step": np.arange(10, len(rates) + 1, 10), "lr": rates[9::10], "loss": course[9::10]}


def main() -> None:
    warnings.simplefilter("ignore", ol.laws.LawWarning)
    print(f"{'':36}{'best':>5}  planned, above the best: with a prior; no prior; with a branch too")
    rows: list[list[tuple[float, int, float]]] = []
    for name, own in LEARNERS.items():
        short, done = own.steps // 3, int(own.known * own.steps)
        left = (own.steps - np.arange(own.steps) - 0.5) / (own.steps - done)
        ahead = {
            "constant": np.full(own.steps, own.peak),
            "linear": own.peak * np.clip(left, 0, 1),
            "cosine": own.peak * (1 - np.cos(np.pi * np.clip(left, 0, 1))) / 2,
        }
        pilots = np.stack(
            [np.full(short, own.peak), decay(own, short, 0.2 * short), np.full(short, own.peak / 2)]
        )
        small = losses(own.small, own, 0.8 * own.noise, pilots)
        prior = ol.laws.fit({str(i): log(r, c) for i, (r, c) in enumerate(zip(pilots, small, strict=True))})
        schedules = [decay(own, own.steps, share * own.steps) for share in SHARES]
        course = losses(own.dimension, own, own.noise, np.stack([*schedules, *ahead.values()]))
        finals = course[:, -1]
        best = finals[: len(SHARES)].min()
        run = log(np.full(done, own.peak), course[len(SHARES), :done])
        branch_rates = decay(own, done, 0.1 * done)
        branch = log(branch_rates, losses(own.dimension, own, own.noise, branch_rates[None])[0])
        row = []
        for more in ({"prior": prior}, {}, {"prior": prior, "pilots": {"branch": branch}}):
            forecast = ol.laws.forecast({"run": run}, own.steps, warmup=0, **more)
            planned = decay(own, own.steps, forecast.decay.length)
            truth = dict(zip(ahead, finals[len(SHARES) :].tolist(), strict=True))
            truth["wsd"] = float(losses(own.dimension, own, own.noise, planned[None])[0, -1])
            held = sum(forecast.finals[n].low <= loss <= forecast.finals[n].high for n, loss in truth.items())
            row.append((truth["wsd"] / best - 1, held, forecast.decay.length / own.steps))
        rows.append(row)
        cells = "; ".join(f"{share:.0%} {above:+.2%}, {held} of 4" for above, held, share in row)
        print(f"{name:36}{SHARES[int(finals[: len(SHARES)].argmin())]:5.0%}  {cells}", flush=True)
    for what, cells in zip(
        ("with a prior", "no prior", "with a branch"), zip(*rows, strict=True), strict=True
    ):
        above = np.array([above for above, _, _ in cells])
        print(
            f"{what}: intervals contain {sum(held for _, held, _ in cells)} of {4 * len(rows)} final losses, "
            f"plans end {above.mean():.2%} above the best (at worst {above.max():.2%})"
        )


if __name__ == "__main__":
    main()
