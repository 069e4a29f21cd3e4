"""Numbers that are right, or say that they are not: problems that are stiff, tiny, divergent or inexact."""

import time
import warnings
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

import optlearn as ol
from optlearn._control.certificate import Starts, limits
from optlearn._control.compiled import Rollout, compile_problem
from optlearn._control.solution import NotConvergedWarning
from optlearn._engine.integrate import integrate
from optlearn._errors import RunawayError, SpecificationError, UnphysicalStateError
from optlearn._theory.quadrature import quadrature_error
from optlearn.scenarios._arguments import Number
from optlearn.scenarios._catalogue import catalogue


class Relaxation(ol.System):
    """Noisy least squares; the best rate is e/(e + σ²)."""

    names = ("e",)
    parameters = {"learning_rate": 0.5, "sigma2": 0.25}  # noqa: RUF012

    def drift(self, x, u):
        eta = u["learning_rate"]
        return {"e": -2 * eta * x["e"] + eta**2 * (x["e"] + u["sigma2"])}

    def error(self, x, u):
        return x["e"]


class Stiff(ol.System):
    """Two modes, one of them three thousand times as fast as the other."""

    names = {"e": 2}  # noqa: RUF012
    parameters = {"learning_rate": 0.5}  # noqa: RUF012

    def drift(self, x, u):
        eta = u["learning_rate"]
        return {"e": -2 * eta * jnp.array([0.05, 150.0]) * (x["e"] - eta / 8)}

    def error(self, x, u):
        return x["e"].sum()


class Growth(ol.System):
    """A state that explodes whatever the rate."""

    names = ("e",)
    parameters = {"learning_rate": 0.5}  # noqa: RUF012

    def drift(self, x, u):
        return {"e": (4 + u["learning_rate"]) * x["e"]}

    def error(self, x, u):
        return x["e"]


def problem(model, **changes):
    given = {
        "model": model,
        "start": {"e": 1.0},
        "horizon": 10.0,
        "controls": {"learning_rate": ol.Continuous(0, 1)},
        "intervals": 10,
    }
    return ol.Problem(**given | changes)


@pytest.mark.slow
def test_stiff_dynamics_are_solved_with_finer_steps():
    # Runge-Kutta steps of a whole interval are unstable by a factor of a hundred.
    stiff = problem(Stiff(), controls={"learning_rate": ol.Continuous(0.1, 1)})
    solution = ol.solve(stiff)
    assert solution.certificate.converged
    assert solution.options["steps"] > 16
    constant = ol.evaluate(stiff, ol.Schedule.constant(10, {"learning_rate": 0.5})).objective
    assert solution.objective < constant


def test_tiny_objectives_are_solved_relative_to_themselves():
    tiny = problem(Relaxation(), parameters={"sigma2": 1e-11}, horizon=40.0, intervals=80)
    solution = ol.solve(tiny)
    # The best of all rates: de/dα = −e²/(e + σ²), a bound that piecewise constant ones nearly reach.
    bound = solve_ivp(
        lambda _, z: -1 / (1 + 1e-11 * np.exp(-z)), (0, 40), [0.0], rtol=1e-11, atol=1e-11, method="LSODA"
    )
    best = float(np.exp(bound.y[0, -1]))
    assert best < 1e-11
    assert solution.certificate.converged
    assert best < solution.objective < 1.3 * best
    assert solution.certificate.hamiltonian_gap < 0.01 * solution.objective


@pytest.mark.slow
def test_a_long_training_ends_at_the_lower_of_two_values():
    solution = ol.solve(ol.scenarios.learning_rate(alpha_F=200))
    assert solution.objective == pytest.approx(3.02e-11, rel=0.01)  # 8.4e-11 at absolute tolerances
    assert solution.certificate.converged


def test_limits_are_a_share_of_the_objective():
    for objective in (3e-11, 1e-4, 0.15, 9.0):
        small = limits(objective)
        assert small["hamiltonian_gap"] <= 2e-5 * objective + 1e-12
        assert small["quadrature_error"] <= 1e-3 * objective + 1e-12


def test_a_state_that_explodes_is_no_result():
    with pytest.warns(NotConvergedWarning, match="the state grows to"):
        solution = ol.solve(problem(Growth()))
    assert not solution.certificate.converged


