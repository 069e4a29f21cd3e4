"""All points of a sweep at once, as lanes of compiled programs; what these leave open, one by one."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from optlearn._control.batched.solve import Solved, solve_many
from optlearn._control.batched.stack import stack
from optlearn._control.problem import Problem
from optlearn._errors import SpecificationError
from optlearn.sweeps.executors import Tell
from optlearn.sweeps.point import Chain, compute, done, evidence
from optlearn.sweeps.spec import Index, Spec
from optlearn.sweeps.store import Record

# Points that are solved together, and are on disk before the next ones begin.
BLOCK = 1024
_METHODS = ("auto", "indirect")


@dataclass(frozen=True)
class Batched:
    """In this process, on its default JAX device."""

    name: str = "batched"
    by_name: bool = False

    def run(self, chains: Sequence[Chain], tell: Tell) -> None:
        """Solve what is not finished, in the order of the grid.

        Raises:
            SpecificationError: the points differ in more than numbers, or need another method.
        """
        if not chains:
            return
        spec, store = chains[0].spec, chains[0].store
        method = spec.options.get("method", "auto")
        if method not in _METHODS:
            raise SpecificationError(
                f"method must be one of {', '.join(_METHODS)} with executor='batched', got {method!r}"
            )
        points = [index for chain in chains for index in chain.points if store.read(index) is None]
        posed: dict[Index, Problem] = {}
        for index in points:
            try:
                posed[index] = spec.problem(index)
            except Exception:  # a matter of this one point, whose record says it
                tell(done(store.write(index, compute(spec, index)), store))
        if posed:
            stack(list(posed.values()), spec.options.get("intervals"))  # before anything takes time
        indices = list(posed)
        options = {name: value for name, value in spec.options.items() if name != "method"}
        for first in range(0, len(indices), BLOCK):
            own = indices[first : first + BLOCK]
            began, cpu = time.perf_counter(), time.process_time()
            solved = solve_many([posed[index] for index in own], **options)
            seconds = (time.perf_counter() - began) / len(own), (time.process_time() - cpu) / len(own)
            for i, index in enumerate(own):
                tell(done(store.write(index, _record(spec, index, solved, i, seconds)), store))


def _record(spec: Spec, index: Index, solved: Solved, i: int, seconds: tuple[float, float]) -> Record:
    """What the batch found, if it is certified and no solution is asked for; else one by one."""
    certificate = solved.certificates[i]
    if not certificate.converged or spec.reduce is not None or spec.baselines:
        near = solved.relaxed_schedule(i) or solved.schedule(i)
        return compute(spec, index, near=near if certificate.converged else None)
    relaxed = solved.relaxed_schedule(i)
    return {
        "coordinates": spec.coordinates(index),
        "status": "done",
        "objective": float(solved.objective[i]),
        **evidence(certificate),
        "outcome": solved.outcomes[i].name.lower(),
        "warm": False,
        "free": {},
        "schedule": solved.schedule(i).to_dict(),
        "relaxed": None
        if relaxed is None
        else {"objective": float(solved.relaxed_objective[i]), "schedule": relaxed.to_dict()},
        "baselines": {},
        "reduced": {},
        "reduce_error": "",
        "seconds": seconds[0],
        "cpu_seconds": seconds[1],
    }
