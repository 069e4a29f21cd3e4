"""Every method of solution by name, and the default one: quick from many starts, then sharp from the best."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from optlearn._control.program.rollout import Rollout
from optlearn._control.solvers.base import Method, Run, Start
from optlearn._control.solvers.direct import Direct
from optlearn._control.solvers.greedy import Greedy
from optlearn._control.solvers.indirect import Indirect
from optlearn._errors import SpecificationError
from optlearn._progress import Report, silent

# Where a direct run follows: it ends within a dozen iterations what the indirect method creeps towards.
MOST_PASSES = 400
# Steps in an interval up to which that is worth its price.
DIRECT_STEPS = 32


class Auto(Method):
    """Indirect from all starts, then direct from the best; direct from all if nothing has converged."""

    name = "auto"
    description = "indirect from several starts, which is quick, then direct from the best of them"

    def run_all(self, rollout: Rollout, starts: Sequence[Start], tell: Report = silent) -> list[Run]:
        """Runs of both solvers."""
        # A direct run needs second derivatives of every step: it would take several times as long.
        costly = rollout.compiled.program.costly or rollout.steps > DIRECT_STEPS
        runs = Indirect(None if costly else MOST_PASSES).run_all(rollout, starts, tell)
        if costly and any(run.outcome.ok for run in runs):
            return runs
        if runs[-1].interrupted:
            return runs
        # Where the objective hardly depends on a control, as on singular arcs, the indirect method leaves
        # that ragged.
        direct = Direct(self.max_iterations, self.tolerance)
        best = min(runs, key=lambda run: run.objective)
        ahead = direct.run(rollout, Start("the best of them", best.w, best.theta), tell)
        runs.append(replace(ahead, continues=True))
        if not any(run.outcome.ok for run in runs):
            runs += direct.run_all(rollout, starts, tell)
        return runs


_ALL: tuple[type[Method], ...] = (Auto, Direct, Indirect, Greedy)

METHODS: Mapping[str, str] = {method.name: method.description for method in _ALL}


def make_method(name: str, max_iterations: int | None, tolerance: float | None) -> Method:
    """The method of that name, with its options."""
    for method in _ALL:
        if method.name == name:
            return method(max_iterations, tolerance)
    raise SpecificationError(f"method must be one of {', '.join(METHODS)}, got {name!r}")
