"""The traced CasADi functions of a problem equal JAX: value, Jacobian and Hessian, on every model."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import casadi
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.marks import slow_but

import optlearn as ol
from optlearn import models
from optlearn._control.budgets import Budget
from optlearn._control.compiled import Rollout, compile_problem
from optlearn._control.controls import Continuous, Discrete, Free
from optlearn._control.objective import Objective
from optlearn._control.problem import Problem
from optlearn._control.runs import Start
from optlearn._control.solvers.direct import Direct
from optlearn._engine import build
from optlearn._engine.expansion import interval_functions
from optlearn._engine.tracing.trace import interpretations
from optlearn._theory.model import LearningModel

# Every function is compiled to run a few times only.
quick_jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def _effort(x: Any, u: Any) -> Any:
    return 0.1 * u["learning_rate"] ** 2 * (1 + x.Q[0, 0])


@dataclass(frozen=True)
class Traced:
    """A model, what is controlled and free in it, and the objective."""

    model: Callable[[], LearningModel]
    controls: dict[str, Any]
    free: dict[str, Free]
    objective: Objective = field(default_factory=lambda: Objective(final=0.7))

    def problem(self) -> Problem:
        model = self.model()
        start = model.layout.unflatten(random_states(model, 1)[0])
        return Problem(
            model=model,
            start=start,
            horizon=2.5,
            controls=self.controls,
            free=self.free,
            objective=self.objective,
        )


RATE, NOISE = Continuous(0.5, 2.0), Free(0.05, 0.5)
CURRICULUM = Traced(
    models.curriculum,
    {"difficulty": Discrete((0.5, 2.0)), "learning_rate": RATE},
    {"weight_decay": Free(0, 1)},
    Objective(final=0.7, average=0.4, cost=_effort, terminal=lambda x, u: x.Q[1, 1] ** 2),
)
TRACED = {
    "curriculum": CURRICULUM,
    "erf": Traced(
        lambda: models.committee(K=2, M=1, weight_decay=0.2),
        {"learning_rate": RATE},
        {"sigma_n": NOISE},
        Objective(final=0.0, average=1.0),
    ),
    "erf, dropout": Traced(
        lambda: models.committee(K=2, M=1, sigma_n=0.3, dropout=True),
        {"activation": Continuous(0.1, 0.9), "batch": Continuous(1, 4)},
        {"rescaling": Free(0.1, 0.9)},
    ),
    "linear": Traced(
        lambda: models.committee(K=2, M=1, activation="linear"),
        {"learning_rate": RATE},
        {"sigma_n": NOISE},
    ),
    "linear, dropout": Traced(
        lambda: models.committee(K=3, M=1, activation="linear", sigma_n=0.1, dropout=True),
        {"activation": Continuous(0.1, 0.9)},
        {"rescaling": Free(0.1, 0.9)},
    ),
    "heads": Traced(
        lambda: models.committee(K=2, M=1, heads=2, sigma_n=0.1, teacher_readout=[[1.0, -0.5]]),
        {"learning_rate": RATE, "readout_rate": RATE},
        {},
    ),
    "autoencoder": Traced(
        models.autoencoder, {"noise": Continuous(0.1, 0.9)}, {"learning_rate": Free(0.5, 2.0)}
    ),
    "augmented": Traced(
        lambda: models.autoencoder(trained_skip=False, augmentation=True, batch=4.0),
        {"batch": Continuous(1, 9)},
        {"test_noise": Free(0.1, 0.9)},
        Objective(average=0.5),
    ),
    "dropout, K=4, M=2": Traced(
        lambda: models.committee(K=4, M=2, sigma_n=0.3, dropout=True),
        {"activation": Continuous(0.1, 0.9)},
        {"rescaling": Free(0.1, 0.9)},
    ),
}

# JAX takes seconds for second derivatives of each.
QUICK = ("curriculum", "linear, dropout", "augmented")


def random_states(model: LearningModel, count: int, seed: int = 0) -> np.ndarray:
    """(count, n) flat states of random weights in a space of few dimensions."""
    rng = np.random.default_rng(seed)
    overlaps, K = model.overlaps, model.students
    fixed = np.block([[overlaps.T, overlaps.S], [overlaps.S.T, overlaps.Omega]])
    M, n = len(overlaps.T), len(fixed)
    given = np.pad(np.linalg.cholesky(fixed), ((0, 0), (0, K)))
    states = []
    for _ in range(count):
        weights = 0.5 * rng.normal(size=(K, n + K))
        if model.untracked:  # the curriculum: its second student is orthogonal to all else
            weights[0, -1], weights[1, :-1] = 0.0, 0.0
        across = weights @ given.T
        x = model.state(
            Q=weights @ weights.T,
            M=across[:, :M],
            R=across[:, M:],
            v=rng.normal(size=(K, model.heads)),
            **dict.fromkeys(model.extras, float(rng.uniform(0.1, 0.5))),
        )
        states.append(np.asarray(model.layout.flatten(x)))
    return np.array(states)


def random_controls(problem: Problem, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Relaxed controls (m,) and free parameters (k,) inside their bounds."""
    rng = np.random.default_rng(seed)
    w = [rng.uniform(c.lower, c.upper) for c in problem.continuous.values()]
    for control in problem.discrete.values():
        w += rng.dirichlet(np.ones(len(control.values)))[:-1].tolist()
    return np.array(w), np.array([rng.uniform(f.lower, f.upper) for f in problem.free.values()])


