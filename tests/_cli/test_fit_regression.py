"""``optlearn fit --task regression``: files of three kinds, one pass and several, and what is refused."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import optlearn as ol
from optlearn._cli import app
from optlearn.practice.samples import read_samples

QUICK = ("--task", "regression", "--intervals", "4", "--seeds", "4", "--quiet")


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same 60 samples of 20 features, as .npz, .npy and .csv."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    X = rng.standard_normal((60, 20)) * np.repeat([2, 0.5], [5, 15])
    y = X @ rng.standard_normal(20) / 4 + 0.5 * rng.standard_normal(60)
    np.savez(folder / "data.npz", X=X, y=y)
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    names = ",".join([f"f{i}" for i in range(20)] + ["y"])
    np.savetxt(folder / "data.csv", np.column_stack([X, y]), delimiter=",", header=names, comments="")
    return folder, X, y


def test_files_of_three_kinds(files):
    folder, X, y = files
    found = [
        read_samples(folder / "data.npz"),
        read_samples(folder / "X.npy", labels_file=folder / "y.npy"),
        read_samples(folder / "data.csv"),
    ]
    for samples, labels in found:
        np.testing.assert_allclose(samples, X, rtol=1e-12)
        np.testing.assert_allclose(labels, y, rtol=1e-12)
    assert read_samples(folder / "data.csv", labels_key="f0")[0].shape == (60, 20)


@pytest.mark.slow
def test_one_pass(files):
    folder, X, y = files
    done = run("fit", folder / "data.csv", *QUICK, "--json")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    fit = ol.fit.regression(X, y)
    assert result["fit"]["kappa"] == 3
    assert result["fit"]["noise"] == pytest.approx(fit.noise)
    rates = fit.learning_rate(np.array(result["schedule"]["learning_rate"]))
    assert result["fit"]["learning_rates"] == pytest.approx(list(rates))
    assert [check["name"] for check in result["checks"]] == ["optimum", "its mean rate"]
    optimum, constant = result["checks"]
    assert optimum["predicted"] < constant["predicted"]


@pytest.mark.slow
def test_several_passes(files, tmp_path):
    folder, *_ = files
    arguments = ("--passes", "4", "--out", tmp_path / "result", "--json")
    done = run("fit", folder / "data.npz", *QUICK, *arguments)
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["fit"]["samples"] == 48
    assert result["fit"]["kappa"] == pytest.approx(2.4)
    assert result["schedule"]["grid"][-1] == pytest.approx(4 * 2.4)
    optimum, _, shuffled, _ = result["checks"]
    assert abs(optimum["trained"] - optimum["predicted"]) < 5 * optimum["standard_error"] + 0.01
    assert shuffled["name"] == "optimum, shuffled"
    assert (tmp_path / "result" / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("file", "arguments", "message"),
    [
        ("data.npz", ("--passes", "0"), "--passes must be at least 1, got 0"),
        ("data.npz", ("--set", "eta=1"), "--set is not for --task regression"),
        ("data.npz", ("--labels-key", "z"), "has no array 'z'"),
        ("data.csv", ("--labels-key", "z"), "has no column 'z'"),
        ("X.npy", (), "labels are missing"),
        ("X.npy", ("--labels-file", "gone.npy"), "there is no such file"),
        ("nothing.csv", (), "there is no such file"),
        ("words.csv", (), "rows of as many numbers"),
        ("ragged.csv", (), "rows of"),
        ("short.npz", (), "one for each row"),
        ("short.npz", ("--passes", "3"), "one for each row"),
        ("flat.npz", ("--passes", "3"), "a feature that is not constant"),
        ("data.npz", ("--passes", "3", "--test-share", "0"), "test_share must be above 0"),
    ],
)
def test_bad_input(files, file, arguments, message):
    folder, X, y = files
    (folder / "words.csv").write_text("a,y\n1,two\n")
    (folder / "ragged.csv").write_text("a,y\n1,2\n1,2,3\n")
    np.savez(folder / "short.npz", X=X, y=y[:-1])
    np.savez(folder / "flat.npz", X=np.ones_like(X), y=y)
    done = run("fit", folder / file, *QUICK, *arguments)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
