"""Many problems of one structure, solved at once as lanes of one compiled program."""
