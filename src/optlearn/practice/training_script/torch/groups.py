"""A majority and a minority."""


def make_data(samples):
    """Inputs, labels ±1, and the group of each sample: 0 for the majority, 1 for the minority."""
    group = (torch.arange(samples) < SHARE * samples).long()
    x = torch.randn(samples, N) * torch.tensor(VARIANCE)[group, None].sqrt()
    x += torch.tensor([MEAN[0], -MEAN[1]])[group, None] * axis / N**0.5
    return TensorDataset(x, torch.sign((x * teachers[group]).sum(dim=1)), group)


def loss(x, y, group):
    """Half the mean squared error; in training, the groups' losses may be given weights."""
    weight = torch.ones(len(x))
    if network.training and hasattr(network, "reweighting"):
        share = torch.tensor([1 - network.reweighting, network.reweighting])
        weight = (share / torch.tensor([1 - SHARE, SHARE]))[group]
    return (weight * (network(x)[:, 0] - y).square()).mean() / 2


axis, common, own = torch.randn(N), torch.randn(1, N), torch.randn(2, N)
teachers = (SIMILARITY**0.5 * common + (1 - SIMILARITY) ** 0.5 * own) / N**0.5
network = torch.nn.Linear(N, 1, bias=False)
torch.nn.init.zeros_(network.weight)
data, test = make_data(SAMPLES), make_data(2000)
optimizer = torch.optim.SGD(network.parameters(), lr=RATE / N)
