"""A solution as a self-contained HTML page, and as a fragment for notebooks."""

import html
import io
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from optlearn._control.compare import Comparison, compare
from optlearn._control.evaluate import evaluate
from optlearn._control.solution import Solution
from optlearn._control.summary import certificate_words, possible_improvement
from optlearn._errors import SpecificationError, UnphysicalStateError, count_of
from optlearn._io.files import write_file
from optlearn._io.provenance import provenance
from optlearn._schedule import Schedule
from optlearn._signatures import checked
from optlearn._trajectory import Trajectory
from optlearn.plotting import plots as draw
from optlearn.plotting.style import style

# Wide enough to read, narrow enough for two side by side or one on a phone.
SIZE = (4.4, 2.9)
# Plots inherit the page's text colour, so they are readable on a dark page too.
CSS = (files("optlearn.plotting") / "report.css").read_text(encoding="utf-8")


@checked
def write_report(solution: Solution, path: str | PathLike[str], *, baselines: bool = False) -> Path:
    """Write the page; see ``Solution.report``."""
    comparison = compare(solution.problem, solution=solution) if baselines else None
    with style():
        body = _page(solution, comparison)
    name = html.escape(solution.problem.name)
    text = (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>optlearn: {name}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )
    return write_file(path, text)


def fragment(solution: Solution) -> str:
    """A few facts and the schedule, for notebooks."""
    with style():
        plots = "".join(_schedules(solution.schedule, solution.schedule.controls, "{} over training"))
    return (
        "<style>.optlearn svg.plot { max-width: 30rem; width: 100%; height: auto; fill: currentColor; }"
        ".optlearn figure { margin: 0; display: inline-block; }</style>"
        f'<div class="optlearn"><strong>{html.escape(solution.problem.name)}</strong>'
        f"{_table(_facts(solution))}{plots}</div>"
    )


def _page(solution: Solution, comparison: Comparison | None) -> str:
    verdict = {"certificate": ' class="good"' if solution.certificate.converged else ' class="bad"'}
    facts = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd{verdict.get(name, '')}>{html.escape(value)}</dd></div>"
        for name, value in _facts(solution).items()
    )
    plots = _schedules(solution.schedule, solution.schedule.controls, "{}: the best schedule found")
    if solution.relaxed is not None:
        mixed, caption = (
            solution.relaxed.schedule,
            "{}: the best schedule that may mix values sample by sample",
        )
        plots += _schedules(mixed, mixed.mixtures, caption)
    plots += [
        _figure(draw.plot_error(_courses(solution, comparison), _new_axes()), "generalisation error"),
        _figure(draw.plot_order_parameters(solution.trajectory, axes=_new_axes()), "order parameters"),
        *(
            _figure(draw.plot_path(solution.trajectory, path, _new_axes()), f"{path.label} and its limits")
            for path in draw.paths_of(solution)
        ),
    ]
    sections = [
        f"<h1>{html.escape(solution.problem.name)}: the best schedule found</h1>",
        f'<dl class="facts">{facts}</dl>',
        f'<h2>Schedule and training</h2><div class="plots">{"".join(plots)}</div>',
    ]
    if comparison is not None:
        drawn = _figure(draw.plot_compare(comparison, _new_axes()), "objective of every schedule")
        table = f'<div class="scroll compare">{comparison._repr_html_()}</div>'
        sections.append(f'<h2>Beside the usual schedules</h2>{table}<div class="one">{drawn}</div>')
    words = _table(dict(certificate_words(solution)))
    evidence = _figure(draw.plot_certificate(solution, _new_axes()), "gaps, and what counts as small")
    sections += [
        f'<h2>How optimal is it?</h2><div class="plots"><div>{words}</div>{evidence}</div>',
        f"<h2>Where it comes from</h2>{_table(_source(solution))}",
        "<footer>Made by optlearn. Training time α is the number of steps divided by the input dimension."
        "</footer>",
    ]
    return "\n".join(sections)


def _schedules(schedule: Schedule, controls: Iterable[str], caption: str) -> list[str]:
    """A drawing of each of the controls, whose name is put into the caption."""
    drawn = {name: draw.plot_schedule(schedule, name, _new_axes()) for name in controls}
    return [_figure(axes, caption.format(name)) for name, axes in drawn.items()]


def _facts(solution: Solution) -> dict[str, str]:
    certificate = solution.certificate
    facts = {
        "objective": f"{solution.objective:.8g}",
        "certificate": "converged" if certificate.converged else "NOT CONVERGED",
        "possible improvement": f"{possible_improvement(solution)} (first-order estimate)",
    }
    if solution.relaxed is not None:
        facts["best mixed schedule"] = f"{solution.relaxed.objective:.8g}"
    if solution.whole_numbers is not None:
        facts["best whole numbers"] = f"{solution.whole_numbers.objective:.8g}"
    facts |= {name: f"{value:.6g}" for name, value in solution.parameters.items()}
    intervals = count_of(solution.schedule.intervals, "interval")
    facts["training time"] = f"α = {solution.schedule.horizon:g}, {intervals}"
    return facts


def _source(solution: Solution) -> dict[str, str]:
    call = solution.problem.made_by
    rows: dict[str, Any] = {"method": solution.method, "seconds": f"{solution.seconds:.2f}"}
    options = solution.options.items()
    rows |= {name: value for name, value in options if value is not None and name != "method"}
    if call is not None:
        arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
        rows["problem"] = f"{call.scenario}({arguments})"
    rows |= solution.provenance or provenance()
    for i, run in enumerate(solution.runs):
        rows[f"run {i + 1}"] = (
            f"{run.solver} from {run.start}: {run.objective:.10g} after {run.iterations} iterations "
            f"({run.outcome.name.lower()}, {run.seconds:.2f} s)"
        )
    return {name.replace("_", " "): str(value) for name, value in rows.items()}


def _courses(solution: Solution, comparison: Comparison | None) -> Mapping[str, Trajectory] | Trajectory:
    """The optimum's trajectory, and those of the schedules that it is compared with."""
    if comparison is None:
        return solution.trajectory
    courses = {row.name: solution.trajectory for row in comparison.rows if row.solved}
    for row in comparison.rows:
        if row.name not in courses and row.objective is not None:
            try:
                courses[row.name] = evaluate(solution.problem, comparison.schedules[row.name])
            except (SpecificationError, UnphysicalStateError):
                continue
    return courses


def _new_axes() -> Axes:
    return Figure(figsize=SIZE, layout="constrained").subplots()


def _figure(axes: Axes, caption: str) -> str:
    return f"<figure>{_svg(axes, caption)}<figcaption>{html.escape(caption)}</figcaption></figure>"


def _svg(axes: Axes, caption: str) -> str:
    """A figure as inline SVG without references to the outside, in the colour of the text around it."""
    text = io.StringIO()
    figure = axes.get_figure(root=True)
    assert figure is not None
    with style():
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawn = text.getvalue()
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn[drawn.index("<svg") :], flags=re.DOTALL)
    drawn = drawn.replace("#000000", "currentColor")
    label = html.escape(caption, quote=True)
    return re.sub(r"<svg ", f'<svg class="plot" role="img" aria-label="{label}" ', drawn, count=1)


def _table(rows: Mapping[str, str]) -> str:
    body = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td class="long">{html.escape(value)}</td></tr>'
        for name, value in rows.items()
    )
    return f'<div class="scroll"><table><tbody>{body}</tbody></table></div>'
