"""What long computations tell."""

from optlearn._progress import Progress


def test_in_words() -> None:
    assert str(Progress("tracing")) == "tracing"
    assert str(Progress("trained", done=2, total=5)) == "trained (2/5)"
    told = Progress("indirect, from neutral", iteration=3, objective=0.25, gap=1e-3)
    assert str(told) == "indirect, from neutral, iteration 3, objective 0.25, gap 1.0e-03"
