"""Several optima, of which most descents reach another than the lowest."""

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Settings
from optlearn._control.controls import Continuous
from optlearn.benchmarks._benchmark import Reference, benchmark, ends

GORNOV = (
    "A. Yu. Gornov et al., A Collection of Test Multiextremal Optimal Control Problems, in Optimization, "
    "Simulation, and Control (2012) 257, problem "
)
ROBOT = ("x", "y", "angle", "x_speed", "y_speed", "spin")


@benchmark(
    start={"angle": 5.0, "speed": 0.0},
    controls={"push": Continuous(-1.0, 1.0)},
    horizon=5.0,
    final=lambda x, u: x["angle"] ** 2 + x["speed"] ** 2,
    source=GORNOV + "4",
    tests="two turns of a pendulum: the nearer rest is not the lowest",
    reference=Reference(11.9114856, 100, "many starts"),
)
def pendulum_home(x: Settings, u: Settings) -> Settings:
    """Bring a pendulum back to rest where it began to turn."""
    return {"angle": x["speed"], "speed": u["push"] - jnp.sin(x["angle"])}


@benchmark(
    start={"a": 1.0, "b": 1.0},
    controls={"u": Continuous(-1.0, 1.0)},
    horizon=5.0,
    final=lambda x, u: x["a"] + x["b"],
    source=GORNOV + "5",
    tests="a phase that turns at an exponential pace",
    reference=Reference(-16.4506088, 100, "many starts"),
)
def exponential_phase(x: Settings, u: Settings) -> Settings:
    """A sine whose phase an exponential drives."""
    return {"a": jnp.sin(x["b"]), "b": u["u"] - jnp.exp(x["a"])}


@benchmark(
    start={"a": 0.5, "b": -0.2},
    controls={"u": Continuous(-2.0, 2.0)},
    horizon=1.7,
    final=lambda x, u: x["a"] * x["b"] + x["a"] - x["b"],
    source=GORNOV + "6",
    tests="a saddle as objective; DTQP, from one start, misses the optimum",
    reference=Reference(-5.06257232, 100, "many starts"),
)
def saddle_end(x: Settings, u: Settings) -> Settings:
    """Two states whose product counts."""
    return {"a": 1 - x["b"] ** 2 + 0.5 * x["b"], "b": x["a"] * u["u"]}


@benchmark(
    start={"a": 1.0, "b": 1.0, "t": 0.0},
    controls={"u": Continuous(-3.0, 3.0)},
    horizon=1.5,
    final=lambda x, u: x["a"] + x["b"],
    source=GORNOV + "7",
    tests="a square of the control: two of them do the same",
    reference=Reference(4.25974099, 100, "many starts"),
)
def squared_pace(x: Settings, u: Settings) -> Settings:
    """A sine whose phase only grows, at a price."""
    return {"a": jnp.sin(x["b"]) + jnp.cos(x["t"]), "b": (u["u"] + x["t"]) ** 2, "t": 1.0}


@benchmark(
    start={"a": 0.0, "b": 0.0},
    controls={"u": Continuous(-1.0, 1.0)},
    horizon=7.0,
    final=lambda x, u: x["a"],
    source=GORNOV + "11",
    tests="a phase that may turn either way",
    reference=Reference(-4.81082606, 100, "many starts"),
)
def heading(x: Settings, u: Settings) -> Settings:
    """As far back as possible, by turning."""
    return {"a": jnp.cos(x["b"]), "b": u["u"] - jnp.sin(x["a"])}


@benchmark(
    start={"angle": 5.0, "speed": 0.0},
    controls={"push": Continuous(-1.0, 1.0)},
    horizon=7.0,
    final=lambda x, u: (x["angle"] + 1) ** 2 + (x["speed"] - 9.5) ** 2,
    source=GORNOV + "12",
    tests="swings of growing size; DTQP, from one start, misses the optimum",
    reference=Reference(0.185665245, 100, "many starts"),
)
def steep_swing(x: Settings, u: Settings) -> Settings:
    """A pendulum, with a sine of three terms, is to have a high speed at a place."""
    angle = x["angle"]
    return {"angle": x["speed"], "speed": u["push"] - angle + angle**3 / 6 - angle**5 / 120}


@benchmark(
    start=dict(zip(ROBOT, (-10.0, -10.0, np.pi / 2, 0.0, 0.0, 0.0), strict=True)),
    controls={name: Continuous(0.0, 1.0) for name in ("left", "left_back", "right", "right_back")},
    horizon=12.0,
    cost=lambda x, u: u["left"] + u["left_back"] + u["right"] + u["right_back"],
    limits=(
        ends(0.0, lambda x, u: x["x"]),
        ends(0.0, lambda x, u: x["y"]),
        ends(0.0, lambda x, u: x["angle"]),
        ends(0.0, lambda x, u: x["x_speed"]),
        ends(0.0, lambda x, u: x["y_speed"]),
        ends(0.0, lambda x, u: x["spin"]),
    ),
    source="Y. Sakawa, Optim. Control Appl. Methods 20 (1999) 235; J. T. Betts, Practical Methods for "
    "Optimal Control (2010), section 6.13; PSOPT, dt-qp-project",
    tests="four bang-bang controls, six numbers given at the end; the published optimum is not the lowest",
    reference=Reference(7.70738726, 60, "many starts", published=7.9101),
)
def free_flying_robot(x: Settings, u: Settings) -> Settings:
    """A robot with two jets comes to a place with the least fuel."""
    left, right = u["left"] - u["left_back"], u["right"] - u["right_back"]
    return {
        "x": x["x_speed"],
        "y": x["y_speed"],
        "angle": x["spin"],
        "x_speed": (left + right) * jnp.cos(x["angle"]),
        "y_speed": (left + right) * jnp.sin(x["angle"]),
        "spin": 0.2 * left - 0.2 * right,
    }
