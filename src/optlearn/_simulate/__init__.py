"""SGD at finite input dimension N: on the weights themselves, or on their overlaps alone."""