def jax_rate(problem: Problem) -> Callable[[Any], tuple[Any, Any]]:
    """(x, w, θ) joined → dx/dα and running cost, written anew from the model alone."""
    model, objective = problem.model, problem.objective
    n = model.layout.size

    def rate(y: Any) -> tuple[Any, Any]:
        x, settings, at = model.layout.unflatten(y[:n]), dict(problem.settings), n
        for name in problem.continuous:
            settings[name], at = y[at], at + 1
        branches = [(1.0, settings)]
        for name, control in problem.discrete.items():
            shares = [y[at + i] for i in range(len(control.values) - 1)]
            at += len(shares)
            shares.append(1.0 - sum(shares))
            branches = [
                (share * part, {**u, name: jnp.asarray(value)})
                for share, u in branches
                for part, value in zip(shares, control.values, strict=True)
            ]
        slope, cost = jnp.zeros(n), jnp.zeros(())
        for share, u in branches:
            u = {**u, **{name: y[at + i] for i, name in enumerate(problem.free)}}
            slope = slope + share * model.layout.flatten(model.drift(x, u))
            if objective.average:
                cost = cost + share * objective.average * model.error(x, u)
            if objective.cost is not None:
                cost = cost + share * objective.cost(x, u)
        return slope, cost / problem.horizon

    return rate


def jax_final(problem: Problem) -> Callable[[Any], Any]:
    """(x, θ) joined → final cost."""
    model, objective = problem.model, problem.objective
    n = model.layout.size

    def final(y: Any) -> Any:
        x = model.layout.unflatten(y[:n])
        u = problem.settings | {name: y[n + i] for i, name in enumerate(problem.free)}
        total = objective.final * model.error(x, u)
        return total if objective.terminal is None else total + objective.terminal(x, u)

    return final


def close(found: Any, wanted: Any) -> None:
    found, wanted = np.squeeze(np.array(found)), np.squeeze(np.asarray(wanted))
    assert found.shape == wanted.shape
    assert np.all(np.isfinite(wanted))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10 * max(1.0, np.abs(wanted).max()))


