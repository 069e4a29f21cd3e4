"""What the minimum principle says is still to be won, for one lane; see ``optlearn._control.hamiltonian``.

On an interval, H̄ is the Hamiltonian averaged along states and costates, with the exact slope of the objective
at the present control. In shares it is linear, so its minimum under a budget is a linear program: the values
in the order of what they save. Continuous controls are minimised at the multipliers of the present controls,
one after the other from the best point of a grid; any multiplier gives a gap that is never too small.
"""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array
from optlearn._control.batched.feasible import crossing
from optlearn._control.hamiltonian.quadrature import quadrature
from optlearn._engine.lanes import Lanes, LaneStructure

# Points of the coarse search in each continuous control, by how many there are; and for more of them.
_POINTS, _POINTS_MANY = {1: 17, 2: 9}, 5
_NEWTON_STEPS = 12  # along one control; each doubles the digits
_CYCLES = 4  # over several controls


def linear_gap(structure: LaneStructure, lane: Lanes, v: Array, gradient: Array) -> tuple[Array, Array]:
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

    def chosen(prices: Array) -> Array:
        return vertices[jnp.argmin(costs + prices[None], axis=1)]

    if not structure.budgets:
        return jnp.sum(present - costs.min(axis=1)), chosen(jnp.zeros(len(vertices)))
    row, target = lane.rows[0], lane.targets[0]
    used = vertices @ row

    def best(nu: Array) -> Array:
        return chosen(nu * used)

    spread = jnp.maximum(jnp.ptp(costs), 1e-300)
    reach = 2 * spread / jnp.maximum(jnp.min(_steps(used)), 1e-300)

    def excess(nu: Array) -> Array:
        return jnp.sum(best(nu) * row[None]) / structure.intervals - target

    low, high = crossing(excess, -reach, reach)
    if structure.budgets == ("at most",):
        slack = excess(jnp.zeros(())) <= 0
        low, high = (jnp.where(slack, 0.0, jnp.maximum(nu, 0.0)) for nu in (low, high))
    over, under = excess(low), excess(high)
    share = jnp.where(over > under, jnp.clip(over / jnp.where(over > under, over - under, 1.0), 0, 1), 0.0)
    there = best(low) + share * (best(high) - best(low))
    nu = (low + high) / 2
    intervals = structure.intervals
    won = jnp.sum(present + nu * (v @ row) - jnp.min(costs + nu * used[None], axis=1))
    return won + nu * (intervals * target - jnp.sum(v @ row)), there


def _steps(used: Array) -> Array:
    """Differences of what values use of a budget, without those that are none."""
    differences = jnp.abs(used[:, None] - used[None, :])
    return jnp.where(differences == 0, jnp.max(differences), differences)


def curved_gap(
    structure: LaneStructure, lane: Lanes, v: Array, gradient: Array, states: Array, costates: Array
) -> Array:
    """The gap of continuous controls.

    Args:
        structure: shared by all lanes.
        lane: one of them.
        v: (I, m) controls that meet the budget.
        gradient: (I, m) of the objective in v.
        states: (I·s + 1, n) along training.
        costates: (I·s + 1, n) along training.
    """
    intervals, size = structure.intervals, structure.size
    steps = (len(states) - 1) // intervals
    points = np.arange(intervals)[:, None] * steps + np.arange(steps + 1)[None, :]
    x, costate, weights = states[points], costates[points], jnp.asarray(quadrature(steps))
    length = lane.horizon / intervals
    if structure.exact:
        # What a control changes of an exact step is its end, from its beginning.
        x, costate, weights, length = x[:, :-1], costate[:, 1:], jnp.full(steps, 1 / steps), length / steps

    def at_point(u: Array, x: Array, costate: Array) -> Array:
        slope, cost = structure.rate(lane, x, lane.lower + lane.width * u, length)
        return costate @ slope + cost

    def average(u: Array, x: Array, costate: Array) -> Array:
        return weights @ jax.vmap(at_point, in_axes=(None, 0, 0))(u, x, costate)

    total = lane.horizon / intervals
    now, slope = jax.vmap(jax.value_and_grad(average))(v, x, costate)
    nu = _multipliers(structure, lane, v, gradient)
    tilt = gradient - total * slope + (nu @ lane.rows)[None]

    def lagrangian(u: Array, i: Array) -> Array:
        return total * average(u, x[i], costate[i]) + jnp.sum(tilt[i] * (u - v[i]))

    # Denser towards both bounds, where functions such as 1/B and √Δ bend most.
    unit = (1 - np.cos(np.linspace(0.0, np.pi, _POINTS.get(size, _POINTS_MANY)))) / 2
    spacing = np.diff(unit).max()
    grid = jnp.asarray(np.array(list(product(unit, repeat=size))))

    def lowest(i: Array) -> Array:
        values = jax.vmap(lagrangian, in_axes=(0, None))(grid, i)
        start = grid[jnp.argmin(values)]

        def along_one(k: Array, u: Array) -> Array:
            one = jnp.eye(size)[k % size]

            def line(t: Array) -> Array:
                return lagrangian(jnp.where(one > 0, t, u), i)

            first, second = jax.grad(line), jax.grad(jax.grad(line))

            def newton(_: Array, found: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
                t, low, high = found
                slope, bend = first(t), second(t)
                low, high = jnp.where(slope < 0, t, low), jnp.where(slope > 0, t, high)
                trial = t - slope / jnp.where(bend > 0, bend, 1.0)
                usable = (bend > 0) & (trial >= low) & (trial <= high)
                return jnp.where(usable, trial, (low + high) / 2), low, high

            near = start[k % size]
            bracket = jnp.maximum(near - spacing, 0.0), jnp.minimum(near + spacing, 1.0)
            t, _, _ = jax.lax.fori_loop(0, _NEWTON_STEPS, newton, (u[k % size], *bracket))
            return jnp.where(one > 0, t, u)

        u = jax.lax.fori_loop(0, size * _CYCLES if size > 1 else 1, along_one, start)
        return jnp.minimum(jnp.min(values), lagrangian(u, i))

    minima = jax.lax.map(lowest, jnp.arange(intervals), batch_size=intervals)
    slack = nu @ (intervals * lane.targets - lane.rows @ jnp.sum(v, axis=0))
    return jnp.sum(jnp.maximum(total * now - minima, 0.0)) + slack


def _multipliers(structure: LaneStructure, lane: Lanes, v: Array, gradient: Array) -> Array:
    """(b,) of the budgets, such that controls v (I, m) between their bounds are stationary."""
    found = []
    for sense, of_budget in zip(structure.budgets, lane.rows, strict=True):
        row = jnp.broadcast_to(of_budget, v.shape)
        inside = (v > 1e-9) & (v < 1 - 1e-9) & (row != 0)
        weight = jnp.sum(jnp.where(inside, row**2, 0.0))
        nu = -jnp.sum(jnp.where(inside, gradient * row, 0.0)) / jnp.where(weight > 0, weight, 1.0)
        each = jnp.where(row == 0, jnp.nan, -gradient / jnp.where(row == 0, 1.0, row))
        nu = jnp.where(weight > 0, nu, jnp.nanmedian(each))
        found.append(nu if sense == "equal" else jnp.maximum(nu, 0.0))
    return jnp.stack(found) if found else jnp.zeros(0)
