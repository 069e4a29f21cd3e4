"""Solutions on disk: complete, with provenance, readable elsewhere, and with clear errors."""

import json
import pickle
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import h5py
import numpy as np
import pytest
import xarray

import optlearn as ol
from optlearn._control.identity import ProblemNotInFileError
from optlearn._control.solution import Variant
from optlearn._errors import DataFileError, SpecificationError
from optlearn._io.files import _checksum
from optlearn._io.solutions import FORMAT


@pytest.fixture(scope="module")
def mixed():
    """With a mixed relaxation."""
    return ol.solve(ol.scenarios.curriculum(easy_share=0.5), intervals=80, starts=1, seed=3)


@pytest.fixture(scope="module")
def whole():
    """With whole numbers."""
    return ol.solve(ol.scenarios.denoising_batch(Delta_F=0.2), intervals=6, starts=1)


@pytest.fixture(scope="module")
def free():
    """With a free parameter."""
    return ol.solve(ol.scenarios.dropout(), intervals=5, starts=1)


@pytest.fixture(scope="module")
def file(mixed, tmp_path_factory):
    return mixed.save(tmp_path_factory.mktemp("saved") / "mixed.nc")


def same_schedule(found, wanted):
    np.testing.assert_array_equal(found.grid, wanted.grid)
    assert found.controls == wanted.controls
    assert found.parameters == wanted.parameters
    for name in wanted.values:
        np.testing.assert_array_equal(found[name], wanted[name])
    for name, mixture in wanted.mixtures.items():
        np.testing.assert_array_equal(found.mixtures[name].values, mixture.values)
        np.testing.assert_array_equal(found.mixtures[name].shares, mixture.shares)


def same_trajectory(found, wanted):
    np.testing.assert_array_equal(found.alpha, wanted.alpha)
    assert found.order_parameters == wanted.order_parameters
    assert set(found.values) == set(wanted.values)
    for name in wanted.values:
        np.testing.assert_array_equal(found[name], wanted[name])


@pytest.mark.parametrize("kind", ["mixed", "whole", "free"])
def test_everything_comes_back(kind, tmp_path, request):
    solution = request.getfixturevalue(kind)
    found = ol.load(solution.save(tmp_path / "s.nc"))
    assert isinstance(found, ol.Solution)
    same_schedule(found.schedule, solution.schedule)
    same_trajectory(found.trajectory, solution.trajectory)
    same_trajectory(found.costates, solution.costates)
    for name in ("objective", "method", "outcome", "seconds", "runs", "certificate"):
        assert getattr(found, name) == getattr(solution, name), name
    assert found.parameters == dict(solution.parameters)
    assert found.trajectory.objective == solution.trajectory.objective
    for name in ("relaxed", "whole_numbers"):
        variant = getattr(solution, name)
        assert (getattr(found, name) is None) == (variant is None)
        if variant is not None:
            same_schedule(getattr(found, name).schedule, variant.schedule)
            assert getattr(found, name).objective == variant.objective
    assert found.summary() == solution.summary()
    # The problem is made again from scenario and arguments, so that work can go on.
    again = ol.evaluate(found.problem, found.schedule, record=2)
    assert again.objective == pytest.approx(solution.objective, rel=1e-12)


def test_kinds_are_covered(mixed, whole, free):
    assert mixed.relaxed.schedule.mixtures
    assert whole.whole_numbers is not None
    assert free.parameters["rescaling"] > 0


def test_provenance(mixed, file):
    found = ol.load(file)
    assert {"created", "optlearn_version", "jax_version", "casadi_version"} <= set(found.provenance)
    assert found.options["seed"] == 3
    assert found.options["intervals"] == 80
    assert found.problem.made_by.scenario == "curriculum"
    assert found.problem.made_by.arguments["easy_share"] == 0.5
    assert mixed.provenance == {}


def test_saving_again_keeps_where_it_came_from(file, tmp_path):
    first = replace(ol.load(file), provenance={"created": "long ago", "optlearn_version": "0.0.1"})
    again = ol.load(first.save(tmp_path / "again.nc"))
    assert again.provenance["created"] == "long ago"
    assert again.provenance["optlearn_version"] == "0.0.1"


