"""A planned schedule in training code: resumed, and planned anew for another horizon."""

import numpy as np
import pytest
from tests.laws.conftest import PEAK, STEPS, WARMUP, rates

import optlearn as ol

HISTORY = rates("constant")[:WARMUP]


@pytest.fixture(scope="module")
def planned(fitted):
    problem = fitted.problem(STEPS, (0, PEAK), robust=False, history=HISTORY)
    return fitted.schedule(ol.solve(problem, method="direct", starts=1), HISTORY)


def every_step(schedule):
    return np.repeat(schedule["learning_rate"], np.diff(schedule.grid).astype(int))


def test_optax_sees_true_rates_at_true_steps(planned):
    rate = planned.to_optax("learning_rate", steps=STEPS)
    expected = every_step(planned)
    for step in (0, WARMUP - 1, WARMUP, 2000, STEPS - 1):
        assert float(rate(step)) == pytest.approx(expected[step], rel=1e-6)


def test_torch_resumes_and_changes_its_horizon(fitted, planned, tmp_path):
    torch = pytest.importorskip("torch", reason="needs the extra torch")

    def optimizer():
        return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)

    def run(optimizer, scheduler, steps):
        seen = []
        for _ in range(steps):
            seen.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return seen

    first = optimizer()
    scheduler = planned.to_torch(first, steps=STEPS)
    done = run(first, scheduler, 1000)
    np.testing.assert_allclose(done, every_step(planned)[:1000])
    torch.save({"optimizer": first.state_dict(), "scheduler": scheduler.state_dict()}, tmp_path / "saved.pt")
    saved = torch.load(tmp_path / "saved.pt", weights_only=True)

    resumed = optimizer()
    again = planned.to_torch(resumed, steps=STEPS)
    resumed.load_state_dict(saved["optimizer"])
    again.load_state_dict(saved["scheduler"])
    np.testing.assert_allclose(run(resumed, again, 100), every_step(planned)[1000:1100])

    # Time for half as many steps again: what was done is history, the rest is planned for the new end.
    longer = 3 * STEPS // 2
    problem = fitted.problem(longer, (0, PEAK), robust=False, history=done)
    anew = fitted.schedule(ol.solve(problem, method="direct", starts=1), done)
    assert anew.horizon == longer
    other = optimizer()
    scheduler = anew.to_torch(other, steps=longer)
    np.testing.assert_allclose(run(other, scheduler, 1000), done)
    assert every_step(anew)[STEPS - 1] > 5 * every_step(planned)[-1]
    assert fitted.predict(anew)[-1] < fitted.predict(planned)[-1]


def test_what_a_simple_shape_costs(fitted, planned):
    found = planned.nearest("wsd", loss=lambda schedule: float(fitted.predict(schedule)[-1]))
    assert 0 < found.cost < 0.01
    assert 0.05 < found.settings["decay_share"] < 0.7
    thresholds = planned.to_thresholds(steps=STEPS).split()
    assert thresholds[0].startswith("0:")
    assert thresholds[-1] == f"{round(planned.grid[-2])}:{planned['learning_rate'][-1]:.10g}"
