"""What blocks of a spectrum cost, in time and memory: drift of a committee, its chain, least squares."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import optlearn as ol

BLOCKS = (1, 4, 16, 64)
STATES = 1024


def seconds(call: Callable[[], object], least: float = 0.5) -> float:
    """Time of a call: the shortest, since all else is what other programs took."""
    call()
    shortest, began = np.inf, time.perf_counter()
    while time.perf_counter() - began < least:
        start = time.perf_counter()
        call()
        shortest = min(shortest, time.perf_counter() - start)
    return float(shortest)


def spectrum(blocks: int) -> ol.Spectrum:
    """Variances from 3 to 0.1, equal shares."""
    return ol.Spectrum(np.geomspace(3.0, 0.1, blocks) if blocks > 1 else [1.0], np.full(blocks, 1 / blocks))


def main() -> None:
    """Print the table, as ratios to no spectrum at all, and with which power of the blocks it grows."""
    titles = f"{'blocks':>7} {'numbers':>8} {'memory of drift':>16}"
    print(f"{titles} {'drift':>8} {'chain':>8} {'least squares':>14}   × none")
    with jax.enable_x64(True):
        _, *base = _costs(None)
        table = []
        for blocks in BLOCKS:
            size, *costs = _costs(spectrum(blocks))
            table.append(np.divide(costs, base))
            memory, drift, chain, advance = table[-1]
            print(
                f"{blocks:>7} {size:>8} {memory:>16.2f} {drift:>8.2f} {chain:>8.2f} {advance:>14.2f}",
                flush=True,
            )
    growth = np.log(table[-1] / table[-2]) / np.log(BLOCKS[-1] / BLOCKS[-2])
    memory, drift, chain, advance = growth
    title = f"exponent, {BLOCKS[-2]} to {BLOCKS[-1]}"
    print(f"{title:>16} {memory:>16.2f} {drift:>8.2f} {chain:>8.2f} {advance:>14.2f}")


def _costs(blocks: ol.Spectrum | None) -> tuple[int, float, float, float, float]:
    """Numbers in the state; bytes and seconds of 1024 drifts; seconds of 16 chains, of an advance."""
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
        seconds(lambda: drift(flat).block_until_ready()),
        seconds(chain),
        seconds(lambda: advance(x, jnp.asarray(1.0))["excess"].block_until_ready()),
    )


if __name__ == "__main__":
    main()