def test_a_plain_reader_can_read_it(file, mixed):
    import xarray

    with xarray.open_dataset(file, group="schedule", engine="h5netcdf") as part:
        np.testing.assert_array_equal(part["difficulty"], mixed.schedule["difficulty"])
    with xarray.open_dataset(file, engine="h5netcdf") as root:
        assert root.attrs["kind"] == "optlearn solution"
        assert json.loads(root.attrs["certificate"])["converged"] == mixed.certificate.converged


@pytest.mark.slow
def test_loads_in_another_process_and_plots_the_same(file, mixed, tmp_path):
    code = (
        "import sys, matplotlib, optlearn as ol\n"
        "matplotlib.rcParams['svg.hashsalt'] = 'same'\n"
        "solution = ol.load(sys.argv[1])\n"
        "solution.plot().savefig(sys.argv[2], metadata={'Date': None})\n"
        "print(repr(solution.objective), solution.problem.horizon)\n"
    )
    there, here = tmp_path / "there.svg", tmp_path / "here.svg"
    done = subprocess.run(
        [sys.executable, "-c", code, str(file), str(there)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [repr(mixed.objective), "12.0"]  # the problem is there
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "same"}):
        mixed.plot().savefig(here, metadata={"Date": None})
    assert there.read_text() == here.read_text()


class TestProblem:
    def test_of_a_model_of_ones_own_is_not_in_the_file(self, whole, tmp_path):
        own = replace(whole, problem=replace(whole.problem, name="mine"))
        assert own.problem.made_by is None  # a changed problem forgets the scenario
        path = own.save(tmp_path / "own.nc")
        found = ol.load(path)
        assert found.problem.name == "mine"
        assert "objective" in found.summary()
        for use in (
            lambda: ol.solve(found.problem),
            lambda: ol.evaluate(found.problem, found.schedule),
            lambda: ol.compare(found.problem),
            lambda: found.report(tmp_path / "r.html", baselines=True),
        ):
            with pytest.raises(ProblemNotInFileError, match=r"'mine' is not in the file.*problem=…"):
                use()
        assert "not in the file" in repr(found.problem)
        given = ol.load(path, problem=own.problem)
        assert given.problem is own.problem

    def test_a_scenario_that_has_changed_is_noticed(self, file, monkeypatch):
        monkeypatch.setattr(ol.scenarios, "curriculum", lambda **a: ol.scenarios.dropout())
        with pytest.raises(ProblemNotInFileError, match="'curriculum' of this version makes another one"):
            _ = ol.load(file).problem.model

    def test_arguments_of_any_kind_are_remembered(self):
        start = {"Q": np.eye(2), "R": np.zeros((2, 2)), "Omega": np.eye(2)}
        problem = ol.scenarios.denoising(0.2, sigma=np.array([0.1, 0.2]), start=start)
        arguments = problem.made_by.arguments
        assert arguments["Delta_F"] == 0.2
        assert arguments["sigma"] == [0.1, 0.2]
        assert arguments["start"]["Q"] == [[1, 0], [0, 1]]
        json.dumps(arguments)
        again = ol.scenarios.denoising(**arguments)
        np.testing.assert_array_equal(again.start.Q, problem.start.Q)

    def test_scenarios_can_be_pickled(self):
        function = ol.scenarios.curriculum
        assert pickle.loads(pickle.dumps(function)) is function


@contextmanager
def forged(path):
    """The content of a file, to be changed; its checksum is then made to fit."""
    with h5py.File(path, "r+") as h5:
        yield h5
    content = path.read_bytes()
    path.write_bytes(content + _checksum(content))


