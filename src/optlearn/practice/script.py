"""A schedule as a training script: data, a network, the schedule wired in, the loss printed.

The script is assembled from sections of a file in ``training_script``, one file per framework: data and
network, which depend on the controls, and the training, which is always the same. Between them are the few
lines that wire in the controls.
"""

import re
import textwrap
from collections.abc import Iterable, Mapping
from importlib.resources import files
from math import ceil
from os import PathLike
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from optlearn._errors import SpecificationError
from optlearn._io.files import write_file
from optlearn._json import plain
from optlearn._schedule import Schedule
from optlearn.practice.steps import total_steps

Framework = Literal["torch", "jax"]

# Inputs and steps of the script's small problem: seconds on a laptop.
INPUTS, STEPS = 100, 1000
WIDTH = 100  # width of the lines that hold a schedule


class Constant(NamedTuple):
    """A number in the script: from an argument of the scenario, if there is one."""

    name: str
    argument: str
    default: Any
    meaning: str


class Part:
    """Data and network: a section of the framework's file, the rate, and further constants that it reads."""

    def __init__(self, section: str, rate: float, *constants: Constant) -> None:
        meaning = "learning rate in the units of the theory: RATE / N in these"
        self.section, self.constants = section, (Constant("RATE", "eta", rate, meaning), *constants)


NODES = Constant("K", "K", 2, "hidden nodes")
LABEL_NOISE = Constant("NOISE", "sigma_n", 0.0, "standard deviation of the label noise")
COMMITTEE = Part("committee", 1.0, NODES, Constant("M", "M", 2, "hidden nodes of the teacher"), LABEL_NOISE)
DENOISING = Part(
    "denoising",
    5.0,
    Constant("SKIP_RATE", "skip_rate", 5.0, "learning rate of the skip"),
    Constant("TEST_NOISE", "Delta_F", 0.3, "variance of the noise at test time"),
    Constant("SPREAD", "sigma", 0.1, "standard deviation of clean inputs around their centroid"),
)
CLASSES = Part(
    "classes",
    3.0,
    Constant("CLUTTER", "Delta", (0.0, 2.0), "variance of the clutter in easy and in hard samples"),
    Constant("TEACHER", "T", 2.0, "squared norm of the teacher"),
)
TASKS = Part(
    "tasks",
    3.0,
    Constant("TASKS", "tasks", 2, "how many"),
    NODES,
    Constant("SIMILARITY", "similarity", 0.6, "overlap of any two teachers"),
    LABEL_NOISE,
)
GROUPS = Part(
    "groups",
    0.5,
    Constant("SHARE", "share", 0.2, "of the minority"),
    Constant("VARIANCE", "variance", (1.0, 0.5), "of the inputs of majority and minority"),
    Constant("MEAN", "mean", (0.5, 0.5), "distance of their centroids from the origin"),
    Constant("SIMILARITY", "similarity", 0.5, "overlap of their teachers"),
)
GATING = Part(
    "gating",
    1.0,
    Constant("CONTROL", "control", "gain", "what the gate is"),
    Constant("GAIN", "teacher_gain", 2.0, "of the teacher's gate"),
    Constant("THRESHOLD", "teacher_threshold", 0.0, "of the teacher's gate"),
    LABEL_NOISE,
)
ATTENTION = Part(
    "attention",
    1.0,
    Constant("MASKED", "control", "temperature", "what a mask hides"),
    Constant("TOKENS", "tokens", 3, "in a sample"),
    Constant("HEADS", "heads", 2, "of attention"),
    Constant("TEACHER", "T", 1.0, "squared norm of the teacher's queries and keys"),
)
# Data and network that demonstrate each control.
PARTS = {
    "difficulty": CLASSES, "task": TASKS, "sampling": GROUPS, "reweighting": GROUPS, "noise": DENOISING,
    "gate": GATING, "temperature": ATTENTION, "mask": ATTENTION,
}  # fmt: skip
# If controls are ambiguous, arguments decide: a rate may be for groups, a batch of copies for denoising.
BY_ARGUMENT = {"Delta_F": DENOISING, "share": GROUPS}
FOLLOW = "followers.append(ol.practice.AttributeScheduler(schedule, {control!r}, {target}, steps=STEPS))"
WIRED = "# --- the schedule, wired in ---"
IMPORTS = {
    "torch": [
        "import sys",
        "from pathlib import Path",
        "",
        "import torch",
        "from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset",
    ],
    "jax": [
        "import sys",
        "from pathlib import Path",
        "",
        "import jax",
        "import jax.numpy as jnp",
        "import numpy as np",
        "import optax",
    ],
}
CONTROLS = ("learning_rate", "batch", "activation", *PARTS)


