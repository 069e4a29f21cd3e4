"""Schedules for a world that is not known exactly: ensembles, trade-offs, and planning again on the way."""
