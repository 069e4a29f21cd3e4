"""A gated network that learns another one."""


class Gated(torch.nn.Module):
    """A value V x times a gate Φ(γ(G x − θ)) with the normal distribution function Φ.

    ``gate`` is one of the gain γ, the threshold θ and a switch (0: the gate is open); the others are as in
    the teacher.
    """

    def __init__(self, gate):
        super().__init__()
        self.gates, self.values = (torch.nn.Linear(N, 1, bias=False) for _ in range(2))
        for layer in (self.gates, self.values):
            torch.nn.init.normal_(layer.weight, std=N**-0.5)
        self.gate = gate

    def forward(self, x):
        """Inputs (B, N) → outputs (B,)."""
        setting = {"gain": GAIN, "threshold": THRESHOLD, "switch": 1.0}
        if self.training:
            setting[CONTROL] = self.gate
        opening = torch.special.ndtr(setting["gain"] * (self.gates(x) - setting["threshold"]))
        opening = 1 - setting["switch"] + setting["switch"] * opening
        return (self.values(x) * opening)[:, 0]


def make_data(samples, noise):
    """Inputs and labels of a gated network that is to be learned."""
    x = torch.randn(samples, N)
    with torch.no_grad():
        return TensorDataset(x, teacher(x) + noise * torch.randn(samples))


def loss(x, y):
    """Half the mean squared error of a batch."""
    return (network(x) - y).square().mean() / 2


teacher, network = Gated(gate=0.0).eval(), Gated(gate=1.0)
data, test = make_data(SAMPLES, NOISE), make_data(2000, 0.0)
optimizer = torch.optim.SGD(network.parameters(), lr=RATE / N)
