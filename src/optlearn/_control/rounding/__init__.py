"""Admissible values from relaxed ones."""
