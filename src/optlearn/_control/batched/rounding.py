"""Shares rounded to one value per interval, all lanes at once; see ``optlearn._control.rounding``.

Values follow the running totals of their shares and meet the counts exactly. Then exchanges of two intervals
and, where counts are open, changes of one are tried in the order of their first-order gains by the adjoint;
the first one that lowers the objective is made.
"""

from functools import partial
from itertools import combinations
from typing import NamedTuple

import jax
import jax.numpy as jnp

from optlearn._arrays import Array
from optlearn._control.hamiltonian.loops import pick_rows
from optlearn._control.rounding.search import GAIN, ROUNDS, TRIES, WIDTH
from optlearn._engine.lanes import Lanes, LaneStructure, forward, run

# Exchanges that are tried in one call.
_AT_ONCE = 16


class Levels(NamedTuple):
    """Rounded lanes and the state of their search, one row per lane.

    Attributes:
        levels: (I,) index of the value in each interval.
        open: counts may change.
        objective: infinite before the first search.
        tried: exchanges tried since the last improvement.
        rounds: number of improvements.
        ended: no exchange is left to try.
    """

    levels: Array
    open: Array
    objective: Array
    tried: Array
    rounds: Array
    ended: Array


@partial(jax.jit, static_argnums=0)
def sum_up(structure: LaneStructure, lanes: Lanes, v: Array, counts: Array) -> Array:
    """(B, I) levels whose totals follow the shares v (B, I, m), each value as often as in counts (B, n)."""
    del lanes
    intervals = structure.intervals

    def one(v: Array, counts: Array) -> Array:
        shares = jnp.clip(jnp.concatenate([v, 1 - v.sum(axis=1, keepdims=True)], axis=1), 0.0, 1.0)
        cumulative = jnp.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=0)

        def choose(used: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            i, total = now
            owed = counts - used
            # Values that need all remaining intervals take precedence.
            possible = (owed > 0) | (owed.sum() < intervals - i)
            best = jnp.argmax(jnp.where((used < counts) & possible, total - used.astype(float), -jnp.inf))
            return used.at[best].add(1), best

        return jax.lax.scan(choose, jnp.zeros_like(counts), (jnp.arange(intervals), cumulative))[1]

    return jax.vmap(one)(v, counts)


def begin(first: tuple[Array, Array]) -> Levels:
    """Lanes whose search begins at levels (B, I); flags (B,) mark open counts."""
    levels, free = first
    none = jnp.zeros(len(levels), dtype=int)
    return Levels(
        jnp.asarray(levels), jnp.asarray(free), jnp.full(len(levels), jnp.inf), none, none, none.astype(bool)
    )


@partial(jax.jit, static_argnums=(0, 1))
def exchange(
    structure: LaneStructure,
    steps: int,
    lanes: Lanes,
    state: Levels,
    fresh: Array,
    first: tuple[Array, Array],
) -> Levels:
    """Try some exchanges of every lane; ``fresh`` ones begin at ``first``."""
    state = pick_rows(fresh, begin(first), state)
    vertices = jnp.asarray(structure.vertices)
    passed = run(structure, lanes, vertices[state.levels], steps)
    best = jnp.where(jnp.isinf(state.objective), passed.objective, state.objective)
    trials, real = jax.vmap(partial(_trials, structure))(state, passed.gradient)  # (B, _AT_ONCE, I)
    flat = trials.reshape(-1, structure.intervals)
    repeated = Lanes(*(jnp.repeat(part, _AT_ONCE, axis=0) for part in lanes))
    values = forward(structure, repeated, vertices[flat], steps)[0].reshape(-1, _AT_ONCE)
    better = real & _kept(structure, lanes, vertices[trials]) & (values < best[:, None] - GAIN)
    improved, chosen = better.any(axis=1), jnp.argmax(better, axis=1)
    rows = jnp.arange(len(chosen))
    tried = jnp.where(improved, 0, state.tried + _AT_ONCE)
    rounds = state.rounds + improved.astype(int)
    moved = Levels(
        levels=jnp.where(improved[:, None], trials[rows, chosen], state.levels),
        open=state.open,
        objective=jnp.where(improved, values[rows, chosen], best),
        tried=tried,
        rounds=rounds,
        ended=(tried >= TRIES) | (rounds >= ROUNDS),
    )
    return pick_rows(state.ended, state, moved)


def _kept(structure: LaneStructure, lanes: Lanes, v: Array) -> Array:
    """(B, _AT_ONCE) flags of controls v (B, _AT_ONCE, I, m) that keep the budgets."""
    means = jnp.einsum("btim,bqm->btq", v, lanes.rows) / structure.intervals
    excess = means - lanes.targets[:, None, :]
    equal = jnp.broadcast_to(jnp.array([sense == "equal" for sense in structure.budgets], bool), excess.shape)
    return jnp.all(jnp.where(equal, jnp.abs(excess), excess) <= 1e-9, axis=-1)


def _trials(structure: LaneStructure, state: Levels, gradient: Array) -> tuple[Array, Array]:
    """The next most promising neighbours (_AT_ONCE, I) of one lane, and flags of those that exist."""
    levels = state.levels
    cost = gradient @ jnp.asarray(structure.vertices).T
    change = cost - jnp.take_along_axis(cost, levels[:, None], axis=1)
    edge = jnp.concatenate([levels[1:] != levels[:-1], jnp.zeros(1, bool)])
    beside = edge | jnp.roll(edge, 1)
    width = min(WIDTH, structure.intervals)
    gains, places, values = [], [], []
    for a, b in combinations(range(cost.shape[1]), 2):
        # Intervals at a that would gain most from b, and the reverse; then those next to an edge of a phase.
        for allowed in (jnp.ones_like(beside), beside):
            up_gain, up = _lowest(jnp.where((levels == a) & allowed, change[:, b], jnp.inf), width)
            down_gain, down = _lowest(jnp.where((levels == b) & allowed, change[:, a], jnp.inf), width)
            gains.append((up_gain[:, None] + down_gain[None, :]).ravel())
            pair = jnp.stack(jnp.meshgrid(up, down, indexing="ij"), axis=-1).reshape(-1, 2)
            places.append(pair)
            values.append(jnp.broadcast_to(jnp.array([b, a]), pair.shape))
    # A change of one interval is a pair of twice the same place.
    other = jnp.where(jnp.arange(cost.shape[1])[None] == levels[:, None], jnp.inf, change)
    single = jnp.where(state.open, other.min(axis=1), jnp.inf)
    alone = jnp.arange(len(levels))
    gains.append(single)
    places.append(jnp.stack([alone, alone], axis=1))
    values.append(jnp.repeat(jnp.argmin(other, axis=1)[:, None], 2, axis=1))
    gain, place, value = (jnp.concatenate(parts) for parts in (gains, places, values))
    # Exchanges next to an edge may be among the others already: keep each only once.
    ranked = jnp.argsort(gain)
    key = (place[:, 0] * len(levels) + place[:, 1])[ranked]
    again = (key[1:] == key[:-1]) & (gain[ranked][1:] == gain[ranked][:-1])
    ranked_gain = jnp.where(jnp.concatenate([jnp.zeros(1, bool), again]), jnp.inf, gain[ranked])
    order = ranked[jnp.argsort(ranked_gain)]
    order = jnp.concatenate([order, jnp.full(TRIES, order[-1])])
    chosen = jax.lax.dynamic_slice(order, (state.tried,), (_AT_ONCE,))
    trials = jax.vmap(lambda p, v: levels.at[p].set(v))(place[chosen], value[chosen])
    within = state.tried + jnp.arange(_AT_ONCE) < jnp.sum(jnp.isfinite(ranked_gain))
    return trials, within


def _lowest(values: Array, count: int) -> tuple[Array, Array]:
    largest, places = jax.lax.top_k(-values, count)
    return -largest, places.astype(int)
