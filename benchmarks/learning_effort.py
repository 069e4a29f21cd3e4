"""Learning effort by optimal control, and by Adam on unrolled dynamics: python -m benchmarks learning_effort

Both have the same controls, a gain on each of 60 intervals, within the same bounds. Unrolled dynamics take
Runge-Kutta steps; every 200 iterations of Adam its schedule is re-integrated as the solver's is.
"""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax

import optlearn as ol

STEPS, ITERATIONS, REPORT, RATE = 4, 2000, 200, 0.02


def unrolled(problem: "ol.Problem") -> Callable[[jax.Array], jax.Array]:
    """The objective of gains (intervals,), by Runge-Kutta steps."""
    model, intervals = problem.model, problem.intervals
    settings, start = model.settings(problem.parameters), jnp.asarray(problem.start["weight"])
    length = problem.horizon / intervals / STEPS

    def rates(state, gain):
        u = {**settings, "gain": gain}
        weight = state[:-1]
        running = problem.objective.running_value(model, {"weight": weight}, u, problem.horizon)
        return jnp.append(model.drift({"weight": weight}, u)["weight"], running)

    def step(state, gain):
        k1 = rates(state, gain)
        k2 = rates(state + length / 2 * k1, gain)
        k3 = rates(state + length / 2 * k2, gain)
        k4 = rates(state + length * k3, gain)
        return state + length / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None

    def objective(gains):
        final, _ = jax.lax.scan(step, jnp.append(start, 0.0), jnp.repeat(gains, STEPS))
        return final[-1] / problem.horizon

    return objective


def main() -> None:
    """Solve, unroll, compare."""
    jax.config.update("jax_enable_x64", True)
    for depth in (2, 3):
        problem = ol.scenarios.learning_effort(depth=depth)
        began = time.perf_counter(), time.process_time()
        solution = ol.solve(problem)
        took = time.perf_counter() - began[0], time.process_time() - began[1]
        gap, seconds = solution.certificate.hamiltonian_gap, f"{took[0]:.1f} s ({took[1]:.1f} s of CPU)"
        print(f"depth {depth}: optimal control {solution.objective:.9f} in {seconds}, gap {gap:.1e}")
        limits = problem.continuous["gain"]
        began = time.perf_counter(), time.process_time()
        optimiser, value = optax.adam(RATE), jax.jit(jax.value_and_grad(unrolled(problem)))
        gains = jnp.full(problem.intervals, limits.start)
        memory = optimiser.init(gains)
        for iteration in range(1, ITERATIONS + 1):
            _, gradient = value(gains)
            change, memory = optimiser.update(gradient, memory)
            gains = jnp.clip(gains + change, limits.lower, limits.upper)
            if iteration % REPORT == 0:
                took = time.perf_counter() - began[0], time.process_time() - began[1]
                edges = np.linspace(0, problem.horizon, problem.intervals + 1)
                schedule = ol.Schedule.piecewise(edges, {"gain": np.asarray(gains)})
                excess = ol.evaluate(problem, schedule, record=2).objective - solution.objective
                seconds = f"{took[0]:.1f} s ({took[1]:.1f} s of CPU)"
                print(f"  Adam, {iteration:5d} iterations: {excess:+.2e} in {seconds}", flush=True)


if __name__ == "__main__":
    main()
