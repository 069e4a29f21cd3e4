"""Ten scenarios in CPU seconds, beside an earlier revision and the reference implementation.

A scenario is solved in a fresh process with nothing compiled before ("cold", imports included), in a second
one that finds what the first has kept, and in the same process once more with one parameter changed, from the
solution before ("warm"). This revision and the earlier one take turns, so that what else runs on the machine
slows both; the best of ``ROUNDS`` counts. ``python -m benchmarks.solvers [REVISION [SCENARIO …]]``.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.numpy_sweep import sweep_curriculum
from benchmarks.record import Rows

# The last revision before spectra, bounds, ensembles and batches, and before solvers were made faster. It is
# pinned while there is no tag of a release.
EARLIER = "2647863"
ROUNDS = 2

PROGRAM = """
import json, sys, time, warnings
import optlearn as ol
warnings.simplefilter("ignore", ol.NotConvergedWarning)
name, first, changed = sys.argv[1], *map(json.loads, sys.argv[2:])
make = getattr(ol.scenarios, name, None)
if make is None:
    sys.exit(print("null"))
solution = ol.solve(make(**first))
cold = time.process_time()
near = ol.solve(make(**first, **changed), warm_start=solution)
print(json.dumps({
    "cold": cold, "warm": time.process_time() - cold, "objective": solution.objective,
    "converged": solution.certificate.converged and near.certificate.converged,
}))
"""

# Parameters of the first solve, which are those of the reference's timing, and what the second one changes.
CASES: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "curriculum": ({}, {"eta": 3.06}),
    "dropout": ({"sigma_n": 0.2}, {"eta": 1.02}),
    "denoising": ({"Delta_F": 0.3}, {"eta": 5.1}),
    "denoising_batch": ({}, {"eta": 5.1}),
    "learning_rate": ({}, {"start_norm": 0.51}),
    "batch_size": ({}, {"eta": 1.53}),
    "task_order": ({}, {"eta": 3.06}),
    "imbalance": ({}, {"eta": 0.51}),
    "gating": ({}, {"eta": 1.02}),
    "attention": ({}, {"sigma": 1.02}),
}
STAGES = ("cold", "second", "warm")


@contextmanager
def sources_of(revision: str) -> Iterator[Path | None]:
    """The sources of an earlier revision in a folder of their own; None, and a line that says why: none."""
    here = Path(__file__).resolve().parent.parent
    if shutil.which("git") is None or not (here / ".git").exists():
        print("no comparison with an earlier revision: git, or the repository, is missing")
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / "earlier"
        git = ["git", "-C", str(here), "worktree"]
        added = subprocess.run(
            [*git, "add", "--detach", str(there), revision], capture_output=True, text=True
        )
        if added.returncode:
            print(f"no comparison with an earlier revision: {added.stderr.strip().splitlines()[-1]}")
            yield None
            return
        try:
            yield there / "src"
        finally:
            subprocess.run([*git, "remove", "--force", str(there)], capture_output=True, check=True)


def once(sources: Path, name: str, cache: str) -> dict[str, float] | None:
    """One process; None: these sources have no such scenario."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, *map(json.dumps, CASES[name])],
        capture_output=True,
        text=True,
        cwd=cache,
        env={
            **os.environ,
            # Threads of linear algebra that wait count as CPU time.
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(sources),
            "OPTLEARN_CACHE": cache,
            "JAX_COMPILATION_CACHE_DIR": cache,
        },
    )
    if done.returncode:
        sys.exit(f"{name} failed under {sources}:\n{done.stderr}")
    return json.loads(done.stdout)


def both_processes(sources: Path, name: str) -> dict[str, float] | None:
    """A first and a second process that share a folder for what is kept."""
    with tempfile.TemporaryDirectory() as cache:
        first = once(sources, name, cache)
        if first is None:
            return None
        second = once(sources, name, cache)
    assert second is not None
    return {**first, "second": second["cold"], "warm": min(first["warm"], second["warm"])}


def best(runs: list[dict[str, float] | None]) -> dict[str, float] | None:
    """The least CPU seconds of each kind."""
    found = [run for run in runs if run is not None]
    return {**found[0], **{s: min(run[s] for run in found) for s in STAGES}} if found else None


def row(name: str, new: dict[str, float], old: dict[str, float] | None, theirs: dict[str, float]) -> str:
    """One scenario."""
    cells = [f"{name:>15}", *(f"{new[s]:7.2f}" for s in STAGES), f"{new['warm'] / new['cold']:6.3f}"]
    cells += [f"{old[s] / new[s]:7.1f}" if old else f"{'–':>7}" for s in STAGES]
    cells += [f"{theirs[k] / new['cold']:7.1f}" if k in theirs else f"{'–':>7}" for k in ("reference", "rk4")]
    cells.append(f"{new['objective'] - old['objective']:+9.1e}" if old else f"{'–':>9}")
    return " ".join(cells) + ("" if new["converged"] else "  NOT CONVERGED")


def main(revision: str = EARLIER, *names: str) -> Rows:
    """Print the table; its rows, for the page of measurements."""
    unknown = [name for name in names if name not in CASES]
    if unknown:
        sys.exit(f"unknown scenario {unknown[0]!r}; there are {', '.join(CASES)}")
    reference = json.loads((Path(__file__).parent / "reference.json").read_text())
    print(f"CPU seconds, one thread, best of {ROUNDS}; then how many times as long {revision} takes, and,")
    print("of cold alone, the reference as it is and with RK4 in place of CVODES (reference.json).")
    print(
        f"{'scenario':>15} {'cold':>7} {'second':>7} {'warm':>7} {'/cold':>6} {'cold ×':>7} {'sec. ×':>7} "
        f"{'warm ×':>7} {'ref. ×':>7} {'RK4 ×':>7} {'objective':>9}"
    )
    here = Path(__file__).resolve().parent.parent / "src"
    rows: Rows = []
    with sources_of(revision) as earlier:
        for name in names or CASES:
            new: list[dict[str, float] | None] = []
            old: list[dict[str, float] | None] = []
            for _ in range(ROUNDS):
                new.append(both_processes(here, name))
                if earlier is not None:
                    old.append(both_processes(earlier, name))
            found = best(new)
            assert found is not None
            theirs = reference.get(name, {})
            print(row(name, found, best(old), theirs), flush=True)
            rows.append({"scenario": name, **{f"{s}, CPU s": round(found[s], 2) for s in STAGES}})
            rows[-1]["authors' code, CPU s"] = theirs.get("reference")
            rows[-1]["with RK4, CPU s"] = theirs.get("rk4")
            rows[-1]["converged"] = found["converged"]
    began = time.process_time()
    iterations, objective = sweep_curriculum()
    print(
        "The paper's forward-backward sweep in plain NumPy, rerun here: "
        f"{time.process_time() - began:.1f} s of CPU for "
        f"{iterations} iterations, its own (Euler) objective {objective:.6f}"
    )
    return rows


if __name__ == "__main__":
    main(*sys.argv[1:])
