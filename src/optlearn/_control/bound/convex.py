"""Problems linear in the state: costates do not depend on the schedule, so the optimum is known.

If dx/dα = A x + g(w) and the objective is linear in the state, the objective of any other schedule is
exactly that of this one plus the change of the Hamiltonian, interval by interval. So the Hamiltonian gap is
no estimate: it is what the best schedule wins, and budgets, which are met by a multiplier, leave no gap of
their own. This is the case of a noise that the batch size divides, whatever the spectrum: B ∝ √κ, κ being
what the noise costs at the end.
"""

import casadi
import numpy as np

from optlearn._control.hamiltonian.gap import hamiltonian_gap
from optlearn._control.problem import Problem
from optlearn._control.program.build import compile_problem
from optlearn._control.program.casadi import CasadiProgram
from optlearn._control.program.rollout import Rollout
from optlearn._control.solvers.starts import enough_steps, neutral

# The Hamiltonian of an interval is off by a share of the gap: at the optimum that is nothing.
ROUNDS = 3
ACCURACY = 1e-8  # that steps are chosen for


def is_linear(problem: Problem) -> bool:
    """Do rate and costs, taken together, hold the state linearly, and never multiplied with a control?"""
    program = compile_problem(problem).program
    if not isinstance(program, CasadiProgram) or problem.free:
        return False
    c, x, w, theta, h, _ = program.symbols()
    slope, cost = program.rate(c, x, w, theta, h)
    final = program.final(c, x, theta)
    by_state = casadi.jacobian(casadi.vertcat(slope, cost), x)
    mixed = casadi.jacobian(casadi.vec(by_state), casadi.vertcat(x, w))
    bent = casadi.jacobian(casadi.gradient(final, x), x)
    return bool(mixed.nnz() == 0 and bent.nnz() == 0)


def exact_optimum(problem: Problem) -> tuple[float, float]:
    """The least objective of any schedule on the problem's equal intervals, and how accurate it is."""
    compiled, intervals = compile_problem(problem), problem.intervals
    guess = neutral(compiled, intervals)
    steps = enough_steps(compiled, intervals, [guess])
    rollout, w, value = Rollout(compiled, intervals, steps), guess.w, -np.inf
    for _ in range(ROUNDS):
        rolled = rollout.run(w, guess.theta)
        gap, better, _ = hamiltonian_gap(compiled, rolled, w, guess.theta, steps)
        value, w = rolled.objective - gap, better
    return value, ACCURACY * abs(value)
