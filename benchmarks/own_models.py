"""Models of one's own, without closed forms, in CPU seconds beside ``optlearn solve curriculum``.

Each problem is solved, or integrated, in a fresh process with nothing kept from before, imports and
compilation included. ``python -m benchmarks own_models``, or ``python -m benchmarks.own_models [PROBLEM …]``.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf

import optlearn as ol


class Logistic(ol.LearningModel):
    """A teacher's sign, flipped now and then; logistic loss, weight decay."""

    def latents(self, u):
        return ol.Latents.choice(jnp.stack([1 - u["flips"], u["flips"]]), label=jnp.array([1.0, -1.0]))

    def test_latents(self, u):
        return ol.Latents.single(label=1.0)

    def loss(self, fields, x, latent, u):
        return jax.nn.softplus(-latent["label"] * jnp.sign(fields.teacher[0, 0]) * fields.student[0, 0])

    def metric(self, fields, x, latent, u):
        return jnp.where(fields.teacher[0, 0] * fields.student[0, 0] < 0, 1.0, 0.0)

    def penalty(self, x, u):
        return u["decay"] * x.Q[0, 0] / 2


class ThreeLayers(ol.LearningModel):
    """Two erf units, three tanh units with biases, a linear output; all but the first layer in ``x.v``."""

    def loss(self, fields, x, latent, u):
        weights = x.v.reshape(-1)
        hidden, bias, readout = weights[:6].reshape(3, 2), weights[6:9], weights[9:]
        label = jnp.sum(erf(fields.teacher[0] / np.sqrt(2))) + u["sigma_n"] * fields.noise
        units = jnp.tanh(hidden @ erf(fields.student[0] / np.sqrt(2)) + bias)
        return (readout @ units - label) ** 2 / 2


class Softmax(ol.LearningModel):
    """Two tokens: the student's softmax attends to one of two vectors, of which the teacher's decides."""

    def loss(self, fields, x, latent, u):
        attended = jax.nn.softmax(fields.student[:, 0])
        wanted = jax.nn.softmax(2 * fields.teacher[:, 0])
        seen, true = (weights @ fields.student[:, 1] for weights in (attended, wanted))
        return (seen - true) ** 2 / 2 + (jnp.sum(fields.student[:, 1] - fields.teacher[:, 1])) ** 2 / 4


class ReluCommittee(ol.LearningModel):
    """Three ReLU units learn from two."""

    def loss(self, fields, x, latent, u):
        return (jnp.sum(jax.nn.relu(fields.student)) - jnp.sum(jax.nn.relu(fields.teacher))) ** 2 / 2


def _logistic() -> ol.Problem:
    model = Logistic(
        students=1,
        overlaps=ol.Overlaps(T=1.0),
        parameters={"learning_rate": 1.0, "decay": 0.1, "flips": 0.15},
        breaks=(ol.Break("teacher", 0, 0), ol.Break("student", 0, 0)),
    )
    controls = {
        "learning_rate": ol.Continuous(0, 6, guess=1.0),
        "decay": ol.Continuous(0, 2, guess=0.1),
    }
    start = model.state(Q11=0.25, M11=0.0)
    return ol.Problem(model=model, start=start, horizon=10, controls=controls, intervals=40)


def _three_layers() -> ol.Problem:
    model = ThreeLayers(
        students=2,
        heads=6,
        overlaps=ol.Overlaps(T=np.eye(2)),
        parameters={"learning_rate": 1.0, "readout_rate": 0.5, "sigma_n": 0.1},
    )
    start = model.state(
        Q=np.array([[0.5, 0.02], [0.02, 0.4]]),
        M=np.array([[0.1, 0.02], [0.03, 0.08]]),
        v=np.random.default_rng(3).standard_normal((2, 6)) * 0.5,
    )
    controls = {
        "learning_rate": ol.Continuous(0, 6, guess=1.0),
        "readout_rate": ol.Continuous(0, 6, guess=0.5),
    }
    return ol.Problem(model=model, start=start, horizon=20, controls=controls, intervals=20)


