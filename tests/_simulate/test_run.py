"""The entry point: shapes, times, reproducibility, the start, progress."""

import numpy as np
import pytest

import optlearn as ol
from optlearn._engine.integrate import integrate
from optlearn._schedule import Schedule
from optlearn._simulate.run import simulate
from optlearn._simulate.weights import initial_weights, weight_overlaps
from optlearn.models import committee, curriculum

MODEL = curriculum()
START = MODEL.state(Q11=1, Q22=1)
SCHEDULE = Schedule.piecewise([0, 0.5, 1], {"difficulty": [0.0, 2.0]})
MODES = ["overlaps", "weights"]


def run(mode="overlaps", **changes):
    arguments = {"start": START, "N": 50, "seeds": 3, "mode": mode, "record": 5} | changes
    return simulate(MODEL, SCHEDULE, **arguments)


@pytest.mark.parametrize("mode", MODES)
def test_shapes_names_and_information(mode):
    found = run(mode)
    assert found.order_parameters == ("Q11", "Q22", "M11")
    assert set(found.values) == {"Q11", "Q22", "M11", "error", "cosine"}
    assert all(course.shape == (3, 5) for course in found.values.values())
    assert all(course.dtype == float for course in found.values.values())
    assert found.seeds == 3
    np.testing.assert_allclose(found.alpha, [0, 0.24, 0.5, 0.76, 1], atol=1e-12)
    seconds = found.info["seconds"]
    assert seconds > 0
    dtype = {"overlaps": "float64", "weights": "float32"}[mode]
    expected = {"mode": mode, "N": 50, "seeds": 3, "seed": 0, "steps": 50, "dtype": dtype}
    assert found.info == expected | {"seconds": seconds}
    # The error is the model's, at the simulated order parameters.
    state = MODEL.layout.unflatten(found.states[1, 3])
    error = MODEL.error(state, MODEL.settings({"difficulty": 2.0}))
    np.testing.assert_allclose(found["error"][1, 3], error, rtol=1e-12)
    # While easy samples come, Q22 stays; then it changes.
    np.testing.assert_allclose(found["Q22"][:, :3], 1, rtol=1e-6)
    assert np.all(np.abs(found["Q22"][:, 3] - 1) > 1e-3)


@pytest.mark.parametrize("mode", MODES)
def test_the_same_call_gives_the_same_numbers(mode):
    first, second, other = run(mode), run(mode), run(mode, seed=1)
    for name in first.values:
        np.testing.assert_array_equal(first[name], second[name])
    assert not np.any(first["M11"][:, 1:] == other["M11"][:, 1:])
    # Seeds differ from each other.
    assert len(np.unique(first["M11"][:, -1])) == 3


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_neither_recording_nor_progress_nor_other_seeds_change_a_run(mode, capsys):
    plain = run(mode)
    sparse = run(mode, record=[0.0, 0.02, 0.24, 0.98, 1.0], progress=True)
    np.testing.assert_array_equal(sparse["M11"][:, [2, 4]], plain["M11"][:, [1, 4]])
    assert capsys.readouterr().out == ""
    more = run(mode, seeds=4)
    np.testing.assert_allclose(more["M11"][:3], plain["M11"], rtol=1e-6)


def test_record_times():
    found = run(record=[0.0, 0.111, 0.111, 1.0])
    np.testing.assert_allclose(found.alpha, [0, 0.12, 0.12, 1])
    np.testing.assert_array_equal(found["Q11"][:, 1], found["Q11"][:, 2])
    assert run(record=1000).alpha.tolist() == [step / 50 for step in range(51)]
    assert run(record=[0.5]).alpha.tolist() == [0.5]


def test_changed_numbers_do_not_compile_again():
    from optlearn._simulate.overlaps import advance_overlaps

    run()
    compiled = advance_overlaps._cache_size()
    changed = Schedule.piecewise([0, 0.3, 0.8], {"difficulty": [0.5, 1.0]})
    other = curriculum(T=3.0, eta=1.0, weight_decay=0.2)
    simulate(other, changed, start=other.state(Q11=2), N=77, seeds=3, record=4, seed=5)
    assert advance_overlaps._cache_size() == compiled


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])
def test_initial_weights_have_exactly_the_overlaps(dtype, tolerance):
    model = committee(K=3, M=2, T=[[1.0, 0.3], [0.3, 2.0]])
    vectors = np.random.default_rng(1).normal(size=(5, 6))
    vectors[2] = 2 * vectors[0]  # and a student that is parallel to another, and one that is zero
    vectors[1] = 0
    factor = np.linalg.cholesky(model.overlaps.T)
    vectors[3:] = factor @ np.linalg.qr(vectors[3:].T)[0].T
    gram = vectors @ vectors.T
    start = model.state(Q=gram[:3, :3], M=gram[:3, 3:])
    state = initial_weights(model, start, 500, 4, 0, dtype)
    assert state.w[0].shape == (4, 500)
    assert state.w[0].dtype == dtype
    x = weight_overlaps(state, teachers=2)
    for seed in range(4):
        np.testing.assert_allclose(x.Q[seed], start.Q, atol=tolerance)
        np.testing.assert_allclose(x.M[seed], start.M, atol=tolerance)
    fixed = np.array(state.fixed, dtype=float)
    T = np.einsum("msn,lsn->sml", fixed, fixed) / 500
    np.testing.assert_allclose(T, np.broadcast_to(model.overlaps.T, T.shape), atol=tolerance)
    # Directions are random: those of different seeds are nearly orthogonal.
    assert abs(np.dot(state.w[0][0], state.w[0][1])) / 500 < 0.3 * start.Q[0, 0]


def test_a_problem_brings_its_start_and_parameters():
    problem = ol.Problem(
        model=MODEL,
        start=START,
        horizon=SCHEDULE.horizon,
        controls={name: ol.Continuous(-10, 10) for name in SCHEDULE.controls},
        parameters={"learning_rate": 1.0},
    )
    common = {"N": 50, "seeds": 3, "record": 5}
    found = simulate(problem, SCHEDULE, **common)
    same = run(parameters={"learning_rate": 1.0})
    np.testing.assert_array_equal(found.states, same.states)
    changed = simulate(problem, SCHEDULE, **common, start=MODEL.state(Q11=2))
    assert np.all(changed["Q11"][:, 0] == 2)
    override = simulate(problem, SCHEDULE, **common, parameters={"learning_rate": 3.0})
    np.testing.assert_array_equal(override.states, run().states)


def test_the_room_is_the_function():
    found = ol.simulate(MODEL, SCHEDULE, start=START, N=50, seeds=3, record=5)
    np.testing.assert_array_equal(found.states, run().states)


def test_without_the_error():
    assert set(run(error=False).values) == {"Q11", "Q22", "M11"}


def test_no_learning_changes_nothing():
    for mode in MODES:
        found = run(mode, parameters={"learning_rate": 0.0})
        np.testing.assert_allclose(found["Q11"], 1, rtol=1e-6)


def test_the_smallest_dimension():
    # Three vectors and two inputs: the last χ² has one degree of freedom.
    found = run(N=5, seeds=3, record=[1.0])
    assert np.all(np.isfinite(found.states))


def test_agrees_with_theory_at_the_start():
    theory = integrate(MODEL, SCHEDULE, start=START, record=[0.0])
    for mode in MODES:
        np.testing.assert_allclose(run(mode)["error"][:, 0], theory["error"][0], rtol=1e-6)
