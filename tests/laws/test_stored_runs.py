"""Byte-level GPTs that were trained on a CPU: what laws and forecasts make of their logs."""

from pathlib import Path

import numpy as np
import pytest

from optlearn.laws import fit, forecast, read_curves

STORED = Path(__file__).resolve().parents[2] / "benchmarks" / "measured"

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::optlearn.laws.LawWarning")]


def finals(file):
    """Mean final loss over seeds, by schedule."""
    losses = {}
    for curve in read_curves(file):
        losses.setdefault(curve.name.rpartition(" / seed ")[0], []).append(curve.loss[-1])
    return {name: float(np.mean(values)) for name, values in losses.items()}


def test_four_pilots_predict_other_schedules():
    """Thirteen of them, with an error of a third of what they differ by (docs/laws.md)."""
    runs = STORED / "loss_curves_gpt"
    law = fit(runs / "pilots.csv.gz", first_step=400)
    others = runs / "baselines.csv.gz"
    trained = finals(others)
    predicted = {
        curve.name.rpartition(" / seed ")[0]: law.predict(curve)[-1] for curve in read_curves(others)
    }
    names = list(trained)
    assert len(names) == 13
    true, told = (np.array([table[name] for name in names]) for table in (trained, predicted))
    assert np.mean(np.abs(told / true - 1)) < 0.4 * true.std() / true.mean()


@pytest.mark.parametrize("horizon", [2000, 4000])
def test_a_decay_planned_from_half_a_constant_run(horizon):
    """It is within .3 % of the best of eight that were trained, and the interval holds what that came to."""
    runs = STORED / "decay_gpt"
    prior = [fit(runs / f"small-{width}.csv.gz", first_step=2000) for width in (24, 40)]
    (constant,) = read_curves(runs / f"constant-{horizon}.csv.gz")
    half = constant.until(horizon / 2)
    planned = forecast(half, horizon, prior=prior, first_step=horizon // 4)
    trained = finals(runs / f"decays-{horizon}.csv.gz")
    lengths = {
        float(name.removesuffix(" %")) / 100: loss for name, loss in trained.items() if name != "planned"
    }
    shares = np.array(sorted(lengths))
    losses = np.array([lengths[share] for share in shares])
    share = planned.decay.length / (horizon - 100)  # of the steps after the warm-up
    assert np.interp(np.log(share), np.log(shares), losses) / losses.min() - 1 < 3e-3
    low, high = planned.finals["wsd"].low, planned.finals["wsd"].high
    assert low < trained["planned"] < high
