"""Which claims of the paper hold: every figure reproduced, or reused from ``out/`` if it is finished there.

Figures whose data set is missing (set OPTLEARN_DATA to its folder) are left out, and said so.
"""

from pathlib import Path

from benchmarks.record import Rows
from optlearn.paper.runner import reproduce


def main() -> Rows:
    """Print the table; its rows, for the page of measurements."""
    rows: Rows = []
    for result in reproduce(out=Path("out")):
        if not result.claims:
            print(f"{result.figure}: {result.status}: {result.message}")
            continue
        held = sum(claim.holds for claim in result.claims)
        failing = ", ".join(claim.id for claim in result.claims if not claim.holds)
        print(f"{result.figure}: {held} of {len(result.claims)} hold; {result.seconds:.0f} s")
        rows.append(
            {"figure": result.figure, "claims": len(result.claims), "hold": held, "do not hold": failing}
        )
    return rows


if __name__ == "__main__":
    main()
