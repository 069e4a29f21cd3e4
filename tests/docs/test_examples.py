"""Every file in examples/ runs from an empty folder, as its first lines say."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
DATA = os.environ.get("OPTLEARN_DATA")
# Less work than they do for a user, where an option of theirs says how much.
LESS = {"finite_size": ["--work", "1e3"]}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_say_how_to_run_them(path):
    text = path.read_text(encoding="utf-8")
    compile(text, path.name, "exec")
    assert f"python examples/{path.name}" in text.split('"""')[1]


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(path, tmp_path):
    text = path.read_text(encoding="utf-8")
    if "datasets import mnist" in text and not DATA:
        pytest.skip("needs MNIST: set OPTLEARN_DATA to the folder that holds it")
    for package in ("torch", "optax"):
        if f"import {package}\n" in text and find_spec(package) is None:
            pytest.skip(f"needs {package}")
    run = subprocess.run(
        [sys.executable, path, *LESS.get(path.stem, [])],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "agg", "XLA_FLAGS": ""},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout or list(tmp_path.iterdir())  # it shows or draws something
