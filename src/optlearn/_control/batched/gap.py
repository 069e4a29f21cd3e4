"""What the minimum principle says is still to be won, for one lane; see ``optlearn._control.hamiltonian``.

On an interval, H̄ is the Hamiltonian averaged along states and costates, with the exact slope of the objective
at the present control. In shares it is linear, so its minimum under a budget is a linear program: the values
in the order of what they save. A continuous control is minimised at the multiplier of the present controls;
any multiplier gives a gap that is never too small.
"""

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array
from optlearn._control.batched.feasible import crossing
from optlearn._control.batched.lanes import Lanes, Structure
from optlearn._control.hamiltonian.quadrature import quadrature

_POINTS = 17  # of the coarse search in a continuous control
_NEWTON_STEPS = 12  # from the best of them; each doubles the digits


def linear_gap(structure: Structure, lane: Lanes, v: Array, gradient: Array) -> tuple[Array, Array]:
    """The gap of shares v (I, m), and the shares that meet the budget towards which the principle sends them.

    Args:
        structure: shared by all lanes.
        lane: one of them.
        v: (I, m) shares that meet the budget.
        gradient: (I, m) of the objective in v.
    """
    present = jnp.sum(gradient * v, axis=1)
    vertices = jnp.asarray(structure.vertices)
    costs = jnp.sum(gradient[:, None, :] * vertices[None], axis=-1)  # (I, values)
    used = vertices @ lane.row

    def best(nu: Array) -> Array:
        return vertices[jnp.argmin(costs + nu * used[None], axis=1)]

    if structure.budget is None:
        return jnp.sum(present - costs.min(axis=1)), best(jnp.zeros(()))
    spread = jnp.maximum(jnp.ptp(costs), 1e-300)
    reach = 2 * spread / jnp.maximum(jnp.min(_steps(used)), 1e-300)

    def excess(nu: Array) -> Array:
        return jnp.sum(best(nu) * lane.row[None]) / structure.intervals - lane.target

    low, high = crossing(excess, -reach, reach)
    if structure.budget == "at most":
        slack = excess(jnp.zeros(())) <= 0
        low, high = (jnp.where(slack, 0.0, jnp.maximum(nu, 0.0)) for nu in (low, high))
    over, under = excess(low), excess(high)
    share = jnp.where(over > under, jnp.clip(over / jnp.where(over > under, over - under, 1.0), 0, 1), 0.0)
    target = best(low) + share * (best(high) - best(low))
    nu = (low + high) / 2
    intervals = structure.intervals
    won = jnp.sum(present + nu * (v @ lane.row) - jnp.min(costs + nu * used[None], axis=1))
    return won + nu * (intervals * lane.target - jnp.sum(v @ lane.row)), target


def _steps(used: Array) -> Array:
    """Differences of what values use of a budget, without those that are none."""
    differences = jnp.abs(used[:, None] - used[None, :])
    return jnp.where(differences == 0, jnp.max(differences), differences)


def curved_gap(
    structure: Structure, lane: Lanes, v: Array, gradient: Array, states: Array, costates: Array
) -> Array:
    """The gap of one continuous control.

    Args:
        structure: shared by all lanes.
        lane: one of them.
        v: (I, 1) controls that meet the budget.
        gradient: (I, 1) of the objective in v.
        states: (I·s + 1, n) along training.
        costates: (I·s + 1, n) along training.
    """
    intervals = structure.intervals
    steps = (len(states) - 1) // intervals
    points = np.arange(intervals)[:, None] * steps + np.arange(steps + 1)[None, :]
    x, costate, weights = states[points], costates[points], jnp.asarray(quadrature(steps))
    length = lane.horizon / intervals
    if structure.exact:
        # What a control changes of an exact step is its end, from its beginning.
        x, costate, weights, length = x[:, :-1], costate[:, 1:], jnp.full(steps, 1 / steps), length / steps
    none = jnp.zeros(0)

    def at_point(u: Array, x: Array, costate: Array) -> Array:
        slope, cost = structure.rate(lane.constants, x, lane.lower + lane.width * u[None], none, length)
        return costate @ slope + cost

    def average(u: Array, x: Array, costate: Array) -> Array:
        return weights @ jax.vmap(at_point, in_axes=(None, 0, 0))(u, x, costate)

    total = lane.horizon / intervals
    now, slope = jax.vmap(jax.value_and_grad(average))(v[:, 0], x, costate)
    tilt = gradient[:, 0] - total * slope
    inside = (v[:, 0] > 1e-9) & (v[:, 0] < 1 - 1e-9)
    nu = jnp.zeros(())
    if structure.budget is not None:
        a = lane.row[0]
        nu = -jnp.sum(jnp.where(inside, gradient[:, 0], 0.0)) / (a * jnp.maximum(jnp.sum(inside), 1))
        nu = jnp.where(jnp.any(inside), nu, -jnp.median(gradient[:, 0]) / a)
        nu = nu if structure.budget == "equal" else jnp.maximum(nu, 0.0)

    def lagrangian(u: Array, i: Array) -> Array:
        there = total * average(u, x[i], costate[i])
        return there + (tilt[i] + nu * lane.row[0]) * (u - v[i, 0])

    # Denser towards both bounds, where functions such as 1/B and √Δ bend most.
    grid = (1 - jnp.cos(jnp.linspace(0.0, jnp.pi, _POINTS))) / 2
    spacing = jnp.max(jnp.diff(grid))
    first, second = jax.grad(lagrangian), jax.grad(jax.grad(lagrangian))

    def lowest(i: Array) -> Array:
        values = jax.vmap(lagrangian, in_axes=(0, None))(grid, i)
        start = grid[jnp.argmin(values)]
        low, high = jnp.maximum(start - spacing, 0.0), jnp.minimum(start + spacing, 1.0)

        def newton(_: Array, found: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            u, low, high = found
            slope, bend = first(u, i), second(u, i)
            low, high = jnp.where(slope < 0, u, low), jnp.where(slope > 0, u, high)
            trial = u - slope / jnp.where(bend > 0, bend, 1.0)
            usable = (bend > 0) & (trial >= low) & (trial <= high)
            return jnp.where(usable, trial, (low + high) / 2), low, high

        u, _, _ = jax.lax.fori_loop(0, _NEWTON_STEPS, newton, (start, low, high))
        return jnp.minimum(jnp.min(values), lagrangian(u, i))

    minima = jax.lax.map(lowest, jnp.arange(intervals), batch_size=intervals)
    slack = nu * (intervals * lane.target - jnp.sum(v @ lane.row))
    return jnp.sum(jnp.maximum(total * now - minima, 0.0)) + slack
