"""Optimal control of the order parameters: problems, solvers, certificates."""
