"""Carts, oscillators, aircraft: motion under forces."""

import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Settings
from optlearn._control.controls import Continuous
from optlearn._control.path import Path
from optlearn.benchmarks._benchmark import Reference, benchmark, ends, ends_below


@benchmark(
    start={"place": 1.0, "speed": 0.0},
    controls={"push": Continuous(-10.0, 10.0)},
    horizon=1.0,
    cost=lambda x, u: u["push"] ** 2,
    limits=(
        ends(0.0, lambda x, u: x["place"]),
        ends(0.0, lambda x, u: x["speed"]),
    ),
    source="A. E. Bryson, Y.-C. Ho, Applied Optimal Control (1975)",
    tests="two numbers given at the end",
    reference=Reference(12 / (1 - 100**-2), 100, "exact", published=12.0),
)
def cart_to_rest(x: Settings, u: Settings) -> Settings:
    """A cart comes to rest at 0 with least effort."""
    return {"place": x["speed"], "speed": u["push"]}


@benchmark(
    start={"place": 1.0, "speed": 0.0},
    controls={"push": Continuous(-10.0, 10.0)},
    horizon=1.0,
    cost=lambda x, u: u["push"] ** 2,
    limits=(ends_below(0.0, lambda x, u: x["place"]), ends_below(0.0, lambda x, u: -x["speed"])),
    source="A. E. Bryson, Y.-C. Ho, Applied Optimal Control (1975)",
    tests="inequalities at the end whose limit is 0",
    reference=Reference(12 / (1 - 100**-2), 100, "exact", published=12.0),
)
def cart_one_sided(x: Settings, u: Settings) -> Settings:
    """The same cart must pass 0 and not move on."""
    return {"place": x["speed"], "speed": u["push"]}


@benchmark(
    start={"place": 0.0, "speed": 1.0},
    controls={"push": Continuous(-20.0, 20.0)},
    horizon=1.0,
    cost=lambda x, u: u["push"] ** 2 / 2,
    limits=(
        ends(0.0, lambda x, u: x["place"]),
        ends(-1.0, lambda x, u: x["speed"]),
    ),
    paths=(Path("place", at_most=1 / 9),),
    source="A. E. Bryson, W. F. Denham, S. E. Dreyfus, AIAA Journal 1 (1963) 2544; COPS, PSOPT",
    tests="a limit on the state that is touched for a while",
    reference=Reference(4.00015625, 240, "convex", published=4.0),
)
def bryson_denham(x: Settings, u: Settings) -> Settings:
    """Turn a cart round before a wall."""
    return {"place": x["speed"], "speed": u["push"]}


@benchmark(
    start={"place": 0.0, "speed": 0.0},
    controls={"push": Continuous(-1.0, 1.0)},
    horizon=2.0,
    final=lambda x, u: -x["place"],
    limits=(ends(0.0, lambda x, u: x["speed"]),),
    source="D. E. Kirk, Optimal Control Theory (1970); PROPT, Rocket Sled",
    tests="bang-bang",
    reference=Reference(-1.0, 100, "exact", published=-1.0),
)
def farthest_rest(x: Settings, u: Settings) -> Settings:
    """As far as possible within a given time, and at rest."""
    return {"place": x["speed"], "speed": u["push"]}


@benchmark(
    start={"place": 0.01, "speed": 0.0},
    controls={"push": Continuous(-1.0, 1.0)},
    horizon=1.0,
    cost=lambda x, u: x["place"] ** 2,
    limits=(
        ends(0.01, lambda x, u: x["place"]),
        ends(0.0, lambda x, u: x["speed"]),
    ),
    source="A. T. Fuller (1961); mintoc, Fuller's problem",
    tests="infinitely many switches in finite time, an objective near 0",
    reference=Reference(1.52887986e-05, 100, "convex", published=1.52845e-5),
)
def fuller(x: Settings, u: Settings) -> Settings:
    """Chattering to and from 0."""
    return {"place": x["speed"], "speed": u["push"]}


