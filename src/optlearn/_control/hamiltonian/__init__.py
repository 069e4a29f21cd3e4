"""Pontryagin's Hamiltonian: on intervals, its minimum, and the improvement that it still promises."""