def check_controls(controls: Iterable[str]) -> None:
    """Raise if a script cannot follow one of the controls."""
    unknown = [control for control in controls if control not in CONTROLS]
    if unknown:
        raise SpecificationError(
            f"to_script: controls must be among {', '.join(CONTROLS)}, got {unknown[0]!r}; wire it in with "
            "practice.AttributeScheduler"
        )


def training_script(
    schedule: Schedule,
    path: str | PathLike[str] | None = None,
    *,
    framework: Framework = "torch",
    arguments: Mapping[str, Any] | None = None,
    N: int | None = None,
    steps: int | None = None,
    title: str = "",
) -> str:
    """A script that trains under a schedule; see ``Schedule.to_script``.

    Args:
        schedule: the schedule.
        path: file to write, if any.
        framework: "torch", or "jax" for optax.
        arguments: arguments of the scenario, which set the script's numbers.
        N: input dimension of the network.
        steps: optimiser steps; None for N·α_F.
        title: first line of the script's docstring.
    """
    if framework not in get_args(Framework):
        names = ", ".join(map(repr, get_args(Framework)))
        raise SpecificationError(f"to_script: framework must be one of {names}, got {framework!r}")
    check_controls(schedule.controls)
    settings = {name: value for name, value in (arguments or {}).items() if value is not None}
    shown = [PARTS[control] for control in schedule.controls if control in PARTS]
    shown += [part for argument, part in BY_ARGUMENT.items() if argument in settings]
    part = shown[0] if shown else COMMITTEE
    inputs = max(INPUTS, ceil(STEPS / schedule.horizon)) if N is None else N
    total = total_steps(schedule, steps, None if steps is not None else inputs, "to_script")
    header = [
        f'"""{title or "Training under a schedule of " + ", ".join(schedule.controls) + "."}',
        "",
        "Data and network are a small example: replace them with yours, and keep the lines below",
        '"the schedule, wired in". A checkpoint is written beside the script; --resume continues',
        "from it.",
        '"""',
        "",
        *IMPORTS[framework],
        "",
        "import optlearn as ol",
        "",
        f"N = {inputs}  # inputs",
        f"STEPS = {total}  # of the whole training, over which the schedule is stretched",
        f"BATCH = {_mean_batch(schedule, settings)}  # samples in a step",
        *(f"{each.name} = {_value(each, settings)!r}  # {each.meaning}" for each in part.constants),
        *_written(schedule.merged()),
        "",
    ]
    lines = header + (_torch if framework == "torch" else _jax)(schedule, part, settings)
    text = "\n".join(lines) + "\n"
    if path is not None:
        write_file(path, text)
    return text


def _written(schedule: Schedule) -> list[str]:
    """The schedule as code: numbers with eight digits, in lines that fit a screen."""
    lines = ["schedule = ol.Schedule.from_dict(", "    {"]
    for name, value in plain(schedule.to_dict(), number=_eight_digits).items():
        text = repr(value)
        if len(text) < WIDTH - 20:
            lines.append(f"        {name!r}: {text},")
            continue
        if isinstance(value, list) and not isinstance(value[0], list):
            opening, closing, inner = "[", "]", ", ".join(map(repr, value))
        else:
            opening, closing, inner = "(", ")", text
        wrapped = textwrap.wrap(inner, WIDTH - 12, break_long_words=False)
        lines += [
            f"        {name!r}: {opening}",
            *(" " * 12 + line for line in wrapped),
            f"        {closing},",
        ]
    return [*lines, "    }", ")"]


def _eight_digits(value: float) -> float:
    return float(f"{value:.8g}")


def _torch(schedule: Schedule, part: Part, settings: Mapping[str, Any]) -> list[str]:
    """Data and network, the controls, and the training."""
    return [
        "torch.manual_seed(0)",
        "SAMPLES = STEPS * BATCH",
        "",
        *_section("torch", part.section),
        "",
        WIRED,
        "followers = []  # what has to know that a step is done",
        "kept = [network, optimizer]  # what a checkpoint holds, beside the followers",
        "loader = DataLoader(data, BATCH, sampler=RandomSampler(data, num_samples=SAMPLES))",
        *(line for control in schedule.controls for line in _in_torch(control, schedule, part, settings)),
        "",
        *_section("torch", "training"),
    ]