@pytest.mark.parametrize("name", slow_but(QUICK, TRACED))
def test_rate_value_jacobian_and_hessian_equal_jax(name: str) -> None:
    problem = TRACED[name].problem()
    compiled, rate = compile_problem(problem), jax_rate(problem)
    functions = compiled.engine
    c, x, w, theta = (
        casadi.SX.sym(n, functions.rate.size1_in(i)) for i, n in enumerate(("c", "x", "w", "t"))
    )
    y = casadi.vertcat(x, w, theta)
    slope, cost = functions.rate(c, x, w, theta, 1.0)
    joined = casadi.vertcat(slope, cost)
    jacobian = casadi.jacobian(joined, y)
    made = casadi.Function(
        "made",
        [c, x, w, theta],
        # (n + 1) q rows: the Hessians of all entries, as derivatives of the Jacobian's rows.
        [casadi.densify(v) for v in (joined, jacobian, casadi.jacobian(casadi.vec(jacobian.T), y))],
    )

    # Forward twice: one small program, which compiles faster than forward over reverse.
    def slope_and_jacobian(y: Any) -> tuple[Any, Any]:
        def value(y: Any) -> tuple[Any, Any]:
            both = jnp.append(*rate(y))
            return both, both

        jacobian, both = jax.jacfwd(value, has_aux=True)(y)
        return jacobian, (both, jacobian)

    reference = quick_jit(jax.jacfwd(slope_and_jacobian, has_aux=True))
    moved = 0.0
    for i, state in enumerate(random_states(problem.model, 3, seed=2)):
        controls, parameters = random_controls(problem, i)
        hessians, (value, first) = reference(np.concatenate([state, controls, parameters]))
        found = made(compiled.constants, state, controls, parameters)
        wanted = (value, first, np.reshape(hessians, (-1, hessians.shape[-1])))
        for mine, theirs in zip(found, wanted, strict=True):
            close(mine, theirs)
        moved = max(moved, float(np.abs(hessians).max()))
    assert moved > 1e-3  # the comparison is not of zeros


@pytest.mark.parametrize("name", slow_but(QUICK, TRACED))
def test_final_value_gradient_and_hessian_equal_jax(name: str) -> None:
    problem = TRACED[name].problem()
    if not problem.objective.final and problem.objective.terminal is None:
        pytest.skip("no final cost")
    compiled, final = compile_problem(problem), jax_final(problem)
    n = len(compiled.start)
    c = casadi.SX.sym("c", len(compiled.constants))
    x, theta = casadi.SX.sym("x", n), casadi.SX.sym("theta", len(problem.free))
    curvature, _ = casadi.hessian(compiled.engine.final(c, x, theta), casadi.vertcat(x, theta))
    made = casadi.Function("made", [c, x, theta], [casadi.densify(curvature)])

    @quick_jit
    def reference(y: Any) -> tuple[Any, Any, Any]:
        return final(y), jax.jacfwd(final)(y), jax.jacfwd(jax.jacfwd(final))(y)

    for i, state in enumerate(random_states(problem.model, 3, seed=3)):
        _, parameters = random_controls(problem, i)
        value, slope, hessian = reference(np.concatenate([state, parameters]))
        cost, by_state, by_free = compiled.engine.final_gradient(compiled.constants, state, parameters)
        close(cost, value)
        close(np.concatenate([np.array(by_state).ravel(), np.array(by_free).ravel()]), slope)
        close(made(compiled.constants, state, parameters), hessian)


def test_step_is_classical_runge_kutta() -> None:
    problem = CURRICULUM.problem()
    compiled = compile_problem(problem)
    rate = quick_jit(jax_rate(problem))
    (x,), (w, theta), h = random_states(problem.model, 1, 4), random_controls(problem, 4), 0.07

    def slope(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return rate(np.concatenate([x, w, theta]))

    k1, l1 = slope(x)
    k2, l2 = slope(x + h / 2 * k1)
    k3, l3 = slope(x + h / 2 * k2)
    k4, l4 = slope(x + h * k3)
    end, cost = compiled.engine.step(compiled.constants, x, w, theta, h)
    close(end, x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4))
    close(cost, h / 6 * (l1 + 2 * l2 + 2 * l3 + l4))
    value, total, _ = interval_functions(compiled.engine, 1).value(compiled.constants, x, w, theta, h)
    close(value, end)
    close(total, cost)


