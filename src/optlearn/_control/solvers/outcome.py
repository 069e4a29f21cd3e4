"""How a solver ended, in words that say what to do."""

from enum import Enum


class Outcome(Enum):
    """Every end of a solver; the value is advice."""

    SOLVED = "solved to tolerance"
    ACCEPTABLE = "solved to the looser, acceptable tolerance: compare with another method or more intervals"
    STALLED = (
        "no further progress although the tolerance is not met: the certificate says how much may "
        "be left to win; try more starts or another method"
    )
    ITERATIONS = "stopped at the iteration limit: raise max_iterations, or warm start from this solution"
    INFEASIBLE = (
        "no schedule was found that meets all budgets and bounds: check that the budget lies "
        "between the controls' bounds"
    )
    DIVERGED = (
        "states or controls ran away: bounds on the controls are too wide for the dynamics to stay "
        "physical; lower the upper bound of the learning rate, or start from a baseline"
    )
    INVALID = (
        "the dynamics gave a number that is not finite: start from a schedule that stays physical, "
        "or tighten the bounds"
    )
    INTERRUPTED = "stopped by the user; the best schedule so far is returned"
    FAILED = "the solver failed; the best schedule so far is returned; try another method or start"

    @property
    def ok(self) -> bool:
        """Did the solver itself say that it converged?"""
        return self in (Outcome.SOLVED, Outcome.ACCEPTABLE)


_IPOPT = {
    "Solve_Succeeded": Outcome.SOLVED,
    "Solved_To_Acceptable_Level": Outcome.ACCEPTABLE,
    "Search_Direction_Becomes_Too_Small": Outcome.STALLED,
    "Feasible_Point_Found": Outcome.STALLED,
    "Restoration_Failed": Outcome.STALLED,
    "Error_In_Step_Computation": Outcome.STALLED,
    "Maximum_Iterations_Exceeded": Outcome.ITERATIONS,
    "Maximum_CpuTime_Exceeded": Outcome.ITERATIONS,
    "Maximum_WallTime_Exceeded": Outcome.ITERATIONS,
    "Infeasible_Problem_Detected": Outcome.INFEASIBLE,
    "Not_Enough_Degrees_Of_Freedom": Outcome.INFEASIBLE,
    "Diverging_Iterates": Outcome.DIVERGED,
    "Invalid_Number_Detected": Outcome.INVALID,
    "User_Requested_Stop": Outcome.INTERRUPTED,
}


def from_ipopt(status: str) -> Outcome:
    """The outcome that an IPOPT return status stands for."""
    return _IPOPT.get(status, Outcome.FAILED)
