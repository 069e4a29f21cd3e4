"""Pontryagin's Hamiltonian on intervals, its minimum, and the possible improvement that follows from it."""
