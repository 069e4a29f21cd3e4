"""Certificates."""

from matplotlib.axes import Axes

from optlearn._control.certificate import limits
from optlearn._control.solution import Solution
from optlearn._signatures import checked
from optlearn.plotting.style import BLUE, GREY, VERMILION, own_axes, styled

WORDS = {
    "hamiltonian_gap": "Hamiltonian gap",
    "relaxation_gap": "relaxation gap",
    "integration_error": "integration error",
    "budget_error": "budget error",
}


@checked
@styled
def plot_certificate(solution: Solution, axes: Axes | None = None) -> Axes:
    """Draw the gaps of the certificate, each beside the limit up to which it counts as small.

    Args:
        solution: whose certificate it is.
        axes: where to draw.
    """
    axes = own_axes(axes)
    certificate, small = solution.certificate, limits(solution.objective)
    gaps = {name: getattr(certificate, name) for name in WORDS if getattr(certificate, name) is not None}
    sizes = {name: abs(float(value)) for name, value in gaps.items()}
    seen = [value for value in (*sizes.values(), *small.values()) if value > 0]
    floor = min(seen) / 30
    for row, (name, size) in enumerate(sizes.items()):
        fine = size <= small[name]
        axes.plot(
            [floor / 3, small[name]], [row, row], color=GREY, alpha=0.35, linewidth=7, solid_capstyle="butt"
        )
        axes.plot(max(size, floor), row, "o", color=BLUE if fine else VERMILION, clip_on=False, zorder=3)
        shown = "0" if size == 0 else f"{size:.1e}"
        axes.annotate(
            shown, (max(size, floor), row), (0, 7), textcoords="offset points", ha="center", fontsize=7.5
        )
    axes.set_yticks(range(len(sizes)), [WORDS[name] for name in sizes])
    axes.set(xscale="log", xlim=(floor / 3, max(seen) * 10), ylim=(len(sizes) - 0.4, -0.7))
    axes.set_xlabel("units of the objective; the bar is what counts as small")
    starts = certificate.starts
    verdict = "converged" if certificate.converged else "NOT CONVERGED"
    axes.set_title(f"{verdict}; {starts.agreeing} of {starts.tried} starts agree", loc="left")
    return axes
