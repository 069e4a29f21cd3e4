"""Compute what the tables of ``bounds.md`` say.

python docs/make_bounds.py proofs [ROW …]         proofs by sums of squares
python docs/make_bounds.py scenarios [NAME …]     every scenario with its defaults, under kind="auto"
"""

import sys
import time
import warnings

import optlearn as ol

# One hidden node and one cluster of the denoising autoencoder.
ONE_OF_EACH = {"Q": [[0.25]], "R": [[0.12]], "Omega": [[0.947]]}


def linear_students(K: int, top: float) -> ol.Problem:
    return ol.scenarios.learning_rate(
        K=K, M=K, activation="linear", sigma_n=0.3, alpha_F=5.0, eta=top / 2, max_learning_rate=top
    )


def modes(N: int, **arguments: object) -> ol.Problem:
    return ol.scenarios.power_law(N=N, alpha_F=5.0, max_rate=0.6, **arguments)


# Row → its problem, degree and pieces.
PROOFS = {
    "students-1": (lambda: linear_students(1, 1.0), 6, 16),
    "students-2": (lambda: linear_students(2, 0.5), 8, 16),
    "modes-2": (lambda: modes(3, recursion=False), 4, 8),
    "modes-3": (lambda: modes(7, recursion=False), 4, 8),
    "modes-4": (lambda: modes(15, recursion=False), 4, 5),
    "steps-2": (lambda: modes(3), 3, 4),
    "both-2": (lambda: modes(3, recursion=False, control="both"), 4, 4),
    "copies": (lambda: ol.scenarios.denoising_batch(start=ONE_OF_EACH), 3, 8),
    "noise": (lambda: ol.scenarios.denoising(start=ONE_OF_EACH, eta=2.0), 2, 4),
}
SCENARIOS = (
    "curriculum", "dropout", "denoising", "denoising_batch", "learning_rate", "batch_size", "task_order",
    "imbalance", "gating", "attention", "power_law",
)  # fmt: skip


def main() -> None:
    warnings.simplefilter("ignore", ol.NotConvergedWarning)
    kind, *names = sys.argv[1:]
    if kind == "proofs":
        for name in names or PROOFS:
            problem, degree, pieces = PROOFS[name]
            row(name, problem(), kind="sos", degree=degree, pieces=pieces)
    else:
        for name in names or SCENARIOS:
            row(name, getattr(ol.scenarios, name)())


def row(name: str, problem: ol.Problem, **options: object) -> None:
    """One line of a table: what was found, the best schedule, seconds of the bound."""
    begun = time.perf_counter()
    try:
        found = ol.bound(problem, **options)
    except ol.SpecificationError as error:
        print(f"| {name} | {error} | {time.perf_counter() - begun:.0f} |", flush=True)
        return
    seconds = time.perf_counter() - begun
    best = ol.solve(problem, starts=2).objective
    print(
        f"| {name} | {found.kind} {options} | {found.value:.6g} ± {found.error:.2g} | {best:.6g} | "
        f"{seconds:.1f} | {found.assumes} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
