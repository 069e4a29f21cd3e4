"""A slip gets a sentence that names it; a run that diverges says which number, seed and time."""

import dataclasses
import re

import jax.numpy as jnp
import numpy as np
import pytest

from optlearn._errors import SpecificationError, UnphysicalStateError
from optlearn._schedule import Schedule
from optlearn._simulate.run import simulate
from optlearn._theory.model import LearningModel
from optlearn._theory.order import Overlaps
from optlearn._theory.sample import Latents
from optlearn.models import autoencoder, committee, curriculum

MODEL = curriculum()
START = MODEL.state(Q11=1, Q22=1)
SCHEDULE = Schedule.constant(1.0, {"difficulty": 1.0})


class Broken(LearningModel):
    """A model with one thing wrong, chosen by its parameter."""

    def loss(self, fields, x, latent, u):
        if "shape" in u:
            return fields.student[0] ** 2
        return jnp.sum(fields.student) ** 2 / u["divisor"] - u["divisor"] / u["divisor"]

    def latents(self, u):
        return Latents.choice(jnp.stack([u["share"], jnp.asarray(0.5)]), kind=np.zeros(2))

    def variances(self, latent, u):
        return jnp.stack([u["variance"]])


def broken(**changes):
    parameters = {"learning_rate": 1.0, "share": 0.5, "variance": 1.0, "divisor": 1.0} | changes
    return Broken(students=2, overlaps=Overlaps(T=1.0), parameters=parameters)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "weight"}, "mode must be one of overlaps, weights, got 'weight'"),
        ({"seeds": 0}, "seeds must be a whole number of at least 1, got 0"),
        ({"seeds": 2.5}, "seeds must be a whole number, got 2.5"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"N": -3}, "N must be a whole number of at least 1, got -3"),
        ({"N": 30.0}, "N must be a whole number, got 30.0"),
        ({"N": True}, "N must be a whole number, got True"),
        (
            {"N": 4},
            "N=4 is too small: the Gram matrix is 3 by 3 (students, teachers and centroids) and a "
            "step draws 2 input vectors; N must be at least 5",
        ),
        ({"dtype": "float32"}, "dtype must be 'float64' in mode 'overlaps', got 'float32'"),
        ({"dtype": "int8", "mode": "weights"}, "in mode 'weights', got 'int8'"),
        ({"dtype": "half-baked"}, "got 'half-baked'"),
        ({"record": 1}, "record must be at least 2 times, start and end, got 1"),
        ({"record": []}, "record must be a number of times, or training times α, got []"),
        ({"record": [0.0, 1.5]}, "from 0 to 1"),
        ({"record": [0.5, 0.2]}, "in order"),
        ({"start": None}, "start is missing"),
        ({"parameters": {"eta": 2.0}}, "no parameter 'eta'"),
    ],
)
def test_arguments(changes, message):
    arguments = {"start": START, "N": 100} | changes
    with pytest.raises(SpecificationError, match=re.escape(message)):
        simulate(MODEL, SCHEDULE, **arguments)


def test_batches_and_augmentation_need_a_larger_N():
    model = committee(batch=5.5)
    with pytest.raises(SpecificationError, match="draws 6 input vectors; N must be at least 9"):
        simulate(model, Schedule.constant(1.0, {}), start=model.state(), N=8)
    model = autoencoder(augmentation=True, batch=3)
    with pytest.raises(SpecificationError, match="draws 4 input vectors; N must be at least 8"):
        simulate(model, Schedule.constant(1.0, {}), start=model.state(), N=7)


def test_a_batch_below_one():
    model = committee()
    schedule = Schedule.piecewise([0, 1, 2], {"batch": [1.0, 0.5]})
    with pytest.raises(SpecificationError, match="batch must be at least 1, got"):
        simulate(model, schedule, start=model.state(), N=50)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (broken(share=0.6), "add up to 1"),
        (broken(variance=-0.1), "variance cannot be negative"),
        (broken(shape=1.0), r"shape \(2,\)"),
        (broken(divisor=0.0), "must be finite"),
    ],
)
def test_models(model, message):
    with pytest.raises(SpecificationError, match=message):
        simulate(model, Schedule.constant(1.0, {}), start=model.state(), N=50)


def test_an_unknown_control():
    with pytest.raises(SpecificationError, match="'dificulty'"):
        simulate(MODEL, Schedule.constant(1.0, {"dificulty": 1.0}), start=START, N=50)


@pytest.mark.parametrize("values", [{"Q11": 1.0, "M11": 1.5}, {"Q11": -1.0}])
def test_a_start_that_no_weights_have(values):
    with pytest.raises((SpecificationError, UnphysicalStateError), match=r"M11|Q11"):
        simulate(MODEL, SCHEDULE, start=MODEL.state(**values), N=50)


def test_a_start_of_another_shape():
    start = dataclasses.replace(START, M=np.zeros((2, 3)))
    with pytest.raises(SpecificationError, match="M has shape"):
        simulate(MODEL, SCHEDULE, start=start, N=50)


@pytest.mark.parametrize("mode", ["overlaps", "weights"])
def test_a_run_that_diverges(mode):
    model = committee(activation="linear", eta=200.0)
    start = model.state(Q11=1, Q22=1)
    with pytest.raises(UnphysicalStateError, match=r"Q11 of seed \d is \S+ at α = \d.*diverged"):
        simulate(model, Schedule.constant(50.0, {}), start=start, N=20, seeds=3, mode=mode)
