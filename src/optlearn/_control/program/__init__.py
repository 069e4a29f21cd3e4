"""A problem as functions of vectors, under CasADi or XLA."""
