"""What can be controlled, and its integration over training."""
