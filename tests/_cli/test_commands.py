"""The command line, in this process and as a user starts it."""

import ast
import json
import os
import pkgutil
import signal
import subprocess
import sys
from importlib import import_module
from itertools import pairwise

import pytest
from typer.testing import CliRunner

import optlearn
from optlearn import _cli, scenarios
from optlearn._cli import VERBS, app
from optlearn._cli.inputs import Method
from optlearn._cli.output import to_json
from optlearn._cli.solve import Mode

HEAVY = ("jax", "casadi", "scipy", "matplotlib", "torch", "panel")
COMMANDS = ("solve", "compare", "simulate")
SMALL = ("denoising_batch", "--intervals", "12", "--starts", "1")


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def process(*arguments, **environment):
    """``optlearn …`` in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-m", "optlearn._cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


# --- help, names and mistakes: at once ------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["solve", "--help"], ["list", "--json"], ["--version"]])
def test_quick_commands_load_nothing_heavy(arguments):
    code = (
        "import sys\n"
        f"sys.argv = ['optlearn', *{arguments!r}]\n"
        "from optlearn._cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        f"print([n for n in {HEAVY!r} if n in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stderr.strip()) == []
    assert done.stdout.strip()


def test_a_solve_loads_no_more_than_it_needs():
    code = (
        "import sys\n"
        "sys.argv = ['optlearn', 'solve', 'curriculum', '--json', '--quiet']\n"
        "from optlearn._cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "needless = ('jaxtyping', 'scipy', 'xarray', 'matplotlib', 'rich.console')\n"
        "print([n for n in needless if n in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stderr.strip()) == []
    assert json.loads(done.stdout)["certificate"]["converged"]


def help_of(*words):
    """Help at 80 columns, without colours."""
    plain = {"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1", "TERM": "dumb"}
    return CliRunner().invoke(app, [*words, "--help"], env=plain, prog_name="optlearn").output


def test_help_names_the_commands_and_their_options():
    text = help_of()
    assert all(f" {verb} " in text for verb in VERBS)
    for command in COMMANDS:
        assert all(o in help_of(command) for o in ("--set", "--json", "--method", "--out", "--quiet"))


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_has_an_example_and_fills_its_lines(verb):
    text = help_of(verb)
    assert f"Example: optlearn {verb}" in text
    assert "--json" in text
    assert "<bool>" not in text
    assert max(map(len, text.splitlines())) <= 80
    lines = [line.strip() for line in text.partition("╭")[0].splitlines()]
    for line, following in pairwise(lines):
        if line and following and not following.startswith("- "):
            assert len(line) + 1 + len(following.split()[0]) > 78, "the next word would have fitted: " + line


def test_every_function_of_a_verb_is_a_command():
    files = [module.name for module in pkgutil.iter_modules(_cli.__path__) if module.name != "__main__"]
    modules = [import_module(f"optlearn._cli.{file}") for file in files]
    functions = {name for module in modules for name in vars(module) if name.startswith("run_")}
    assert {f"run_{verb.replace('-', '_')}" for verb in VERBS} == functions


def test_version():
    assert run("--version").output.strip() == f"optlearn {optlearn.__version__}"


def test_list():
    shown = run("list")
    assert shown.exit_code == 0
    assert all(name in shown.output for name in scenarios.list_scenarios())
    assert json.loads(run("list", "--json").stdout) == {"scenarios": scenarios.list_scenarios()}


def test_list_describes_one_scenario():
    done = run("list", "dropout", "--json", "--quiet")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["controls"] == {"activation": {"from_to": [0, 1]}}
    assert found["free"] == {"rescaling": {"from_to": [0, 1]}}
    assert found["baselines"] == list(scenarios.dropout().baselines)
    arguments = {argument["name"]: argument for argument in found["arguments"]}
    assert arguments["sigma_n"]["meaning"] == "standard deviation of the label noise."
    assert [arguments["sigma_n"][part] for part in ("default", "lowest", "highest")] == [0.3, 0, 0.6]
    assert (arguments["T"]["kind"], arguments["T"]["reason"]) == ("other", "a matrix")
    shown = " ".join(run("list", "dropout", "--quiet").stdout.split())
    assert "Free parameters: rescaling, from 0 to 1" in shown
    assert "sigma_n 0.3 0 to 0.6 standard deviation of the label noise." in shown


def test_list_follows_settings_and_names_variants():
    found = json.loads(run("list", "curriculum", "--set", "Delta=(0, 3)", "--json", "--quiet").stdout)
    assert found["controls"] == {"difficulty": {"values": [0, 3]}}
    (joint,) = found["variants"]
    assert joint["arguments"] == {"joint": True}
    assert set(joint["controls"]) == {"difficulty", "learning_rate"}
    for arguments, message in (
        (["nonsense"], "no scenario 'nonsense'"),
        (["dropout", "--set", "etta=1"], "no such argument; it has K=2"),
        (["--set", "eta=1"], "--set: name a scenario too"),
    ):
        done = run("list", *arguments, "--quiet")
        assert done.exit_code == 2
        assert message in done.stderr.replace("\n", " ")


def test_choices_are_those_of_the_library():
    from optlearn._control.solve import METHODS
    from optlearn._simulate.run import MODES

    assert set(Method) == set(METHODS)
    assert set(Mode) == set(MODES)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "no scenario 'nonsense'; there are adam, attention, batch_size, curriculum"),
        (["curriculum", "--set", "etta=2"], "no such argument; it has alpha_F=12.0, eta=3.0"),
        (["curriculum", "--set", "eta"], "write NAME=VALUE"),
        (["curriculum", "--set", "eta=1", "--set", "eta=2"], "given twice"),
        (
            ["curriculum", "--set", "eta=fast"],
            "eta must be a finite number, got 'fast'",
        ),
        (["curriculum", "--set", "Delta=(0, 'b')"], "Delta must be a list of numbers"),
        (["curriculum", "--set", "eta=__import__('os')"], "eta must be a finite number"),
        (["curriculum", "--out", "/no/such/place/r.json"], "there is no directory /no/such/place"),
        (["curriculum", "--out", "/"], "this is a directory"),
    ],
)
def test_bad_input_is_a_sentence_and_exit_code_2(command, arguments, message):
    done = run(command, *arguments, "--quiet")
    assert done.exit_code == 2
    assert message in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_grid_that_cannot_hold_the_budget_is_bad_input():
    done = run("solve", "curriculum", "--intervals", "25", "--json", "--quiet")
    assert done.exit_code == 2
    assert "25 intervals cannot hold" in done.stderr
    assert done.stdout == ""


# --- solve ----------------------------------------------------------------------------------------


def test_solve_prints_one_json_object_and_all_else_on_stderr(tmp_path):
    out = tmp_path / "result.json"
    done = process("solve", *SMALL, "--json", "--out", str(out), OPTLEARN_CACHE=str(tmp_path))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    wanted = {"objective", "schedule", "parameters", "certificate", "method", "seconds"}
    assert wanted <= set(result)
    assert len(result["schedule"]["grid"]) == 13
    assert len(result["schedule"]["batch"]) == 12
    assert result["certificate"]["converged"] is True
    assert result["objective"] < 9.3529263153  # the constant schedule
    assert "re-integrating" in done.stderr
    assert json.loads(out.read_text()) == result
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"result.json", "jax"}  # no temporary file


def test_solve_for_people():
    done = run("solve", *SMALL, "--set", "Delta_F=0.5", "--quiet")
    assert done.exit_code == 0
    assert "objective 9.65" in done.stdout
    assert "█" in done.stdout
    assert "optlearn compare denoising_batch --set Delta_F=0.5 --intervals 12" in done.stdout
    assert done.stderr == ""


def test_not_converged_is_printed_with_a_warning_and_exit_code_3():
    done = run("solve", *SMALL, "--method", "direct", "--max-iterations", "1", "--json", "--quiet")
    assert done.exit_code == 3
    assert json.loads(done.stdout)["certificate"]["converged"] is False
    assert "Warning: denoising_batch: not converged" in done.stderr.replace("\n", " ")


def test_greedy_makes_no_claim():
    done = run("solve", *SMALL, "--method", "greedy", "--json", "--quiet")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["method"] == "greedy"


@pytest.mark.parametrize("name", ["r.json", "r.nc"])
def test_a_file_that_cannot_be_written_does_not_cost_the_result(tmp_path, full_disk, name):
    full_disk()
    done = run("solve", *SMALL, "--json", "--quiet", "--out", str(tmp_path / name))
    assert done.exit_code == 2
    assert "No space left on device" in done.stderr
    assert json.loads(done.stdout)["objective"] > 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("stage", ["loading", pytest.param("direct", marks=pytest.mark.slow)])
def test_control_c_ends_with_130(tmp_path, stage):
    child = subprocess.Popen(
        [sys.executable, "-m", "optlearn._cli", "solve", "denoising", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPTLEARN_CACHE": str(tmp_path)},
    )
    for line in child.stderr:
        if stage in line:
            break
    child.send_signal(signal.SIGINT)
    result, errors = child.communicate(timeout=60)
    assert child.returncode == 130, errors
    assert errors.endswith("stopped\n")
    assert "Traceback" not in errors
    assert result == ""


# --- compare and simulate -------------------------------------------------------------------------


def test_compare(tmp_path):
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"grid": [0, 0.6, 1.2], "batch": [2, 8]}))
    done = run("compare", *SMALL, "--schedule", str(mine), "--json", "--quiet")
    assert done.exit_code == 0
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    assert next(iter(rows)) == "optimum"
    assert set(rows) == {"optimum", "mine", "linear growth", "constant"}
    assert rows["mine"]["budgets_met"] is True
    assert rows["constant"]["excess"] > 0
    shown = run("compare", *SMALL, "--quiet").stdout
    assert "linear growth" in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[1, 2]", 'expected {"grid"'),
        ('{"grid": [0, 1.2], "batch": [1, 2]}', "2 edges need 1 value,"),
        ('{"grid": [0, 2], "batch": [5]}', "the schedule ends at α = 2"),
    ],
)
def test_a_bad_schedule_file_is_bad_input(tmp_path, text, message):
    file = tmp_path / "mine.json"
    file.write_text(text)
    done = run("compare", *SMALL, "--schedule", str(file), "--quiet")
    assert done.exit_code == 2
    assert message in done.stderr.replace("\n", " ")


@pytest.mark.slow
def test_simulate_a_baseline():
    done = run(
        *("simulate", "curriculum", "--schedule", "curriculum", "--N", "100", "--seeds", "6"),
        *("--times", "5", "--json", "--quiet"),
    )
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["alpha"] == [0, 3, 6, 9, 12]
    assert result["theory"]["error"][-1] == pytest.approx(0.155861767207, abs=1e-9)
    scores = [z for z in result["z"]["error"] if z is not None]
    assert len(scores) == 4  # at the start there is nothing to compare
    assert max(map(abs, scores)) < 6  # 1/N = 0.01, and six seeds


def test_simulate_a_schedule_from_a_file(tmp_path):
    file = tmp_path / "s.json"
    schedule = {"grid": [0, 6, 12], "difficulty": [0, 2]}
    file.write_text(json.dumps({"schedule": schedule, "parameters": {}}))
    done = run(
        *("simulate", "curriculum", "--schedule", str(file), "--N", "100", "--seeds", "6"),
        *("--times", "5", "--quiet"),
    )
    assert done.exit_code == 0, done.stderr
    assert "0.155862" in done.stdout  # that of the baseline
    assert "largest |z|" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["curriculum", "--schedule", "nobody"], "'optimal', 'curriculum', 'anti-curriculum'"),
        (["denoising", "--set", "N=500", "--N", "100"], "need the same N"),
        (["curriculum", "--schedule", "curriculum", "--N", "2"], "N=2 is too small"),
    ],
)
def test_a_simulation_that_makes_no_sense(arguments, message):
    done = run("simulate", *arguments, "--quiet")
    assert done.exit_code == 2
    assert message in done.stderr.replace("\n", " ")


# --- JSON and the cache ---------------------------------------------------------------------------


def test_json_has_plain_numbers_only():
    import numpy as np

    value = {
        "a": np.float64("nan"),
        "b": np.arange(2),
        "c": (np.int64(1), float("inf")),
        3: Method.auto,
    }
    assert json.loads(to_json(value)) == {"a": None, "b": [0, 1], "c": [1, None], "3": "auto"}


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path):
    (tmp_path / "file").write_text("")
    done = process("list", OPTLEARN_CACHE=str(tmp_path / "file"))
    assert done.returncode == 0
    assert done.stderr == ""


def test_only_the_command_line_keeps_compiled_programs():
    code = "import jax, optlearn._cli, optlearn._simulate; print(jax.config.jax_compilation_cache_dir)"
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "None"


def test_what_no_script_can_follow_is_refused_before_it_is_solved(tmp_path):
    done = run("solve", "learning_effort", "--export", str(tmp_path / "train.py"))
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "got 'gain'; wire it in with" in done.stderr.replace("\n", " ")
    assert not (tmp_path / "train.py").exists()


def test_files_are_written_though_nobody_reads_the_screen(tmp_path):
    """`optlearn solve … --out FILE | head -1`: the pipe closes before all is printed."""
    read, write = os.pipe()
    os.close(read)
    out, script = tmp_path / "s.json", tmp_path / "train.py"
    words = ["solve", *SMALL, "--quiet", "--out", str(out), "--export", str(script)]
    done = subprocess.run([sys.executable, "-m", "optlearn._cli", *words], stdout=write, check=False)
    os.close(write)
    assert done.returncode != 0
    assert json.loads(out.read_text())["scenario"] == SMALL[0]
    ast.parse(script.read_text())