def test_hamiltonian_is_costate_times_slope_plus_cost() -> None:
    problem = CURRICULUM.problem()
    compiled = compile_problem(problem)
    (x,), (w, theta) = random_states(problem.model, 1, 5), random_controls(problem, 5)
    costate = np.array([0.3, -0.2, 0.5])

    def hamiltonian(w: np.ndarray) -> float:
        slope, cost = compiled.engine.rate(compiled.constants, x, w, theta, 1.0)
        return float(costate @ np.array(slope).ravel() + float(cost))

    H, slope, _ = compiled.engine.hamiltonians.expansion(compiled.constants, x, w, theta, 1.0, costate)
    close(H, hamiltonian(w))
    h = 1e-5
    wanted = [(hamiltonian(w + h * e) - hamiltonian(w - h * e)) / (2 * h) for e in np.eye(len(w))]
    np.testing.assert_allclose(np.array(slope).ravel(), wanted, atol=1e-8)
    assert np.abs(wanted).max() > 0.01


def test_changed_numbers_reuse_the_program() -> None:
    def problem(**values: float) -> Problem:
        model = models.curriculum(weight_decay=0.1)
        return Problem(
            model=model,
            start=model.state(Q11=values.pop("Q11", 1.0), Q22=1.0),
            horizon=values.pop("horizon", 3.0),
            controls={"difficulty": Discrete((0.0, values.pop("hard", 2.0)))},
            budgets=(Budget("difficulty", share={0.0: values.pop("share", 0.5)}),),
            parameters=values,
        )

    def run(problem: Problem) -> tuple[float, float]:
        compiled = compile_problem(problem)
        w = np.full((8, 1), 0.5)
        rollout = Rollout(compiled, 8, 1)
        found = Direct().shoot(rollout, Start("half", w, np.zeros(0)))
        return rollout.objective(w, np.zeros(0)), found.objective

    first = run(problem())
    engine = compile_problem(problem()).engine
    sizes = len(build._MADE), len(engine._made)
    assert sizes[1] > 0
    changes = [
        {"weight_decay": 0.3},
        {"learning_rate": 2.0},
        {"test_share": 0.8},
        {"Q11": 0.5},
        {"horizon": 4.0},
        {"hard": 1.0},
        {"share": 0.25},
    ]
    for change in changes:
        changed = problem(**change)
        assert compile_problem(changed).engine is engine
        found = run(changed)
        # The share moves the optimum only; the rollout has controls of its own.
        assert (abs(found[0] - first[0]) > 1e-4) == ("share" not in change), change
        assert abs(found[1] - first[1]) > 1e-4, change
        assert (len(build._MADE), len(engine._made)) == sizes, change
    with_other_values = compile_problem(problem().with_parameters(weight_decay=0.3))
    assert with_other_values.engine is engine
    assert run(with_other_values.problem) == run(problem(weight_decay=0.3))


class Cascade(ol.System):
    names = ("a", "b", "c")
    parameters = {"push": 0.5, "pull": 0.2, "side": 0.0}  # noqa: RUF012

    def drift(self, x, u):
        fed = u["push"] * x["a"]
        return {"a": u["side"] - fed, "b": fed - u["pull"] * x["b"] ** 2, "c": x["b"] - x["c"]}

    def error(self, x, u):
        return (x["c"] - 0.3) ** 2 + x["a"]


@pytest.mark.parametrize(
    "controls",
    [
        {"push": Continuous(0, 1)},
        {"pull": Discrete((0.0, 1.0))},
        # Mixed and pure values, in another order than the problem's.
        {"side": Continuous(0, 0.2), "push": Discrete((0.0, 0.5, 1.0))},
    ],
    ids=["continuous", "discrete", "both"],
)
def test_a_solve_traces_its_drift_once(controls):
    before = interpretations.copy()
    start = {"a": 1.0, "b": 0.2}
    problem = Problem(model=Cascade(), start=start, horizon=3.0, controls=controls, intervals=12)
    assert ol.solve(problem).certificate.converged
    drifts = {name: count for name, count in (interpretations - before).items() if name[1] == ((3,),)}
    assert list(drifts.values()) == [1]
