import numpy as np
import pytest

import optlearn as ol
from optlearn._errors import SpecificationError


@pytest.fixture(scope="module")
def solved():
    problem = ol.scenarios.learning_rate(K=1, M=1, sigma_n=0.3, alpha_F=3.0)
    return ol.solve(problem, intervals=6, starts=1)


@pytest.mark.slow
def test_arms_share_their_random_numbers(solved):
    found = ol.sweeps.closed_loop(solved, 100, seeds=3, arms=["feedback"])
    plain = ol.simulate(solved.problem, solved.schedule, N=100, seeds=3, record=2)
    np.testing.assert_allclose(found.errors["open loop"], plain["error"][:, -1], rtol=1e-9)
    gain = found.errors["open loop"] - found.errors["feedback"]
    assert found.gain("feedback").mean == pytest.approx(gain.mean())
    half = 4.302653 * gain.std(ddof=1) / np.sqrt(3)  # Student's t with two degrees of freedom
    assert found.gain("feedback").half == pytest.approx(half, rel=1e-6)
    assert 0 < np.abs(gain).max() < 0.1


@pytest.mark.slow
def test_planning_again_answers_to_what_happened(solved):
    found = ol.sweeps.closed_loop(solved, 50, seeds=4, arms=["planning again"], every=2)
    assert found.failed == (0, 8)
    assert np.abs(found.errors["open loop"] - found.errors["planning again"]).max() > 1e-5


def test_what_has_no_loop(solved):
    for arguments, message in (
        ({"N": 0}, "N must be a whole number of at least 1, got 0"),
        ({"N": 10, "seeds": 1}, "must be a whole number of at least 2"),
        ({"N": 10, "arms": ["prayer"]}, "prayer"),
    ):
        with pytest.raises(SpecificationError, match=message):
            ol.sweeps.closed_loop(solved, **arguments)
