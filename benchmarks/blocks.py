"""What blocks of a spectrum cost, in time and memory: drift of a committee, its chain, least squares."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import optlearn as ol

BLOCKS = (1, 4, 16, 64)
STATES = 1024


def seconds(calls: list[Callable[[], object]], least: float = 20.0) -> np.ndarray:
    """Time of each call: the shortest, in turn, since all else is what other programs took."""
    shortest, began = np.full(len(calls), np.inf), time.perf_counter()
    while time.perf_counter() - began < least:
        for i, call in enumerate(calls):
            call()  # compiled, and in the cache, which the one before has filled with its own
            start = time.perf_counter()
            call()
            shortest[i] = min(shortest[i], time.perf_counter() - start)
    return shortest


def spectrum(blocks: int) -> ol.Spectrum:
    """Variances from 3 to 0.1, equal shares."""
    return ol.Spectrum(np.geomspace(3.0, 0.1, blocks) if blocks > 1 else [1.0], np.full(blocks, 1 / blocks))


def main() -> None:
    """Print the table, as ratios to no spectrum at all, and with which power of the blocks it grows."""
    with jax.enable_x64(True):
        sizes, memory, *calls = zip(*map(_case, (None, *map(spectrum, BLOCKS))), strict=True)
        costs = np.array([memory, *(seconds(list(kind)) for kind in calls)])
    ratios = costs[:, 1:] / costs[:, :1]
    growth = np.log(ratios[:, -1] / ratios[:, -2]) / np.log(BLOCKS[-1] / BLOCKS[-2])
    print(f"{'blocks':>18} {'numbers':>8} {'memory of drift':>16} {'drift':>8} {'chain':>8} least squares")
    for blocks, size, row in zip(BLOCKS, sizes[1:], ratios.T, strict=True):
        print(f"{blocks:>18} {size:>8} " + _row(row) + "   × none")
    print(f"{f'exponent, {BLOCKS[-2]} to {BLOCKS[-1]}':>18} {'':>8} " + _row(growth))


def _row(values: np.ndarray) -> str:
    return " ".join(f"{value:>{width}.2f}" for value, width in zip(values, (16, 8, 8, 13), strict=True))


def _case(blocks: ol.Spectrum | None) -> tuple[int, float, *tuple[Callable[[], object], ...]]:
    """Numbers in the state, bytes of 1024 drifts; and what takes time: these, 16 chains, an advance."""
    model = ol.models.committee(2, 2, sigma_n=0.1, spectrum=blocks)
    start = model.state(Q=0.3 * np.eye(2), M=0.05 * np.eye(2))
    settings = model.settings()
    flat = jnp.tile(jnp.asarray(model.layout.flatten(start))[None], (STATES, 1))
    one = lambda x: model.layout.flatten(model.drift(model.layout.unflatten(x), settings))  # noqa: E731
    drift = jax.jit(jax.vmap(one)).lower(flat).compile()
    used = drift.memory_analysis()
    schedule = ol.Schedule.constant(1.0, {"learning_rate": 0.5})

    def chain() -> object:
        return ol.simulate(model, schedule, start=start, N=2000, seeds=16, record=2, error=False)

    linear = ol.models.linear(blocks or spectrum(1), noise=0.1, N=2000, recursion=True)
    u, x = linear.settings(), {name: jnp.asarray(value) for name, value in linear.start().items()}
    advance = jax.jit(lambda x, length: linear.advance(x, u, length))
    return (
        model.layout.size,
        float(used.temp_size_in_bytes + used.argument_size_in_bytes + used.output_size_in_bytes),
        lambda: drift(flat).block_until_ready(),
        chain,
        lambda: advance(x, jnp.asarray(1.0))["excess"].block_until_ready(),
    )


if __name__ == "__main__":
    main()
