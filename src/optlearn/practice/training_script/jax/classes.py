"""Easy and hard samples of two classes."""


def loss(w, key, now, samples=BATCH):
    """Half the mean squared distance from the labels ±1; without ``now``, of easy and hard ones in turn."""
    relevant, clutter = jax.random.normal(key, (2, samples, N))
    difficulty = now.get("difficulty", jnp.resize(jnp.array(CLUTTER), (samples, 1)))
    field = relevant @ w[:N] + (clutter * difficulty**0.5) @ w[N:]
    return jnp.mean((jax.scipy.special.erf(field / 2) - jnp.sign(relevant @ teacher)) ** 2) / 2


teacher, *start = jax.random.normal(jax.random.key(0), (3, N)) / N**0.5
teacher, weights = TEACHER**0.5 * teacher, jnp.concatenate(start)
optimizer = optax.sgd(rate)
