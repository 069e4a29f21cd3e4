"""The same results whoever computes them, also if workers are killed on the way."""

import multiprocessing
import os
import signal

import pytest

import optlearn as ol
from optlearn._control.solution import NotConvergedWarning
from optlearn._errors import SpecificationError
from optlearn.sweeps import executors


def kill_a_worker_at_the_first_point():
    """A progress function that kills one of this process's workers, from outside, once."""
    killed = []

    def progress(point):
        if not killed:
            victim = multiprocessing.active_children()[0].pid
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)

    progress.killed = killed
    return progress


@pytest.mark.slow
def test_processes_give_the_results_of_one_process_although_a_worker_is_killed(tiny, same, tmp_path):
    progress = kill_a_worker_at_the_first_point()
    found = ol.sweep(
        tiny.plain, tiny.OVER, out=tmp_path, reduce=tiny.ends, jobs=2, progress=progress, **tiny.QUICK
    )
    assert len(progress.killed) == 1
    same(found)
    assert ol.sweeps.load(tmp_path / "sweep.nc").objective.equals(found.objective)


@pytest.mark.slow  # tests/_processes has the pool's side of it
def test_a_point_that_kills_its_process_fails_and_the_others_go_on(tiny, serial):
    over = {"sigma_n": [0.2], "eta": tiny.OVER["eta"]}
    trouble = {"kills_at": (1.0,)}
    with pytest.warns(NotConvergedWarning, match="1 of 3 points failed"):
        found = ol.sweep(tiny.troubled, over, fixed=trouble, jobs=1, executor="processes", **tiny.QUICK)
    assert found["error"].values.tolist() == [["", "its process ended with code -9", ""]]
    one = serial.sel(sigma_n=[0.2])
    assert abs(found["objective"] - one["objective"]).sel(eta=[0.5, 1.5]).max() <= 1e-9
    assert bool(found["objective"].sel(eta=1.0).isnull().all())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_dask_cluster_gives_the_same_although_a_worker_is_killed(tiny, same, tmp_path):
    distributed = pytest.importorskip("distributed")
    told = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        pids = list(client.run(os.getpid).values())
        assert os.getpid() not in pids  # real processes

        def progress(point):
            if not told:
                os.kill(pids[0], signal.SIGKILL)
            told.append(point.index)

        found = ol.sweep(
            tiny.plain, tiny.OVER, out=tmp_path / "a", reduce=tiny.ends, executor=client, progress=progress,
            **tiny.QUICK,
        )  # fmt: skip
        same(found)
        assert sorted(set(told)) == sorted(told)
        assert len(told) == 6
        # By its address, and by the object itself; nothing is left to do but to connect.
        for number, executor in enumerate((cluster.scheduler_address, cluster)):
            again = ol.sweep(
                tiny.plain, tiny.OVER, out=tmp_path / "a", reduce=tiny.ends, executor=executor, resume=True,
                **tiny.QUICK,
            )  # fmt: skip
            assert again["objective"].equals(found["objective"]), number


@pytest.mark.parametrize(
    ("executor", "jobs", "message"),
    [
        ("threads", None, "executor must be 'serial', 'processes', 'batched', the address.*, got 'threads'"),
        (3, None, "executor must be .*, got 3"),
        ("processes", 0, "sweep: jobs must be a whole number of at least 1, got 0"),
        ("serial", 1.5, "jobs must be a whole number or None, got 1.5"),
    ],
)
def test_what_is_no_executor(tiny, executor, jobs, message):
    with pytest.raises(SpecificationError, match=message):
        ol.sweep(tiny.plain, tiny.OVER, executor=executor, jobs=jobs)


def test_functions_that_other_processes_cannot_find_are_refused(tiny):
    with pytest.raises(SpecificationError, match=r"reduce=.*cannot be sent to another process.*top level"):
        ol.sweep(tiny.plain, tiny.OVER, reduce=lambda solution: {}, jobs=2)
    with pytest.raises(SpecificationError, match=r"scenario=.*cannot be sent"):
        ol.sweep(lambda eta: tiny.plain(eta=eta), {"eta": [1, 2]}, executor="processes")


def test_a_scheduler_that_does_not_answer_is_named(tiny, monkeypatch, tmp_path):
    pytest.importorskip("distributed")
    monkeypatch.setattr(executors, "PATIENCE", 0.2)
    with pytest.raises(SpecificationError, match=r"'tcp://127\.0\.0\.1:9': no scheduler answers there"):
        ol.sweep(tiny.plain, tiny.OVER, executor="tcp://127.0.0.1:9")


def test_a_worker_that_does_not_see_the_folder_says_so(tmp_path):
    from optlearn.sweeps.store import Store, SweepFolderError

    with pytest.raises(SweepFolderError, match=r"does not see .*nowhere: workers on other machines"):
        Store(tmp_path / "nowhere", "id", 0).check_visible()
    (tmp_path / "sweep.json").write_text('{"id": "another"}')
    with pytest.raises(SweepFolderError, match="holds another sweep"):
        Store(tmp_path, "id", 0).check_visible()
