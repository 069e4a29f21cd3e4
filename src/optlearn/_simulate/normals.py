"""Random numbers of the simulators; see docs/decisions/003-simulator-random-numbers.md."""

from math import factorial

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arrays import Array, Float, Float32, Float64, Key, UInt64

_SIGN = np.uint32(0x80000000)
_ONE = np.float32(1)
# Taylor coefficients of sin ψ / ψ and cos ψ in ψ²: enough for float32 on |ψ| ≤ π/4.
_SIN = [np.float32((-1) ** i / factorial(2 * i + 1)) for i in range(5)]
_COS = [np.float32((-1) ** i / factorial(2 * i)) for i in range(5)]


def make_keys(seed: int, seeds: int) -> Key[Array, " seeds"]:
    """(seeds,) independent keys. The generator is fixed, so the host's JAX settings do not matter."""
    root = jax.random.key(seed, impl="threefry2x32")
    return jax.vmap(lambda i: jax.random.fold_in(root, i))(jnp.arange(seeds, dtype=jnp.uint32))


def symmetric_uniforms(key: Key[Array, ""], shape: tuple[int, ...]) -> Float64[Array, "..."]:
    """Uniform numbers in (−1, 1): the only kind drawn in float64.

    ``as_normal`` and ``as_share`` convert them to the others. A generator is slow to compile: using two or
    three of them, rather than one for each purpose, halves the compilation time of a simulator.
    """
    lowest = np.nextafter(-1.0, 0.0)
    # Drawn as one row: XLA takes five times as long to compile the generator for three dimensions.
    count = int(np.prod(shape))
    row = jax.random.uniform(key, (count,), dtype=jnp.float64, minval=lowest, maxval=1.0)
    return row.reshape(shape)


def as_normal(uniforms: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Standard normals from numbers in (−1, 1)."""
    return np.sqrt(2.0) * jax.lax.erf_inv(uniforms)


def as_share(uniforms: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Uniform numbers in (0, 1) from numbers in (−1, 1)."""
    return (1 + uniforms) / 2


def input_noise(
    pairs: Key[Array, ""], last: Key[Array, ""], rows: int, N: int, dtype: str
) -> list[Float[Array, " N"]]:
    """``rows`` vectors (N,) of independent standard normals, from two keys."""
    if dtype == "float64":
        return list(jax.random.normal(pairs, (rows, N), dtype=jnp.float64))
    # A 64-bit word gives one entry for each of two vectors; for an odd vector, two entries.
    vectors: list[Array] = []
    if rows > 1:
        words = jax.random.bits(pairs, (rows // 2, N), dtype=jnp.uint64)
        vectors += [row for half in box_muller(words) for row in half]
    if rows % 2:
        words = jax.random.bits(last, ((N + 1) // 2,), dtype=jnp.uint64)
        vectors.append(jnp.concatenate(box_muller(words))[:N])
    return vectors


def box_muller(words: UInt64[Array, "*n"]) -> tuple[Float32[Array, "*n"], Float32[Array, "*n"]]:
    """Two independent float32 normals from each random 64-bit word.

    The low half gives the radius: a 31-bit uniform, so values reach 6.6. The high half gives the angle:
    two bits the quadrant (as two signs), thirty bits ψ in [−π/4, π/4) about its middle, where
    ``√2 cos(π/4 + ψ) = cos ψ − sin ψ`` and ``√2 sin(π/4 + ψ) = cos ψ + sin ψ``; the √2 cancels that of the
    radius √(−2 ln U).
    """
    low = words.astype(jnp.uint32)
    high = (words >> np.uint64(32)).astype(jnp.uint32)
    # Through signed integers: their conversion to float is one instruction on every CPU.
    uniform = (_signed(low >> np.uint32(1)) + np.float32(0.5)) * np.float32(2.0**-31)
    radius = jnp.sqrt(-jnp.log(uniform))
    angle = _signed(high << np.uint32(2)) * np.float32(np.pi / 4 * 2.0**-31)
    square = angle * angle
    sine = angle * _polynomial(_SIN, square)
    cosine = _polynomial(_COS, square)
    return (
        _with_sign(radius * (cosine - sine), high),
        _with_sign(radius * (cosine + sine), high << np.uint32(1)),
    )


def chi_square(
    key: Key[Array, ""], degrees: Float[Array, "..."], shape: tuple[int, ...]
) -> Float[Array, "..."]:
    """Exact χ² numbers; ``degrees`` ≥ 1 broadcasts against ``shape``.

    Marsaglia and Tsang's method for all numbers together until every one is accepted: at the large degrees of
    a simulation the first round is nearly always the last (``jax.random.gamma`` loops number by number).
    """
    degrees = jnp.broadcast_to(degrees, shape)
    # The method needs at least 2 degrees; one degree is a squared normal.
    single = degrees < 2
    d = jnp.maximum(degrees, 2.0) / 2 - 1 / 3
    c = 1 / jnp.sqrt(9 * d)

    def propose(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        round_, value, accepted = state
        uniforms = symmetric_uniforms(jax.random.fold_in(key, round_), (2, *shape))
        z, log_share = as_normal(uniforms[0]), jnp.log(as_share(uniforms[1]))
        cube = (1 + c * z) ** 3
        safe = jnp.where(cube > 0, cube, 1.0)
        good = (cube > 0) & (log_share < z**2 / 2 + d * (1 - safe + jnp.log(safe)))
        proposed = jnp.where(single, z**2, 2 * d * cube)
        return round_ + 1, jnp.where(accepted, value, proposed), accepted | good | single

    start = (jnp.zeros((), jnp.uint32), jnp.zeros(shape), jnp.zeros(shape, bool))
    return jax.lax.while_loop(lambda state: ~jnp.all(state[2]), propose, start)[1]


def _signed(word: Array) -> Array:
    return jax.lax.bitcast_convert_type(word, jnp.int32).astype(jnp.float32)


def _with_sign(value: Array, word: Array) -> Array:
    bits = jax.lax.bitcast_convert_type(value, jnp.uint32) ^ (word & _SIGN)
    return jax.lax.bitcast_convert_type(bits, jnp.float32)


def _polynomial(coefficients: list[np.float32], x: Array) -> Array:
    total = jnp.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total
