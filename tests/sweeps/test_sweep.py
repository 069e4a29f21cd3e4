"""What a sweep computes, and how it is labelled."""

import inspect

import numpy as np
import pytest

import optlearn as ol
from optlearn._control.solution import NotConvergedWarning
from optlearn._errors import SpecificationError
from optlearn.sweeps.run import ReduceWarning
from optlearn.sweeps.spec import Spec


def test_points_are_those_of_single_solves(serial, tiny):
    problem = tiny.plain(sigma_n=0.3, eta=1.5)
    alone = ol.solve(problem, **{**tiny.QUICK, "starts": 3})
    point = serial.sel(sigma_n=0.3, eta=1.5)
    assert abs(point["objective"] - alone.objective) < 1e-9
    assert bool(point["converged"])
    np.testing.assert_allclose(point["schedule_activation"], alone.schedule["activation"], atol=1e-3)
    np.testing.assert_allclose(point["edges"], alone.schedule.grid, atol=1e-15)
    assert abs(point["free_rescaling"] - alone.parameters["rescaling"]) < 1e-4


def test_the_dataset_is_labelled(serial, tiny):
    assert serial["objective"].dims == ("sigma_n", "eta")
    assert serial["eta"].values.tolist() == tiny.OVER["eta"]
    assert serial["schedule_activation"].dims == ("sigma_n", "eta", "interval")
    assert serial["edges"].dims == ("edge",)
    assert serial["warm"].values.tolist() == [[False, True, True]] * 2
    assert (serial["seconds"] > 0).all()
    assert serial["seconds"].attrs["units"] == "s"


def test_reduce_adds_numbers_and_arrays(serial):
    assert serial["both"].dims == ("sigma_n", "eta", "both_0")
    assert serial["last"].equals(serial["both"].isel(both_0=1).rename("last"))
    assert (serial["intervals"] == 6).all()


def test_a_schedule_of_a_sweep_is_a_schedule(serial, tiny):
    schedule = ol.sweeps.schedule_at(serial, (1, 0))
    again = ol.evaluate(tiny.plain(sigma_n=0.3, eta=0.5), schedule)
    assert abs(again.objective - serial["objective"][1, 0]) < 1e-12


def test_a_point_that_raises_is_recorded_and_the_others_go_on(tiny, serial, tmp_path):
    with pytest.warns(NotConvergedWarning, match="2 of 6 points failed"):
        found = ol.sweep(
            tiny.troubled,
            tiny.OVER,
            fixed={"raises_at": (1.0,)},
            out=tmp_path,
            reduce=tiny.ends,
            **tiny.QUICK,
        )
    assert found["error"].sel(eta=1.0).values.tolist() == ["RuntimeError: no such luck at eta = 1.0"] * 2
    assert (found["error"].sel(eta=[0.5, 1.5]) == "").all()
    assert bool(found["finished"].all())
    assert not bool(found["converged"].sel(eta=1.0).any())
    # The next point starts from the last one that did not fail, and ends within the tolerance of such starts.
    assert abs(found["objective"] - serial["objective"]).sel(eta=[0.5, 1.5]).max() < 1e-8
    stamps = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "points").iterdir()}
    with pytest.warns(NotConvergedWarning):
        ol.sweep(
            tiny.troubled, tiny.OVER, fixed={"raises_at": (1.0,)}, out=tmp_path, reduce=tiny.ends,
            resume=True, retry_failed=True, **tiny.QUICK,
        )  # fmt: skip
    again = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "points").iterdir()}
    assert {name for name in stamps if stamps[name] != again[name]} == {"000_001.json", "001_001.json"}


def test_baselines_and_a_horizon_that_varies(tiny):
    found = ol.sweep(
        "dropout", {"alpha_F": [0.5, 1.0]}, fixed={"sigma_n": 0.2}, baselines=["no dropout"], **tiny.QUICK
    )
    assert found["edges"].dims == ("alpha_F", "edge")
    assert found["edges"][:, -1].values.tolist() == [0.5, 1.0]
    assert found["warm"].values.tolist() == [False, True]  # the neighbour's schedule, stretched
    problem = ol.scenarios.dropout(sigma_n=0.2, alpha_F=1.0)
    expected = ol.evaluate(problem, ol.baselines(problem)["no dropout"]).objective
    assert abs(found["baseline_objective"].sel(alpha_F=1.0, baseline="no dropout") - expected) < 1e-12
    assert (found["objective"] < found["baseline_objective"].squeeze()).all()


def test_a_discrete_control_and_controls_that_come_and_go():
    found = ol.sweep(
        "curriculum",
        {"joint": [False, True]},
        fixed={"alpha_F": 2.0},
        intervals=6,
        starts=1,
        method="indirect",
    )
    assert set(np.unique(found["schedule_difficulty"])) <= {0.0, 2.0}
    assert np.isnan(found["schedule_learning_rate"].sel(joint=False)).all()
    assert np.isfinite(found["schedule_learning_rate"].sel(joint=True)).all()
    assert not bool(found["warm"].any())  # a schedule with other controls is no first guess
    assert (found["relaxed_objective"] <= found["objective"] + 1e-12).all()


# --- grids ------------------------------------------------------------------------------------------


def test_rows_are_cut_into_chains_of_nearly_equal_length():
    spec = Spec("dropout", {"sigma_n": [0.1, 0.2], "eta": np.linspace(0.5, 2, 15)})
    chains = spec.chains()
    assert [len(chain) for chain in chains] == [7, 8, 7, 8]
    assert [index for chain in chains for index in chain] == spec.indices()
    assert spec.coordinates((1, 14)) == {"sigma_n": 0.2, "eta": 2.0}