def test_a_lone_best_says_so():
    assert Starts.of([0.1, 0.2, 0.3]).lone
    assert not Starts.of([0.1, 0.1 + 1e-8, 0.3]).lone
    assert not Starts.of([0.1]).lone
    assert Starts.of([3e-11, 8.4e-11]).agreeing == 1  # not within 1e-6 of each other


def failing(problem, intervals):
    raise SpecificationError("this baseline fails")


def test_a_failing_baseline_is_left_out_with_a_note():
    with_one = problem(Relaxation(), baselines={"broken": failing})
    solution = ol.solve(with_one)
    assert solution.certificate.converged
    assert any("'broken' cannot be used as a start: this baseline fails" in note for note in solution.notes)
    with pytest.warns(UserWarning, match="'broken' is left out"):
        assert ol.baselines(with_one) == {}


@pytest.mark.parametrize("value", [-0.1, 1.2])
def test_values_outside_the_bounds_are_refused(value):
    schedule = ol.Schedule.constant(10, {"learning_rate": value})
    with pytest.raises(SpecificationError, match=r"learning_rate goes from .* its bounds are 0 and 1"):
        ol.evaluate(problem(Relaxation()), schedule)


@pytest.mark.slow
def test_simulations_take_the_parameters_that_evaluate_takes():
    dropout = ol.scenarios.dropout(alpha_F=2)
    schedule = ol.Schedule.constant(2, {"activation": 0.6})
    theory = ol.evaluate(dropout, schedule)
    runs = ol.simulate(dropout, schedule, N=20_000, seeds=8, record=3)
    # |z| < 5: a false alarm once in two million runs.
    assert np.abs(runs.z_scores("error", theory["error"][[0, 100, 200]])[1:]).max() < 5
    with pytest.raises(SpecificationError, match="lacks the control 'activation'"):
        ol.simulate(dropout, ol.Schedule.constant(2, {}), N=100)
    with pytest.raises(SpecificationError, match=r"not admissible: activation goes from 1\.5"):
        ol.simulate(dropout, ol.Schedule.constant(2, {"activation": 1.5}), N=100)
    with pytest.raises(
        SpecificationError, match=r"must be a LearningModel, or a problem with one, .* got Relaxation"
    ):
        ol.simulate(problem(Relaxation()), ol.Schedule.constant(10, {"learning_rate": 0.5}), N=100)


class Tanh(ol.LearningModel):
    """A loss without closed forms."""

    def loss(self, fields, x, latent, u):
        return (jnp.tanh(2 * fields.student[0, 0]) - jnp.tanh(2 * fields.teacher[0, 0])) ** 2 / 2


