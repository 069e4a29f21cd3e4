"""What runs in the worker's process: the solver's answers are those of the library."""

import time

import numpy as np
import pytest
from scipy.stats import norm, t

import optlearn as ol
from optlearn._app import solver
from optlearn._app.messages import (
    Compared,
    Optimum,
    Simulate,
    Simulated,
    Solve,
    arguments,
    defaults,
    parameters,
)
from optlearn._app.solver import quick_intervals
from optlearn._progress import Progress
from optlearn.scenarios._arguments import Number

QUICK_SCENARIOS = ("curriculum", "dropout", "denoising")


def only(events, kind):
    return [event for event in events if isinstance(event, kind)]


def test_what_is_being_done_is_told_before_the_optimum_and_that_before_the_comparison(answers):
    for events in answers:
        kinds = [type(event) for event in events if not isinstance(event, Progress)]
        assert kinds == [Optimum, Compared]
        assert isinstance(events[0], Progress)
        assert any(isinstance(event, Progress) and "no dropout" in event.text for event in events)


def test_a_neighbour_is_solved_from_the_solution_before_and_is_as_good_as_a_full_solve(answers):
    first, second = (only(events, Optimum)[0] for events in answers)
    assert (first.certificate.starts.tried, second.certificate.starts.tried) == (3, 1)
    full = ol.solve(ol.scenarios.dropout(sigma_n=0.32, alpha_F=5.25))
    assert second.certificate.converged
    assert second.objective == pytest.approx(full.objective, abs=2e-5 * full.objective)
    assert second.schedule.parameters["rescaling"] == pytest.approx(full.parameters["rescaling"], abs=1e-3)


def test_the_comparison_holds_the_library_s_baselines(answers):
    compared = only(answers[0], Compared)[0]
    problem = ol.scenarios.dropout()
    assert {one.name for one in compared.usual} == set(problem.baselines)
    for name, schedule in ol.baselines(problem).items():
        (one,) = [one for one in compared.usual if one.name == name]
        assert one.objective == pytest.approx(ol.evaluate(problem, schedule).objective, rel=1e-8)
        assert one.trajectory["error"][-1] == pytest.approx(one.objective, rel=1e-6)
    objectives = [one.objective for one in compared.usual]
    assert objectives == sorted(objectives)


def test_answers_can_be_sent_to_another_process(answers):
    import pickle

    found = only(answers[0], Optimum)[0]
    again = pickle.loads(pickle.dumps(answers[0]))
    np.testing.assert_array_equal(
        only(again, Optimum)[0].schedule["activation"], found.schedule["activation"]
    )


def test_bad_input_is_a_value_error_that_names_the_argument():
    with pytest.raises(ValueError, match=r"eta must be a finite number, got 'fast'"):
        solver.work(Solve("dropout", {"eta": "fast"}), lambda event: None)


def hasty(monkeypatch, last):
    """What is found for dropout if a warm start, from ``last``, is given up after one iteration."""
    whole = solver.solve
    monkeypatch.setitem(solver._LAST, "dropout", last)

    def solve(problem, **options):
        warm = options.get("method") == "indirect" and "warm_start" in options
        return whole(problem, **options, **({"max_iterations": 1} if warm else {}))

    monkeypatch.setattr(solver, "solve", solve)
    events = []
    solver.work(Solve("dropout", {}), events.append)
    return only(events, Optimum)


def test_a_solve_that_ends_above_a_baseline_is_made_anew_from_several_starts(monkeypatch):
    bad = ol.Schedule.constant(5.0, {"activation": 0.2}).with_parameters(rescaling=0.9)
    first, second = hasty(monkeypatch, bad)
    assert first.objective > second.objective + 1e-4
    assert not first.certificate.converged
    assert second.certificate.converged
    assert second.certificate.starts.tried == 3


def test_a_solve_that_is_not_converged_is_shown_and_then_finished(monkeypatch):
    near = ol.Schedule.constant(5.0, {"activation": 0.66}).with_parameters(rescaling=0.69)
    first, second = hasty(monkeypatch, near)
    assert not first.certificate.converged
    assert second.certificate.converged
    assert second.certificate.starts.tried == 1
    assert second.objective <= first.objective


@pytest.mark.parametrize(
    ("scenario", "intervals"), [("curriculum", 120), ("dropout", 50), ("denoising", 100)]
)
def test_the_coarse_grid_divides_the_scenario_s_own(scenario, intervals):
    problem = getattr(ol.scenarios, scenario)()
    assert quick_intervals(problem) == intervals
    assert problem.intervals % intervals == 0


@pytest.mark.slow
def test_a_simulation_grows_seed_by_seed_and_agrees_with_the_theory(answers):
    found = only(answers[0], Optimum)[0]
    events = []
    solver.work(Simulate("dropout", {"sigma_n": 0.3}, found.schedule, N=1000, seeds=50), events.append)
    results = only(events, Simulated)
    assert [r.simulated.seeds for r in results] == [10, 20, 30, 40, 50]
    last = results[-1]
    assert last.theory["error"][-1] == pytest.approx(found.objective, rel=1e-6)
    # At the end of training, two-sided at z = 4: a false alarm once in 16,000 draws of the seeds.
    error = last.simulated.standard_error("error")[-1]
    assert abs(last.simulated.mean("error")[-1] - last.theory["error"][-1]) < 4 * error
    z, name, alpha = last.largest_z()
    at = int(np.argmin(np.abs(last.simulated.alpha - alpha)))
    gap = abs(last.simulated.mean(name)[at] - last.theory[name][at])
    # The normal score that is as unlikely as this ratio is under Student's t of 50 seeds.
    ratio = gap / last.simulated.standard_error(name)[at]
    assert norm.sf(z) == pytest.approx(t.sf(ratio, 49), rel=1e-9)
    assert 0 < z < ratio


@pytest.mark.slow
@pytest.mark.parametrize("scenario", QUICK_SCENARIOS)
def test_moving_a_slider_takes_less_than_a_second_once_warm(scenario):
    """Of CPU time, which other work on the machine hardly changes; from the request to the optimum."""
    rng = np.random.default_rng(1)
    sliders = [p for p in parameters(scenario) if isinstance(p, Number) and p.main and not p.whole]
    values, seconds = defaults(scenario), []
    for _ in range(13):
        slider = sliders[rng.integers(len(sliders))]
        moved = values[slider.name] + rng.choice([-2, -1, 1, 2]) * slider.step
        values = {**values, slider.name: float(np.clip(moved, slider.low, slider.high).round(9))}
        began = time.process_time()

        def hear(event, began=began):
            if isinstance(event, Optimum):
                assert event.certificate.converged
                seconds.append(time.process_time() - began)

        solver.work(Solve(scenario, arguments(scenario, values)), hear)
    assert np.median(seconds[1:]) < 1.0
