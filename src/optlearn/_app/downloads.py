"""The schedule to take away: JSON, CSV, and code for PyTorch and optax that runs as it is."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from optlearn import __version__
from optlearn._app.messages import Found
from optlearn._json import plain
from optlearn._schedule import Schedule

STEPS = 10_000  # of the training in the examples
SAMPLES = ("difficulty", "task")  # controls that say which samples are shown


class File(NamedTuple):
    """A file: its name, its text and its media type."""

    name: str
    text: str
    kind: str


def as_json(scenario: str, arguments: Mapping[str, Any], found: Found) -> File:
    """What was solved and what was found; ``Schedule.from_json`` and ``optlearn`` read it."""
    content = {
        "scenario": scenario,
        "arguments": {name: plain(value) for name, value in arguments.items()},
        "objective": found.objective,
        "schedule": found.schedule.to_dict(),
        "parameters": dict(found.schedule.parameters),
        "certificate": found.certificate.to_dict(),
        "method": found.method,
        "seconds": found.seconds,
        "optlearn": __version__,
    }
    return File(f"{scenario}.json", json.dumps(content, allow_nan=False, indent=1) + "\n", "application/json")


def as_csv(scenario: str, arguments: Mapping[str, Any], found: Found) -> File:
    """A row for each interval."""
    with tempfile.TemporaryDirectory() as folder:
        text = found.schedule.to_csv(Path(folder) / "schedule.csv").read_text(encoding="utf-8")
    return File(f"{scenario}.csv", text, "text/csv")


def as_torch(scenario: str, arguments: Mapping[str, Any], found: Found) -> File:
    """A training loop of PyTorch under the schedule."""
    made, advanced = [], []
    for control in found.schedule.controls:
        lines, advance = _in_torch(control, found.schedule)
        made += lines
        advanced += [f"    {advance}"] if advance else []
    imports = ["import torch", "", "import optlearn as ol", "from optlearn import practice"]
    code = [
        *_beginning(scenario, arguments, found, "torch", imports),
        "network = torch.nn.Linear(784, 1)  # yours",
        "optimizer = torch.optim.SGD(network.parameters(), lr=0.1)  # a scheduled learning rate replaces lr",
        *made,
        "",
        "for step in range(10):  # STEPS",
        "    optimizer.zero_grad()",
        "    network(torch.randn(32, 784)).square().mean().backward()  # your loss",
        "    optimizer.step()",
        *advanced,
    ]
    return File(f"{scenario}_torch.py", "\n".join(code) + "\n", "text/x-python")


def _in_torch(control: str, schedule: Schedule) -> tuple[list[str], str]:
    """Lines that set a control up, and the one that goes on to the next step."""
    if control == "learning_rate":
        return ['rate = schedule.to_torch(optimizer, "learning_rate", steps=STEPS)'], "rate.step()"
    if control == "activation":
        return [
            "dropout = practice.ScheduledDropout(schedule, steps=STEPS)  # a layer of your network"
        ], "dropout.step()"
    if control in SAMPLES:
        values = np.unique(schedule[control]).tolist()
        return [
            f"groups = {list(range(len(values)))} * 500  # of each of your samples: which of {values} it is",
            "order = practice.CurriculumSampler(",
            f'    schedule, groups, batch_size=32, steps=STEPS, control="{control}"',
            ")  # DataLoader(data, batch_size=32, sampler=order)",
        ], ""
    convert = ", convert=round" if control == "batch" else ""
    return [
        f'settings = {{"{control}": 0.0}}  # read it in your training step',
        f'{control} = practice.AttributeScheduler(schedule, "{control}", settings, steps=STEPS{convert})',
    ], f"{control}.step()"


def as_optax(scenario: str, arguments: Mapping[str, Any], found: Found) -> File:
    """The controls as functions of the step, for optax and JAX."""
    controls = found.schedule.controls
    made = [f'{control} = schedule.to_optax("{control}", steps=STEPS)' for control in controls]
    rate = "learning_rate" if "learning_rate" in controls else "0.1"
    others = [control for control in controls if control != "learning_rate"]
    imports = ["import jax", "import jax.numpy as jnp", "import optax", "", "import optlearn as ol"]
    code = [
        *_beginning(scenario, arguments, found, "optax", imports),
        *made,
        f"optimizer = optax.sgd({rate})",
        "",
        "weights = jnp.zeros(784)  # yours",
        "state = optimizer.init(weights)",
        "",
        "",
        "@jax.jit",
        "def train_step(weights, state, x, step):",
        *[f"    now_{control} = {control}(step)  # use it in your loss" for control in others],
        "    gradient = jax.grad(lambda w: jnp.mean((x @ w - 1.0) ** 2))(weights)  # your loss",
        "    updates, state = optimizer.update(gradient, state)",
        "    return optax.apply_updates(weights, updates), state",
        "",
        "",
        "for step in range(10):  # STEPS",
        "    x = jax.random.normal(jax.random.key(step), (32, 784)) / 28.0  # your batch",
        "    weights, state = train_step(weights, state, x, step)",
    ]
    return File(f"{scenario}_optax.py", "\n".join(code) + "\n", "text/x-python")


FILES = {"json": as_json, "csv": as_csv, "torch": as_torch, "optax": as_optax}


def _beginning(
    scenario: str, arguments: Mapping[str, Any], found: Found, extra: str, imports: list[str]
) -> list[str]:
    given = ", ".join(f"{name}={plain(value)!r}" for name, value in arguments.items())
    return [
        f'"""Schedule of {", ".join(found.schedule.controls)}, optimal for {scenario}; '
        f"final error {found.objective:.8g}.",
        "",
        f"{scenario}({given})",
        "",
        f"Needs: pip install 'optlearn[{extra}]'",
        '"""',
        "",
        *imports,
        "",
        f"STEPS = {STEPS}  # of your whole training, to which the schedule is stretched",
        f"schedule = ol.Schedule.from_json({_short(found.schedule)!r})",
        "",
    ]


def _short(schedule: Schedule) -> str:
    """JSON on one line, neighbouring equal intervals joined."""
    return schedule.merged().to_json()
