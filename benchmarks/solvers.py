"""Optimal schedules: cold process, warm, and beside the figures of the reference implementation."""

import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.numpy_sweep import sweep_curriculum

PROGRAM = """
import json, resource, time
began = time.perf_counter()
import optlearn as ol
def cpu():
    return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
solution = ol.solve(ol.scenarios.{first})
cold, cold_cpu = time.perf_counter() - began, cpu()
start = time.perf_counter()
again = ol.solve(ol.scenarios.{second})
second = time.perf_counter() - start
start = time.perf_counter()
ol.solve(ol.scenarios.{second}, warm_start=solution, starts=1)
print(json.dumps({{
    "objective": solution.objective, "converged": solution.certificate.converged,
    "cold": cold, "cold_cpu": cold_cpu, "again": second,
    "warm": time.perf_counter() - start,
}}))
"""

CASES = {
    "curriculum": ("curriculum()", "curriculum(weight_decay=0.02)"),
    "dropout": ("dropout(sigma_n=0.2)", "dropout(sigma_n=0.22)"),
    "denoising": ("denoising(Delta_F=0.1)", "denoising(Delta_F=0.12)"),
    "denoising_0.3": ("denoising(Delta_F=0.3)", "denoising(Delta_F=0.32)"),
}
REPEATS = 3


def measure(first: str, second: str) -> dict[str, float]:
    """Best of three fresh processes."""
    runs: list[dict[str, float]] = []
    for _ in range(REPEATS):
        program = PROGRAM.format(first=first, second=second)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
    return min(runs, key=lambda run: run["cold"])


def main() -> None:
    """Print the table."""
    reference = json.loads((Path(__file__).parent / "reference.json").read_text())
    print("Seconds; 'cold' is a fresh process with imports and tracing, 'again' a changed parameter,")
    print("'warm' that from the schedule before, with no other start.")
    print("'stored' are CPU seconds of the reference implementation (reference.json).")
    print(
        f"{'problem':>14} {'objective':>14} {'theirs':>10} {'cold':>6} {'CPU':>6} {'again':>6} {'warm':>6} "
        f"{'stored':>7} {'ratio':>6} {'RK4':>5} {'ratio':>6}"
    )
    for name, (first, second) in CASES.items():
        ours, theirs = measure(first, second), reference[name]
        line = (
            f"{name:>14} {ours['objective']:>14.9f} {theirs['objective']:>10.6g} {ours['cold']:>6.1f} "
            f"{ours['cold_cpu']:>6.1f} {ours['again']:>6.2f} {ours['warm']:>6.2f} "
            f"{theirs['reference']:>7.1f} {theirs['reference'] / ours['cold']:>6.1f}"
        )
        if "rk4" in theirs:
            line += f" {theirs['rk4']:>5.1f} {theirs['rk4'] / ours['cold']:>6.1f}"
        print(line + ("" if ours["converged"] else "  NOT CONVERGED"), flush=True)
    began = time.process_time()
    iterations, objective = sweep_curriculum()
    seconds = time.process_time() - began
    print(
        f"The paper's forward-backward sweep in plain NumPy, rerun here: {seconds:.1f} s of CPU for "
        f"{iterations} iterations, its own (Euler) objective {objective:.6f}"
    )


if __name__ == "__main__":
    main()
