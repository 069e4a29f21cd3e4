"""Singular arcs: the Hamiltonian is linear in the control, and does not say where between its bounds."""

from optlearn._arrays import Settings
from optlearn._control.controls import Continuous
from optlearn.benchmarks._benchmark import Reference, benchmark

LUUS = "R. Luus, Iterative Dynamic Programming (2000), section 10.2; PROPT, Singular Control "


@benchmark(
    start={"x": 1.0},
    controls={"u": Continuous(-1.0, 1.0)},
    horizon=2.0,
    cost=lambda x, u: x["x"] ** 2 / 2,
    source=LUUS + "1",
    tests="a bang, then an arc on which the control is 0",
    reference=Reference(1 / 6, 100, "exact", published=1 / 6),
)
def singular_1(x: Settings, u: Settings) -> Settings:
    """Bring a number to 0."""
    return {"x": u["u"]}


@benchmark(
    start={"x": 0.0, "y": 1.0},
    controls={"u": Continuous(-1.0, 1.0)},
    horizon=5.0,
    cost=lambda x, u: x["x"] ** 2,
    source=LUUS + "2",
    tests="a singular arc of second order, entered by chattering",
    reference=Reference(0.268441954, 100, "convex", published=0.268336),
)
def singular_2(x: Settings, u: Settings) -> Settings:
    """Double integrator, squared place."""
    return {"x": x["y"], "y": u["u"]}


@benchmark(
    start={"x": 0.0, "y": 1.0},
    controls={"u": Continuous(-1.0, 1.0)},
    horizon=5.0,
    cost=lambda x, u: x["x"] ** 2 + x["y"] ** 2,
    source=LUUS + "3",
    tests="bang-singular",
    reference=Reference(0.753987579, 100, "convex", published=0.753984),
)
def singular_3(x: Settings, u: Settings) -> Settings:
    """Double integrator, squared place and speed."""
    return {"x": x["y"], "y": u["u"]}


@benchmark(
    start={"x": 1.0, "y": 0.0, "z": 0.0},
    controls={"u": Continuous(-1.0, 1.0)},
    horizon=5.0,
    cost=lambda x, u: x["x"] ** 2,
    source=LUUS + "4",
    tests="a singular arc of third order, on 400 intervals: the objective is flat in the control",
    reference=Reference(1.25211595, 400, "convex", published=1.252390),
)
def singular_4(x: Settings, u: Settings) -> Settings:
    """Triple integrator, squared place."""
    return {"x": x["y"], "y": x["z"], "z": u["u"]}


@benchmark(
    start={"x": 0.0, "y": -1.0, "z": -(5.0**0.5), "t": 0.0},
    controls={"u": Continuous(-4.0, 10.0)},
    horizon=1.0,
    cost=lambda x, u: (
        x["x"] ** 2 + x["y"] ** 2 + 0.0005 * (x["y"] + 16 * x["t"] - 8 - 0.1 * x["z"] * u["u"] ** 2) ** 2
    ),
    source="Floudas et al., Handbook of Test Problems (1999), section 15; PROPT, Singular Control 5",
    tests="nonlinear, several optima, a control that nearly disappears from the Hamiltonian",
    reference=Reference(0.119270231, 60, "many starts", published=0.119),
)
def singular_5(x: Settings, u: Settings) -> Settings:
    """Nonlinear and nearly singular."""
    return {"x": x["y"], "y": -x["z"] * u["u"] + 16 * x["t"] - 8, "z": u["u"], "t": 1.0}
