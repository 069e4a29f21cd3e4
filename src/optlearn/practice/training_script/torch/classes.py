"""Easy and hard samples of two classes."""

teacher = torch.randn(N) * (TEACHER / N) ** 0.5


def make_data(samples):
    """Inputs, labels ±1, and which are hard: these have more clutter in the second half of their inputs."""
    hard = torch.arange(samples) % len(CLUTTER)
    relevant, clutter = torch.randn(samples, N), torch.randn(samples, N)
    clutter *= torch.tensor(CLUTTER)[hard, None].sqrt()
    return TensorDataset(torch.cat([relevant, clutter], dim=1), torch.sign(relevant @ teacher), hard)


def loss(x, y, hard):
    """Half the mean squared distance of the outputs from the labels."""
    return (torch.erf(network(x)[:, 0] / 2) - y).square().mean() / 2


network = torch.nn.Linear(2 * N, 1, bias=False)
torch.nn.init.normal_(network.weight, std=N**-0.5)
data, test = make_data(SAMPLES), make_data(2000)
optimizer = torch.optim.SGD(network.parameters(), lr=RATE / N)
