"""An attention layer that learns another one."""


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
