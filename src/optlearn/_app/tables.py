"""Words and ranges that a scenario's signature does not hold; without an entry here it works all the same."""

from collections.abc import Mapping

# Argument → what it is called on the page, and its symbol.
WORDS: Mapping[str, tuple[str, str]] = {
    "alpha_F": ("Training time, steps/N", "α_F"),
    "eta": ("Learning rate", "η"),
    "weight_decay": ("Weight decay", "λ"),
    "Delta[0]": ("Variance, easy samples", "Δ₁"),
    "Delta[1]": ("Variance, hard samples", "Δ₂"),
    "T": ("Teacher's squared norm", "T"),
    "easy_share": ("Share of easy samples", ""),
    "test_easy_share": ("Share of easy samples, test", ""),
    "joint": ("Optimise the learning rate too", ""),
    "max_learning_rate": ("Largest learning rate", "η"),
    "K": ("Student's hidden nodes", "K"),
    "M": ("Teacher's hidden nodes", "M"),
    "sigma_n": ("Label noise", "σ_n"),
    "Delta_F": ("Noise at test time", "Δ_F"),
    "sigma": ("Spread of the inputs", "σ"),
    "N": ("Input dimension", "N"),
    "start": ("Start", ""),
    "skip_rate": ("Learning rate of the skip", "η_b"),
    "finite_size": ("Keep terms of order 1", ""),
    "mean_batch": ("Mean batch", "B"),
    "max_batch": ("Largest batch", "B"),
    "control": ("What is controlled", ""),
}

# (Scenario, argument) → lowest, highest and step.
RANGES: Mapping[tuple[str, str], tuple[float, float, float]] = {
    ("curriculum", "alpha_F"): (2, 20, 0.5),
    ("curriculum", "eta"): (0.5, 6, 0.1),
    ("curriculum", "weight_decay"): (0, 0.3, 0.005),
    ("curriculum", "Delta[0]"): (0, 1, 0.05),
    ("curriculum", "Delta[1]"): (0.2, 4, 0.1),
    ("curriculum", "T"): (0.5, 4, 0.1),
    ("curriculum", "easy_share"): (0.05, 0.95, 0.05),
    ("curriculum", "test_easy_share"): (0, 1, 0.05),
    ("curriculum", "max_learning_rate"): (4, 20, 0.5),
    ("dropout", "K"): (1, 4, 1),
    ("dropout", "M"): (1, 3, 1),
    ("dropout", "sigma_n"): (0, 0.6, 0.01),
    ("dropout", "eta"): (0.2, 2, 0.05),
    ("dropout", "alpha_F"): (1, 10, 0.25),
    ("denoising", "Delta_F"): (0.05, 0.9, 0.01),
    ("denoising", "alpha_F"): (0.2, 1.6, 0.05),
    ("denoising", "eta"): (1, 8, 0.1),
    ("denoising", "sigma"): (0.02, 0.3, 0.01),
    ("denoising", "N"): (100, 10_000, 100),
    ("denoising", "skip_rate"): (1, 8, 0.1),
    ("denoising_batch", "Delta_F"): (0.05, 0.9, 0.01),
    ("denoising_batch", "mean_batch"): (1.5, 20, 0.5),
    ("denoising_batch", "max_batch"): (5, 100, 5),
    ("denoising_batch", "sigma"): (0.02, 0.3, 0.01),
}

# Text arguments whose values the signature does not say.
CHOICES: Mapping[str, tuple[str, ...]] = {"start": ("fig3", "figS"), "activation": ("erf", "linear")}

# Scenario → what is shown first; the rest is under "More". Others: the first FIRST arguments.
MAIN: Mapping[str, tuple[str, ...]] = {
    "curriculum": ("weight_decay", "eta", "alpha_F", "easy_share", "Delta[1]", "joint"),
    "dropout": ("sigma_n", "eta", "alpha_F", "K", "M"),
    "denoising": ("Delta_F", "alpha_F", "eta", "sigma"),
}