class TestBrokenFiles:
    def broken(self, file, tmp_path):
        """A copy to be broken."""
        path = tmp_path / "broken.nc"
        path.write_bytes(file.read_bytes())
        return path

    def test_a_file_that_hdf5_would_read_for_ever(self, file, tmp_path):
        path, content = self.broken(file, tmp_path), bytearray(file.read_bytes())
        content[2848:2912] = bytes(64)
        path.write_bytes(content)
        with pytest.raises(DataFileError, match=r"broken\.nc is damaged, .*not what was written"):
            ol.load(path)

    def test_damage_of_any_kind(self, file, tmp_path):
        path, content = self.broken(file, tmp_path), file.read_bytes()
        rng, size = np.random.default_rng(0), len(content)
        places = [int(place) for place in rng.integers(size, size=200)]
        damaged = [content[:k] + bytes([content[k] ^ 1 << k % 8]) + content[k + 1 :] for k in places]
        damaged += [content[:k] + bytes(size - k) for k in places[:20]]
        damaged += [content[:k] for k in (*places[:20], size - 1, size - 40, size - 85)]
        damaged += [content + more for more in (b"\0", b"\0" * 5000, content, content[-81:])]
        for wrong in damaged:
            path.write_bytes(wrong)
            with pytest.raises(DataFileError, match=r"broken\.nc"):
                ol.load(path)

    def test_a_file_without_a_checksum(self, file, mixed, tmp_path):
        """As older versions wrote it."""
        with xarray.open_datatree(file, engine="h5netcdf") as tree:
            del tree.load().attrs["checksum"]
            tree.to_netcdf(tmp_path / "old.nc", engine="h5netcdf")
        assert b"sha256" not in (tmp_path / "old.nc").read_bytes()
        assert ol.load(tmp_path / "old.nc").objective == mixed.objective

    @pytest.mark.parametrize("share", [0.01, 0.5, 0.98])
    def test_truncated(self, file, tmp_path, share):
        path = self.broken(file, tmp_path)
        path.write_bytes(path.read_bytes()[: int(share * file.stat().st_size)])
        with pytest.raises(DataFileError, match=r"broken\.nc .*it may be cut short"):
            ol.load(path)

    def test_a_pickle_by_another_name(self, tmp_path):
        class Trap:
            def __reduce__(self):
                return (pytest.fail, ("it was unpickled",))

        for protocol in (2, 5):
            path = tmp_path / f"{protocol}.nc"
            path.write_bytes(pickle.dumps(Trap(), protocol=protocol))
            with pytest.raises(DataFileError, match="not a NetCDF-4 file; it looks like a Python pickle"):
                ol.load(path)

    def test_a_newer_format(self, file, tmp_path):
        path = self.broken(file, tmp_path)
        with forged(path) as h5:
            h5.attrs["format"] = FORMAT + 1
            h5.attrs["optlearn_version"] = "9.9"
        with pytest.raises(
            DataFileError, match=rf"format {FORMAT + 1}, written by optlearn 9.9.*install a newer"
        ):
            ol.load(path)

    def test_an_older_format(self, file, tmp_path):
        path = self.broken(file, tmp_path)
        with forged(path) as h5:
            h5.attrs["format"] = FORMAT - 1
        with pytest.raises(DataFileError, match=f"is of format {FORMAT - 1}, .*: solve the problem again"):
            ol.load(path)

    def test_json_that_never_ends(self, file, tmp_path):
        path = self.broken(file, tmp_path)
        with forged(path) as h5:
            h5.attrs["certificate"] = "[" * 30_000
        with pytest.raises(DataFileError, match=r"broken\.nc is a broken solution file"):
            ol.load(path)

    @pytest.mark.parametrize("value", ["unknown", 0, -1])
    def test_an_unknown_format(self, file, tmp_path, value):
        path = self.broken(file, tmp_path)
        with forged(path) as h5:
            h5.attrs["format"] = value
        with pytest.raises(DataFileError, match="broken solution file: its format is"):
            ol.load(path)

    def test_another_netcdf_file(self, tmp_path):
        path = tmp_path / "other.nc"
        xarray.Dataset({"a": ("x", [1.0])}).to_netcdf(path, engine="h5netcdf")
        with pytest.raises(DataFileError, match="is a NetCDF file, but not a solution"):
            ol.load(path)

    @pytest.mark.parametrize("name", ["schedule", "trajectory", "costates"])
    def test_a_missing_part(self, file, tmp_path, name):
        path = self.broken(file, tmp_path)
        with forged(path) as h5:
            del h5[name]
        with pytest.raises(DataFileError, match="broken solution file"):
            ol.load(path)

    def test_a_missing_attribute(self, file, tmp_path):
        path = self.broken(file, tmp_path)
        with forged(path) as h5:
            del h5.attrs["certificate"]
        with pytest.raises(DataFileError, match="broken solution file: it lacks 'certificate'"):
            ol.load(path)

    def test_a_changed_number(self, file, tmp_path):
        path = self.broken(file, tmp_path)
        with forged(path) as h5:
            h5["trajectory"]["error"][3] += 1e-9
        with pytest.raises(DataFileError, match="does not match its checksum"):
            ol.load(path)

    def test_no_file(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="there is no such file"):
            ol.load(tmp_path / "none.nc")


