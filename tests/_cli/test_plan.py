"""``optlearn bound`` and ``optlearn pareto``."""

import json
from typing import get_args

import pytest
from typer.testing import CliRunner

from optlearn._bounds.bound import Kind as LibraryKind
from optlearn._cli import app
from optlearn._cli.plan import Kind

# Averages with a price: linear in the state apart from the control, so that the bound is exact.
AVERAGING = """
import optlearn as ol

class Averaging(ol.System):
    names = ("e",)
    parameters = {"batch": 1.0}
    def drift(self, x, u):
        return {"e": -2 * x["e"] + 0.5 / u["batch"]}
    def error(self, x, u):
        return x["e"]

problem = ol.Problem(
    model=Averaging(), start={"e": 1.0}, horizon=2.0, controls={"batch": ol.Continuous(0.1, 50, guess=4.0)},
    budgets=(ol.Budget("batch", mean=4.0),), intervals=12,
)
"""


@pytest.fixture
def averaging(tmp_path):
    path = tmp_path / "averaging.py"
    path.write_text(AVERAGING)
    return str(path)


def run(*arguments):
    return CliRunner().invoke(app, [*arguments, "--quiet"])


def test_kinds_are_those_of_the_library():
    assert set(Kind) == {"auto", *get_args(LibraryKind)}


def test_a_bound_beside_the_best_schedule(averaging):
    done = run("bound", averaging, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kind"] == "convex"
    assert found["proven"] is True
    assert found["lower_bound"] <= found["objective"] + 1e-8
    assert found["gap"] == pytest.approx(found["objective"] - found["lower_bound"], abs=1e-15)
    assert abs(found["gap"]) < 1e-5 * found["objective"]  # linear: the bound is the optimum
    shown = run("bound", averaging).stdout
    assert "no schedule on 12 equal intervals is below" in shown
    assert "(convex, proven)" in shown


def test_a_kind_that_does_not_fit_is_bad_input():
    done = run("bound", "denoising_batch", "--kind", "convex")
    assert done.exit_code == 2
    assert "is not linear in the state" in done.stderr.replace("\n", " ")


def test_a_front_of_error_and_price(averaging, tmp_path):
    picture = tmp_path / "front.png"
    words = ("pareto", averaging, "--no-budgets", "--against", "price", "--points", "3")
    done = run(*words, "--json", "--plot", str(picture))
    assert done.exit_code == 0, done.stderr
    points = json.loads(done.stdout)["points"]
    errors = [point["objective"] for point in points]
    prices = [point["samples a step"] for point in points]
    assert len(points) == 3
    assert errors == sorted(errors)
    assert prices == sorted(prices, reverse=True)
    assert prices[0] > prices[-1]
    assert picture.stat().st_size > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one of them"),
        (["--against", "price", "--under", "eta=1"], "give one of them"),
        (["--under", "eta"], "write NAME=VALUE"),
        (["--against", "price", "--points", "1"], "points"),
    ],
)
def test_a_front_needs_one_second_objective(averaging, arguments, message):
    done = run("pareto", averaging, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr.replace("\n", " ")


def test_a_price_needs_a_batch():
    done = run("pareto", "adam", "--set", "N=63", "--against", "price")
    assert done.exit_code == 2
    assert "needs the control batch; adam has learning_rate" in done.stderr.replace("\n", " ")
