"""``python -m optlearn.cli``."""

from optlearn.cli import main

main()
