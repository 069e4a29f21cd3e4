"""Values that no schedule can beat: bounds and estimates that do not depend on a solver's start."""
