"""A majority and a minority."""


def loss(w, key, now, samples=BATCH):
    """Half the mean squared error of samples of both groups, whose losses may be given weights."""
    keys = jax.random.split(key)
    group = jax.random.bernoulli(keys[0], now.get("sampling", SHARE), (samples,)).astype(int)
    spread, shift = jnp.array(VARIANCE) ** 0.5, jnp.array([MEAN[0], -MEAN[1]])
    x = spread[group, None] * jax.random.normal(keys[1], (samples, N)) + shift[group, None] * axis / N**0.5
    y = jnp.sign(jnp.sum(x * teachers[group], axis=1))
    minority = now.get("reweighting", SHARE)
    weight = jnp.array([(1 - minority) / (1 - SHARE), minority / SHARE])[group]
    return jnp.mean(weight * (x @ w - y) ** 2) / 2


axis, common, *own = jax.random.normal(jax.random.key(0), (4, N))
teachers = (SIMILARITY**0.5 * common + (1 - SIMILARITY) ** 0.5 * jnp.stack(own)) / N**0.5
weights = jnp.zeros(N)
optimizer = optax.sgd(rate)