@pytest.mark.parametrize(
    ("over", "options", "message"),
    [
        ({}, {}, r"over must be argument → values.*, got \{\}"),
        ({"eta": []}, {}, r"over\['eta'\] must hold at least one value"),
        ({"eta": 1.0}, {}, r"over\['eta'\] must be a list or array of values, got 1.0"),
        ({"eta": [1.0, 2.0, 1.0]}, {}, r"over\['eta'\] must hold every value once, got 1.0"),
        ({"eta": [1.0, np.nan]}, {}, "must hold finite numbers.*, got nan"),
        ({"eta": [1.0, "a"]}, {}, "must hold numbers only, or none"),
        ({"etta": [1.0]}, {}, "dropout has no argument 'etta'; it has K, M, sigma_n, eta"),
        ({"eta": [1.0]}, {"fixed": {"eta": 2}}, "'eta' is both fixed and swept over"),
        ({"eta": [1.0]}, {"fixed": {"etta": 2}}, "dropout has no argument 'etta'"),
        ({"eta": [1.0]}, {"chain": 0}, "chain.* must be a whole number"),
        ({"eta": [1.0]}, {"intervals": 2.5}, "intervals.* must be a whole number"),
        ({"eta": [1.0]}, {"starts": 0}, "starts.* must be a whole number of at least 1"),
        ({"eta": [1.0]}, {"steps": "many"}, "steps.* must be a whole number"),
        ({"eta": [1.0]}, {"max_iterations": -1}, "max_iterations.* must be a whole number"),
        ({"eta": [1.0]}, {"seed": -1}, "seed.* must be a whole number of at least 0"),
        ({"eta": [1.0]}, {"tolerance": 0.0}, "tolerance.* must be above 0"),
        ({"eta": [1.0]}, {"baselines": ["luck"]}, "baselines must be among no dropout.*, got 'luck'"),
        ({"eta": [1.0]}, {"reduce": 3}, "reduce must be a function or None, got 3"),
        ({"eta": [1.0]}, {"intervalls": 3}, "sweep has no argument 'intervalls'; those of solve"),
        ({"eta": [1.0]}, {"method": "magic"}, "method must be one of auto, direct.*, got 'magic'"),
    ],
)
def test_a_grid_that_makes_no_sense(over, options, message):
    with pytest.raises(SpecificationError, match=message):
        ol.sweep("dropout", over, **options)


def test_an_unknown_scenario():
    with pytest.raises(SpecificationError, match="no scenario 'nonsense'; there are"):
        ol.sweep("nonsense", {"eta": [1.0]})


def test_what_reduce_must_return(tiny):
    with pytest.warns(ReduceWarning, match="raised at 1 of 1 points, for example .*solutions are kept"):
        found = ol.sweep(tiny.plain, {"eta": [1.0]}, reduce=tiny.not_numbers, **tiny.QUICK)
    assert "TypeError: reduce: 'schedule' is" in str(found["reduce_error"].values[0])
    for name in ("objective", "eta", "free_rescaling"):
        with pytest.warns(ReduceWarning, match=f"'{name}' is the name of another result"):
            ol.sweep(tiny.plain, {"eta": [1.0]}, reduce=lambda solution, n=name: {n: 1.0}, **tiny.QUICK)


def test_a_reduce_that_raises_does_not_cost_the_solution(tiny):
    told = []
    with pytest.warns(ReduceWarning):
        found = ol.sweep(
            tiny.plain, {"eta": [1.0, 1.5]}, reduce=tiny.raises_above_one, progress=told.append, **tiny.QUICK
        )
    assert np.isfinite(found["objective"]).all()
    assert found["converged"].all()
    assert np.isfinite(found["schedule_activation"]).all()
    assert found["error"].values.tolist() == ["", ""]
    assert found["reduce_error"].values.tolist() == ["", "ZeroDivisionError: no luck"]
    assert found["rate"].values[0] == 1.0
    assert np.isnan(found["rate"].values[1])
    assert [(point.done, point.total, point.objective > 0) for point in told] == [(1, 2, True), (2, 2, True)]
    assert told[1].text.endswith("reduce raised ZeroDivisionError: no luck")


def test_the_room_is_the_function():
    from optlearn.sweeps.run import sweep

    assert inspect.signature(ol.sweep) == inspect.signature(sweep)
    assert callable(ol.sweep)
    assert set(ol.sweeps.__all__) <= set(dir(ol.sweeps))


# --- drawing ----------------------------------------------------------------------------------------


@pytest.fixture
def axes():
    from matplotlib.figure import Figure

    return Figure().subplots()


def test_a_heat_map_shows_the_grid_and_marks_what_failed(serial, axes):
    marked = serial.copy(deep=True)
    marked["error"][0, 2] = "RuntimeError"
    marked["converged"][:, 1] = False
    assert ol.sweeps.plot(marked, "objective", axes, label="error") is axes
    (mesh,) = axes.collections
    np.testing.assert_allclose(mesh.get_array(), serial["objective"])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("eta", "sigma_n")
    crosses, dots = axes.lines
    assert (crosses.get_xdata().tolist(), crosses.get_ydata().tolist()) == ([1.5], [0.2])
    assert dots.get_xdata().tolist() == [1.0, 1.0]


def test_one_dimension_is_a_line_and_three_need_a_cut(serial, axes):
    ol.sweeps.plot(serial, "objective", axes, at={"sigma_n": 0.21})
    np.testing.assert_allclose(axes.lines[0].get_ydata(), serial["objective"].sel(sigma_n=0.2))
    with pytest.raises(SpecificationError, match="varies over sigma_n, eta, interval: cut it"):
        ol.sweeps.plot(serial, "schedule_activation", axes)
    with pytest.raises(SpecificationError, match="no variable 'nonsense'; there are objective"):
        ol.sweeps.plot(serial, "nonsense", axes)
