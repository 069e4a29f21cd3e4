"""Fish, epidemics, tanks: several of them with controls that switch between values."""

from typing import Any

import jax.numpy as jnp

from optlearn._arrays import Settings
from optlearn._control.budgets import Budget
from optlearn._control.controls import Continuous, Discrete, Free
from optlearn.benchmarks._benchmark import Reference, benchmark

LOTKA: dict[str, Any] = {
    "start": {"prey": 0.5, "predators": 0.7},
    "horizon": 12.0,
    "cost": lambda x, u: (x["prey"] - 1) ** 2 + (x["predators"] - 1) ** 2,
    "source": "S. Sager, Numerical Methods for Mixed-Integer Optimal Control (2005); mintoc, Lotka Volterra",
}


@benchmark(
    **LOTKA,
    controls={"fishing": Continuous(0.0, 1.0)},
    tests="bang, then a singular arc",
    reference=Reference(1.3444077, 100, "many starts", published=1.34408),
)
def lotka(x: Settings, u: Settings) -> Settings:
    """Fish so that predators and prey come to their equilibrium."""
    prey, predators, fishing = x["prey"], x["predators"], u["fishing"]
    return {
        "prey": prey - prey * predators - 0.4 * prey * fishing,
        "predators": -predators + prey * predators - 0.2 * predators * fishing,
    }


@benchmark(
    **LOTKA,
    controls={"fishing": Discrete((0.0, 1.0))},
    tests="pure values where the optimum mixes them",
    reference=Reference(1.3465978, 100, ""),
)
def lotka_pure(x: Settings, u: Settings) -> Settings:
    """Fish with the whole fleet, or not at all."""
    return lotka.equations(x, u)


@benchmark(
    start={"a": 2.0, "b": 2.0, "c": 2.0},
    controls={"mode": Discrete((0.0, 1.0, 2.0))},
    horizon=12.0,
    cost=lambda x, u: 2 * (x["b"] - 3) ** 2 + (x["c"] - 3) ** 2,
    source="S. Sager, Numerical Methods for Mixed-Integer Optimal Control (2005); mintoc, Three Tanks",
    tests="one of three modes at a time",
    reference=Reference(8.8532962, 50, "", published=8.7760),
)
def three_tanks(x: Settings, u: Settings) -> Settings:
    """Fill the middle one of three tanks to 3."""
    # 1 in the mode of its number and 0 in the others, without comparisons, which not all tools share.
    mode = u["mode"]
    first, second, third = (1 - mode) * (2 - mode) / 2, mode * (2 - mode), mode * (mode - 1) / 2
    pumped = third * jnp.sqrt(0.8 * x["a"])
    return {
        "a": -jnp.sqrt(x["a"]) + first + 2 * second - pumped,
        "b": jnp.sqrt(x["a"]) - jnp.sqrt(x["b"]),
        "c": jnp.sqrt(x["b"]) - jnp.sqrt(x["c"]) + pumped,
    }


@benchmark(
    start={"a": 2.0, "b": 2.0},
    controls={"inflow": Continuous(1.0, 2.0)},
    horizon=10.0,
    cost=lambda x, u: 2 * (x["b"] - 3) ** 2,
    source="mintoc, Double Tank",
    tests="bang, then a singular arc",
    reference=Reference(4.73131472, 100, "many starts"),
)
def double_tank(x: Settings, u: Settings) -> Settings:
    """Fill the lower one of two tanks to 3."""
    return {"a": u["inflow"] - jnp.sqrt(x["a"]), "b": jnp.sqrt(x["a"]) - jnp.sqrt(x["b"])}


@benchmark(
    start={"x": 0.5, "y": 0.5},
    controls={"mode": Discrete((0.0, 1.0, 2.0))},
    horizon=1.0,
    cost=lambda x, u: x["x"] ** 2 + x["y"] ** 2,
    source="M. Egerstedt, Y. Wardi, H. Axelsson, IEEE TAC 51 (2006) 110, without its limit on y",
    tests="one of three modes at a time, a singular arc",
    reference=Reference(0.98923592, 100, ""),
)
def egerstedt(x: Settings, u: Settings) -> Settings:
    """Switch between three linear systems, all of which lead away."""
    # 1 in the mode of its number and 0 in the others, without comparisons, which not all tools share.
    mode = u["mode"]
    first, second, third = (1 - mode) * (2 - mode) / 2, mode * (2 - mode), mode * (mode - 1) / 2
    a, b = x["x"], x["y"]
    return {
        "x": -a * first + (a + b) * second + (a - b) * third,
        "y": (a + 2 * b) * first + (a - 2 * b) * second + (a + b) * third,
    }


