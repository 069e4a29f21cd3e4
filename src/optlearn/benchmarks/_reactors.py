"""Chemical reactors: temperatures, feeds and catalysts."""

import jax.numpy as jnp

from optlearn._arrays import Settings
from optlearn._control.controls import Continuous
from optlearn.benchmarks._benchmark import Reference, benchmark, ends_below


@benchmark(
    start={"a": 0.09, "b": 0.09},
    controls={"u": Continuous(0.0, 5.0)},
    horizon=0.78,
    cost=lambda x, u: x["a"] ** 2 + x["b"] ** 2 + 0.1 * u["u"] ** 2,
    source="R. Luus, J. Optim. Theory Appl. 59 (1988); Floudas et al., Handbook of Test Problems (1999)",
    tests="two optima: cooling at first (0.1331), or hardly (0.2444)",
    reference=Reference(0.133138436, 100, "published", published=0.13309),
)
def two_optima_cstr(x: Settings, u: Settings) -> Settings:
    """A stirred tank is cooled back to its steady state."""
    reaction = (x["b"] + 0.5) * jnp.exp(25 * x["a"] / (x["a"] + 2))
    return {"a": -(2 + u["u"]) * (x["a"] + 0.25) + reaction, "b": 0.5 - x["b"] - reaction}


@benchmark(
    start={"a": 1.0, "b": 0.0},
    controls={"T": Continuous(298.0, 398.0)},
    horizon=1.0,
    final=lambda x, u: -x["b"],
    source="W. H. Ray, Advanced Process Control (1981); PROPT, Temperature Control in a Batch Reactor",
    tests="smooth; a control in hundreds, a yield below 1",
    reference=Reference(-0.610791971, 100, "many starts", published=-0.610775),
)
def batch_reactor(x: Settings, u: Settings) -> Settings:
    """The temperature of A → B → C with most B."""
    first, second = 4000 * jnp.exp(-2500 / u["T"]) * x["a"] ** 2, 6.2e5 * jnp.exp(-5000 / u["T"]) * x["b"]
    return {"a": -first, "b": first - second}


@benchmark(
    start={"a": 1.0, "b": 0.0},
    controls={"u": Continuous(0.0, 5.0)},
    horizon=1.0,
    final=lambda x, u: -x["b"],
    source="W. H. Ray, Advanced Process Control (1981); PROPT, Parallel Reactions in Tubular Reactor",
    tests="smooth, with an active bound at the end",
    reference=Reference(-0.573534216, 100, "many starts", published=-0.573545),
)
def parallel_reactions(x: Settings, u: Settings) -> Settings:
    """A → B and A → C in a tube."""
    return {"a": -(u["u"] + u["u"] ** 2 / 2) * x["a"], "b": u["u"] * x["a"]}


@benchmark(
    start={"a": 1.0, "b": 0.0},
    controls={"u": Continuous(0.0, 1.0)},
    horizon=1.0,
    final=lambda x, u: -(1 - x["a"] - x["b"]),
    source="E. D. Dolan, J. J. Moré, T. S. Munson, COPS 3.0 (2004), problem 14",
    tests="bang, singular arc, bang",
    reference=Reference(-0.0480556245, 100, "published", published=-0.0480556),
)
def catalyst_mixing(x: Settings, u: Settings) -> Settings:
    """Two catalysts along a tube."""
    change = u["u"] * (10 * x["b"] - x["a"])
    return {"a": change, "b": -change - (1 - u["u"]) * x["b"]}


@benchmark(
    start={"a": 1.0, "b": 0.0, "c": 0.0},
    controls={"T": Continuous(273.0, 415.0)},
    horizon=1000.0,
    final=lambda x, u: -x["c"],
    source="K. G. Denbigh, Chem. Eng. Sci. 8 (1958) 125; PROPT, Denbigh's System of Reactions",
    tests="rates over ten orders of magnitude, a long horizon, several optima",
    reference=Reference(-0.66647971, 50, ""),
)
def denbigh(x: Settings, u: Settings) -> Settings:
    """A + B → X → Y with waste from both."""
    k1, k2 = 1e3 * jnp.exp(-3000 / u["T"]), 1e7 * jnp.exp(-6000 / u["T"])
    k3, k4 = 10 * jnp.exp(-3000 / u["T"]), 1e-3
    return {
        "a": -(k1 + k2) * x["a"],
        "b": k1 * x["a"] - (k3 + k4) * x["b"],
        "c": k3 * x["b"],
    }


