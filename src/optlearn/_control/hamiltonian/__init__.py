"""Pontryagin's Hamiltonian: on intervals, its minimum, and what it says is still to be won."""
