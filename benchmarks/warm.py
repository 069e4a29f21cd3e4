"""CPU seconds of every scenario: first and second process, and a changed parameter in the same process."""

import json
import os
import subprocess
import sys
import tempfile

PROGRAM = """
import json, sys, time, warnings
import optlearn as ol
warnings.simplefilter("ignore", ol.NotConvergedWarning)
first, second = (ol.scenarios.{name}(**a) for a in ({{}}, {changed!r}))
solution = ol.solve(first)
cold = time.process_time()
again = ol.solve(second)
afresh = time.process_time() - cold
began = time.process_time()
near = ol.solve(second, warm_start=solution)
print(json.dumps({{
    "cold": cold, "afresh": afresh, "warm": time.process_time() - began,
    "difference": near.objective - again.objective,
}}))
"""

CHANGES = {
    "curriculum": {"eta": 3.06},
    "dropout": {"eta": 1.02},
    "denoising": {"eta": 5.1},
    "denoising_batch": {"eta": 5.1},
    "learning_rate": {"sigma_n": 0.31},
    "batch_size": {"eta": 1.53},
    "task_order": {"alpha_F": 20.4},
    "imbalance": {"alpha_F": 10.2},
    "finite_data": {"noise": 0.255},
    "selection": {"alpha_F": 10.2},
}


def measure(name: str, cache: str) -> dict[str, float]:
    """One fresh process, with compiled programs kept in a folder of its own."""
    program = PROGRAM.format(name=name, changed=CHANGES[name])
    environment = {"OPTLEARN_CACHE": cache, "JAX_COMPILATION_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return json.loads(done.stdout)


def main() -> None:
    """Print the table."""
    print("CPU seconds, imports included in the first two columns; 'warm' starts from the solution before.")
    columns = ("cold", "second", "afresh", "warm")
    print(f"{'scenario':>16} " + " ".join(f"{c:>6}" for c in columns) + f" {'of cold':>7} {'objective':>10}")
    for name in CHANGES:
        with tempfile.TemporaryDirectory() as cache:
            first, second = measure(name, cache), measure(name, cache)
        print(
            f"{name:>16} {first['cold']:6.1f} {second['cold']:6.1f} {second['afresh']:6.2f} "
            f"{second['warm']:6.2f} {second['warm'] / second['cold']:7.2f} {second['difference']:+10.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
