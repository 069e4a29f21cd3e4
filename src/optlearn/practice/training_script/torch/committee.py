"""A committee of nodes that learns another one."""


class Committee(torch.nn.Module):
    """The sum of some nodes erf(W x/√2)."""

    def __init__(self, nodes, norm):
        super().__init__()
        self.hidden = torch.nn.Linear(N, nodes, bias=False)
        torch.nn.init.normal_(self.hidden.weight, std=(norm / N) ** 0.5)
        self.dropout = torch.nn.Identity()

    def forward(self, x):
        """Inputs (B, N) → outputs (B,)."""
        return self.dropout(torch.erf(self.hidden(x) / 2**0.5)).sum(dim=1)


def make_data(samples, noise):
    """Inputs and labels of a committee that is to be learned."""
    x = torch.randn(samples, N)
    with torch.no_grad():
        return TensorDataset(x, teacher(x) + noise * torch.randn(samples))


def loss(x, y):
    """Half the mean squared error of a batch."""
    return (network(x) - y).square().mean() / 2


teacher, network = Committee(M, norm=1.0), Committee(K, norm=0.5)
data, test = make_data(SAMPLES, NOISE), make_data(2000, 0.0)
optimizer = torch.optim.SGD(network.parameters(), lr=RATE / N)