@benchmark(
    start={"x": 1.0},
    controls={"u": Continuous(-2.0, 2.0)},
    horizon=1.0,
    cost=lambda x, u: (u["u"] ** 2 + x["x"] * u["u"] + 1.25 * x["x"] ** 2) / 2,
    source="W. W. Hager, Numer. Math. 87 (2000) 247",
    tests="linear-quadratic, with a closed form",
    reference=Reference(
        0.380800926, 100, "convex", published=float(np.exp(2) * np.sinh(2) / (1 + np.exp(2)) ** 2)
    ),
)
def hager(x: Settings, u: Settings) -> Settings:
    """Linear dynamics, quadratic cost."""
    return {"x": x["x"] / 2 + u["u"]}


@benchmark(
    start={"x": 0.0, "y": 1.0},
    controls={"u": Continuous(-0.3, 1.0)},
    horizon=5.0,
    cost=lambda x, u: x["x"] ** 2 + x["y"] ** 2 + u["u"] ** 2,
    source="V. S. Vassiliadis, R. W. H. Sargent, C. C. Pantelides, Ind. Eng. Chem. Res. 33 (1994) 2123",
    tests="smooth, with an active bound",
    reference=Reference(2.86778066, 100, "many starts", published=2.8673),
)
def van_der_pol(x: Settings, u: Settings) -> Settings:
    """Damp an oscillator that drives itself."""
    return {"x": (1 - x["y"] ** 2) * x["x"] - x["y"] + u["u"], "y": x["x"]}


@benchmark(
    start={"x": -5.0, "y": -5.0},
    controls={"u": Continuous(-10.0, 10.0)},
    horizon=2.5,
    cost=lambda x, u: u["u"] ** 2 + x["x"] ** 2,
    source="D. H. Jacobson, D. Q. Mayne, Differential Dynamic Programming (1970); mintoc, Rayleigh",
    tests="nonlinear, smooth",
    reference=Reference(29.3810130, 100, "many starts", published=29.37609),
)
def rayleigh(x: Settings, u: Settings) -> Settings:
    """Damp a tunnel-diode oscillator."""
    return {"x": x["y"], "y": -x["x"] + x["y"] * (1.4 - 0.14 * x["y"] ** 2) + 4 * u["u"]}


@benchmark(
    start={"x": 1.5},
    controls={"u": Continuous(-5.0, 5.0)},
    horizon=40.0,
    cost=lambda x, u: (x["x"] ** 2 + u["u"] ** 2) / 2,
    limits=(ends(1.0, lambda x, u: x["x"]),),
    source="A. V. Rao, K. D. Mease, Automatica 35 (1999) 633",
    tests="boundary layers at both ends of a long time",
    reference=Reference(1.34322155, 200, "many starts", published=1.3308),
)
def hypersensitive(x: Settings, u: Settings) -> Settings:
    """Nothing happens but at the ends."""
    return {"x": -(x["x"] ** 3) + u["u"]}


@benchmark(
    start={"r": 1.0, "out": 0.0, "along": 1.0, "t": 0.0},
    controls={"angle": Continuous(-1.0, 7.0, guess=1.0)},
    horizon=3.32,
    final=lambda x, u: -x["r"],
    limits=(
        ends(0.0, lambda x, u: x["out"]),
        ends(0.0, lambda x, u: x["along"] - x["r"] ** -0.5),  # the speed on a circle
    ),
    source="A. E. Bryson, Y.-C. Ho, Applied Optimal Control (1975), section 2.5",
    tests="an angle as control, a curved end",
    reference=Reference(-1.5252098, 60, "published", published=-1.5253),
)
def orbit_raising(x: Settings, u: Settings) -> Settings:
    """A spacecraft reaches the widest circular orbit by a small thrust."""
    thrust = 0.1405 / (1 - 0.0749 * x["t"])
    return {
        "r": x["out"],
        "out": x["along"] ** 2 / x["r"] - x["r"] ** -2 + thrust * jnp.sin(u["angle"]),
        "along": -x["out"] * x["along"] / x["r"] + thrust * jnp.cos(u["angle"]),
        "t": 1.0,
    }


