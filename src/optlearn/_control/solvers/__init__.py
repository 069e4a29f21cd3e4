"""From a start to a schedule: direct, indirect, greedy."""
