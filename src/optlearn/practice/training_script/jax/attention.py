"""An attention layer that learns another one."""


def output(w, x, near, few, temperature=1.0):
    """Means of tokens (B, L, N), heads averaged; where ``near``, of two tokens; if ``few``, by one head."""
    q, k = (jnp.einsum("bln,hn->bhl", x, part) for part in w)
    scores = temperature * q[:, :, :, None] * k[:, :, None, :]
    seen = jnp.eye(TOKENS) + jnp.roll(jnp.eye(TOKENS), 1, axis=0) > 0
    scores = jnp.where(near[:, None, None, None] & ~seen, -1e4, scores)
    heads = jax.nn.softmax(scores, axis=2)
    mean = jnp.where(few[:, None, None], heads[:, 0], heads.mean(axis=1))
    return jnp.einsum("bln,blk->bkn", x, mean)


def loss(w, key, now, samples=BATCH):
    """Half the mean squared distance from the teacher; the scheduled share of samples is masked."""
    keys = jax.random.split(key)
    x = jax.random.normal(keys[0], (samples, TOKENS, N))
    masked = jax.random.bernoulli(keys[1], now.get("mask", 0.0), (samples,))
    near, few = (masked & (what == MASKED) for what in ("token_mask", "head_mask"))
    found = output(w, x, near, few, now.get("temperature", 1.0))
    target = output(teacher, x, near, jnp.zeros_like(few))
    return jnp.mean(jnp.sum((found - target) ** 2, axis=(1, 2))) / (2 * N)


teacher, start = jax.random.normal(jax.random.key(0), (2, 2, HEADS, N)) / N**0.5
teacher = TEACHER**0.5 * teacher
weights = 0.5 * start + 0.3 * teacher  # it has an idea of what to learn, else nothing would happen for long
optimizer = optax.sgd(rate)
