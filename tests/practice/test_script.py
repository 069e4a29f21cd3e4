"""Exported scripts train: for every scenario and everything that can be controlled, the loss falls."""

import re
import subprocess
import sys
import tempfile
from math import ceil
from pathlib import Path

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import optlearn as ol
from optlearn._cli import app
from optlearn._errors import SpecificationError
from optlearn.practice.script import _written, training_script
from optlearn.scenarios._catalogue import catalogue

# Scenarios whose scripts are run every day: one of each kind of control.
QUICK = {
    ("curriculum", "torch"), ("learning_rate", "torch"), ("dropout", "torch"), ("denoising", "torch"),
    ("gating", "torch"), ("task_order", "torch"), ("curriculum", "jax"),
}  # fmt: skip
CASES = [
    pytest.param(
        name, variant, framework,
        id="-".join([name, *map(str, variant.values()), framework]),
        marks=[] if (name, framework) in QUICK else [pytest.mark.slow],
    )
    for name, entry in catalogue().items()
    for variant in ({}, *entry.variants)
    for framework in ("torch", "jax")
]  # fmt: skip


# Controls of the optimiser, of the loss or of episodes, which the user's own loop has to read.
OF_THE_LOOP = {
    "weight_decay", "threshold", "gain", "decisions", "penalty", "mistakes",
    "learning_rate1", "learning_rate2",
}  # fmt: skip


def run(text, capsys):
    """What a script leaves behind, and its test loss before and after training."""
    with tempfile.TemporaryDirectory() as folder:
        return run_in(folder, text, capsys)


def run_in(folder, text, capsys):
    """The same in a folder that keeps the checkpoint."""
    space = {"__name__": "__main__", "__file__": str(Path(folder) / "train.py")}
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        exec(compile(text, "script", "exec"), space)
    printed = capsys.readouterr().out
    assert len(re.findall(r"^step \d+ of \d+: training loss \d", printed, re.MULTILINE)) == 10, printed
    before, after = re.search(r"test loss: ([\d.e+-]+) before training, ([\d.e+-]+) after", printed).groups()
    return space, float(before), float(after)


def some_schedule(problem):
    """All controls at their first guess, or at their values in turn, in the second quarter less."""
    values = {
        name: np.resize(limits.values, 4) if limits.values else limits.start * np.array([1, 0.8, 1, 1])
        for name, limits in problem.controls.items()
    }
    free = {name: limits.start for name, limits in problem.free.items()}
    return ol.Schedule.piecewise(np.linspace(0, problem.horizon, 5), values).with_parameters(**free)


@pytest.mark.parametrize(("name", "variant", "framework"), CASES)
def test_the_loss_falls(name, variant, framework, capsys):
    pytest.importorskip("torch" if framework == "torch" else "optax")
    problem = getattr(ol.scenarios, name)(**variant)
    schedule, N = some_schedule(problem), max(50, ceil(500 / problem.horizon))
    # Rates of single layers belong to groups of parameters, which only the user's network has.
    layers = {control for control in problem.controls if control.endswith("_rate")} - {"learning_rate"}
    if layers | (OF_THE_LOOP & set(problem.controls)):
        with pytest.raises(SpecificationError, match=r"controls must be among .*AttributeScheduler"):
            schedule.to_script(framework=framework, arguments=problem.made_by.arguments, N=N)
        return
    text = schedule.to_script(framework=framework, arguments=problem.made_by.arguments, N=N)
    space, before, after = run(text, capsys)
    assert after < 0.95 * before
    assert space["STEPS"] == round(N * problem.horizon)
    if framework == "torch" and "learning_rate" in schedule.controls:
        # The theory's rate is divided by the inputs.
        wanted = schedule["learning_rate"][-1] / N
        assert space["optimizer"].param_groups[0]["lr"] == pytest.approx(wanted)


