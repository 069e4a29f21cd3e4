"""Training."""


def test_loss():
    """On samples that were not trained on."""
    network.eval()
    with torch.no_grad():
        found = loss(*test.tensors).item()
    network.train()
    return found


begun, recent = test_loss(), []
for step, batch in zip(range(1, STEPS + 1), loader, strict=False):
    optimizer.zero_grad()
    now = loss(*batch)
    now.backward()
    optimizer.step()
    for follower in followers:
        follower.step()
    recent.append(now.item())
    if step % max(STEPS // 10, 1) == 0:
        print(f"step {step} of {STEPS}: training loss {sum(recent) / len(recent):.4g}")
        recent.clear()
print(f"test loss: {begun:.4g} before training, {test_loss():.4g} after")
