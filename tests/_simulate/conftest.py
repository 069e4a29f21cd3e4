"""One model with every feature at once, and the cases that both simulators are run on."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import pytest

from optlearn._schedule import Schedule
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters, Overlaps
from optlearn._theory.sample import Latents
from optlearn.models import FIG3_START, autoencoder, committee, curriculum


class Everything(LearningModel):
    """Two clusters with means and widths of their own, a mask, a readout, a loss that reads Q₁₂.

    The first slot has clusters, the second is noise around zero; the first is read by all, of the second
    only one field. The loss reads Q₁₂ but not Q₂₁, so gradients by Q must be symmetrised.
    """

    def loss(self, fields, x, latent, u):
        hidden = jax.scipy.special.erf(fields.student[0] / jnp.sqrt(2.0)) * latent["mask"]
        output = x.v[:, 0] @ hidden + 0.3 * fields.student[1, 0] * hidden[1]
        label = jnp.tanh(fields.teacher[0, 0]) + u["sigma_n"] * fields.noise
        coupling = 0.2 * x.Q[0, 1] * hidden[0] * hidden[1]
        return (label - output) ** 2 / 2 + coupling

    def penalty(self, x, u):
        return u["decay"] * (x.Q[0, 0] + x.Q[1, 1] + x.Q[0, 1] + jnp.sum(x.v**2)) / 2

    def latents(self, u):
        masks = Latents.masks("mask", 2, u["activation"])
        return Latents.clusters((2, 0), jnp.asarray([0.3, 0.7])).times(masks)

    def variances(self, latent, u):
        del u
        wide = latent["cluster"][0] == 1
        return jnp.stack([jnp.where(wide, 1.2, 0.6), jnp.asarray(0.5)])

    def closed_error(self, x, u):
        return jnp.sum(x.Q * x.Q) + u["sigma_n"]  # any number: a quadrature for each seed takes long


def everything():
    overlaps = Overlaps(T=1.0, S=[[0.3, -0.2]], Omega=[[1.1, 0.2], [0.2, 0.8]])
    parameters = {
        "learning_rate": 0.9,
        "readout_rate": 0.5,
        "batch": 1.0,
        "sigma_n": 0.2,
        "decay": 2.0,  # strong, so that products of the pull with other terms matter
        "activation": 0.8,
    }
    return Everything(students=2, slots=2, clusters=(2, 0), heads=1, overlaps=overlaps, parameters=parameters)


@dataclass(frozen=True)
class Case:
    """What to simulate; whether a theory's curve is cheap to have; whether single steps are checked."""

    name: str
    model: LearningModel
    schedule: Schedule
    start: OrderParameters
    parameters: dict = field(default_factory=dict)
    theory: bool = True
    one_step: bool = False


def cases():
    model = everything()
    start = model.state(
        Q=[[0.6, 0.2], [0.2, 0.5]], M=[[0.2], [0.1]], R=[[0.3, 0.1], [0.0, 0.2]], v=[[0.7], [0.5]]
    )
    schedule = Schedule.piecewise([0, 0.3, 1], {"sigma_n": [0.2, 0.5], "batch": [1, 3]})
    yield Case("everything, batch of 3", model, schedule, start, theory=False, one_step=True)

    model = curriculum(weight_decay=0.3)
    mixed = Schedule.mixed([0, 0.5, 1], {"difficulty": {0.0: [0.3, 0.9], 2.0: [0.7, 0.1]}})
    yield Case("mixture", model, mixed, model.state(Q11=1, Q22=1, M11=0.2))

    model = committee(sigma_n=0.3, dropout=True, activation_probability=0.7)
    real = Schedule.piecewise([0, 0.5, 1], {"batch": [1.0, 2.5]})
    parameters = {"learning_rate": 2.0}
    name = "dropout, zero start, batch of 2.5"
    yield Case(name, model, real, model.state(), parameters, one_step=True)

    model = committee(M=2, heads=2, sigma_n=0.1, eta=1.5, readout_rate=0.5)
    start = model.state(Q11=0.4, Q22=0.3, M11=0.1, v=[[0.5, 0.1], [0.2, 0.6]])
    yield Case("trained heads", model, Schedule.constant(1.0, {}), start)

    for name, batch in (("augmentation, batch of 3", 3), ("augmentation, batch of 2.5", 2.5)):
        model = autoencoder(sigma=(0.5, 0.3), N=100, augmentation=True, finite_size=True)
        schedule = Schedule.piecewise([0, 0.5, 0.8], {"batch": [batch, 1.5], "noise": [0.2, 0.4]})
        parameters = {"learning_rate": 2.0, "b_rate": 1.0}
        start = model.state(**FIG3_START, b=0.1)
        yield Case(name, model, schedule, start, parameters, one_step=batch == 2.5)


CASES = list(cases())
# Compiling these takes longest; each feature of theirs is in another case too, or in a test of one step.
LONG = {
    "everything, batch of 3", "augmentation, batch of 2.5", "augmentation, batch of 3",
    "dropout, zero start, batch of 2.5", "trained heads",
}  # fmt: skip


@pytest.fixture(
    params=[
        pytest.param(case, id=case.name, marks=[pytest.mark.slow] if case.name in LONG else [])
        for case in CASES
    ]
)
def case(request):
    return request.param