def test_the_script_of_a_solution(tmp_path, capsys):
    pytest.importorskip("torch")
    done = CliRunner().invoke(
        app, ["solve", "dropout", "--set", "K=3", "--intervals", "8", "--starts", "1", "--quiet",
              "--export", str(tmp_path / "train.py")],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    text = (tmp_path / "train.py").read_text()
    assert "K = 3  # hidden nodes" in text
    space, before, after = run(text, capsys)
    assert after < before / 2
    layer = space["network"].dropout
    assert int(layer.done) == space["STEPS"]
    assert 0 < layer.rescaling < 1


def test_groups_are_shown_by_the_schedule(capsys):
    pytest.importorskip("torch")
    schedule = ol.Schedule.piecewise([0, 2, 5], {"difficulty": [3.0, 0.5]})
    text = training_script(schedule, arguments={"Delta": (0.5, 3.0)}, N=50)
    space, _, _ = run(text, capsys)
    assert space["order"].counts == {0: 150, 1: 100}
    assert space["order"].order.sequence.tolist() == [1] * 100 + [0] * 150


@pytest.mark.parametrize(
    ("values", "arguments", "message"),
    [
        ({"colour": [1.0]}, {}, "controls must be among learning_rate, .*, got 'colour'; wire it in with"),
        (
            {"noise": [0.3]},
            {"framework": "tensorflow"},
            "framework must be one of torch, jax, got 'tensor",
        ),
        ({"noise": [0.3]}, {"steps": 0}, "to_script: steps must be a whole number of at least 1.*, got 0"),
    ],
)
def test_wrong_arguments(values, arguments, message):
    with pytest.raises(SpecificationError, match=message):
        ol.Schedule.piecewise([0, 1], values).to_script(**arguments)


def test_a_schedule_is_written_in_short_lines_and_read_back():
    times = np.linspace(0, 5, 41)
    schedule = ol.Schedule.piecewise(times, {"learning_rate": 1 / (3 + times[:-1])})
    text = schedule.to_script(N=50)
    assert max(map(len, text.splitlines())) <= 110
    assert not re.search(r"\d\.\d{9}", text)  # no float of 16 digits
    written = text[text.index("schedule = ") : text.index("torch.manual_seed")]
    space = {"ol": ol}
    exec(written, space)
    np.testing.assert_allclose(space["schedule"].grid, times, rtol=1e-7)
    np.testing.assert_allclose(space["schedule"]["learning_rate"], schedule["learning_rate"], rtol=1e-7)


def test_a_mixed_schedule_with_parameters_is_written_and_read_back():
    shares = np.linspace(0.1, 0.9, 30)
    mixed = ol.Schedule.mixed(np.linspace(0, 12, 31), {"difficulty": {0.0: 1 - shares, 2.0: shares}})
    written = "\n".join(_written(mixed.with_parameters(rescaling=0.7)))
    space = {"ol": ol}
    exec(written, space)
    assert space["schedule"].parameters == {"rescaling": 0.7}
    np.testing.assert_allclose(space["schedule"].mixtures["difficulty"].shares[:, 1], shares, rtol=1e-7)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_script_goes_on_from_its_checkpoint(framework, tmp_path):
    """Stopped at its last checkpoint but three, a resumed script ends where an uninterrupted one does."""
    pytest.importorskip("torch" if framework == "torch" else "optax")
    problem = ol.scenarios.curriculum()
    schedule = problem.baselines["curriculum"](problem, 4)
    text = schedule.to_script(framework=framework, arguments=problem.made_by.arguments, N=20, steps=200)
    whole, cut = tmp_path / "whole.py", tmp_path / "cut.py"
    whole.write_text(text)
    stop = "        recent.clear()\n"
    assert text.count(stop) == 1
    saved = text.index("checkpoint", text.index(stop))
    line = text.index("\n", saved) + 1
    last = "140" if framework == "torch" else "139"
    cut.write_text(text[:line] + f"        if step == {last}:\n            sys.exit()\n" + text[line:])

    def end(*words):
        done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    stopped = end(cut)
    assert "step 140 of 200" in stopped
    assert "test loss" not in stopped
    resumed = end(cut, "--resume")
    assert "resumed after step 140" in resumed
    after = re.compile(r"([\d.e+-]+) after")
    assert after.search(resumed)[1] == after.search(end(whole))[1]
