"""Several tasks for one network."""


def loss(w, key, now, samples=BATCH):
    """Half the mean squared error, each sample by the head of its task; without ``now``, of all in turn."""
    keys = jax.random.split(key)
    x = jax.random.normal(keys[0], (samples, N))
    task = jnp.resize(jnp.asarray(now.get("task", jnp.arange(TASKS)), dtype=int), (samples,))
    noise = (NOISE if now else 0.0) * jax.random.normal(keys[1], (samples,))
    y = jax.scipy.special.erf(jnp.sum(x * teachers[task], axis=1) / 2**0.5) + noise
    hidden = jax.scipy.special.erf(x @ w["hidden"].T / 2**0.5)
    return jnp.mean((jnp.sum(hidden * w["heads"][task], axis=1) - y) ** 2) / 2


keys = jax.random.split(jax.random.key(0), 4)
common, own = jax.random.normal(keys[0], (1, N)), jax.random.normal(keys[1], (TASKS, N))
teachers = (SIMILARITY**0.5 * common + (1 - SIMILARITY) ** 0.5 * own) / N**0.5
weights = {
    "hidden": 0.3 * jax.random.normal(keys[2], (K, N)) / N**0.5,
    "heads": 0.1 * jax.random.normal(keys[3], (TASKS, K)),
}
optimizer = optax.sgd(rate)
