"""A gated network that learns another one."""


def output(w, x, **changed):
    """A value w₁·x times a gate Φ(γ(w₀·x − θ)) with gain γ and threshold θ, or an open one (switch 0)."""
    setting = {"gain": GAIN, "threshold": THRESHOLD, "switch": 1.0, **changed}
    gate = jax.scipy.stats.norm.cdf(setting["gain"] * (x @ w[0] - setting["threshold"]))
    return x @ w[1] * (1 - setting["switch"] + setting["switch"] * gate)


def loss(w, key, now, samples=BATCH):
    """Half the mean squared error of fresh samples; without ``now``, with the teacher's gate."""
    keys = jax.random.split(key)
    x = jax.random.normal(keys[0], (samples, N))
    y = output(teacher, x) + (NOISE if now else 0.0) * jax.random.normal(keys[1], (samples,))
    return jnp.mean((output(w, x, **({CONTROL: now["gate"]} if now else {})) - y) ** 2) / 2


teacher, weights = jax.random.normal(jax.random.key(0), (2, 2, N)) / N**0.5
optimizer = optax.sgd(rate)