def test_the_error_of_a_quadrature_is_in_the_certificate():
    model = Tanh(students=1, overlaps=ol.Overlaps(T=1.0), parameters={"learning_rate": 0.5})
    coarse = ol.Problem(
        model=model,
        start={"Q11": 0.5, "M11": 0.1},
        horizon=1.0,
        controls={"learning_rate": ol.Continuous(0, 2)},
        intervals=4,
        quadrature=ol.GaussHermite(4),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        solution = ol.solve(coarse, method="indirect", starts=1)
    claimed = solution.certificate.quadrature_error
    exact = ol.evaluate(replace(coarse, quadrature=ol.GaussHermite(60)), solution.schedule).objective
    assert claimed is not None
    assert 0 < abs(exact - solution.objective) <= claimed
    assert not solution.certificate.converged  # four nodes are too few, and that is said
    assert any("quadrature_error" in reason for reason in solution.certificate.reasons)


@pytest.mark.slow
def test_one_costly_descent_follows_with_as_many_steps_as_are_needed():
    model = Tanh(students=1, overlaps=ol.Overlaps(T=1.0), parameters={"learning_rate": 0.5})
    # Nothing moves under the guess, for which one step is enough.
    problem = ol.Problem(
        model=model,
        start={"Q11": 0.5, "M11": 0.1},
        horizon=3.0,
        controls={"learning_rate": ol.Continuous(0, 2, guess=0.0)},
        intervals=3,
        quadrature=ol.GaussHermite(16),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        solution = ol.solve(problem, starts=1)
    assert [run.steps for run in solution.runs] == [1, 4]
    assert solution.runs[1].iterations < solution.runs[0].iterations / 2
    allowed = limits(solution.objective, solution.certificate.negligible)
    assert abs(solution.certificate.integration_error) <= allowed["integration_error"]
    assert solution.certificate.hamiltonian_gap <= allowed["hamiltonian_gap"]


def test_the_time_that_a_search_may_take_is_that_of_passes_and_not_of_looking_them_up():
    model = Tanh(students=1, overlaps=ol.Overlaps(T=1.0), parameters={"learning_rate": 0.5})
    problem = ol.Problem(
        model=model,
        start={"Q11": 0.5, "M11": 0.1},
        horizon=3.0,
        controls={"learning_rate": ol.Continuous(0, 2)},
        intervals=40,
        quadrature=ol.GaussHermite(48),
    )
    told = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        ol.solve(problem, starts=1, max_iterations=1, progress=told.append)
    (expected,) = (report.expected for report in told if report.expected is not None)
    # A hundred passes of milliseconds; what was kept is found within microseconds.
    rollout = Rollout(compile_problem(problem), 40, 1)
    w = np.full((40, 1), 0.7)
    rollout.run(w, np.zeros(0))
    seconds = []
    for shift in (0.1, 0.2, 0.3):
        began = time.perf_counter()
        rollout.run(w + shift, np.zeros(0))
        seconds.append(time.perf_counter() - began)
    assert expected > 100 * min(seconds) / 10


class Bent(ol.LearningModel):
    """A loss that bends at places that are not declared: over samples, its drift has small jumps."""

    def loss(self, fields, x, latent, u):
        return (jnp.maximum(fields.student[0, 0], 0) - jnp.maximum(fields.teacher[0, 0], 0)) ** 2 / 2


@pytest.mark.slow
def test_an_error_bar_is_integrated_to_the_tolerance_of_its_objective(monkeypatch):
    tolerances = []

    def recorded(**given):
        tolerances.append(given["rtol"])
        return integrate(**given)

    monkeypatch.setattr("optlearn._control.evaluate.integrate", recorded)
    problem = ol.Problem(
        model=Bent(students=1, overlaps=ol.Overlaps(T=1.0), parameters={"learning_rate": 0.5}),
        start={"Q11": 0.5, "M11": 0.1},
        horizon=2.0,
        controls={"learning_rate": ol.Continuous(0, 1)},
        intervals=3,
    )
    certificate = ol.solve(problem, starts=1).certificate
    assert certificate.converged
    assert certificate.quadrature_error > 0
    # No smaller, which would take forever, and no larger, which would be all that the bar shows.
    assert len(set(tolerances)) == 1
    assert 1e-8 < tolerances[0] <= 1e-6


class Gain(ol.LearningModel):
    """A soft step, as steep as its control says."""

    def loss(self, fields, x, latent, u):
        return (jnp.tanh(u["gain"] * fields.student[0, 0]) - jnp.tanh(fields.teacher[0, 0])) ** 2 / 2


def steep(guess, **others):
    model = Gain(students=1, overlaps=ol.Overlaps(T=1.0), parameters={"learning_rate": 0.5, "gain": 1.0})
    return ol.Problem(
        model=model,
        start={"Q11": 0.5, "M11": 0.1},
        horizon=1.0,
        controls={"gain": ol.Continuous(0, 1.5, guess=guess)},
        quadrature=ol.AutoQuadrature(accuracy=1e-4),
        **others,
    )


@pytest.mark.slow
def test_a_quadrature_is_chosen_with_the_bounds_of_the_controls_in_view():
    gentle = steep(guess=0.1)
    model = compile_problem(gentle).functions.system.system
    u = {**gentle.settings, "gain": np.asarray(1.5)}
    assert quadrature_error(model, model.probes(gentle.start), u, model.drift_quadrature) <= 1e-4


# --- dynamics that run away ---------------------------------------------------------------------------


class Edge(ol.System):
    """Two stable points, 0 and 1/η; beyond the second one the state runs away in a finite time."""

    names = ("e",)
    parameters = {"learning_rate": 0.5}  # noqa: RUF012

    def drift(self, x, u):
        return {"e": -x["e"] + u["learning_rate"] * x["e"] ** 2}

    def error(self, x, u):
        return x["e"]


def test_a_guess_that_runs_away_is_lowered():
    """Below 1/3 every rate leads to 0; where all do so or none, nothing can be done."""
    solution = ol.solve(problem(Edge(), start={"e": 3.0}))
    assert solution.certificate.converged
    assert solution.objective == pytest.approx(3 * np.exp(-10), rel=1e-4)
    assert any("it was moved to 0.5 of its distance" in note for note in solution.notes)
    assert solution.certificate.starts.dropped == 0
    doomed = problem(Edge(), start={"e": 3.0}, controls={"learning_rate": ol.Continuous(0.5, 1)})
    with pytest.raises(RunawayError, match="not finite for any start"):
        ol.solve(doomed)


def test_a_neutral_guess_that_runs_away_is_left_out():
    steady = {"steady": lambda problem, _: ol.Schedule.constant(problem.horizon, {"learning_rate": 0.2})}
    solution = ol.solve(problem(Edge(), start={"e": 3.0}, baselines=steady))
    assert solution.certificate.converged
    assert any("'neutral' is left out" in note for note in solution.notes)


def test_creeping_towards_infinity_is_given_up(monkeypatch):
    monkeypatch.setattr("optlearn._engine.adaptive.EXPLODED_STEPS", 5)
    growing = problem(Growth(), horizon=5.0)
    with pytest.raises(UnphysicalStateError, match="not finite"):
        ol.evaluate(growing, ol.Schedule.constant(5, {"learning_rate": 1.0}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "objective"),
    [
        ("denoising_batch", {"eta": 20}, 9.3940687),
        ("batch_size", {"alpha_F": 1000}, 0.00127904595),
    ],
)
def test_hard_scenarios_converge(name, arguments, objective):
    solution = ol.solve(getattr(ol.scenarios, name)(**arguments))
    assert solution.certificate.converged
    assert solution.objective == pytest.approx(objective, rel=1e-5)


@pytest.mark.slow
def test_a_scenario_that_explodes_under_every_schedule_says_so():
    with pytest.warns(NotConvergedWarning, match="the state grows to"):
        ol.solve(ol.scenarios.gating(eta=10), intervals=12)


# --- any arguments of any scenario -----------------------------------------------------------------

# The others take more than some seconds each.
QUICK = [name for name in catalogue() if name not in ("attention", "gating", "power_law", "probe")]


@st.composite
def calls(draw):
    """A scenario with some of its numbers anywhere in the ranges of the explorer, or far beyond them."""
    name = draw(st.sampled_from(QUICK))
    entry = catalogue()[name]
    numbers = [a for a in entry.arguments if isinstance(a, Number) and "[" not in a.name and not a.whole]
    chosen = draw(st.lists(st.sampled_from(numbers), max_size=2, unique=True)) if numbers else []
    values = dict(entry.example.arguments)
    for argument in chosen:
        reach = draw(st.sampled_from([1.0, 1.0, 4.0]))
        values[argument.name] = draw(st.floats(argument.low, reach * argument.high))
    return name, values


def check_honest(name, arguments):
    """Solve, and check the certificate; or check the reason why it was refused."""
    try:
        made = getattr(ol.scenarios, name)(**arguments)
    except SpecificationError:
        return  # arguments that contradict each other, named in the message
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            solution = ol.solve(made, intervals=8, method="indirect", starts=1)
        except (SpecificationError, UnphysicalStateError) as error:
            if "infeasible" in str(error) or "cannot hold" in str(error):
                return
            # It must be true that the dynamics run away: an accurate integration says so too.
            guess = {n: c.start for n, c in made.controls.items()}
            with pytest.raises((SpecificationError, UnphysicalStateError)):
                ol.evaluate(made, ol.Schedule.constant(made.horizon, guess), record=2)
            return
    again = ol.evaluate(made, solution.schedule, solution.parameters, record=2).objective
    assert again == pytest.approx(solution.objective, rel=1e-7, abs=1e-12)
    if not solution.certificate.converged or made.discrete or made.budgets:
        return
    # Nothing near is better by more than the certificate says.
    generator = np.random.default_rng(0)
    allowed = solution.certificate.hamiltonian_gap + 2 * limits(solution.objective)["hamiltonian_gap"]
    for _ in range(3):
        values = {}
        for control, bounds in made.continuous.items():
            width = 0.02 * (bounds.upper - bounds.lower)
            moved = solution.schedule[control] + width * generator.standard_normal(
                len(solution.schedule.grid) - 1
            )
            values[control] = np.clip(moved, bounds.lower, bounds.upper)
        near = ol.Schedule.piecewise(solution.schedule.grid, values)
        try:
            objective = ol.evaluate(made, near, solution.parameters, record=2).objective
        except UnphysicalStateError:
            continue
        assert objective >= solution.objective - allowed


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(calls())
def test_any_arguments_give_an_honest_answer(call):
    check_honest(*call)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(calls())
def test_many_arguments_give_an_honest_answer(call):
    check_honest(*call)
