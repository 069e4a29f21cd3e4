"""Sections of the PyTorch scripts that ``optlearn.practice.script`` puts together.

A section begins with a comment ``# --- name: title ---``. Names that a section does not define come from the
head of the script, and later sections define ``make_data`` and ``loss`` again: a script has one of them.
"""

# --- classes: easy and hard samples of two classes ---

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


# --- committee: a committee of nodes that learns another one ---


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


# --- denoising: noise to be removed from samples in two clusters ---


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


# --- gating: a gated network that learns another one ---


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


# --- groups: a majority and a minority ---


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


# --- tasks: several tasks for one network ---


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


# --- attention: an attention layer that learns another one ---


class Attention(torch.nn.Module):
    """Means of tokens by dot-product attention, heads averaged; ``temperature`` multiplies the scores."""

    def __init__(self, norm):
        super().__init__()
        self.queries, self.keys = (torch.nn.Linear(N, HEADS, bias=False) for _ in range(2))
        for layer in (self.queries, self.keys):
            torch.nn.init.normal_(layer.weight, std=(norm / N) ** 0.5)
        self.temperature, self.mask = 1.0, 0.0

    def forward(self, x, near, few):
        """Tokens (B, L, N) → (B, L, N); where ``near``, of two tokens only; where ``few``, by one head."""
        scores = torch.einsum("blh,bkh->bhlk", self.queries(x), self.keys(x))
        scores = (self.temperature if self.training else 1.0) * scores
        scores = scores.masked_fill(near[:, None, None, None] & ~neighbours, -1e4)
        heads = scores.softmax(dim=2)
        mean = torch.where(few[:, None, None], heads[:, 0], heads.mean(dim=1))
        return torch.einsum("bln,blk->bkn", x, mean)


def make_data(samples):
    """Random tokens; their targets are what another attention layer makes of them."""
    return TensorDataset(torch.randn(samples, TOKENS, N))


def loss(x):
    """Half the mean squared distance from the teacher; the scheduled share of samples is masked."""
    masked = torch.rand(len(x)) < (network.mask if network.training else 0.0)
    near, few = (masked & (what == MASKED) for what in ("token_mask", "head_mask"))
    with torch.no_grad():
        target = teacher(x, near, torch.zeros_like(few))
    return (network(x, near, few) - target).square().sum(dim=(1, 2)).mean() / (2 * N)


neighbours = torch.eye(TOKENS, dtype=torch.bool) | torch.eye(TOKENS, dtype=torch.bool).roll(1, dims=0)
teacher, network = Attention(norm=TEACHER).eval(), Attention(norm=0.3)
with torch.no_grad():  # it has an idea of what to learn, else nothing would happen for long
    for name, weight in network.named_parameters():
        weight += 0.3 * teacher.get_parameter(name)
data, test = make_data(SAMPLES), make_data(2000)
optimizer = torch.optim.SGD(network.parameters(), lr=RATE / N)


# --- training: training ---


def test_loss():
    """On samples that were not trained on."""
    network.eval()
    with torch.no_grad():
        found = loss(*test.tensors).item()
    network.train()
    return found


checkpoint, first = Path(__file__).with_suffix(".checkpoint.pt"), 1
kept += followers
if "--resume" in sys.argv:
    *states, first = torch.load(checkpoint)
    for part, state in zip(kept, states, strict=True):
        part.load_state_dict(state)
    print(f"resumed after step {first - 1}")

begun, recent = test_loss(), []
for step, batch in zip(range(first, STEPS + 1), loader, strict=False):
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
        torch.save([*(part.state_dict() for part in kept), step + 1], checkpoint)
print(f"test loss: {begun:.4g} before training, {test_loss():.4g} after")
