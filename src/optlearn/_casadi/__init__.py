"""Trace JAX functions into CasADi expressions."""
