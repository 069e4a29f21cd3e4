"""All benchmarks in one run: python -m benchmarks [NAME …], or control [PROBLEM …].

Those that return rows are kept in ``docs/measurements.json``, which the page of measurements shows.
"""

import sys
import time
from collections.abc import Callable

from benchmarks import (
    batched,
    blocks,
    claims,
    control,
    drifts,
    growth,
    integration,
    learning_effort,
    own_models,
    sgd,
    simulators,
    solvers,
    stored,
    sweeps,
)
from benchmarks.record import Rows, record

ALL: dict[str, Callable[[], Rows | None]] = {
    "batched": batched.main,
    "blocks": blocks.main,
    "claims": claims.main,
    "control": control.main,
    "drifts": drifts.main,
    "growth": growth.main,
    "integration": integration.main,
    "learning_effort": learning_effort.main,
    "own_models": own_models.main,
    "sgd": sgd.main,
    "simulators": simulators.main,
    "solvers": solvers.main,
    "stored": stored.main,
    "sweeps": sweeps.main,
}


def main() -> None:
    """Run the benchmarks named on the command line, or all."""
    if sys.argv[1:2] == ["control"]:
        control.main(*sys.argv[2:])
        return
    wanted = sys.argv[1:] or list(ALL)
    unknown = [name for name in wanted if name not in ALL]
    if unknown:
        sys.exit(f"unknown benchmark {unknown[0]!r}; there are {', '.join(ALL)}")
    for name in wanted:
        began = time.perf_counter()
        print(f"\n== {name} ==", flush=True)
        rows = ALL[name]()
        if rows:
            record(name, f"python -m benchmarks {name}", rows)
        print(f"({name} took {time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
