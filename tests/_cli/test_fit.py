"""``optlearn fit``, ``optlearn show`` and solutions as files."""

import json
import pickle

import numpy as np
import pytest
from typer.testing import CliRunner

import optlearn as ol
from optlearn._cli import app

QUICK = ("--intervals", "10", "--starts", "1", "--quiet")


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def clusters():
    """Samples, labels and weights of two isotropic clusters in 60 dimensions."""
    rng = np.random.default_rng(1)
    centroids, labels = rng.standard_normal((2, 60)), (rng.random(800) > 0.3).astype(int)
    spread = np.array([0.2, 0.1])[labels, None] * rng.standard_normal((800, 60))
    return {
        "X": centroids[labels] / np.sqrt(60) + spread,
        "y": labels,
        "w": rng.standard_normal((2, 60)),
    }


@pytest.fixture(scope="module")
def data(clusters, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.npz"
    np.savez(path, **clusters)
    return path


@pytest.fixture(scope="module")
def fitted(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("fit") / "new"
    arguments = ("--set", "Delta_F=0.2", "--weights-key", "w", "--scale", "1", "--out", out, "--json", *QUICK)
    return run("fit", data, *arguments), out


class TestFit:
    def test_prints_the_fit_and_the_schedule(self, fitted, clusters):
        done, _ = fitted
        assert done.exit_code == 0, done.stderr
        result = json.loads(done.stdout)
        fit = result["fit"]
        assert fit["N"] == 60
        assert fit["samples"] == 800
        np.testing.assert_allclose(fit["sigma"], [0.2, 0.1], rtol=0.03)
        np.testing.assert_allclose(fit["probabilities"], [0.3, 0.7], atol=0.05)
        assert fit["far_from_isotropic"] is False
        assert done.stderr == ""
        assert len(result["schedule"]["noise"]) == 10
        # The same in Python.
        found = ol.fit.gaussian_mixture(clusters["X"], clusters["y"])
        problem = found.problem("denoising", clusters["w"], Delta_F=0.2)
        constant = ol.evaluate(problem, ol.baselines(problem)["constant"], record=2).objective
        again = ol.evaluate(problem, ol.Schedule.from_json(done.stdout), record=2).objective
        assert again == pytest.approx(result["objective"], rel=1e-9)
        assert result["objective"] < constant

    def test_writes_a_solution_that_can_be_loaded_and_the_schedule_as_tables(self, fitted):
        done, out = fitted
        names = {"solution.nc", "schedule.csv", "schedule.json", "report.html"}
        assert {path.name for path in out.iterdir()} == names
        solution = ol.load(out / "solution.nc")
        assert solution.objective == json.loads(done.stdout)["objective"]
        # The data's numbers are among the arguments, so the problem is complete.
        assert solution.problem.settings["N"] == 60
        again = ol.evaluate(solution.problem, ol.Schedule.from_json(out / "schedule.json"), record=2)
        assert again.objective == pytest.approx(solution.objective, rel=1e-9)

    @pytest.mark.slow
    @pytest.mark.parametrize("large", ["centroids", "spread"])
    def test_large_samples_are_divided_and_the_factor_is_told(self, large, tmp_path):
        """Images with pixels from 0 to 1, or standardised features, as they are would run away."""
        rng = np.random.default_rng(2)
        label = np.arange(600) % 2
        size, spread = (6.0, 0.2) if large == "centroids" else (0.1, 1.0)
        X = size * rng.standard_normal((2, 100))[label] / 10 + spread * rng.standard_normal((600, 100))
        np.savez(tmp_path / "d.npz", X=X, y=label)
        done = run("fit", tmp_path / "d.npz", "--json", *QUICK)
        assert done.exit_code == 0, done.stderr
        result = json.loads(done.stdout)
        fitted = ol.fit.gaussian_mixture(X, label)
        assert result["scale"] == pytest.approx(fitted.natural_scale)
        assert result["scale"] == pytest.approx(6.0 if large == "centroids" else 2.0, rel=0.15)
        np.testing.assert_allclose(np.array(result["fit"]["sigma"]) * result["scale"], fitted.sigma)
        shown = run("fit", tmp_path / "d.npz", *QUICK)
        assert f"Samples were divided by {result['scale']:.4g}" in shown.stdout
        as_they_are = run("fit", tmp_path / "d.npz", "--scale", "1", *QUICK)
        message = as_they_are.stderr.replace("\n", " ")
        if as_they_are.exit_code == 0:  # a noise was found under which training stays finite
            assert large == "spread"
            assert "  converged" in as_they_are.stdout
            return
        if as_they_are.exit_code == 3:  # it was solved, with steps that are fine enough, and is no result
            assert "not converged" in message
            return
        assert as_they_are.exit_code == 2
        assert "training diverges on these data, divided by 1: use a larger --scale" in message
        assert "--set eta=…" in message
        assert "warm_start" not in message

    def test_for_people_without_labels(self, data):
        done = run("fit", data, "--clusters", "2", "--scenario", "denoising_batch", "--nodes", "1", *QUICK)
        assert done.exit_code == 0, done.stderr
        assert "800 samples in 60 dimensions" in done.stdout
        assert "if isotropic" in done.stdout
        assert "denoising_batch: objective" in done.stdout

    def test_warns_with_numbers_of_data_far_from_the_model(self, tmp_path):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 40)) / 40
        np.savez(tmp_path / "flat.npz", images=X.reshape(300, 5, 8))
        arguments = ("--x-key", "images", "--clusters", "1", "--json", *QUICK)
        done = run("fit", tmp_path / "flat.npz", *arguments)
        assert done.exit_code == 0, done.stderr
        message = done.stderr.replace("\n", " ")
        assert "Warning: the model assumes isotropic clusters" in message
        assert "of 40 directions" in message
        assert json.loads(done.stdout)["fit"]["far_from_isotropic"] is True

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--x-key", "images"], "--x-key images: DATA has no such array; it has X, y, w"),
            (["--labels-key", "z"], "--labels-key z: DATA has no such array"),
            (["--weights-key", "y"], "shape (K, 60)"),
            (["--scenario", "curriculum"], "scenario must be one that data can be fitted for, denoising"),
            (["--scenario", "nonsense"], "no scenario 'nonsense'"),
            (["--set", "sigma=0.1"], "sigma must be left out, since the data determine it, got 0.1"),
            (["--set", "etta=0.1"], "etta"),
            (["--scale", "0"], "scale must be a finite number above 0, got 0.0"),
            (["--set", "Delta_F=2"], "denoising: Delta_F must be from 0.01 to 0.99, got 2"),
            (["--labels-key", "y", "--clusters", "2"], "must not both be given"),
        ],
    )
    def test_bad_input_is_a_sentence(self, data, arguments, message):
        done = run("fit", data, *arguments, *QUICK)
        assert done.exit_code == 2, done.output
        assert message.replace("DATA", str(data)) in done.stderr.replace("\n", " ")
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize(
        ("content", "message"),
        [(None, "there is no such file"), (b"1,2,3", "is not an .npz file"), ("objects", "cannot be read")],
    )
    def test_bad_files(self, tmp_path, content, message):
        path = tmp_path / "data.npz"
        if content == "objects":
            np.savez(path, X=np.array([{"a": 1}], dtype=object))
        elif content is not None:
            path.write_bytes(content)
        done = run("fit", path, "--clusters", "1", "--quiet")
        assert done.exit_code == 2
        assert message in done.stderr.replace("\n", " ")

    def test_labels_are_asked_for(self, tmp_path):
        np.savez(tmp_path / "d.npz", X=np.ones((4, 3)))
        done = run("fit", tmp_path / "d.npz", "--quiet")
        assert done.exit_code == 2
        assert "has no labels y" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lowest", "1", "--highest", "0.1"], "--lowest must be from 0 to below --highest, got 1 and 0.1"),
        (["--lowest", "1"], "below --highest, got 1 and 0.001, the highest of the logs"),
        (["--highest", "nan"], "below --highest, got 0 and nan"),
        (["--warmup", "200", "--steps", "100"], "--steps must exceed the 200 steps of the warm-up, got 100"),
        (["--steps", "40"], "--steps must exceed the 80 steps of the warm-up, got 40"),
        (["--budget", "cpp=0.2"], "--budget is for curves of mixtures"),
        (["--limit", "cpp"], "--limit must be NAME=NUMBER"),
    ],
)
def test_plans_for_curves_are_checked_before_the_fit(tmp_path, monkeypatch, options, message):
    monkeypatch.setattr("optlearn.laws.fit", None)
    for name in ("a", "b"):
        rows = [f"{step},{min(step / 80, 1) * 1e-3},{2 + 3 / step}" for step in range(10, 500, 10)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["step,lr,loss", *rows]))
    done = run("fit-curves", tmp_path, *options, "--quiet")
    assert done.exit_code == 2, done.exception
    assert message in " ".join(done.stderr.split())


