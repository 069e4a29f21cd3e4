"""Slips in a specification get a sentence that names what is wrong."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from optlearn import _errors as errors
from optlearn._dynamics.checks import check_problem
from optlearn._errors import SpecificationError, UnphysicalStateError
from optlearn._schedule import Schedule
from optlearn._theory.checks import check_start
from optlearn._theory.model import LearningModel
from optlearn._theory.order import OrderParameters, Overlaps
from optlearn._theory.sample import Break, Latents


class Plain(LearningModel):
    def loss(self, fields, x, latent, u):
        return jnp.sum((fields.teacher - fields.student) ** 2) / 2 * u["scale"]


def make(cls=Plain, **changes):
    arguments = {
        "students": 2,
        "overlaps": Overlaps(T=1.0),
        "parameters": {"learning_rate": 1.0, "scale": 1.0},
    }
    return cls(**{**arguments, **changes})


START = make().state(Q=np.eye(2))
CONSTANT = Schedule.constant(1.0, {"learning_rate": 0.5})


def check(model=None, start=START, schedule=CONSTANT, parameters=None):
    return check_problem(model or make(), start, schedule, parameters)


def test_a_good_problem_passes():
    start, settings = check(parameters={"scale": 3})
    assert settings["scale"] == 3.0
    assert settings["scale"].dtype == float
    np.testing.assert_array_equal(start.Q, np.eye(2))


def test_jax_and_integer_starts_become_float64_numpy():
    start = jax.tree.map(jnp.asarray, START)
    start = OrderParameters(np.eye(2, dtype=int), start.M, start.R, start.v, {})
    found = check_start(make(), start)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(found))
    assert found.Q.dtype == float


# --- the start ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"Q": np.eye(3)}, r"start: Q has shape \(3, 3\); the model needs \(2, 2\)"),
        ({"M": np.zeros(2)}, r"start: M has shape \(2,\); the model needs \(2, 1\)"),
        ({"R": np.zeros((2, 1))}, r"start: R has shape \(2, 1\)"),
        ({"v": np.zeros((2, 1))}, r"start: v has shape \(2, 1\)"),
        ({"extras": {"b": np.zeros(())}}, r"start: extras are \['b'\]; the model has \[\]"),
        ({"Q": np.array([[1, 0.2], [0.1, 1]])}, "start: Q must be symmetric"),
    ],
)
def test_wrong_shapes(values, message):
    parts = {"Q": START.Q, "M": START.M, "R": START.R, "v": START.v, "extras": {}, **values}
    with pytest.raises(SpecificationError, match=message):
        check(start=OrderParameters(**parts))


def test_start_of_the_wrong_type():
    with pytest.raises(SpecificationError, match=r"start must be OrderParameters .*, got float"):
        check(start=1.0)
    with pytest.raises(SpecificationError, match="model must be a System or LearningModel, got str"):
        check_problem("curriculum", START, CONSTANT)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"Q": [[-1.0, 0], [0, 1]]}, "at the start: Q11 = -1; a squared norm cannot be negative"),
        (
            {"Q": np.eye(2), "M21": 1.1},
            r"at the start: M21 = 1.1; its square 1.21 exceeds Q22·T11 = 1",
        ),
        (
            {"Q": [[1.0, 1.5], [1.5, 2.0]]},
            r"Q12 = 1.5; its square 2.25 exceeds Q11·Q22 = 2",
        ),
        # Each pair is possible, the three together are not.
        ({"Q": np.eye(2), "Q12": -0.5, "M": [[0.8], [0.8]]}, "Gram matrix has the negative eigenvalue"),
        ({"Q": np.eye(2), "M11": np.nan}, "M11 = nan; it is not finite"),
        ({"Q": np.eye(2), "Q22": np.inf}, "Q22 = inf; it is not finite"),
    ],
)
def test_unphysical_starts(values, message):
    with pytest.raises(UnphysicalStateError, match=message):
        check(start=make().state(**values))


def test_unphysical_overlap_with_a_centroid():
    model = make(overlaps=Overlaps(T=1.0, Omega=4.0), clusters=(1,))
    with pytest.raises(UnphysicalStateError, match=r"R11 = -3; .* exceeds Q11·Omega11 = 4"):
        check(model, model.state(Q=np.eye(2), R11=-3.0))


def test_names_of_unphysical_entries_from_ten_students_on():
    model = make(students=11)
    with pytest.raises(UnphysicalStateError, match=r"M11,1 = 2; .* exceeds Q11,11·T11 = 1"):
        check(model, model.state(Q=np.eye(11), **{"M11,1": 2.0}))


def test_rounding_is_no_error():
    check(start=make().state(Q=np.ones((2, 2)), M=np.full((2, 1), 1.0 + 1e-10)))


def test_a_start_outside_the_tracked_state():
    model = make(untracked={"Q12"})
    check(model, model.state(Q=np.eye(2)))
    with pytest.raises(SpecificationError, match=r"Q12 is 0\.3, but .* does not track it"):
        check(model, model.state(Q=np.eye(2), Q12=0.3))


# --- settings and schedules -----------------------------------------------------------------------


def test_unknown_names():
    with pytest.raises(
        SpecificationError, match=r"'noise', which Plain does not have; .* learning_rate, scale"
    ):
        check(schedule=Schedule.constant(1.0, {"noise": 0.5}))
    with pytest.raises(
        SpecificationError, match=r"Plain has no parameter 'noise'; it has learning_rate, scale"
    ):
        check(parameters={"noise": 0.5})


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_parameters_must_be_finite(value):
    with pytest.raises(SpecificationError, match=f"scale must be a finite number, got {value}"):
        check(parameters={"scale": value})


def test_parameters_keep_their_shape():
    model = make(parameters={"learning_rate": 1.0, "scale": 1.0, "shares": [0.5, 0.5]})
    assert check(model, parameters={"shares": [0.2, 0.8]})[1]["shares"][1] == 0.8
    np.testing.assert_array_equal(check(model, parameters={"shares": 0.7})[1]["shares"], [0.7, 0.7])
    with pytest.raises(SpecificationError, match=r"'shares' must have shape \(2,\) .*, got \(3,\)"):
        check(model, parameters={"shares": [0.2, 0.3, 0.5]})
    with pytest.raises(SpecificationError, match=r"'scale' must have shape \(\) .*, got \(2,\)"):
        check(model, parameters={"scale": [1.0, 2.0]})
    with pytest.raises(SpecificationError, match=r"'shares'.* is not one number"):
        check(model, schedule=Schedule.constant(1.0, {"shares": 0.5}))


class Drawn(Plain):
    def latents(self, u):
        return Latents.choice(jnp.stack([u["share"], 0.5 * jnp.ones(())]), kind=np.arange(2.0))


class DrawnInTest(Plain):
    def test_latents(self, u):
        return Latents.choice(jnp.stack([u["share"], 0.5 * jnp.ones(())]), kind=np.arange(2.0))


@pytest.mark.parametrize(("cls", "name"), [(Drawn, "latents"), (DrawnInTest, "test_latents")])
@pytest.mark.parametrize("share", [0.4, -0.5, 0.6])
def test_probabilities_must_add_up(cls, name, share):
    parameters = {"learning_rate": 1.0, "scale": 1.0, "share": 0.5}
    check(make(cls, parameters=parameters))
    with pytest.raises(SpecificationError, match=f"{name}: probabilities .* must be .* add up to 1"):
        check(make(cls, parameters=parameters), parameters={"share": share})
    # Also where only a part of the schedule is wrong.
    schedule = Schedule.piecewise([0, 1, 2, 3], {"share": [0.5, share, 0.5]})
    with pytest.raises(SpecificationError, match="add up to 1"):
        check(make(cls, parameters=parameters), schedule=schedule)


class NaNShare(Plain):
    def latents(self, u):
        return Latents.choice(jnp.sqrt(-jnp.ones(1)), kind=np.arange(1.0))


def test_nan_probabilities():
    with pytest.raises(SpecificationError, match=r"probabilities \[nan\]"):
        check(make(NaNShare))


class Variance(Plain):
    def variances(self, latent, u):
        return jnp.stack([u["scale"]])


class VarianceShape(Plain):
    def variances(self, latent, u):
        return jnp.ones(3)


def test_variances():
    check(make(Variance), parameters={"scale": 0.0})
    with pytest.raises(SpecificationError, match=r"Variance.variances are \[-0.1\].*cannot be neg"):
        check(make(Variance), parameters={"scale": -0.1})
    with pytest.raises(SpecificationError, match="cannot be negative"):
        check(make(Variance), schedule=Schedule.piecewise([0, 1, 2, 3], {"scale": [0.1, -0.1, 0.2]}))
    mixed = Schedule.mixed([0, 1], {"scale": {1.0: 0.9, -1.0: 0.1}})
    with pytest.raises(SpecificationError, match="cannot be negative"):
        check(make(Variance), schedule=mixed)
    with pytest.raises(SpecificationError, match=r"variances has shape \(3,\); .* the 1 slots"):
        check(make(VarianceShape))


# --- the loss -------------------------------------------------------------------------------------


class Vector(LearningModel):
    def loss(self, fields, x, latent, u):
        return fields.student[0]


class NaN(LearningModel):
    def loss(self, fields, x, latent, u):
        return jnp.log(-fields.student[0, 0])


class NaNMetric(Plain):
    def metric(self, fields, x, latent, u):
        return jnp.sqrt(-fields.student[0, 0])


def test_losses_must_be_one_finite_number():
    with pytest.raises(SpecificationError, match=r"Vector.loss returns an array of shape \(2,\)"):
        check(make(Vector))
    with pytest.raises(SpecificationError, match=r"NaN.loss is nan for student fields \[\[0.3, 0.4"):
        check(make(NaN))
    with pytest.raises(SpecificationError, match=r"NaNMetric.metric is nan"):
        check(make(NaNMetric))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda f: None, "Own.loss returns None; it must return one number"),
        (lambda f: (f.noise, f.noise), r"Own.loss returns a tuple of arrays .*; it must return one number"),
        (lambda f: f.student[0, 0] < 0, "Own.loss returns a number of type bool, which has no gradient"),
    ],
)
def test_losses_must_have_a_gradient(returned, message):
    kind = type("Own", (Plain,), {"loss": lambda self, fields, x, latent, u: returned(fields)})
    with pytest.raises(SpecificationError, match=message):
        check(make(kind))


# --- building a model -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"students": 0}, r"Plain: students must be a whole number of at least 1, got 0"),
        ({"students": 1.5}, r"Plain: students must be a whole number of at least 1, got 1.5"),
        ({"slots": 0}, r"Plain: slots must be a whole number of at least 1, got 0"),
        ({"heads": -1}, r"Plain: heads must be a whole number of at least 0, got -1"),
        ({"clusters": (1, 1)}, r"clusters=\(1, 1\)\): one count for each of the 1 slots"),
        ({"clusters": (2,)}, r"has 2 centroids in all, but Omega is 0 by 0"),
        ({"overlaps": Overlaps(T=1.0, Omega=1.0)}, r"has 0 centroids in all, but Omega is 1 by 1"),
        ({"redrawn": (1,)}, r"redrawn=\(1,\)\): slots from 0 to 0"),
        ({"redrawn": (0,)}, "at least one slot must be shared by the views"),
        ({"breaks": (Break("student", 0, 2),)}, "names a field that the model does not have"),
        ({"breaks": (Break("teacher", 1, 0),)}, "names a field that the model does not have"),
        ({"breaks": (Break("pupil", 0, 0),)}, "kind is 'student' or 'teacher'"),
        ({"breaks": (Break("teacher", 0, 0), Break("teacher", 0, 0))}, "a break is given twice"),
        ({"breaks": Break("teacher", 0, 0)}, r"breaks must be a list of ol.Break\(…\), got Break\(kind="),
        ({"breaks": [("teacher", 0, 0)]}, r"breaks must be a list of ol.Break\(…\), got \[\('teacher'"),
        ({"parameters": {"scale": 1.0}}, r"parameters must hold 'learning_rate'; got \['scale'\]"),
        ({"extras": ("b",)}, "parameters must hold 'b_rate'"),
        ({"running": ("Q11",)}, r"running=\('Q11',\)\): 'Q11' is taken"),
        ({"finite_size": True}, "parameters must hold 'N'"),
        ({"untracked": {"Q21"}}, r"untracked 'Q21' is none of Q11, Q12, Q22, M11, M21"),
        ({"extras": ("Q11",), "parameters": {"learning_rate": 1.0, "Q11_rate": 1.0}}, "Q11"),
    ],
)
def test_models_that_contradict_themselves(changes, message):
    with pytest.raises(SpecificationError, match=message):
        make(**changes)


def test_lists_are_as_good_as_tuples():
    model = make(overlaps=Overlaps(T=1.0, Omega=1.0), clusters=[1], breaks=[Break("teacher", 0, 0)])
    hash(jax.tree.structure(model))
    check(model, model.state(Q=np.eye(2)))


def test_a_model_without_a_loss_is_none():
    with pytest.raises(TypeError, match="loss"):
        make(LearningModel)


def test_an_error_survives_pickling():
    found = pickle.loads(pickle.dumps(errors.BudgetError("message")))
    assert str(found) == "message"
    assert found.__notes__ == [errors.explained("budgets")]