def _softmax() -> ol.Problem:
    model = Softmax(students=2, slots=2, overlaps=ol.Overlaps(T=np.eye(2)), parameters={"learning_rate": 0.5})
    start = model.state(Q=0.2 * np.eye(2), M=0.1 * np.eye(2))
    controls = {"learning_rate": ol.Continuous(0, 2, guess=0.5)}
    return ol.Problem(model=model, start=start, horizon=10, controls=controls, intervals=20)


def _relu_committee() -> ol.Problem:
    model = ReluCommittee(
        students=3,
        overlaps=ol.Overlaps(T=np.eye(2)),
        parameters={"learning_rate": 0.3},
        breaks=tuple(ol.Break(kind, 0, i) for kind, n in (("student", 3), ("teacher", 2)) for i in range(n)),
    )
    start = model.state(Q=0.3 * np.eye(3), M=np.array([[0.1, 0.02], [0.03, 0.08], [0.05, 0.05]]))
    controls = {"learning_rate": ol.Continuous(0, 1, guess=0.3)}
    return ol.Problem(model=model, start=start, horizon=10, controls=controls, intervals=20)


def solved(problem: ol.Problem) -> dict[str, Any]:
    """Objective and certificate of a default call."""
    solution = ol.solve(problem)
    certificate = solution.certificate
    return {
        "objective": solution.objective,
        "converged": certificate.converged,
        "bar": certificate.quadrature_error,
    }


def integrated(problem: ol.Problem) -> dict[str, Any]:
    """Error at the end under the guesses, held constant."""
    guesses = {name: control.start for name, control in problem.controls.items()}
    course = ol.integrate(
        problem.model, ol.Schedule.constant(problem.horizon, guesses), start=problem.start, record=2
    )
    bar = max(course.info["quadrature_error"], course.info["error_quadrature_error"])
    return {"objective": course["error"][-1], "converged": True, "bar": bar * course["error"][-1]}


# What to do, and how many times the seconds of ``optlearn solve curriculum`` it may take.
PROBLEMS: dict[str, tuple[Callable[[], dict[str, Any]], float]] = {
    "logistic with flips": (lambda: solved(_logistic()), 20),
    "three layers, constant rates": (lambda: integrated(_three_layers()), 5),
    "three layers, both rates": (lambda: solved(_three_layers()), 80),
    "two tokens with softmax": (lambda: solved(_softmax()), 80),
    "ReLU committee, 3 from 2": (lambda: solved(_relu_committee()), 80),
}
CURRICULUM = "curriculum"


def fresh(name: str) -> dict[str, Any]:
    """One problem in a process of its own."""
    here = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as cache:
        kept = {"OPTLEARN_CACHE": cache, "JAX_COMPILATION_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
        paths = os.pathsep.join([str(here / "src"), str(here)])
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.own_models", "--here", name],
            capture_output=True,
            text=True,
            cwd=here,
            env={**os.environ, **kept, "PYTHONPATH": paths},
        )
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def here(name: str) -> dict[str, Any]:
    """The same in this process, with its CPU seconds from the first import on."""
    warnings.simplefilter("ignore")
    found = solved(ol.scenarios.curriculum()) if name == CURRICULUM else PROBLEMS[name][0]()
    return {**found, "seconds": time.process_time()}


def main(*names: str) -> None:
    """Print the table."""
    unknown = [name for name in names if name not in PROBLEMS]
    if unknown:
        sys.exit(f"unknown problem {unknown[0]!r}; there are {', '.join(PROBLEMS)}")
    unit = fresh(CURRICULUM)["seconds"]
    print(f"CPU seconds of fresh processes, and as multiples of curriculum's {unit:.2f}.")
    print(f"{'problem':>30} {'seconds':>8} {'ratio':>6} {'limit':>6} {'objective':>10} {'error bar':>9}")
    for name in names or PROBLEMS:
        found, limit = fresh(name), PROBLEMS[name][1]
        if "failed" in found:
            print(f"{name:>30} FAILED: {found['failed']}", flush=True)
            continue
        bar = "–" if found["bar"] is None else f"{found['bar']:.0e}"
        print(
            f"{name:>30} {found['seconds']:8.1f} {found['seconds'] / unit:6.1f} {limit:6.0f} "
            f"{found['objective']:10.6f} {bar:>9}{'' if found['converged'] else '  NOT CONVERGED'}",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        print(json.dumps(here(sys.argv[2])))
    else:
        main(*sys.argv[1:])
