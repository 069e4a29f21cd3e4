"""Local fields, Gaussian expectations, the generic drift, order parameters, integration."""
