"""Every code block of README.md and docs/ runs; commands exist with the options that pages give them."""

import doctest
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

import jax
import matplotlib
import numpy as np
import pytest
from tests.docs.blocks import PAGES, ROOT, Block, blocks, commands, slow
from typer.main import get_command
from typer.testing import CliRunner

import optlearn as ol
from optlearn._cli import app
from optlearn._cli.inputs import scenario_arguments


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def pages_with(*kinds: str) -> list[Any]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if any(block.kind in kinds for block in blocks(text)):
            marks = [pytest.mark.slow] if slow(text) else []
            found.append(pytest.param(page, id=name(page), marks=marks))
    return found


@contextmanager
def as_a_user() -> Iterator[None]:
    """JAX as it is without the tests' strict settings."""
    with (
        jax.enable_x64(False),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        matplotlib.rc_context({"backend": "agg", "figure.max_open_warning": 0}),
    ):
        yield


def left_out(block: Block) -> str:
    """Why a block is not run; empty if it is."""
    if block.needs and find_spec(block.needs) is None:
        return f"{block.needs} is not installed"
    return block.skip


# Lightning 2.6 asks PyTorch 2.13 in an old way, and knows better how many workers are wanted.
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning", "ignore:.*num_workers")
@pytest.mark.parametrize("page", pages_with("python"))
def test_python_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    ran = 0
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.kind == "python":
            reason = left_out(block)
            if reason:
                print(f"{name(page)}:{block.line} is left out: {reason}")
                continue
            code = compile("\n" * block.line + block.code, name(page), "exec")
            with as_a_user():
                exec(code, namespace)
            ran += 1
    if not ran:
        pytest.skip(f"all blocks of {name(page)} are left out")


@pytest.mark.parametrize("page", pages_with("doctest"))
def test_doctests_of_a_page_hold(page):
    found = blocks(page.read_text(encoding="utf-8"))
    text = "\n".join(block.code for block in found if block.kind == "doctest")
    test = doctest.DocTestParser().get_doctest(text, {"ol": ol, "np": np}, name(page), str(page), 0)
    assert test.examples
    report: list[str] = []
    with as_a_user():
        failed, _ = doctest.DocTestRunner().run(test, out=report.append)
    assert not failed, "".join(report)


def every_command(*programs: str) -> list[Any]:
    """Each different command once, with the place where it is first seen."""
    seen: dict[str, str] = {}
    for page in PAGES:
        for line, command in commands(page.read_text(encoding="utf-8")):
            if command.split()[0] in programs:
                seen.setdefault(command, f"{name(page)}:{line}")
    return [pytest.param(command, id=f"{place} {command}") for command, place in seen.items()]


@pytest.fixture
def files_of_pages(tmp_path, monkeypatch):
    """A folder with the files that pages show: blocks whose first line is their name."""
    monkeypatch.chdir(tmp_path)
    for page in PAGES:
        for block in blocks(page.read_text(encoding="utf-8")):
            named = re.match(r"# (\w+\.py)\n", block.code)
            if named and block.kind == "python":
                (tmp_path / named[1]).write_text(block.code, encoding="utf-8")


@pytest.mark.usefixtures("files_of_pages")
@pytest.mark.parametrize("command", every_command("optlearn"))
def test_commands_have_the_options_that_pages_give_them(command):
    word, *arguments = shlex.split(command)[1:]
    if word.startswith("-"):
        return
    parser = get_command(app).commands[word]
    if "--help" in arguments:
        return
    parsed = parser.make_context(word, arguments).params
    if parsed.get("scenario") and word != "fit":
        scenario_arguments(parsed["scenario"], parsed.get("settings"), None)


@pytest.mark.parametrize("command", every_command("make", "python"))
def test_targets_and_files_that_pages_name_exist(command):
    program, *arguments = shlex.split(command)
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert {argument for argument in arguments if "=" not in argument} <= set(targets)
    elif arguments[0].endswith(".py"):
        assert (ROOT / arguments[0]).is_file()


# Others need data, a cluster, a browser, or minutes.
_RUN_HERE = ("solve", "compare", "simulate")


def runnable(quick: bool) -> list[Any]:
    wanted = ("list",) if quick else _RUN_HERE
    return [p for p in every_command("optlearn") if shlex.split(p.values[0])[1] in wanted]


# Their page says that the certificate does not: few points of quadrature, so that a solve ends in minutes.
_NOT_CONVERGED = ("control=token_mask", "control=head_mask")
# Here still fewer, on a coarse grid: the same way through the program, in seconds.
_COARSE = ["--set", "points=256", "--intervals", "4"]


def invoke(command: str) -> None:
    sampled = any(setting in command for setting in _NOT_CONVERGED)
    arguments = [*shlex.split(command)[1:], *(_COARSE if sampled else [])]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == (3 if sampled else 0), result.output


@pytest.mark.parametrize("command", runnable(quick=True))
def test_quick_commands_of_pages_succeed(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    invoke(command)


_SOLUTIONS: dict[str, ol.Solution] = {}


@pytest.fixture
def solved_once(monkeypatch):
    """What one command has solved, another that compares or simulates the same need not solve again."""

    solve = ol.solve

    def remembered(problem, *arguments, **options):
        call = signature(solve).bind(problem, *arguments, **options)
        call.apply_defaults()
        chosen = {n: v for n, v in call.arguments.items() if n not in ("problem", "progress")}
        key = repr((problem.made_by, sorted(chosen.items())))
        if problem.made_by is None or key not in _SOLUTIONS:
            _SOLUTIONS[key] = solve(problem, *arguments, **options)
        return _SOLUTIONS[key]

    for module in ("solve", "compare"):
        monkeypatch.setattr(f"optlearn._control.{module}.solve", remembered)


@pytest.mark.slow
@pytest.mark.usefixtures("files_of_pages", "solved_once")
@pytest.mark.parametrize("command", runnable(quick=False))
def test_commands_of_pages_succeed(command):
    with as_a_user():
        invoke(command)
