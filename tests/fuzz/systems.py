"""Random systems of a few kinds. Coefficients are parameters, so that one compiled program serves a kind.

Rates are written for any array module: brute force asks them in NumPy, apart from everything that is tested.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

import optlearn as ol

ONE = ol.Continuous(0, 1)
BOTH_SIGNS = ol.Continuous(-1, 1)


class Fuzzed(ol.System):
    """What all have in common: one function ``rate`` and one ``cost``, of an array module."""

    def drift(self, x, u):
        return self.rate(jnp, x, u)

    def error(self, x, u):
        return self.cost(jnp, x, u)

    @staticmethod
    def cost(xp, x, u):
        return x["e"]

    @staticmethod
    def limited(xp, x, u):
        """What may have a limit at the end."""
        return x["f"]


class Quartic(Fuzzed):
    """A polynomial of the fourth degree in the control, which also damps."""

    names = ("e",)
    parameters = {"u": 0.0, "k": 1.0, "q": 0.0, "p1": 0.0, "p2": 0.0, "p3": 0.0, "p4": 0.0, "t": 0.0}  # noqa: RUF012

    @staticmethod
    def rate(xp, x, u):
        v, e = u["u"], x["e"]
        noise = u["p1"] * v + u["p2"] * v**2 + u["p3"] * v**3 + u["p4"] * v**4
        return {"e": -u["k"] * e + u["q"] * v * e + 0.5 + noise}

    @staticmethod
    def cost(xp, x, u):
        return (x["e"] - u["t"]) ** 2


class Waves(Fuzzed):
    """Many wells in the noise; linear in the state."""

    names = ("e",)
    parameters = {"u": 0.5, "a": 0.5, "w": 25.0, "f": 0.0, "b": 0.1, "c": 0.7}  # noqa: RUF012

    @staticmethod
    def rate(xp, x, u):
        return {
            "e": -x["e"] + 1 + u["a"] * xp.cos(u["w"] * u["u"] + u["f"]) + u["b"] * (u["u"] - u["c"]) ** 2
        }


class Narrow(Fuzzed):
    """Two wells, one of them narrow, of which the state chooses."""

    names = ("e",)
    parameters = {"u": 0.5, "a": 1.0, "c": 0.5, "s": 0.02, "g": 0.5, "d": 0.2, "r": 0.2, "b": 0.05}  # noqa: RUF012

    @staticmethod
    def rate(xp, x, u):
        v, e = u["u"], x["e"]
        wide = u["g"] * xp.exp(-(((v - u["d"]) / u["r"]) ** 2))
        narrow = u["a"] * xp.exp(-(((v - u["c"]) / u["s"]) ** 2)) * e / (1 + e)
        return {"e": -0.5 * e + 1 - wide - narrow + u["b"] * v}


class Valley(Fuzzed):
    """A tilted valley of two controls; linear in the state."""

    names = ("e",)
    parameters = {"a": 0.5, "b": 0.5, "k": 10.0, "m": 0.7, "c": 0.1, "d": 1.1}  # noqa: RUF012

    @staticmethod
    def rate(xp, x, u):
        a, b = u["a"], u["b"]
        return {"e": -x["e"] + u["k"] * (a - u["m"] * b - u["c"]) ** 2 + (a + b - u["d"]) ** 2 + 0.05}


class Saturating(Fuzzed):
    """Gain that saturates, at the price of noise."""

    names = ("e", "f")
    parameters = {"u": 0.5, "g": 2.0, "s": 0.3, "h": 0.5, "z": 0.2}  # noqa: RUF012

    @staticmethod
    def rate(xp, x, u):
        v, gain = u["u"], xp.tanh(u["g"] * u["u"])
        return {
            "e": -2 * gain * x["e"] + u["s"] * v**2 * (1 + x["e"]),
            "f": u["h"] * (x["e"] - x["f"]) - u["z"] * v * x["f"],
        }

    @staticmethod
    def cost(xp, x, u):
        return x["e"] + x["f"]


class Bistable(Fuzzed):
    """Two wells of the state, and a push from one to the other that has a price."""

    names = ("e",)
    parameters = {"u": 0.0, "b": 1.0, "d": 0.0, "t": 1.0, "w": 0.5, "price": 0.1}  # noqa: RUF012

    @staticmethod
    def rate(xp, x, u):
        return {"e": x["e"] - x["e"] ** 3 + u["b"] * u["u"] + u["d"]}

    @staticmethod
    def cost(xp, x, u):
        return (x["e"] ** 2 - u["t"]) ** 2 + u["w"] * x["e"] + 1

    @staticmethod
    def running(xp, x, u):
        return u["price"] * u["u"] ** 2


class Swing(Fuzzed):
    """A pendulum that is pushed towards a place, at rest."""

    names = ("e", "v")
    parameters = {"u": 0.0, "b": 1.0, "r": 0.1, "t": 2.0, "w": 1.0}  # noqa: RUF012

    @staticmethod
    def rate(xp, x, u):
        return {"e": x["v"], "v": -xp.sin(x["e"]) - u["r"] * x["v"] + u["b"] * u["u"]}

    @staticmethod
    def cost(xp, x, u):
        return (xp.cos(x["e"]) - xp.cos(u["t"])) ** 2 + 0.1 * u["w"] * x["v"] ** 2 + 0.01 * x["e"] + 1

    @staticmethod
    def limited(xp, x, u):
        return x["v"] ** 2


class Held(Swing):
    """The same, with a limit on the speed at the end."""


class Reactor(Fuzzed):
    """A becomes B becomes C at rates that a temperature raises; a second control adds A."""

    names = ("p", "q")
    parameters = {"a": 0.5, "b": 0.5, "k1": 2.0, "k2": 2.0, "n1": 1.0, "n2": 2.0, "m": 0.5}  # noqa: RUF012

    @staticmethod
    def rate(xp, x, u):
        first = u["k1"] * u["a"] ** u["n1"] * x["p"]
        return {
            "p": u["b"] * (1 - x["p"]) - first,
            "q": first - u["k2"] * u["a"] ** u["n2"] * x["q"] - u["m"] * u["b"] * x["q"],
        }

    @staticmethod
    def cost(xp, x, u):
        return 2 - x["q"]


class Batches(Fuzzed):
    """A learning rate and a batch size, the mean of which is given."""

    names = ("e",)
    parameters = {"a": 0.5, "b": 2.0, "s": 0.5, "k": 2.0, "g": 0.0}  # noqa: RUF012

    @staticmethod
    def rate(xp, x, u):
        a, e = u["a"], x["e"]
        return {"e": -u["k"] * a * e + a**2 * (u["g"] * e + (e + u["s"]) / u["b"])}


class Three(Fuzzed):
    """Three controls that depend on each other, with wells in one."""

    names = ("e",)
    parameters = {"a": 0.5, "b": 0.5, "c": 0.5, "l": 0.3, "m": 0.5, "n": 0.2, "w": 9.0, "k": 3.0}  # noqa: RUF012

    @staticmethod
    def rate(xp, x, u):
        a, b, c = u["a"], u["b"], u["c"]
        bowl = (a - u["l"]) ** 2 + u["k"] * (b**2 - u["m"] * a) ** 2 + (c * a - u["n"]) ** 2
        return {"e": -(1 + a * b - 0.5 * c) * x["e"] + bowl + 0.2 * xp.cos(u["w"] * c) + 0.3}


class Choices(Fuzzed):
    """A discrete control: each value feeds one state and starves another."""

    names = ("e", "f")
    parameters = {"u": 0.0, "a": 1.0, "b": 0.5, "c": 0.2, "d": 0.3, "r": 1.0}  # noqa: RUF012

    @staticmethod
    def rate(xp, x, u):
        v, e, f = u["u"], x["e"], x["f"]
        return {
            "e": -u["a"] * v * e + u["c"] * (1 - v) * f,
            "f": -u["b"] * (1 - v) ** 2 * f + u["d"] * v * e * f - u["r"] * v * (1 - v) * f,
        }

    @staticmethod
    def cost(xp, x, u):
        return x["e"] + x["f"]


class Capped(Saturating):
    """The same, with a limit on what the second state may become."""


Draw = Callable[..., float]


@dataclass(frozen=True)
class Kind:
    """Random problems of one kind.

    Attributes:
        model: the system.
        draw: coefficients, by a function (low, high) → number between.
        controls: name → control.
        intervals: of the grid.
        levels: of each control that a brute force tries.
        systems: how many.
        budget: control with a budget, on its mean, or on the share of its first value.
        sense: of the budget.
        limit: between which numbers the limit is drawn, if there is one.
        horizon: the longest.
        batched: are they also solved all at once?
        bounds: other kinds of bounds that are asked: "convex" of all systems, "hjb" and "sos" of the first.
    """

    model: type[Fuzzed]
    draw: Callable[[Draw], dict[str, float]]
    controls: dict[str, ol.Continuous | ol.Discrete]
    intervals: int
    levels: int
    systems: int
    budget: str | None = None
    sense: str = "equal"
    limit: tuple[float, float] | None = None
    horizon: float = 2.0
    batched: bool = False
    bounds: tuple[str, ...] = ()


def _cost(model: type[Fuzzed]) -> ol.Objective:
    running = getattr(model, "running", None)
    return ol.Objective() if running is None else ol.Objective(cost=Running(model))


@dataclass(frozen=True)
class Running:
    """The running cost of a kind."""

    model: type[Fuzzed]

    def __call__(self, x, u):
        return self.model.running(jnp, x, u)


@dataclass(frozen=True)
class Limited:
    """What a kind has a limit on."""

    model: type[Fuzzed]

    def __call__(self, x, u):
        return self.model.limited(jnp, x, u)


def problem(kind: Kind, seed: int) -> ol.Problem:
    """The problem of a kind that belongs to a seed."""
    generator = np.random.default_rng((seed, sum(map(ord, kind.model.__name__))))
    draw = lambda low, high: float(generator.uniform(low, high))  # noqa: E731
    parameters, names = kind.draw(draw), list(kind.model.names)
    controls, budgets = dict(kind.controls), ()
    if kind.budget is not None:
        control = controls[kind.budget]
        if control.values:
            share = generator.integers(1, kind.intervals) / kind.intervals
            budgets = (ol.Budget(kind.budget, share={control.values[0]: float(share)}, sense=kind.sense),)
        else:
            mean = control.lower + draw(0.2, 0.8) * (control.upper - control.lower)
            budgets = (ol.Budget(kind.budget, mean=mean, sense=kind.sense),)
    limits = ()
    if kind.limit is not None:
        limits = (ol.Limit(ol.Objective(final=0.0, terminal=Limited(kind.model)), draw(*kind.limit)),)
    return ol.Problem(
        model=kind.model(),
        start={name: draw(0.3, 1.5) for name in names},
        horizon=draw(0.5, 1.0) * kind.horizon,
        controls=controls,
        budgets=budgets,
        limits=limits,
        parameters=parameters,
        objective=_cost(kind.model),
        intervals=kind.intervals,
        name=f"{kind.model.__name__} {seed}",
    )


def _coefficients(**ranges: tuple[float, float]) -> Callable[[Draw], dict[str, float]]:
    return lambda draw: {name: draw(*limits) for name, limits in ranges.items()}


def _steep(draw: Draw) -> dict[str, float]:
    return {"k": 10 ** draw(0, 3), "m": draw(-1.5, 1.5), "c": draw(-0.3, 0.5), "d": draw(0, 2)}


QUARTIC = _coefficients(k=(0.3, 2), q=(-1, 1), p1=(-1, 1), p2=(-2, 2), p3=(-2, 2), p4=(-1, 3), t=(-0.5, 1))
WAVES = _coefficients(a=(0.1, 0.6), w=(2, 40), f=(0, 6), b=(0, 0.5), c=(0, 1))
NARROW = _coefficients(a=(0.2, 2), c=(0, 1), s=(0.01, 0.1), g=(0, 0.8), d=(0, 1), r=(0.1, 0.5), b=(-0.1, 0.1))
SATURATING = _coefficients(g=(0.5, 8), s=(0.1, 2), h=(0, 2), z=(0, 2))
BISTABLE = _coefficients(b=(0.3, 2), d=(-0.3, 0.3), t=(0.3, 1.2), w=(-1, 1), price=(0, 0.5))
SWING = _coefficients(b=(0.3, 1.5), r=(0, 0.3), t=(0, 3), w=(0, 2))
REACTOR = _coefficients(k1=(0.5, 6), k2=(0.5, 6), n1=(0.5, 2), n2=(1, 4), m=(0, 1))
BATCHES = _coefficients(s=(0.1, 2), k=(1, 3), g=(0, 0.5))
THREE = _coefficients(l=(0, 1), m=(0, 1.2), n=(0, 0.8), w=(1, 20), k=(0.3, 30))
CHOICES = _coefficients(a=(0.3, 2), b=(0.3, 2), c=(0, 1), d=(0, 2), r=(-1, 1))

KINDS = {
    "quartic": Kind(Quartic, QUARTIC, {"u": BOTH_SIGNS}, 3, 21, 44, bounds=("hjb", "sos")),
    "quartic-budget": Kind(Quartic, QUARTIC, {"u": BOTH_SIGNS}, 3, 41, 12, budget="u"),
    "waves": Kind(Waves, WAVES, {"u": ONE}, 2, 129, 44, bounds=("convex", "hjb")),
    "waves-at-most": Kind(
        Waves, WAVES, {"u": ONE}, 3, 25, 12, budget="u", sense="at most", bounds=("convex",)
    ),
    "narrow": Kind(Narrow, NARROW, {"u": ONE}, 2, 129, 36, horizon=3, bounds=("hjb",)),
    "valley": Kind(Valley, _steep, {"a": ONE, "b": ONE}, 2, 13, 36, batched=True, bounds=("convex",)),
    "saturating-budget": Kind(
        Saturating, SATURATING, {"u": ONE}, 3, 41, 40, budget="u", horizon=4, bounds=("hjb",)
    ),
    "capped": Kind(Capped, SATURATING, {"u": ONE}, 3, 33, 36, limit=(0.45, 0.75), horizon=4),
    "bistable": Kind(Bistable, BISTABLE, {"u": BOTH_SIGNS}, 4, 13, 36, horizon=4, bounds=("hjb",)),
    "swing": Kind(Swing, SWING, {"u": BOTH_SIGNS}, 4, 13, 36, horizon=6, batched=True),
    "held": Kind(Held, SWING, {"u": BOTH_SIGNS}, 4, 13, 24, limit=(0.01, 0.1), horizon=6),
    "reactor": Kind(
        Reactor, REACTOR, {"a": ol.Continuous(0.05, 1), "b": ONE}, 3, 6, 36, budget="b", sense="at most"
    ),
    "batches": Kind(
        Batches,
        BATCHES,
        {"a": ONE, "b": ol.Continuous(0.5, 8)},
        3,
        6,
        28,
        budget="b",
        horizon=3,
        batched=True,
    ),
    "three": Kind(Three, THREE, {"a": ONE, "b": ONE, "c": ONE}, 2, 5, 20),
    "choices": Kind(
        Choices, CHOICES, {"u": ol.Discrete((0.0, 0.5, 1.0))}, 6, 3, 32, horizon=4, bounds=("hjb",)
    ),
    "choices-share": Kind(
        Choices, CHOICES, {"u": ol.Discrete((0.0, 1.0))}, 8, 2, 36, budget="u", horizon=4, batched=True
    ),
}
