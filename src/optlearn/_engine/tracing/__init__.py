"""JAX functions as CasADi expressions: `trace` interprets them on `values`, primitive by primitive."""
