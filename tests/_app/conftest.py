import sys
from pathlib import Path

import pytest

MODULES = Path(__file__).parent / "modules"
SCENARIO = "dropout"


@pytest.fixture(scope="session")
def slow_work():
    """A module that spawned processes can import, since they get this path."""
    sys.path.insert(0, str(MODULES))
    import slow_work

    yield slow_work
    sys.path.remove(str(MODULES))


@pytest.fixture(scope="session")
def answers():
    """What the solver sends for the dropout scenario, and for a neighbour of it: two lists of events."""
    from optlearn._app.messages import Solve, arguments, defaults
    from optlearn._app.solver import work

    first, second = [], []
    values = defaults(SCENARIO)
    work(Solve(SCENARIO, arguments(SCENARIO, values)), first.append)
    work(Solve(SCENARIO, arguments(SCENARIO, {**values, "sigma_n": 0.32, "alpha_F": 5.25})), second.append)
    return first, second
