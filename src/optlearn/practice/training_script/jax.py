"""Sections of the JAX scripts that ``optlearn.practice.script`` puts together; see ``torch.py`` beside it."""

# --- classes: easy and hard samples of two classes ---


def loss(w, key, now, samples=BATCH):
    """Half the mean squared distance from the labels ±1; without ``now``, of easy and hard ones in turn."""
    relevant, clutter = jax.random.normal(key, (2, samples, N))
    difficulty = now.get("difficulty", jnp.resize(jnp.array(CLUTTER), (samples, 1)))
    field = relevant @ w[:N] + (clutter * difficulty**0.5) @ w[N:]
    return jnp.mean((jax.scipy.special.erf(field / 2) - jnp.sign(relevant @ teacher)) ** 2) / 2


teacher, *start = jax.random.normal(jax.random.key(0), (3, N)) / N**0.5
teacher, weights = TEACHER**0.5 * teacher, jnp.concatenate(start)
optimizer = optax.sgd(rate)


# --- committee: a committee of nodes that learns another one ---


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


# --- denoising: noise to be removed from samples in two clusters ---


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


# --- gating: a gated network that learns another one ---


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


# --- groups: a majority and a minority ---


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


# --- tasks: several tasks for one network ---


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


# --- attention: an attention layer that learns another one ---


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


# --- training: training ---


@jax.jit
def train_step(weights, state, step):
    """One step, on samples of its own."""
    now = {name: control(step) for name, control in controls.items()}
    value, gradient = jax.value_and_grad(loss)(weights, jax.random.fold_in(jax.random.key(1), step), now)
    updates, state = optimizer.update(gradient, state)
    return optax.apply_updates(weights, updates), state, value


def test_loss():
    """On samples that were not trained on."""
    return float(loss(weights, jax.random.key(2), {}, samples=2000))


state, begun, recent, first = optimizer.init(weights), test_loss(), [], 0
checkpoint = Path(__file__).with_suffix(".checkpoint.npz")
leaves, structure = jax.tree.flatten((weights, state))
if "--resume" in sys.argv:
    with np.load(checkpoint) as file:
        *leaves, first = (file[f"arr_{i}"] for i in range(len(leaves) + 1))
    weights, state = jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in leaves])
    print(f"resumed after step {first}")
for step in range(int(first), STEPS):
    weights, state, value = train_step(weights, state, step)
    recent.append(value)
    if (step + 1) % max(STEPS // 10, 1) == 0:
        print(f"step {step + 1} of {STEPS}: training loss {sum(recent) / len(recent):.4g}")
        recent.clear()
        np.savez(checkpoint, *jax.tree.leaves((weights, state)), step + 1)
print(f"test loss: {begun:.4g} before training, {test_loss():.4g} after")