@benchmark(
    start={"stock": 0.3},
    controls={"effort": Continuous(0.0, 1.0)},
    horizon=10.0,
    cost=lambda x, u: -(1 - 0.2 / x["stock"]) * u["effort"] * x["stock"],
    source="C. W. Clark, Mathematical Bioeconomics (1976), without discounting",
    tests="bang, singular arc, bang",
    reference=Reference(-1.51038136, 100, "many starts"),
)
def fishery(x: Settings, u: Settings) -> Settings:
    """Harvest a stock that grows logistically."""
    return {"stock": x["stock"] * (1 - x["stock"]) - u["effort"] * x["stock"]}


@benchmark(
    start={"cells": 400.0, "virus": 3.5},
    controls={"boost": Continuous(0.0, 0.02), "therapy": Continuous(0.0, 0.9)},
    horizon=50.0,
    cost=lambda x, u: -(x["cells"] - 250000 * u["boost"] ** 2 - 75 * u["therapy"] ** 2) / 1000,
    source="H. R. Joshi, Optim. Control Appl. Methods 23 (2002) 199; PSOPT, HIV",
    tests="numbers that differ by orders of magnitude",
    reference=Reference(-29.5100745, 50, "many starts", published=-29.5145),
)
def hiv(x: Settings, u: Settings) -> Settings:
    """Immunotherapy of HIV by two drugs."""
    cells, virus = x["cells"], x["virus"]
    return {
        "cells": 2 - 1.5 * virus / (14 + virus) - 0.002 * cells - 2.5e-4 * virus * cells + u["boost"] * cells,
        "virus": 30 * (1 - u["therapy"]) * virus / (1 + virus) - 0.007 * virus * cells,
    }


@benchmark(
    start={"susceptible": 1000.0, "exposed": 100.0, "infectious": 50.0, "all": 1165.0},
    controls={"vaccination": Continuous(0.0, 0.9)},
    horizon=20.0,
    cost=lambda x, u: 0.1 * x["infectious"] + u["vaccination"] ** 2,
    source="S. Lenhart, J. T. Workman, Optimal Control Applied to Biological Models (2007), lab 7",
    tests="smooth; a bound that is active for most of the time",
    reference=Reference(13.3968266, 50, "many starts"),
)
def epidemic(x: Settings, u: Settings) -> Settings:
    """Vaccinate against an epidemic."""
    infection = 1e-4 * x["susceptible"] * x["infectious"]
    return {
        "susceptible": 0.525 * x["all"]
        - 0.5 * x["susceptible"]
        - infection
        - u["vaccination"] * x["susceptible"],
        "exposed": infection - (0.5 + 0.5) * x["exposed"],
        "infectious": 0.5 * x["exposed"] - (0.1 + 0.2 + 0.5) * x["infectious"],
        "all": (0.525 - 0.5) * x["all"] - 0.2 * x["infectious"],
    }


VOLUME = ((5.85 - 0.02) / 0.00873) ** 1.5 / 2


@benchmark(
    start={"tumour": VOLUME, "vessels": VOLUME / 2},
    controls={"dose": Continuous(0.0, 75.0)},
    horizon=Free(0.1, 3.0),
    final=lambda x, u: x["tumour"],
    budgets=(Budget("dose", total=15.0, sense="at most"),),
    source="U. Ledzewicz, H. Schättler, Optim. Control Appl. Methods 29 (2008) 41; PROPT, PSOPT",
    tests="a free end, a limit on an integral, numbers that are large",
    reference=Reference(7571.7535, 100, "many starts", published=7571.67),
)
def tumour(x: Settings, u: Settings) -> Settings:
    """Starve a tumour of its vessels with a given amount of a drug."""
    p, q = x["tumour"], x["vessels"]
    return {
        "tumour": -0.084 * p * jnp.log(p / q),
        "vessels": q * (5.85 - 0.02 - 0.00873 * p ** (2 / 3) - 0.15 * u["dose"]),
    }