@benchmark(
    start={"kerogen": 1.0, "bitumen": 0.0},
    controls={"T": Continuous(698.15, 748.15)},
    horizon=9.3,
    final=lambda x, u: -x["bitumen"],
    source="C. S. Wen, T. F. Yen, Chem. Eng. Sci. 32 (1977) 346; PROPT, Oil Shale Pyrolysis (free end)",
    tests="bang-bang with unequal switching times",
    reference=Reference(-0.353812015, 60, "many starts", published=-0.353717),
)
def oil_shale(x: Settings, u: Settings) -> Settings:
    """The temperature of oil shale with most bitumen."""
    k1, k2, k3, k4, k5 = (
        jnp.exp(a - b / 1.9872 / u["T"])
        for a, b in ((8.86, 20300), (24.25, 37400), (23.67, 33800), (18.75, 28200), (20.70, 31000))
    )
    both = x["kerogen"] * x["bitumen"]
    return {
        "kerogen": -k1 * x["kerogen"] - (k3 + k4 + k5) * both,
        "bitumen": k1 * x["kerogen"] - k2 * x["bitumen"] + k3 * both,
    }


@benchmark(
    start={
        "x1": 0.1883, "x2": 0.2507, "x3": 0.0467, "x4": 0.0899, "x5": 0.1804, "x6": 0.1394, "x7": 0.1046,
        "profit": 0.0,
    },
    controls={
        "u1": Continuous(0.0, 20.0),
        "u2": Continuous(0.0, 6.0),
        "u3": Continuous(0.0, 4.0),
        "u4": Continuous(0.0, 20.0),
    },
    horizon=0.2,
    final=lambda x, u: -x["profit"],
    source="T. Jensen (1964); R. Luus, Int. J. Control 52 (1990) 239; PROPT, Nonlinear CSTR",
    tests="eight states and four controls, some of them singular",
    reference=Reference(-21.8182049, 40, "many starts", published=-21.757),
)  # fmt: skip
def nonlinear_cstr(x: Settings, u: Settings) -> Settings:
    """Four simultaneous reactions in a stirred tank, one of them by light."""
    u1, u2, u3, u4 = u["u1"], u["u2"], u["u3"], u["u4"]
    q = u1 + u2 + u4
    r12, r23, r45, light = (
        x["x1"] * x["x2"], x["x2"] * x["x3"], x["x4"] * x["x5"], x["x1"] * x["x6"] * u3
    )  # fmt: skip
    return {
        "x1": u4 - q * x["x1"] - 17.6 * r12 - 23 * light,
        "x2": u1 - q * x["x2"] - 17.6 * r12 - 146 * r23,
        "x3": u2 - q * x["x3"] - 73 * r23,
        "x4": -q * x["x4"] + 35.2 * r12 - 51.3 * r45,
        "x5": -q * x["x5"] + 219 * r23 - 51.3 * r45,
        "x6": -q * x["x6"] + 102.6 * r45 - 23 * light,
        "x7": -q * x["x7"] + 46 * light,
        "profit": 5.8 * (q * x["x1"] - u4) - 3.7 * u1 - 4.1 * u2
        + q * (23 * x["x4"] + 11 * x["x5"] + 28 * x["x6"] + 35 * x["x7"]) - 5 * u3**2 - 0.099,
    }  # fmt: skip


# Rate constants as cubic polynomials of the share of the hydrogenation catalyst.
BLEND = (
    (0.2918487e-2, -0.8045787e-2, 0.6749947e-2, -0.1416647e-2),
    (0.9509977e1, -0.3500994e2, 0.4283329e2, -0.1733333e2),
    (0.2682093e2, -0.9556079e2, 0.1130398e3, -0.4429997e2),
    (0.2087241e3, -0.7198052e3, 0.8277466e3, -0.3166655e3),
    (0.1350005e1, -0.6850027e1, 0.1216671e2, -0.6666689e1),
    (0.1921995e-1, -0.7945320e-1, 0.1105666, -0.5033333e-1),
    (0.1323596, -0.4696255, 0.5539323, -0.2166664),
    (0.7339981e1, -0.2527328e2, 0.2993329e2, -0.1199999e2),
    (-0.3950534, 0.1679353e1, -0.1777829e1, 0.4974987),
    (-0.2504665e-4, 0.1005854e-1, -0.1986696e-1, 0.9833470e-2),
)


@benchmark(
    start={"x1": 1.0, "x2": 0.0, "x3": 0.0, "x4": 0.0, "x5": 0.0, "x6": 0.0, "x7": 0.0},
    controls={"blend": Continuous(0.6, 0.9)},
    horizon=2000.0,
    final=lambda x, u: -1000 * x["x7"],
    source="R. Luus, J. Dittrich, F. J. Keil, Can. J. Chem. Eng. 70 (1992) 780; PROPT, Bifunctional Catalyst",
    tests="stiff, with 300 local optima on ten intervals",
    reference=Reference(-10.0941644, 10, "published", published=-10.0942),
)
def bifunctional_catalyst(x: Settings, u: Settings) -> Settings:
    """A blend of two catalysts along a tube turns methylcyclopentane into benzene."""
    v = u["blend"]
    k1, k2, k3, k4, k5, k6, k7, k8, k9, k10 = (a + b * v + c * v**2 + d * v**3 for a, b, c, d in BLEND)
    return {
        "x1": -k1 * x["x1"],
        "x2": k1 * x["x1"] - (k2 + k3) * x["x2"] + k4 * x["x5"],
        "x3": k2 * x["x2"],
        "x4": -k6 * x["x4"] + k5 * x["x5"],
        "x5": k3 * x["x2"] + k6 * x["x4"] - (k4 + k5 + k8 + k9) * x["x5"] + k7 * x["x6"] + k10 * x["x7"],
        "x6": k8 * x["x5"] - k7 * x["x6"],
        "x7": k9 * x["x5"] - k10 * x["x7"],
    }


