"""A committee of nodes that learns another one."""


def output(w, x, on=1.0):
    """Weights (K, N), inputs (B, N) → the sum of nodes erf(w·x/√2), of those that are on (B, K)."""
    return jnp.sum(on * jax.scipy.special.erf(x @ w.T / 2**0.5), axis=1)


def loss(w, key, now, samples=LARGEST):
    """Half the mean squared error of fresh samples, as many as the batch has; without ``now``, of a test."""
    keys = jax.random.split(key, 3)
    x = jax.random.normal(keys[0], (samples, N))
    y = output(teacher, x) + (NOISE if now else 0.0) * jax.random.normal(keys[1], (samples,))
    on = jax.random.bernoulli(keys[2], now.get("activation", 1.0), (samples, K))
    factor = 1.0 if "activation" in now else schedule.parameters.get("rescaling", 1.0)
    used = jnp.arange(samples) < jnp.round(now.get("batch", samples))
    return jnp.sum(used * (factor * output(w, x, on) - y) ** 2) / jnp.sum(used) / 2


key_of_teacher, key_of_start = jax.random.split(jax.random.key(0))
teacher = jax.random.normal(key_of_teacher, (M, N)) / N**0.5
weights = jax.random.normal(key_of_start, (K, N)) * (0.5 / N) ** 0.5
optimizer = optax.sgd(rate)