class TestShow:
    @pytest.fixture(scope="class")
    @staticmethod
    def saved(tmp_path_factory):
        out = tmp_path_factory.mktemp("show") / "s.nc"
        small = ("denoising_batch", "--intervals", "6", "--starts", "1")
        return run("solve", *small, "--out", out, "--json", "--quiet"), out

    def test_solve_writes_netcdf_by_the_ending(self, saved):
        done, out = saved
        assert done.exit_code == 0, done.stderr
        assert ol.load(out).objective == json.loads(done.stdout)["objective"]

    def test_shows_it(self, saved):
        shown = run("show", saved[1], "--quiet")
        assert shown.exit_code == 0, shown.stderr
        assert "denoising_batch: objective 9.3" in shown.stdout
        assert "█" in shown.stdout
        result = json.loads(run("show", saved[1], "--json", "--quiet").stdout)
        wanted = json.loads(saved[0].stdout)
        assert {name: result[name] for name in wanted if name != "arguments"} == {
            name: value for name, value in wanted.items() if name != "arguments"
        }
        assert result["arguments"]["Delta_F"] == 0.3
        assert result["provenance"]["optlearn_version"] == ol.__version__

    def test_writes_report_plot_and_table(self, saved, tmp_path):
        files = [tmp_path / name for name in ("r.html", "p.png", "s.csv")]
        done = run(
            *("show", saved[1], "--report", files[0], "--plot", files[1], "--csv", files[2]),
            *("--baselines", "--quiet"),
        )
        assert done.exit_code == 0, done.stderr
        assert "linear growth" in files[0].read_text()
        assert files[1].read_bytes().startswith(b"\x89PNG")
        assert files[2].read_text().startswith("alpha_from,alpha_to,batch\n")

    def test_a_saved_solution_is_a_schedule_for_other_commands(self, saved):
        done = run(
            *("compare", "denoising_batch", "--schedule", saved[1], "--intervals", "6", "--starts", "1"),
            *("--json", "--quiet"),
        )
        assert done.exit_code == 0, done.stderr
        rows = {row["name"]: row["objective"] for row in json.loads(done.stdout)["rows"]}
        assert rows["s"] == pytest.approx(rows["optimum"], rel=1e-6)

    def test_a_file_that_is_none(self, tmp_path):
        path = tmp_path / "p.nc"
        path.write_bytes(pickle.dumps({}))
        for arguments, message in (
            ((path,), "looks like a Python pickle"),
            ((tmp_path / "no.nc",), "there is no such file"),
            ((path, "--baselines"), "add --report"),
        ):
            done = run("show", *arguments, "--quiet")
            assert done.exit_code == 2
            assert message in done.stderr.replace("\n", " ")
