"""Without its optional packages: whoever needs one is told its name, and how to install it, in one line."""

import json
import subprocess
import sys

import pytest

# All in one process, in which no optional package can be found.
PROGRAM = """
import contextlib, io, json, sys
from importlib.machinery import PathFinder
hidden = {"clarabel", "distributed", "keras", "lightning", "optax", "panel", "torch", "transformers"}
real = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.split(".")[0] in hidden else real(name, *rest)
import optlearn as ol

class Relaxation(ol.System):
    names, parameters = ("e",), {"rate": 0.5}
    def drift(self, x, u):
        return {"e": -2 * u["rate"] * x["e"] + u["rate"] ** 2}
    def error(self, x, u):
        return x["e"]

def explore():
    from optlearn._cli import main
    sys.argv = ["optlearn", "explore"]
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit:
            raise RuntimeError(" ".join(said.getvalue().split())) from None

problem = ol.Problem(
    model=Relaxation(), start={"e": 1.0}, horizon=1.0, controls={"rate": ol.Continuous(0, 1)}, intervals=4
)
schedule = ol.Schedule.constant(1.0, {"rate": 0.1})
folder = sys.argv[1]
cases = {
    "app": explore,
    "bounds": lambda: ol.bound(problem, kind="sos"),
    "cluster": lambda: ol.sweep(
        "curriculum", over={"eta": [1.0]}, out=folder, executor="tcp://127.0.0.1:1"
    ),
    "keras": lambda: schedule.to_keras("rate", steps=4),
    "lightning": lambda: ol.practice.LightningSchedules(),
    "optax": lambda: schedule.to_optax("rate", steps=4)(0),
    "torch": lambda: ol.practice.ScheduledDropout,
    "transformers": lambda: ol.practice.HuggingFaceSchedules(),
}
found = {}
for name, case in cases.items():
    try:
        case()
        found[name] = None
    except Exception as error:
        found[name] = str(error)
print(json.dumps(found))
"""


@pytest.mark.slow
def test_what_needs_an_optional_package_says_so_in_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "sweep")], capture_output=True, text=True, check=True
    )
    messages = json.loads(done.stdout)
    # An optax schedule is a function of the step, and needs nothing of optax itself.
    assert messages.pop("optax") is None
    for extra, message in messages.items():
        assert message is not None, extra
        # Lightning is of no use without PyTorch, which is looked for first.
        named = "torch" if extra == "lightning" else extra
        assert f"not installed: pip install -c constraints.txt '.[{named}]'" in message
        assert "\n" not in message.strip()
