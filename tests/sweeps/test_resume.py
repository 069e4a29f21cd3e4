"""What is finished survives: a killed driver, a full disk, damage, and changes of code."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError
from optlearn.sweeps import store as stores
from optlearn.sweeps.store import DamagedPointWarning, SweepChangedWarning, SweepFolderError, locked

DRIVER = """
import sys
import optlearn as ol, tiny
def tell(point):
    print(*point.index, flush=True)
if __name__ == "__main__":
    options = {"out": sys.argv[1], "reduce": tiny.ends, "jobs": 2, "progress": tell, **tiny.QUICK}
    ol.sweep(tiny.plain, tiny.OVER, **options)
"""


@pytest.fixture
def sweep(tiny, tmp_path):
    """The sweep of ``serial`` in a folder of its own."""

    def run(**options):
        arguments = {"out": tmp_path / "out", "reduce": tiny.ends, **tiny.QUICK, **options}
        return ol.sweep(tiny.plain, arguments.pop("over", tiny.OVER), **arguments)

    return run


@pytest.fixture
def finished(serial, folder, tmp_path):
    """The folder of a finished sweep."""
    return Path(shutil.copytree(folder, tmp_path / "out"))


def stamps(folder):
    return {path.name: path.stat().st_mtime_ns for path in (folder / "points").glob("*.json")}


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:  # a zombie, whose parent is gone, is not alive
        return file.read().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
def test_a_killed_driver_takes_its_workers_along_and_the_sweep_goes_on(tiny, sweep, same, tmp_path):
    script, out = tmp_path / "driver.py", tmp_path / "out"
    script.write_text(DRIVER)
    path = os.pathsep.join(p for p in sys.path if p)
    with subprocess.Popen(
        [sys.executable, str(script), str(out)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    ) as driver:
        assert driver.stdout is not None
        first = driver.stdout.readline()
        with open(f"/proc/{driver.pid}/task/{driver.pid}/children") as file:
            workers = [int(pid) for pid in file.read().split()]
        os.kill(driver.pid, signal.SIGKILL)
    assert len(first.split()) == 2
    assert driver.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert workers
    assert not any(alive(pid) for pid in workers)
    before = stamps(out)
    assert 1 <= len(before) < 6
    partial = ol.sweeps.load(out)
    assert int(partial["finished"].sum()) == len(before)
    assert int(partial["objective"].isnull().sum()) == 6 - len(before)
    told = []
    found = sweep(resume=True, progress=told.append)
    after = stamps(out)
    assert {name: after[name] for name in before} == before  # nothing was computed twice
    assert [point.stored for point in told].count(True) == len(before)
    assert sorted(set(found["part"].values.ravel())) == [0, 1]
    same(found)


def test_a_full_disk_stops_the_sweep_and_keeps_what_is_finished(sweep, same, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    told = []

    def fill(point):
        told.append(point)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))  # longer files fail, as on a full disk

    try:
        with pytest.raises(SweepFolderError, match=r"cannot write .*points.*; finished points are kept"):
            sweep(progress=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(told) == 1
    before = stamps(tmp_path / "out")
    assert len(before) == 1
    assert not list((tmp_path / "out" / "points").glob(".*"))  # no half of a file
    found = sweep(resume=True)
    assert stamps(tmp_path / "out").items() >= before.items()
    same(found)


@pytest.mark.parametrize("out", ["/proc/no/such/place", "file/below"])
def test_a_folder_that_cannot_be_written_is_named(sweep, tmp_path, out):
    (tmp_path / "file").touch()
    with pytest.raises(SweepFolderError, match=r"cannot write .*(place|below)"):
        sweep(out=tmp_path / out)
    with pytest.raises(SpecificationError, match="out must be a folder, got the file"):
        sweep(out=tmp_path / "file")


def test_a_damaged_point_is_computed_anew(sweep, same, finished):
    cut, altered = finished / "points" / "000_001.json", finished / "points" / "001_002.json"
    cut.write_text(cut.read_text()[:100])
    content = json.loads(altered.read_text())
    content["record"]["objective"] = 0.0
    altered.write_text(json.dumps(content))
    with pytest.warns(DamagedPointWarning) as caught:
        partial = ol.sweeps.load(finished)
    said = [str(warning.message).partition(":")[0].rpartition("/")[2] for warning in caught]
    assert said == ["000_001.json is damaged", "001_002.json is damaged"]
    assert np.argwhere(partial["finished"].values == 0).tolist() == [[0, 1], [1, 2]]
    with pytest.warns(DamagedPointWarning) as caught:
        found = sweep(resume=True)
    assert len(caught) == 2
    same(found)


def test_a_finished_folder_is_not_overwritten_unless_told_so(sweep, finished):
    with pytest.raises(SpecificationError, match=r"holds a sweep: continue it with resume=True \(--resume"):
        sweep()
    with pytest.raises(SpecificationError, match="continue the sweep, or start over"):
        sweep(resume=True, force=True)
    before = stamps(finished)
    sweep(over={"eta": [1.0]}, force=True)
    assert set(stamps(finished)) == {"000.json"}
    assert set(before) != {"000.json"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"intervals": 8}, "options was .*'intervals': 6.*, is .*'intervals': 8"),
        ({"chain": 1}, "chain was 8, is 1"),
        ({"over": {"sigma_n": [0.2, 0.3], "eta": [0.5, 1.0, 1.6]}}, "over was .*1.5.*, is .*1.6"),
        ({"reduce": None}, "reduce was tiny:ends, is None"),
    ],
)
def test_another_sweep_is_not_mixed_in(sweep, finished, change, message):
    with pytest.raises(SpecificationError, match=f"holds another sweep: {message}"):
        sweep(resume=True, **change)


def test_changed_code_and_versions_are_said_and_recorded(sweep, finished, monkeypatch):
    (finished / "points" / "001_001.json").unlink()
    monkeypatch.setattr(stores, "code_digest", lambda: "other")
    monkeypatch.setattr(stores, "versions_of", lambda *packages: {"jax": "99"})
    with pytest.warns(SweepChangedWarning, match=r"jax .* → 99.*the code of optlearn.*points are kept"):
        found = sweep(resume=True)
    assert found["part"].values.tolist() == [[0, 0, 0], [0, 1, 0]]
    first, second = json.loads(found.attrs["parts"])
    assert second["versions"] == {"jax": "99"}
    assert len(first["code"]) == 64


def test_the_code_that_is_watched_is_that_of_this_package(tiny):
    from optlearn.sweeps.spec import Spec

    assert stores.code_digest() == stores.code_digest()
    own = Spec(tiny.plain, {"eta": [1]}).own_code()
    other = Spec(tiny.troubled, {"eta": [1]}).own_code()
    assert len(own) == 64
    assert own != other
    assert Spec("dropout", {"eta": [1]}).own_code() == ""


def test_options_that_are_the_defaults_make_no_difference(sweep, finished):
    assert sweep(resume=True, seed=0, max_iterations=None)["finished"].all()


def test_only_one_driver_works_in_a_folder(sweep, tmp_path):
    pytest.importorskip("fcntl")
    with (
        locked(tmp_path / "out"),
        pytest.raises(SpecificationError, match="another process is working on the sweep"),
    ):
        sweep()


def test_a_folder_without_a_sweep(tmp_path):
    with pytest.raises(SpecificationError, match="folder must hold a sweep"):
        ol.sweeps.load(tmp_path)
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(SpecificationError, match=r"sweep\.json cannot be read"):
        ol.sweeps.load(tmp_path)
    (tmp_path / "sweep.json").write_text('{"schema": 99}')
    with pytest.raises(SpecificationError, match="has schema 99; this version of optlearn reads 1"):
        ol.sweeps.load(tmp_path)
