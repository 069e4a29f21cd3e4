import warnings
from pathlib import Path

import numpy as np
import pytest

from optlearn.laws import Curve, LawWarning, fit
from optlearn.laws._law import NAMES, Course, loss_after

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "loss-curves"

PEAK, STEPS, WARMUP, EVERY = 1e-3, 4000, 200, 20
TRUTH = {
    "floor": 2.5, "amplitude": 0.25, "exponent": 0.5, "head_start": 1e-4, "progress_power": 0.9,
    "noise": 0.15, "speed": 80.0, "shape": 0.8, "noise_power": 0.9, "relaxation_power": 0.65,
    "noise_fall": 0.1, "critical_batch": 2.0, "batch_power": 0.8, "floor_power": 0.0, "amplitude_power": 0.0,
}  # fmt: skip
PARAMETERS = np.array([[TRUTH[name] for name in NAMES]])


def rates(name, steps=STEPS):
    """(steps,) a rate for every step, warm-up included."""
    share = (np.arange(steps) + 0.5 - WARMUP) / (steps - WARMUP)
    after = {
        "constant": np.ones(steps),
        "half": np.full(steps, 0.5),
        "linear": 1 - share,
        "cosine": 0.1 + 0.9 * (1 + np.cos(np.pi * share)) / 2,
        "drop": np.where(share < 0.5, 1.0, 0.3),
        "wsd": np.minimum(1.0, (1 - share) / 0.3),
    }[name]
    return PEAK * np.where(share < 0, (np.arange(steps) + 0.5) / WARMUP * after[WARMUP], after)


def true_loss(lr, batch=None):
    """(steps,) loss after every step, by the law with the true parameters."""
    lr = np.asarray(lr)
    batches = np.ones(len(lr)) if batch is None else np.broadcast_to(batch, lr.shape)
    course = Course.stack([(np.full(len(lr), 1 / STEPS), lr / PEAK, batches)])
    return loss_after(PARAMETERS, course)[0, 0]


def curve(name, noise=1e-3, seed=0, steps=STEPS):
    """A run as a logger would write it: the rate of the step that was just done, and a noisy loss."""
    lr = rates(name, steps)
    done = np.arange(EVERY, steps + 1, EVERY)
    rng = np.random.default_rng([seed, sum(map(ord, name))])
    return Curve(
        name,
        done.astype(float),
        lr[done - 1],
        true_loss(lr)[done - 1] * np.exp(noise * rng.standard_normal(len(done))),
    )


@pytest.fixture(scope="session")
def fitted():
    """A fit to four noisy curves of a law that is known."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", LawWarning)
        return fit([curve(name) for name in ("constant", "cosine", "drop", "half")])


@pytest.fixture(scope="session")
def language_models():
    """Folder of the public curves of language models."""
    if not SHARED.is_dir():
        pytest.skip(f"the public loss curves are not in {SHARED}")
    return SHARED
