"""What users' systems, models and states are made of."""

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from abc import abstractmethod

import cloudpickle
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import CallError
from optlearn._pytrees import Pytree, field


class Line(Pytree):
    slope: jax.Array = field(converter=np.asarray)
    name: str = field(static=True, default="line")

    def __call__(self, x):
        return self.slope * x


class Shifted(Line):
    shift: jax.Array = field(kw_only=True)

    def __call__(self, x):
        return super().__call__(x) + self.shift


class Written(Pytree):
    """With a constructor of its own, which subclasses inherit."""

    total: jax.Array
    count: int = field(static=True)

    def __init__(self, *parts):
        self.total = 0.0
        for part in parts:
            self.total = self.total + part
        self.count = len(parts)


class Further(Written):
    pass


def test_numbers_are_leaves_and_the_rest_is_structure():
    leaves, structure = jax.tree.flatten(Shifted(2.0, "b", shift=1.0))
    assert leaves == [2.0, 1.0]
    assert structure != jax.tree.structure(Shifted(2.0, "c", shift=1.0))
    assert [str(path) for path, _ in jax.tree.leaves_with_path(Shifted(2.0, shift=1.0))] == [
        "(GetAttrKey(name='slope'),)",
        "(GetAttrKey(name='shift'),)",
    ]


def test_jax_transforms_it():
    lines = Line(np.array([1.0, 2.0]))
    assert jax.vmap(lambda line: line(3.0))(lines).tolist() == [3.0, 6.0]
    assert jax.grad(lambda line: line(3.0))(Line(1.0)).slope == 3.0
    assert jax.jit(lambda line: line(3.0))(Shifted(2.0, shift=1.0)) == 7.0


def test_it_is_immutable():
    line = Line(1.0)
    for change in (lambda: setattr(line, "slope", 2.0), lambda: setattr(line, "other", 2.0)):
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign"):
            change()
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete"):
        del line.slope
    with pytest.raises(dataclasses.FrozenInstanceError):
        jax.tree.map(lambda x: x, line).slope = 2.0


def test_copies():
    line = Shifted(np.array([1.0, 2.0]), "b", shift=1.0)
    for other in (pickle.loads(pickle.dumps(line)), copy.deepcopy(line), jax.tree.map(jnp.asarray, line)):
        assert other == line
    changed = dataclasses.replace(line, shift=3.0)
    assert (changed.shift, changed.name) == (3.0, "b")
    assert changed != line


def test_equality_and_hashes():
    assert Line(1.0) == Line(1.0)
    assert Line(1.0) != Line(2.0)
    assert Line(np.ones(2)) != Line(np.ones(1))
    assert Line(1.0) != Line(1.0, "other")
    assert Line(1.0) != Shifted(1.0, shift=0.0)
    assert Line(1.0) != 1.0
    assert len({Further(1, 2), Further(1, 2), Further(3, 4)}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Line(np.ones(2)))


def test_a_constructor_may_be_written_and_is_inherited():
    assert (Further(1.0, 2.0).total, Further(1.0, 2.0).count) == (3.0, 2)

    class Forgetful(Pytree):
        slope: float

        def __init__(self):
            pass

    with pytest.raises(TypeError, match=r"Forgetful\.__init__ must set the field 'slope'"):
        Forgetful()


def test_fields_may_be_set_again_after_the_generated_constructor():
    class Doubled(Line):
        def __post_init__(self):
            self.slope = 2 * self.slope

    assert Doubled(1.5).slope == 3.0


def test_a_method_that_is_not_written_is_named():
    class Abstract(Pytree):
        @abstractmethod
        def value(self): ...

    with pytest.raises(TypeError, match="value"):
        Abstract()


def test_wrong_arguments_and_signature():
    with pytest.raises(TypeError, match="shift"):
        Shifted(1.0)
    assert list(inspect.signature(Shifted).parameters) == ["slope", "name", "shift"]


def test_repr_is_short():
    assert repr(Line(np.ones((3, 2)))) == "Line(slope=float64[3,2], name='line')"


def test_a_class_that_is_pickled_by_value_keeps_its_fields():
    class Local(ol.System):
        rate: jax.Array
        kind: str = field(static=True, default="x")
        names = ("e",)

        def drift(self, x, u):
            return {"e": -self.rate * x["e"]}

        def error(self, x, u):
            return x["e"]

    code = "import sys, cloudpickle, jax\nprint(jax.tree.leaves(cloudpickle.load(sys.stdin.buffer)))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=cloudpickle.dumps(Local(np.asarray(2.0))),
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode().strip() == "[array(2.)]"


def test_a_system_is_one():
    class Decay(ol.System):
        rate: jax.Array
        names = ("e",)
        parameters = {"noise": 0.0}  # noqa: RUF012

        def drift(self, x, u):
            return {"e": -self.rate * x["e"] + u["noise"]}

        def error(self, x, u):
            return x["e"]

    several = Decay(np.array([1.0, 2.0]))
    rates = jax.vmap(lambda system: system.drift({"e": 1.0}, {"noise": 0.5})["e"])(several)
    assert rates.tolist() == [-0.5, -1.5]
    assert Decay(1.0).layout.names == ("e",)


def test_systems_are_checked_when_they_are_made():
    class Nothing(ol.System):
        def error(self, x, u):
            return 0.0

    with pytest.raises(ol.SpecificationError, match="must define drift"):
        Nothing()


def test_an_unknown_argument_is_answered_with_those_that_exist() -> None:
    class Own(ol.LearningModel):
        def loss(self, fields, x, latent, u):  # type: ignore[no-untyped-def]
            return (fields.teacher[0, 0] - fields.student[0, 0]) ** 2 / 2

    with pytest.raises(CallError, match=r"Own: student must be one of .*; did you mean students\?"):
        Own(student=1)
