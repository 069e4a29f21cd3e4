"""From theory to practice: data sets, the model's parameters fitted to data, and training on real data."""
