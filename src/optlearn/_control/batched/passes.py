"""Forward and backward through training, all lanes at once.

Lanes come last inside the loops: every operation of a step is then one vector instruction over all problems.
The backward pass is the exact adjoint of the steps, recomputed from the states at their beginnings.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from optlearn._arrays import Array
from optlearn._control.batched.lanes import Lanes, Structure


class Passes(NamedTuple):
    """A forward and a backward pass of B lanes on I intervals of s steps.

    Attributes:
        objective: (B,) of each lane.
        gradient: (B, I, m) derivative in the controls v.
        states: (I·s + 1, n, B) at the ends of all steps.
        costates: (I·s + 1, n, B) derivative of the objective in the states.
    """

    objective: Array
    gradient: Array
    states: Array
    costates: Array


def forward(structure: Structure, lanes: Lanes, v: Array, steps: int) -> tuple[Array, Array]:
    """Objectives (B,) and states (I·s, n, B) at the beginnings of steps, then (n, B) at the end."""
    last, w, h = _lanes_last(structure, lanes, v, steps)

    def advance(carry: tuple[Array, Array], t: Array) -> tuple[tuple[Array, Array], Array]:
        x, total = carry
        end, cost = jax.vmap(structure.step, in_axes=-1, out_axes=-1)(last, x, w[t // steps], h)
        return (end, total + cost), x

    begin = (last.start, jnp.zeros(len(h)))
    (end, total), states = jax.lax.scan(advance, begin, jnp.arange(structure.intervals * steps))
    final = jax.vmap(structure.final, in_axes=(-1, -1, None))(last.constants, end, jnp.zeros(0))
    return total + final, jnp.concatenate([states, end[None]])


def run(structure: Structure, lanes: Lanes, v: Array, steps: int) -> Passes:
    """A forward and a backward pass under controls v (B, I, m)."""
    objective, states = forward(structure, lanes, v, steps)
    last, w, h = _lanes_last(structure, lanes, v, steps)
    slope = jax.grad(structure.final, argnums=1)
    costate = jax.vmap(slope, in_axes=(-1, -1, None), out_axes=-1)(last.constants, states[-1], jnp.zeros(0))

    def one(lane: Lanes, x: Array, w: Array, h: Array, costate: Array) -> tuple[Array, Array]:
        _, pull = jax.vjp(lambda x, w: structure.step(lane, x, w, h), x, w)
        return pull((costate, jnp.ones(())))

    def back(costate: Array, t: Array) -> tuple[Array, tuple[Array, Array]]:
        before, by_w = jax.vmap(one, in_axes=-1, out_axes=-1)(last, states[t], w[t // steps], h, costate)
        return before, (before, by_w)

    total = structure.intervals * steps
    _, (costates, by_w) = jax.lax.scan(back, costate, jnp.arange(total), reverse=True)
    gradient = by_w.reshape(structure.intervals, steps, *by_w.shape[1:]).sum(axis=1) * last.width[None]
    return Passes(
        objective, jnp.moveaxis(gradient, -1, 0), states, jnp.concatenate([costates, costate[None]])
    )


def _lanes_last(structure: Structure, lanes: Lanes, v: Array, steps: int) -> tuple[Lanes, Array, Array]:
    """The lanes, their controls (I, m, B) and the lengths (B,) of their steps."""
    w = jax.vmap(structure.controls)(lanes, v)
    last = Lanes(*(jnp.moveaxis(part, 0, -1) for part in lanes))
    return last, jnp.moveaxis(w, 0, -1), lanes.horizon / (structure.intervals * steps)
