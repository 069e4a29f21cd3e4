"""``python -m optlearn._cli``."""

from optlearn._cli import main

main()
