"""Selection: which samples to learn from, by how sure the student already is of them."""

import optlearn as ol
from optlearn import _time_courses as shapes
from optlearn._arguments import Arguments
from optlearn.scenarios import _shared as shared
from optlearn.scenarios._catalogue import Example, scenario

# Beyond four standard deviations there are no samples to speak of; below the lowest margin nearly none are
# left.
LOWEST, HIGHEST = 0.05, 4.0


@scenario(
    citations=("kinzel1990selecting",),
    ranges={"eta": (0.2, 2, 0.1), "alpha_F": (2, 20, 0.5), "overlap": (0, 0.5, 0.05)},
    example=Example({"threshold": [2.0, 0.8]}, 8, {"alpha_F": 5.0}),
)
def selection(eta: float = 1.0, alpha_F: float = 10.0, overlap: float = 0.1) -> "ol.Problem":
    """Which samples to learn from, so that a student of a sign makes the fewest mistakes.

    Control ``threshold`` θ, from 0.05 to 4: only samples with ``|λ| < θ√Q`` are learned, by Hebb's rule; the
    student is surer of the others than θ standard deviations. The start is Q = 0.5.

    Args:
        eta: learning rate η.
        alpha_F: horizon, samples seen (learned from or not) divided by input dimension.
        overlap: M at the start, with the teacher of squared norm 1.
    """
    check = Arguments("selection")
    model = ol.models.sign_learner("margin", eta=check.number("eta", eta, 0.0, open_below=True))
    return ol.Problem(
        model=model,
        start=model.state(Q11=0.5, M11=check.number("overlap", overlap, 0.0, 0.7)),
        horizon=check.number("alpha_F", alpha_F, 0.0, open_below=True),
        controls={"threshold": ol.Continuous(LOWEST, HIGHEST, guess=1.0)},
        intervals=40,
        baselines={
            "all samples": lambda problem, intervals: _course(problem, 1, shapes.constant(HIGHEST)),
            "best constant": _best_constant,
            "linear": _best_line,
        },
        name="selection",
    )


def _course(problem: "ol.Problem", intervals: int, threshold: shapes.Shape) -> "ol.Schedule":
    return ol.Schedule.from_function(problem.horizon, {"threshold": threshold}, intervals)


def _best_constant(problem: "ol.Problem", intervals: int) -> "ol.Schedule":
    return shared.best_of(
        problem, lambda theta: _course(problem, 1, shapes.constant(theta)), (LOWEST, HIGHEST)
    )


def _best_line(problem: "ol.Problem", intervals: int) -> "ol.Schedule":
    def family(first: float, last: float) -> "ol.Schedule":
        return _course(problem, intervals, shapes.linear(first, last, problem.horizon))

    return shared.best_of(problem, family, (LOWEST, HIGHEST), (LOWEST, HIGHEST))
