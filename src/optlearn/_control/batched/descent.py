"""Projected quasi-Newton descent of all lanes in lockstep: each pass tries one step in every lane.

The model is the limited-memory BFGS matrix of the exact gradients. A projected gradient step shows which
controls stay at their bounds; the model is minimised over the others, within the budget, and the result is
projected. A step that does not lower the objective enough is shortened and tried again in the next pass.
Without a memory, and occasionally where the model promises little, a lane moves to the target of the minimum
principle.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from optlearn._arrays import Array
from optlearn._control.batched.gap import curved_gap, linear_gap
from optlearn._control.hamiltonian.loops import dot, pick_rows
from optlearn._control.hamiltonian.multipliers import project_shares, projection_multiplier
from optlearn._control.solvers.rules import (
    CURVED,
    FIRST_MOVE,
    LITTLE,
    SMALLEST_STEP,
    compact,
    gap_tolerance,
    lowers,
    shortened,
)
from optlearn._engine.lanes import Lanes, LaneStructure, Passes, run

MEMORY = 10  # pairs of steps and gradient changes
PASSES = 8  # passes between evaluations of the gap


class State(NamedTuple):
    """State of the descents, one row per lane.

    Attributes:
        v: (I, m) controls.
        objective: infinite before the first pass.
        gradient: (I, m).
        direction: (I, m) direction of the next step.
        share: share of it to try.
        moves, changes: (MEMORY, I·m) steps and changes of the gradient, the latest last.
        known: number of stored steps.
        gap: gap at its last evaluation.
        passes: passes so far.
        ended: the lane is finished: its gap is small, or no step lowers the objective.
    """

    v: Array
    objective: Array
    gradient: Array
    direction: Array
    share: Array
    moves: Array
    changes: Array
    known: Array
    gap: Array
    passes: Array
    ended: Array


def begin(v: Array) -> State:
    """Lanes that start at controls v (B, I, m); their first step is zero."""
    count, size = v.shape[0], v.shape[1] * v.shape[2]
    none, memory = jnp.zeros_like(v), jnp.zeros((count, MEMORY, size))
    numbers, whole = jnp.full(count, jnp.inf), jnp.zeros(count, dtype=int)
    return State(
        v, numbers, none, none, jnp.ones(count), memory, memory, whole, numbers, whole, whole.astype(bool)
    )


@partial(jax.jit, static_argnums=(0, 1))
def advance(
    structure: LaneStructure,
    steps: int,
    lanes: Lanes,
    state: State,
    fresh: Array,
    v: Array,
    tolerance: Array,
    most: Array,
) -> State:
    """A few passes of all lanes, then their gaps.

    Args:
        structure: structure shared by all lanes.
        steps: steps in an interval.
        lanes: B lanes.
        state: state of the descents.
        fresh: (B,) flags of lanes that begin now.
        v: (B, I, m) where these begin.
        tolerance: relative tolerance of the gap.
        most: passes after which a lane ends in any case.
    """
    state = pick_rows(fresh, begin(v), state)
    if not structure.curved:
        state = jax.vmap(partial(_damped, structure))(lanes, state)

    def once(_: Array, state: State) -> State:
        return _pass(structure, steps, lanes, state)

    state = jax.lax.fori_loop(0, PASSES, once, state)
    passed = run(structure, lanes, state.v, steps) if structure.curved else None
    gap = gaps(structure, lanes, state.v, state.gradient, passed)
    small = gap_tolerance(state.objective, tolerance, jnp)
    done = (gap <= small) | ~jnp.isfinite(state.objective)
    return state._replace(gap=gap, ended=state.ended | done | (state.passes >= most))


def _damped(structure: LaneStructure, lane: Lanes, state: State) -> State:
    """One lane, whose next step follows the minimum principle if the model promises much less.

    A step of the model moves a front between two values by a fraction of an interval; such a step, by many.
    """
    gap, target = linear_gap(structure, lane, state.v, state.gradient)
    little = -jnp.sum(state.gradient * state.direction) < LITTLE * gap
    direction = jnp.where(little & (state.known > 0), target - state.v, state.direction)
    return state._replace(direction=direction, share=jnp.where(little, 1.0, state.share))


def gaps(
    structure: LaneStructure,
    lanes: Lanes,
    v: Array,
    gradient: Array,
    passed: Passes | None,
    search: bool = False,
) -> Array:
    """(B,) Hamiltonian gaps of controls v (B, I, m) with the objective's gradient (B, I, m).

    Continuous controls need a pass, and optionally a ``search`` for the best multipliers of their budgets.
    """
    if passed is None or not structure.curved:
        return jax.vmap(lambda *lane: linear_gap(structure, *lane)[0])(lanes, v, gradient)
    along = (jnp.moveaxis(passed.states, -1, 0), jnp.moveaxis(passed.costates, -1, 0))
    return jax.vmap(partial(curved_gap, structure, search=search))(lanes, v, gradient, *along)


def _pass(structure: LaneStructure, steps: int, lanes: Lanes, state: State) -> State:
    """Try a step of every lane."""
    trial = state.v + state.share[:, None, None] * state.direction
    passed = run(structure, lanes, trial, steps)
    moved = jax.vmap(partial(_judged, structure))(lanes, state, trial, passed.objective, passed.gradient)
    return pick_rows(state.ended, state, moved)


def _judged(
    structure: LaneStructure, lane: Lanes, state: State, trial: Array, objective: Array, gradient: Array
) -> State:
    """One lane after a trial: moved, with a new direction, or unmoved, with a shorter step."""
    slope = jnp.sum(state.gradient * state.direction)
    first = jnp.isinf(state.objective)
    rise = objective - state.objective
    lower = jnp.isfinite(objective) & (first | lowers(rise, state.share, slope))
    share = jnp.where(lower, 1.0, shortened(state.share, rise, slope, jnp))
    stuck = share < SMALLEST_STEP
    move, change = (trial - state.v).ravel(), (gradient - state.gradient).ravel()
    curved = dot(move, change) > CURVED * jnp.sqrt(dot(move, move) * dot(change, change))
    learn = lower & curved & ~first
    moves = jnp.where(learn, jnp.roll(state.moves, -1, axis=0).at[-1].set(move), state.moves)
    changes = jnp.where(learn, jnp.roll(state.changes, -1, axis=0).at[-1].set(change), state.changes)
    known = jnp.where(learn, jnp.minimum(state.known + 1, MEMORY), jnp.where(stuck, 0, state.known))
    v = jnp.where(lower, trial, state.v)
    gradient = jnp.where(lower, gradient, state.gradient)
    direction = _direction(structure, lane, v, gradient, moves, changes, known)
    anew = lower | stuck
    return State(
        v=v,
        objective=jnp.where(lower, objective, state.objective),
        gradient=gradient,
        direction=jnp.where(anew, direction, state.direction),
        share=jnp.where(stuck, 1.0, share),
        moves=moves,
        changes=changes,
        known=known,
        gap=state.gap,
        passes=state.passes + 1,
        # Once the memory is empty, the direction cannot improve.
        ended=state.ended | (stuck & (state.known == 0)) | (first & ~lower),
    )


def _direction(
    structure: LaneStructure,
    lane: Lanes,
    v: Array,
    gradient: Array,
    moves: Array,
    changes: Array,
    known: Array,
) -> Array:
    """The step from v to the model's minimum over the controls that a projected gradient step leaves free."""
    g, tight = gradient.ravel(), []
    for sense, row, target in zip(structure.budgets, lane.rows, lane.targets, strict=True):
        slack = (jnp.mean(v @ row) < target - 1e-9) & (sense == "at most")
        tight.append(jnp.where(slack, 0.0, jnp.broadcast_to(row, v.shape).ravel()))
    used = jnp.arange(MEMORY) >= MEMORY - known
    S, Y = jnp.where(used[:, None], moves, 0.0), jnp.where(used[:, None], changes, 0.0)
    plain = jnp.maximum(jnp.max(jnp.abs(g)), 1e-300) / FIRST_MOVE
    sigma = jnp.where(known > 0, dot(Y[-1], Y[-1]) / jnp.where(known > 0, dot(S[-1], Y[-1]), 1.0), plain)
    projected = project(structure, lane, v - gradient / sigma)
    step = (projected - v).ravel()
    free = ((projected > 0) & (projected < 1)).ravel()

    N, K = compact(S, Y, sigma, _grams, jnp)
    # Unused rows of N are zero.
    K = K + jnp.diag(jnp.where(jnp.tile(used, 2), 0.0, 1.0))
    slope = g + sigma * step - _mixed(_solve(K, dot(N, step)), N)

    def inside(rows: Array) -> Array:
        """The part of rows (…, I·m) that changes only free controls and no budget."""
        for a in tight:
            a_free = jnp.where(free, a, 0.0)
            along = dot(rows, a_free) / jnp.maximum(dot(a_free, a_free), 1e-300)
            rows = rows - along[..., None] * jnp.broadcast_to(a_free, rows.shape)
        return jnp.where(jnp.broadcast_to(free, rows.shape), rows, 0.0)

    r, N = inside(slope), inside(N)
    weights = _solve(K - _grams(N, N) / sigma, dot(N, r))
    correction = -(r + _mixed(weights, N) / sigma) / sigma
    newton = project(structure, lane, v + (step + correction).reshape(v.shape)) - v
    simple = step.reshape(v.shape)
    # A bad model may lead uphill or to invalid numbers.
    falls = jnp.sum(gradient * newton) <= 0.1 * jnp.sum(gradient * simple)
    bent = jnp.where(falls & jnp.all(jnp.isfinite(newton)), newton, simple)
    if structure.curved:
        return bent
    return jnp.where(known > 0, bent, linear_gap(structure, lane, v, gradient)[1] - v)