@benchmark(
    start={"protein": 0.0, "total": 0.0, "cells": 1.0, "substrate": 5.0, "volume": 1.0},
    controls={"feed": Continuous(0.0, 2.0)},
    horizon=15.0,
    final=lambda x, u: -x["protein"] * x["volume"],
    source="S. Park, W. F. Ramirez, AIChE J. 34 (1988) 1550; PROPT, Park-Ramirez Bioreactor",
    tests="singular arcs and an optimum 1e-4 above the best",
    reference=Reference(-32.6367657, 40, "many starts", published=-32.6867),
)
def park_ramirez(x: Settings, u: Settings) -> Settings:
    """Feed yeast so that it secretes most protein."""
    s, diluted = x["substrate"], u["feed"] / x["volume"]
    growth = 21.87 * s / ((s + 0.4) * (s + 62.5))
    expression = s * jnp.exp(-5 * s) / (0.1 + s)
    secretion = 4.75 * growth / (0.12 + growth)
    return {
        "protein": secretion * (x["total"] - x["protein"]) - diluted * x["protein"],
        "total": expression * x["cells"] - diluted * x["total"],
        "cells": growth * x["cells"] - diluted * x["cells"],
        "substrate": -7.3 * growth * x["cells"] + diluted * (20 - s),
        "volume": u["feed"],
    }


@benchmark(
    start={
        "volume": 1.0, "cells": 0.1, "nutrient": 40.0, "protein": 0.0, "inducer": 0.0, "shock": 1.0,
        "recovery": 0.0,
    },
    controls={"feed": Continuous(0.0, 1.0), "induction": Continuous(0.0, 1.0)},
    horizon=10.0,
    cost=lambda x, u: 5 * u["induction"],
    final=lambda x, u: -x["protein"] * x["volume"],
    source="J. Lee, W. F. Ramirez, AIChE J. 40 (1994) 899; PROPT, Lee-Ramirez Bioreactor",
    tests="seven states, two controls, an objective that is flat in both",
    reference=Reference(-5.56788441, 50, "published", published=-5.5678),
)  # fmt: skip
def lee_ramirez(x: Settings, u: Settings) -> Settings:
    """Feed and induce bacteria that make a foreign protein."""
    diluted, inducer = (u["feed"] + u["induction"]) / x["volume"], x["inducer"]
    uptake = x["nutrient"] / (14.35 + x["nutrient"] + x["nutrient"] ** 2 / 111.5)
    growth = uptake * (x["shock"] + 0.22 * x["recovery"] / (0.22 + inducer))
    expression = 0.233 * uptake * (0.0005 + inducer) / (0.022 + inducer)
    rate = 0.09 * inducer / (0.034 + inducer)
    return {
        "volume": u["feed"] + u["induction"],
        "cells": (growth - diluted) * x["cells"],
        "nutrient": 100 * u["feed"] / x["volume"] - diluted * x["nutrient"] - growth * x["cells"] / 0.51,
        "protein": expression * x["cells"] - diluted * x["protein"],
        "inducer": 4 * u["induction"] / x["volume"] - diluted * inducer,
        "shock": -rate * x["shock"],
        "recovery": rate * (1 - x["recovery"]),
    }


@benchmark(
    start={"cells": 1.0, "substrate": 150.0, "ethanol": 0.0, "volume": 10.0},
    controls={"feed": Continuous(0.0, 12.0, guess=3.0)},
    horizon=54.0,
    final=lambda x, u: -x["ethanol"] * x["volume"] / 1000,
    limits=(ends_below(200.0, lambda x, u: x["volume"]),),
    source="C. T. Chen, C. Hwang, Comput. Chem. Eng. 14 (1990); PROPT, Fed-batch Fermentor",
    tests="several optima, a limit at the end, numbers in thousands",
    reference=Reference(-20.4448566, 40, "", published=-20.3167),
)
def ethanol(x: Settings, u: Settings) -> Settings:
    """Feed yeast so that a tank of given size holds most ethanol."""
    cells, substrate, product, diluted = x["cells"], x["substrate"], x["ethanol"], u["feed"] / x["volume"]
    growth = 0.408 / (1 + product / 16) * substrate / (0.22 + substrate)
    making = 1 / (1 + product / 71.5) * substrate / (0.44 + substrate)
    return {
        "cells": (growth - diluted) * cells,
        "substrate": -10 * growth * cells + diluted * (150 - substrate),
        "ethanol": making * cells - diluted * product,
        "volume": u["feed"],
    }
