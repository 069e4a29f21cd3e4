"""What no schedule can beat: bounds and estimates of the optimum that owe nothing to a solver's start."""
