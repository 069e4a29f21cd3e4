"""One file for each verb of the command line; ``optlearn._cli`` names them in the order of the help."""
