"""A linear probe: a head on features of your own, trained in one pass."""

from typing import Literal

import numpy as np

import optlearn as ol
from optlearn._arguments import Arguments
from optlearn.scenarios import _shared as shared
from optlearn.scenarios._catalogue import Example, scenario

INTERVALS = 40
# Size of the toy in the place of features that are not given.
TOY_SAMPLES, TOY_FEATURES, TOY_INPUTS = 2000, 60, 30


@scenario(
    citations=("paquette2024phases",),
    ranges={
        "passes": (0.1, 10, 0.1),
        "max_rate": (0.1, 1.5, 0.1),
        "mean_batch": (1.5, 12, 0.5),
        "max_batch": (8, 64, 1),
        "blocks": (4, 32, 1),
    },
    main=("passes", "control", "max_rate"),
    code_only={"features": "a file", "labels": "a file"},
    example=Example({"learning_rate": [0.6, 0.2]}, 8, {"passes": 0.2, "blocks": 6}, wrong={"passes": 0.0}),
    variants=({"control": "batch"}, {"control": "both"}),
)
def probe(
    features: str = "",
    labels: str = "",
    passes: float = 1.0,
    control: Literal["learning_rate", "batch", "both"] = "learning_rate",
    max_rate: float = 1.0,
    mean_batch: float = 4.0,
    max_batch: float = 16.0,
    blocks: int = 16,
) -> "ol.Problem":
    """The learning rate and batch size of a linear head on features of your own.

    Controls ``learning_rate``, from 0 to ``max_rate``, and ``batch``. Spectrum, best head and noise are
    measured on the features; training is then the exact recursion of least squares. In your own loop, with
    the loss ½(f − y)² and features and labels less their means, the learning rate is η divided by the mean of
    ‖x‖². ``ol.fit.regression`` gives the same problem with predictions and training beside it.

    Args:
        features: file (``.npy``) with a table of samples (rows) by features; "": a toy, random features.
        labels: file (``.npy``) with a number for each sample.
        passes: samples seen over samples there are.
        control: what is scheduled: "learning_rate", "batch" or "both".
        max_rate: largest learning rate η.
        mean_batch: largest mean of the batch size over training.
        max_batch: largest batch size.
        blocks: that stand for all directions of the features.
    """
    check = Arguments("probe")
    if bool(features) != bool(labels):
        check.fail("labels" if features else "features", "", "features and labels need a file each")
    X, y = (_table(check, "features", features), _table(check, "labels", labels)) if features else _toy()
    rate = check.number("max_rate", max_rate, 0.0, open_below=True)
    data = ol.models.measured(X, y)
    steps = check.number("passes", passes, 0.0, open_below=True) * len(X)
    horizon = max(1, round(steps)) / data.directions
    model = data.linear(check.count("blocks", blocks), training=rate * horizon / 2)
    return shared.least_squares(check, model, horizon, control, rate, mean_batch, max_batch, INTERVALS)


def _table(check: Arguments, name: str, path: str) -> np.ndarray:
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, ValueError) as error:
        check.fail(name, path, f"must be a file of NumPy (.npy); {error}")


def _toy() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(TOY_SAMPLES, TOY_INPUTS))
    X = np.maximum(z @ rng.normal(size=(TOY_INPUTS, TOY_FEATURES)) / np.sqrt(TOY_INPUTS), 0.0)
    return X, np.tanh(z[:, 0] + z[:, 1]) + 0.3 * rng.normal(size=TOY_SAMPLES)