# Products as sums, as in ``dot``.


def _grams(A: Array, B: Array) -> Array:
    return jnp.sum(A[:, None, :] * B[None, :, :], axis=-1)


def _mixed(weights: Array, rows: Array) -> Array:
    return jnp.sum(weights[:, None] * rows, axis=0)


def _solve(A: Array, b: Array) -> Array:
    """X (q,) with A x = b, by elimination with pivots."""
    size = len(b)

    def eliminate(i: Array, table: Array) -> Array:
        pivot = jnp.argmax(jnp.where(jnp.arange(size) >= i, jnp.abs(table[:, i]), -1.0))
        row, other = table[pivot], table[i]
        table = table.at[pivot].set(other).at[i].set(row)
        row = row / row[i]
        cleared = table - table[:, i][:, None] * row[None, :]
        return cleared.at[i].set(row)

    return jax.lax.fori_loop(0, size, eliminate, jnp.concatenate([A, b[:, None]], axis=1))[:, -1]


def project(structure: LaneStructure, lane: Lanes, y: Array) -> Array:
    """The nearest controls (I, m) that meet bounds, shares and budgets to any numbers y (I, m)."""
    # No two budgets share a control, so their prices are independent.
    moved, shares = y, structure.sum_limited
    for sense, row, target in zip(structure.budgets, lane.rows, lane.targets, strict=True):
        nu = projection_multiplier(y, row, target, shares=shares, xp=jnp)
        moved = moved - (nu if sense == "equal" else jnp.maximum(nu, 0.0)) * row[None]
    return project_shares(moved, jnp) if shares else jnp.clip(moved, 0.0, 1.0)
