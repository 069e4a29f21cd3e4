"""Noise to be removed from samples in two clusters."""


class Denoiser(torch.nn.Module):
    """A linear autoencoder with a skip connection, b x + Wᵀ W x.

    In training, ``noise`` is the variance of the noise in its inputs, of which it sees ``copies`` a sample.
    """

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, N) / N**0.5)
        self.skip = torch.nn.Parameter(torch.zeros(()))
        self.noise, self.copies = TEST_NOISE, 1

    def forward(self, x):
        """Noisy inputs (B, N) → what they may have been."""
        return self.skip * x + x @ self.weight.T @ self.weight


def make_data(samples):
    """Clean inputs in two clusters."""
    return TensorDataset(centroids[torch.randint(2, (samples,))] + SPREAD * torch.randn(samples, N))


def loss(x):
    """Half the mean squared distance of the output from the clean input."""
    noise, copies = (network.noise, network.copies) if network.training else (TEST_NOISE, 1)
    x = x.repeat(copies, 1)
    noisy = (1 - noise) ** 0.5 * x + noise**0.5 * torch.randn_like(x)
    return (x - network(noisy)).square().sum(dim=1).mean() / 2


centroids = torch.randn(2, N) / N**0.5
network = Denoiser()
data, test = make_data(SAMPLES), make_data(2000)
groups = [{"params": [network.weight], "lr": RATE / N}, {"params": [network.skip], "lr": SKIP_RATE / N**2}]
optimizer = torch.optim.SGD(groups)
