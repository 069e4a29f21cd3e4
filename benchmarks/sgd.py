"""Theory beside SGD at finite input dimension: z-scores of the final error, scenario by scenario.

A deviation is shown in standard errors over seeds and in percent of the error. It holds the bias of order
1/N, which the theory (N → ∞) does not know, and the noise of the mean.
"""

import numpy as np

import optlearn as ol
from benchmarks.record import Rows

N, SEEDS = 1000, 64
# One baseline each, so that nothing has to be solved first.
CASES = {
    "curriculum": "curriculum",
    "dropout": "no dropout",
    "learning_rate": "cosine rate",
    "batch_size": "linear growth",
    "task_order": "alternating",
    "imbalance": "half and half",
    "power_law": "linear",
}


def main() -> Rows:
    """Print the table; its rows, for the page of measurements."""
    rows: Rows = []
    print(f"{'scenario':>15} {'schedule':>16} {'theory':>10} {'SGD':>10} {'s.e.':>9} {'z':>6} {'%':>7}")
    for name, label in CASES.items():
        problem = getattr(ol.scenarios, name)()
        schedule = problem.baselines[label](problem, problem.intervals)
        theory = ol.evaluate(problem, schedule, record=2).objective
        runs = ol.simulate(problem, schedule, N=N, seeds=SEEDS, record=2)
        final = np.asarray(runs["error"])[:, -1]
        mean, error = float(final.mean()), float(final.std(ddof=1) / SEEDS**0.5)
        z, percent = (mean - theory) / error, 100 * (mean / theory - 1)
        print(
            f"{name:>15} {label:>16} {theory:>10.6f} {mean:>10.6f} {error:>9.1e} {z:>6.1f} {percent:>7.2f}",
            flush=True,
        )
        rows.append(
            {
                "scenario": name, "schedule": label, "theory": round(theory, 6), "SGD": round(mean, 6),
                "standard error": float(f"{error:.1e}"), "z": round(z, 1), "difference, %": round(percent, 2),
            }
        )  # fmt: skip
    return rows


if __name__ == "__main__":
    main()