@benchmark(
    start={"x": 0.0, "y": 0.0, "v": 0.0},
    controls={"angle": Continuous(-1.5, 1.5)},
    horizon=2.0,
    final=lambda x, u: -x["x"],
    limits=(ends(0.1, lambda x, u: x["y"]),),
    source="A. E. Bryson, Dynamic Optimization (1999); PROPT, Bryson Maxrange",
    tests="an angle as control, smooth",
    reference=Reference(-1.71220362, 100, "many starts", published=-1.712316),
)
def max_range(x: Settings, u: Settings) -> Settings:
    """Farthest flight with a thrust of half the weight, at a given height."""
    return {
        "x": x["v"] * jnp.cos(u["angle"]),
        "y": x["v"] * jnp.sin(u["angle"]),
        "v": 0.5 - jnp.sin(u["angle"]),
    }


@benchmark(
    start={"cart": 0.0, "pole": 0.0, "cart_speed": 0.0, "pole_speed": 0.0},
    controls={"push": Continuous(-20.0, 20.0)},
    horizon=2.0,
    cost=lambda x, u: u["push"] ** 2,
    limits=(
        ends(1.0, lambda x, u: x["cart"]),
        ends(np.pi, lambda x, u: x["pole"]),
        ends(0.0, lambda x, u: x["cart_speed"]),
        ends(0.0, lambda x, u: x["pole_speed"]),
    ),
    source="M. Kelly, SIAM Review 59 (2017) 849",
    tests="strongly nonlinear, many optima, four numbers given at the end",
    reference=Reference(58.3394768, 50, "many starts"),
)
def cart_pole(x: Settings, u: Settings) -> Settings:
    """Swing a pole up by pushing its cart."""
    m1, m2, length, g = 1.0, 0.3, 0.5, 9.81
    sine, cosine, push, spin = jnp.sin(x["pole"]), jnp.cos(x["pole"]), u["push"], x["pole_speed"] ** 2
    mass = m1 + m2 * sine**2
    return {
        "cart": x["cart_speed"],
        "pole": x["pole_speed"],
        "cart_speed": (length * m2 * sine * spin + push + m2 * g * cosine * sine) / mass,
        "pole_speed": -(length * m2 * cosine * sine * spin + push * cosine + (m1 + m2) * g * sine)
        / (length * mass),
    }


@benchmark(
    start={"height": 1.0, "length": 0.0},
    controls={"slope": Continuous(-10.0, 20.0, guess=2.0)},
    horizon=1.0,
    cost=lambda x, u: x["height"] * jnp.sqrt(1 + u["slope"] ** 2),
    limits=(
        ends(3.0, lambda x, u: x["height"]),
        ends(4.0, lambda x, u: x["length"]),
    ),
    source="E. D. Dolan, J. J. Moré, T. S. Munson, COPS 3.0 (2004), problem 4",
    tests="an integral that is given",
    reference=Reference(5.06850556, 100, "many starts", published=5.06848),
)
def hanging_chain(x: Settings, u: Settings) -> Settings:
    """The shape of a chain of given length between two points."""
    return {"height": u["slope"], "length": jnp.sqrt(1 + u["slope"] ** 2)}


@benchmark(
    start={"a": 0.4655, "b": 0.0, "c": 0.0},
    controls={"w": Continuous(-0.05236, 0.05236)},
    horizon=3.78086,
    final=lambda x, u: x["a"] ** 2 + x["b"] ** 2 + x["c"] ** 2,
    source="W. L. Garrard, J. M. Jordan, Automatica 13 (1977) 497; mintoc, F-8 aircraft",
    tests="two optima, the lower of which is 0 and hard to reach",
    reference=Reference(8.36457e-08, 60, "exact", size=0.0217),
)
def f8(x: Settings, u: Settings) -> Settings:
    """An F-8 aircraft comes back from an angle of attack at which it stalls."""
    a, b, c, w = x["a"], x["b"], x["c"], u["w"]
    return {
        "a": -0.877 * a + c - 0.088 * a * c + 0.47 * a**2 - 0.019 * b**2 - a**2 * c + 3.846 * a**3
        - 0.215 * w + 0.28 * a**2 * w + 0.47 * a * w**2 + 0.63 * w**3,
        "b": c,
        "c": -4.208 * a - 0.396 * c - 0.47 * a**2 - 3.564 * a**3
        - 20.967 * w + 6.265 * a**2 * w + 46 * a * w**2 + 61.4 * w**3,
    }  # fmt: skip
