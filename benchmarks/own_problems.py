"""Problems whose models no module contains and that have no closed forms: what users write themselves."""

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


class Hinge(ol.LearningModel):
    """Hinge loss of a teacher's sign; the margin is a setting, and the kink moves with it."""

    def loss(self, fields, x, latent, u):
        return jax.nn.relu(u["margin"] - jnp.sign(fields.teacher[0, 0]) * fields.student[0, 0])

    def metric(self, fields, x, latent, u):
        return jnp.where(fields.teacher[0, 0] * fields.student[0, 0] < 0, 1.0, 0.0)


class ThreeLayers(ol.LearningModel):
    """Two erf units, three tanh units with biases, a linear output; the upper two layers share a rate."""

    def trained_rate(self, name, u):
        return u["upper_rate"]

    def loss(self, fields, x, latent, u):
        units = erf(fields.student[0] / np.sqrt(2))
        output = x.trained["readout"] @ jnp.tanh(x.trained["hidden"] @ units + x.trained["bias"])
        label = jnp.sum(erf(fields.teacher[0] / np.sqrt(2))) + u["sigma_n"] * fields.noise
        return (output - label) ** 2 / 2


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


def logistic() -> ol.Problem:
    """Learning rate and weight decay of a logistic regression from labels of which 15 % are wrong."""
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


def hinge() -> ol.Problem:
    """Learning rate and margin of the hinge loss."""
    model = Hinge(
        students=1,
        overlaps=ol.Overlaps(T=1.0),
        parameters={"learning_rate": 1.0, "margin": 1.0},
        breaks=(
            ol.Break("teacher", 0, 0),
            ol.Break("student", 0, 0),
            ol.Break("student", 0, 0, at="margin"),
            ol.Break("student", 0, 0, at="-margin"),
        ),
    )
    controls = {
        "learning_rate": ol.Continuous(0, 4, guess=1.0),
        "margin": ol.Continuous(0, 2, guess=1.0),
    }
    start = model.state(Q11=0.25, M11=0.05)
    return ol.Problem(model=model, start=start, horizon=10, controls=controls, intervals=20)


def three_layers() -> ol.Problem:
    """Learning rates of the first layer and of the two behind it."""
    weights = np.random.default_rng(3).standard_normal(12) * 0.5
    model = ThreeLayers(
        students=2,
        overlaps=ol.Overlaps(T=np.eye(2)),
        trained={"hidden": (3, 2), "bias": (3,), "readout": (3,)},
        parameters={"learning_rate": 1.0, "upper_rate": 0.5, "sigma_n": 0.1},
    )
    start = model.state(
        Q=[[0.5, 0.02], [0.02, 0.4]],
        M=[[0.1, 0.02], [0.03, 0.08]],
        hidden=weights[:6].reshape(3, 2),
        bias=weights[6:9],
        readout=weights[9:],
    )
    controls = {
        "learning_rate": ol.Continuous(0, 6, guess=1.0),
        "upper_rate": ol.Continuous(0, 6, guess=0.5),
    }
    return ol.Problem(model=model, start=start, horizon=20, controls=controls, intervals=20)


def softmax() -> ol.Problem:
    """Learning rate of two rows that attend to one of two tokens."""
    model = Softmax(students=2, slots=2, overlaps=ol.Overlaps(T=np.eye(2)), parameters={"learning_rate": 0.5})
    start = model.state(Q=0.2 * np.eye(2), M=0.1 * np.eye(2))
    controls = {"learning_rate": ol.Continuous(0, 2, guess=0.5)}
    return ol.Problem(model=model, start=start, horizon=10, controls=controls, intervals=20)


def relu_committee() -> ol.Problem:
    """Learning rate of three ReLU units that learn from two."""
    model = ReluCommittee(
        students=3,
        overlaps=ol.Overlaps(T=np.eye(2)),
        parameters={"learning_rate": 0.3},
        breaks=tuple(ol.Break(kind, 0, i) for kind, n in (("student", 3), ("teacher", 2)) for i in range(n)),
    )
    start = model.state(Q=0.3 * np.eye(3), M=[[0.1, 0.02], [0.03, 0.08], [0.05, 0.05]])
    controls = {"learning_rate": ol.Continuous(0, 1, guess=0.3)}
    return ol.Problem(model=model, start=start, horizon=10, controls=controls, intervals=20)
