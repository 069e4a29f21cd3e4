"""Several tasks for one network."""


class Heads(torch.nn.Module):
    """Hidden nodes that all tasks share, and a head for each task."""

    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(N, K, bias=False)
        self.heads = torch.nn.Linear(K, TASKS, bias=False)
        torch.nn.init.normal_(self.hidden.weight, std=0.3 * N**-0.5)
        torch.nn.init.normal_(self.heads.weight, std=0.1)

    def forward(self, x):
        """Inputs (B, N) → the outputs (B, TASKS) of all heads."""
        return self.heads(torch.erf(self.hidden(x) / 2**0.5))


def make_data(samples, noise):
    """Inputs, labels, and the task of each sample; the tasks' teachers overlap."""
    task, x = torch.arange(samples) % TASKS, torch.randn(samples, N)
    field = (x * teachers[task]).sum(dim=1)
    return TensorDataset(x, torch.erf(field / 2**0.5) + noise * torch.randn(samples), task)


def loss(x, y, task):
    """Half the mean squared error, each sample by the head of its task."""
    return (network(x).gather(1, task[:, None])[:, 0] - y).square().mean() / 2


common, own = torch.randn(1, N), torch.randn(TASKS, N)
teachers = (SIMILARITY**0.5 * common + (1 - SIMILARITY) ** 0.5 * own) / N**0.5
network = Heads()
data, test = make_data(SAMPLES, NOISE), make_data(2000, 0.0)
optimizer = torch.optim.SGD(network.parameters(), lr=RATE / N)
