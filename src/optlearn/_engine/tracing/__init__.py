"""Trace JAX functions into CasADi expressions.

`trace` interprets a function's jaxpr on `values`, which are NumPy arrays or CasADi columns; `arithmetic` and
`moving` say what the primitives do to these. `dependencies` asks what a function reads.
"""
