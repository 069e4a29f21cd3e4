"""Noise to be removed from samples in two clusters."""


def loss(w, key, now, samples=1):
    """Half the mean squared distance of b x̃ + Wᵀ W x̃ from clean inputs, over noisy copies of each."""
    copies = LARGEST if now else 1
    keys = jax.random.split(key, 3)
    cluster = jax.random.randint(keys[0], (samples,), 0, 2)
    x = centroids[cluster] + SPREAD * jax.random.normal(keys[1], (samples, N))
    noise = now.get("noise", TEST_NOISE)
    noisy = (1 - noise) ** 0.5 * x + noise**0.5 * jax.random.normal(keys[2], (copies, samples, N))
    distance = jnp.sum((x - w["skip"] * noisy - noisy @ w["tied"].T @ w["tied"]) ** 2, axis=2)
    used = jnp.arange(copies)[:, None] < jnp.round(now.get("batch", copies))
    return jnp.sum(used * distance) / jnp.sum(used) / samples / 2


centroids, tied = jax.random.normal(jax.random.key(0), (2, 2, N)) / N**0.5
weights = {"tied": tied, "skip": jnp.zeros(())}
rates = {"tied": optax.sgd(RATE / N), "skip": optax.sgd(SKIP_RATE / N**2)}
optimizer = optax.multi_transform(rates, {"tied": "tied", "skip": "skip"})