def test_a_full_disk_leaves_the_older_file(mixed, whole, tmp_path, full_disk):
    path = whole.save(tmp_path / "s.nc")
    before = path.read_bytes()
    full_disk()
    with pytest.raises(OSError, match=r"No space left on device: .*s\.nc"):
        mixed.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["s.nc"]


@pytest.mark.parametrize(
    "name",
    ["interval", "alpha_edge", "alpha", "seed", "x_value", "grid", "mixtures", "a/b", "η ρ", ".", "name:x"],
)
def test_controls_and_states_of_any_name_come_back(free, tmp_path, name):
    one = ol.Schedule.piecewise([0, 1, 2], {name: [1.0, 2.0], "x": [3.0, 4.0]})
    shares = {0.5: [0.1, 0.2], 1.5: [0.9, 0.8]}
    mixed = ol.Schedule.mixed([0, 1, 2], {name: shares, "x": shares})
    course = replace(free.trajectory, values={**free.trajectory.values, name: free.trajectory["error"] + 1})
    odd = replace(free, schedule=one, trajectory=course, relaxed=Variant(mixed, 0.5))
    found = ol.load(odd.save(tmp_path / "odd.nc"))
    same_schedule(found.schedule, one)
    same_schedule(found.relaxed.schedule, mixed)
    same_trajectory(found.trajectory, course)
    same_schedule(ol.Schedule.from_json(one.to_json()), one)
    same_schedule(ol.Schedule.from_json(mixed.to_json()), mixed)
    # As the command line prints it: of a mixed control, the mean.
    printed = json.dumps(odd.to_dict()["schedule"])
    np.testing.assert_array_equal(ol.Schedule.from_json(printed)[name], [1.0, 2.0])


class TestAnotherProblem:
    @pytest.mark.parametrize(
        ("other", "message"),
        [
            (lambda: ol.scenarios.dropout(alpha_F=4.0), "horizon is 5.0 there and 4.0 here"),
            (lambda: ol.scenarios.dropout(sigma_n=0.31), "parameters sigma_n is 0.3 there and 0.31 here"),
            (lambda: ol.scenarios.curriculum(), "only its problem has"),
        ],
    )
    def test_is_refused(self, free, tmp_path, other, message):
        path = free.save(tmp_path / "s.nc")
        with pytest.raises(SpecificationError, match=message) as caught:
            ol.load(path, problem=other())
        assert str(path) in str(caught.value)
        with pytest.raises(SpecificationError, match=message):
            ol.compare(other(), solution=free)

    def test_of_ones_own_is_known_by_its_numbers(self, free, tmp_path):
        own = replace(free, problem=replace(free.problem, name="mine"))
        path = own.save(tmp_path / "own.nc")
        with pytest.raises(SpecificationError, match=r"not of the problem 'mine': horizon is 5\.0"):
            ol.load(path, problem=replace(own.problem, horizon=6.0))
        absent = ol.load(path)
        with pytest.raises(SpecificationError, match="horizon is 5"):
            ol.compare(replace(own.problem, horizon=6.0), solution=absent)
        # Saved again, it is still known.
        again = absent.save(tmp_path / "again.nc")
        assert ol.load(again, problem=own.problem).problem is own.problem

    def test_the_same_made_again_is_taken(self, free, tmp_path):
        again = ol.scenarios.dropout()
        assert ol.load(free.save(tmp_path / "s.nc"), problem=again).problem is again
        assert ol.compare(again, solution=free).solution is free