def _jax(schedule: Schedule, part: Part, settings: Mapping[str, Any]) -> list[str]:
    """The controls, data and network, and the training."""
    varies = "batch" in schedule.controls
    largest = ceil(schedule["batch"].max()) if varies else _mean_batch(schedule, settings)
    calls = {name: f"{name!r}, steps=STEPS" for name in schedule.controls}
    if "learning_rate" in calls:
        calls["learning_rate"] += ", scale=1 / N"
    return [
        f"LARGEST = {largest}  # batch",
        WIRED,
        "controls = {",
        *(f"    {name!r}: schedule.to_optax({call})," for name, call in calls.items()),
        "}",
        'rate = controls.get("learning_rate", RATE / N)',
        "",
        *_section("jax", part.section),
        "",
        *_section("jax", "training"),
    ]


def _value(constant: Constant, settings: Mapping[str, Any]) -> Any:
    """The scenario's value; the mean if it has several and the script one."""
    value = plain(settings.get(constant.argument, constant.default))
    return float(np.mean(value)) if isinstance(constant.default, float) else value


def _mean_batch(schedule: Schedule, settings: Mapping[str, Any]) -> int:
    if "batch" in schedule.controls:
        return max(1, round(float(np.average(schedule["batch"], weights=np.diff(schedule.grid)))))
    return max(1, round(settings.get("batch", 1)))


def _in_torch(control: str, schedule: Schedule, part: Part, settings: Mapping[str, Any]) -> list[str]:
    """The lines that wire in a control."""
    if control == "learning_rate":
        return ["followers.append(schedule.to_torch(optimizer, steps=STEPS, scale=1 / N))"]
    if control == "activation":
        return [
            "network.dropout = ol.practice.ScheduledDropout(schedule, steps=STEPS)",
            "followers.append(network.dropout)",
        ]
    if control in ("difficulty", "task", "sampling"):
        return _ordered(control, schedule, settings)
    if control == "batch":
        target = "network, 'copies'" if part is DENOISING else "sizes, 'batch_size'"
        following = FOLLOW.format(control=control, target=target)[:-2] + ", convert=round))"
        if part is DENOISING:
            return [following]
        return [
            f"largest = {ceil(schedule['batch'].max())}",
            "sizes = BatchSampler(RandomSampler(data, num_samples=STEPS * largest), BATCH, drop_last=False)",
            "loader = DataLoader(data, batch_sampler=sizes)",
            following,
        ]
    return [f"network.{control} = 0.0", FOLLOW.format(control=control, target="network")]


def _ordered(control: str, schedule: Schedule, settings: Mapping[str, Any]) -> list[str]:
    """The lines that order samples by a control."""
    source, lines = "schedule", []
    if control == "sampling":
        source, values = "shares", {0: 0.0, 1: 1.0}
        lines = [
            "minority = schedule['sampling']  # its share of the samples",
            "shares = ol.Schedule.mixed(schedule.grid, {'sampling': {0: 1 - minority, 1: minority}})",
        ]
    elif control == "difficulty":
        values = dict(enumerate(_value(CLASSES.constants[1], settings)))  # the variances of the clutter
    else:
        values = dict(enumerate(range(_value(TASKS.constants[1], settings))))  # tasks by their number
    return [
        *lines,
        "order = ol.practice.CurriculumSampler(",
        f"    {source}, data.tensors[-1], batch_size=BATCH, steps=STEPS,",
        f"    control={control!r}, values={values},",
        ")",
        "loader = order.loader(data)",
        "kept.append(order)",
    ]


def _section(framework: Framework, name: str) -> list[str]:
    """The lines of a section in the framework's file, with the title as a comment."""
    text = (files("optlearn.practice") / "training_script" / f"{framework}.py").read_text(encoding="utf-8")
    # Between the marks "# --- name: title ---": name, title and code of each section in turn.
    _, *parts = re.split(r"^# --- (\w+): (.+) ---$", text, flags=re.MULTILINE)
    at = parts.index(name)
    title, code = parts[at + 1 : at + 3]
    return [f"# --- {title} ---", *code.strip("\n").split("\n")]
