"""Schedules for an uncertain world: ensembles, trade-offs, and replanning during training."""
