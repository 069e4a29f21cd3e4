"""What an own model does not say of itself: where it jumps, and where its error is no number."""

import jax.numpy as jnp
import numpy as np
import pytest

import optlearn as ol
from optlearn._control.compiled import Rollout, compile_problem
from optlearn._control.finish import derivatives_differ


class Linear(ol.LearningModel):
    """Least squares, judged by the squared error and by how often the output is large."""

    def loss(self, fields, x, latent, u):
        return (fields.student[0, 0] - fields.teacher[0, 0]) ** 2 / 2

    def metric(self, fields, x, latent, u):
        is_large = jnp.abs(fields.student[0, 0]) > 1
        return (fields.student[0, 0] - fields.teacher[0, 0]) ** 2 / 2 + jnp.where(is_large, 0.15, 0.0)


class Barred(Linear):
    """Judged by the squared error and a barrier: beyond Q11 = 1.2 there is no error."""

    def loss(self, fields, x, latent, u):
        return (fields.student[0, 0] - fields.teacher[0, 0] - fields.noise) ** 2 / 2

    def metric(self, fields, x, latent, u):
        return (fields.student[0, 0] - fields.teacher[0, 0]) ** 2 / 2 - 0.2 * jnp.log(1.2 - x.Q[0, 0])


def problem_of(kind, breaks=(), highest=1.5):
    model = kind(students=1, overlaps=ol.Overlaps(T=1.0), parameters={"learning_rate": 1.0}, breaks=breaks)
    controls = {"learning_rate": ol.Continuous(0, highest, guess=highest / 2)}
    start = model.state(Q11=0.3, M11=0.1)
    return ol.Problem(model=model, start=start, horizon=3, controls=controls, intervals=6)


DECLARED = tuple(ol.Break("student", 0, 0, at=place) for place in (-1.0, 1.0))


@pytest.mark.parametrize(("breaks", "wrong"), [((), True), (DECLARED, False)], ids=["undeclared", "declared"])
def test_derivatives_that_miss_a_jump_are_found(breaks, wrong):
    compiled = compile_problem(problem_of(Linear, breaks))
    assert (derivatives_differ(Rollout(compiled, 6, 4), np.full((6, 1), 0.75), np.zeros(0)) > 0.1) == wrong


def test_a_run_that_misses_a_jump_is_not_certified():
    # The solver is content where the derivative of the smooth part vanishes; the optimum is .5 % lower.
    with (
        pytest.warns(UserWarning, match="at the first guess the derivative of the objective differs by"),
        pytest.warns(ol.NotConvergedWarning, match=r"differs by .* from finite differences"),
    ):
        found = ol.solve(problem_of(Linear), starts=1)
    assert found.objective > 0.0734
    assert not found.certificate.converged


def test_an_error_that_is_no_number_where_no_training_leads():
    # Rules are chosen at states of which some are guesses, and lie beyond the barrier.
    found = ol.solve(problem_of(Barred, highest=0.4), starts=2)
    assert found.certificate.converged


class Misread(Linear):
    """Reads a teacher that is not there, which JAX would replace by the last one."""

    def loss(self, fields, x, latent, u):
        return (fields.student[0, 0] - fields.teacher[0, 1]) ** 2 / 2


def test_what_cannot_be_integrated_is_refused_before_the_search():
    told = []
    with pytest.raises(ol.SpecificationError, match=r"Misread.loss fails with IndexError: index 1 is out"):
        ol.solve(problem_of(Misread), progress=lambda report: told.append(str(report)))
    assert told == ["tracing the dynamics"]
