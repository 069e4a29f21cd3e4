"""Cold and warm integration of the curriculum model under a schedule of 240 pieces, both executors."""

import json
import subprocess
import sys

PROGRAM = """
import json, time
began = time.perf_counter()
import optlearn as ol
problem = ol.scenarios.curriculum()
schedule = ol.Schedule.from_function(
    12.0, {{"difficulty": lambda a: 2.0 * (int(20 * a) % 2)}}, intervals=240
)
def run():
    start = time.perf_counter()
    value = ol.integrate(problem.model, schedule, start=problem.start, backend={backend!r}).objective
    return value, time.perf_counter() - start
value, first = run()
cold = time.perf_counter() - began
print(json.dumps({{"objective": value, "cold": cold, "warm": min(run()[1] for _ in range(5))}}))
"""


def measure(backend: str) -> dict[str, float]:
    """Seconds in a fresh process, imports and compilation included, and once warm."""
    program = PROGRAM.format(backend=backend)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> None:
    """Print the table."""
    results = {backend: measure(backend) for backend in ("casadi", "xla")}
    for backend, result in results.items():
        print(
            f"{backend:>7}: cold {result['cold']:6.2f} s (import included), warm "
            f"{1000 * result['warm']:7.1f} ms, objective {result['objective']:.15f}"
        )
    ratio = results["xla"]["cold"] / results["casadi"]["cold"]
    print(f"xla / casadi, cold: {ratio:.1f}")


if __name__ == "__main__":
    main()
