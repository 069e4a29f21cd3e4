"""Training."""


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


state, begun, recent = optimizer.init(weights), test_loss(), []
for step in range(STEPS):
    weights, state, value = train_step(weights, state, step)
    recent.append(value)
    if (step + 1) % max(STEPS // 10, 1) == 0:
        print(f"step {step + 1} of {STEPS}: training loss {sum(recent) / len(recent):.4g}")
        recent.clear()
print(f"test loss: {begun:.4g} before training, {test_loss():.4g} after")
