"""JAX functions as CasADi expressions: `trace` interprets them, `dependencies` asks what they read."""
