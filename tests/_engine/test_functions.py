import jax
import numpy as np

import optlearn as ol
from optlearn._engine.functions import FlatSystem
from optlearn._engine.tracing.trace import trace

CALLS = []


class Decay(ol.System):
    names = ("e",)
    parameters = {"rate": 1.0, "noise": 0.5}  # noqa: RUF012
    power: jax.Array

    def drift(self, x, u):
        CALLS.append("drift")
        return {"e": -u["rate"] * x["e"] ** self.power + u["noise"]}

    def error(self, x, u):
        return x["e"]

    def observables(self, x, u):
        return {"zeal": u["rate"], "age": u["noise"]}


def traced(flat, power, *vectors):
    system = Decay(np.asarray(power))
    settings = system.settings()
    return trace(flat.mixed_drift, system, settings, np.ones(1), *vectors).function()(
        [power], [settings["noise"], settings["rate"]], [2.0], *(v.ravel() for v in vectors)
    )


def test_drifts_of_one_structure_are_traced_once():
    flat = FlatSystem(Decay(np.ones(())), ("rate",))
    CALLS.clear()
    alone = traced(flat, 1.0, np.array([[3.0]]), np.ones(1))
    mixed = traced(flat, 2.0, np.array([[3.0], [1.0]]), np.array([0.25, 0.75]))
    assert CALLS == ["drift"]
    assert float(alone) == -3.0 * 2.0 + 0.5
    assert float(mixed) == -(0.25 * 3.0 + 0.75 * 1.0) * 4.0 + 0.5


def test_observables_keep_their_order():
    system = Decay(np.ones(()))
    found = FlatSystem(system, ("rate",)).outputs(system, system.settings(), np.ones(1), np.ones(1))
    assert list(found) == ["error", "zeal", "age"]
