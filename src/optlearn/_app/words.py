"""Text on the page: results in sentences, tables and legends, as HTML."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np

from optlearn._app.messages import Compared, Optimum, Simulated, Usual
from optlearn._app.parts import COLOURS, DARK_COLOURS, Line
from optlearn._control.compare import OPTIMUM, SOLUTION, is_better
from optlearn._errors import count_of
from optlearn._schedule import Schedule
from optlearn._trajectory import reduction
from optlearn.scenarios._files import known

FEW = 6  # maximum number of phases listed one by one


def about(scenario: str, strangers: Sequence[str]) -> str:
    """What a scenario optimises, and unknown names in the address."""
    text = known()[scenario].description
    purpose = f'<p class="words">{escape(text[:1].upper() + text[1:])}.</p>'
    if not strangers:
        return purpose
    names = ", ".join(strangers)
    return f"{purpose}<p class=mistake>The address names {escape(names)}, which {scenario} does not have.</p>"


def name_of(optimum: Optimum, usual: Sequence[Usual]) -> str:
    """Its name, as in ``compare``: an optimum is converged and beats everything next to it."""
    beaten = any(
        is_better(baseline.objective, baseline.schedule, optimum)
        for baseline in usual
        if baseline.objective is not None and baseline.schedule is not None and not baseline.note
    )
    return OPTIMUM if optimum.certificate.converged and not beaten else SOLUTION


def headline(optimum: Optimum, compared: Compared | None) -> str:
    """The objective, and its improvement over the usual schedules."""
    number = f'<p class="number">{optimum.objective:.6g}</p>'
    return f'<div class="headline">{number}<p>{_verdict(optimum, compared)}</p></div>'


def _verdict(optimum: Optimum, compared: Compared | None) -> str:
    name = name_of(optimum, () if compared is None else compared.usual)
    whose = "optimal schedule" if name == OPTIMUM else "schedule that was found"
    about = f"{optimum.called} of the {whose}"
    if compared is None:
        return f"{about}; comparing with the usual schedules …"
    best = next((baseline for baseline in compared.usual if baseline.objective is not None), None)
    if best is None or best.objective is None:
        return f"{about}."
    other = f"<b>{escape(best.name)}</b> ({best.objective:.6g}), the best of the usual schedules"
    if _same(best.objective, optimum.objective):
        return f"{about}, the same as that of {other}."
    if best.objective < optimum.objective:
        why = "" if optimum.full else ": “Solve at full accuracy” tries more starts"
        if optimum.mixed is not None:
            why = ", whose switches need not lie on this grid"
        return f"{about}, {optimum.objective - best.objective:.1e} above {other}{why}."
    return f"{about}, {reduction(best.objective, optimum.objective):.2g} % below {other}."


def _same(first: float, second: float) -> bool:
    """Are they indistinguishable on the page?"""
    return f"{first:.6g}" == f"{second:.6g}"


def status(optimum: Optimum) -> tuple[str, str]:
    """Status line and its tone."""
    c = optimum.certificate
    size = f"{count_of(optimum.schedule.intervals, 'interval')}, {count_of(c.starts.tried, 'start')}"
    how = f"in {optimum.seconds:.2f} s ({size})"
    if c.converged:
        return f"Solved {how}: converged.", "good"
    return f"Not converged {how}: {'; '.join(c.reasons)}.", "warning"


def schedule_words(schedule: Schedule) -> str:
    """Every control in a sentence, and the free parameters."""
    sentences = [f"<b>{escape(_plain(name))}</b> {_course(schedule, name)}." for name in schedule.controls]
    sentences += [f"<b>{escape(_plain(n))}</b> = {v:.4g}." for n, v in schedule.parameters.items()]
    return f'<p class="words">{" ".join(sentences)}</p>'


def _course(schedule: Schedule, name: str) -> str:
    only = Schedule(schedule.grid, {name: schedule[name]}).merged()
    values, edges = only[name], only.grid
    if len(values) == 1:
        return f"is {values[0]:.4g} throughout"
    if len(values) <= FEW:
        phases = [f"{v:.4g} until α = {edge:.3g}" for v, edge in zip(values[:-1], edges[1:-1], strict=True)]
        return f"is {', then '.join([*phases, f'{values[-1]:.4g} to the end'])}"
    if len(np.unique(values)) <= 2:
        return (
            f"is {values[0]:.4g} until α = {edges[1]:.3g}, changes {len(values) - 1} times in all, and is "
            f"{values[-1]:.4g} from α = {edges[-2]:.3g} on"
        )
    low, high = int(np.argmin(values)), int(np.argmax(values))
    return (
        f"goes from {values[0]:.4g} to {values[-1]:.4g}; it is lowest, {values[low]:.4g}, at α = "
        f"{edges[low]:.3g} and highest, {values[high]:.4g}, at α = {edges[high]:.3g}"
    )


def table(optimum: Optimum, own: str, usual: Sequence[Usual], looks: Mapping[str, int]) -> str:
    """Table of schedules from best to worst, ``own`` being the optimum; also the legend of the chart."""
    rows = [(own, optimum.objective), *((baseline.name, baseline.objective) for baseline in usual)]
    rows.sort(key=lambda row: np.inf if row[1] is None else row[1])
    body = "".join(
        f"<tr{' class=best' if name == own else ''}>"
        f"<th scope=row>{_swatch(Line(name, look=looks.get(name, 0)))}{escape(name)}</th>"
        f"<td>{'–' if error is None else f'{error:.6g}'}</td>"
        f"<td>{'–' if error is None or name == own else _excess(error, optimum.objective)}</td></tr>"
        for name, error in rows
    )
    remarks = [f"{baseline.name}: {baseline.note}" for baseline in usual if baseline.note]
    notes = "".join(f"<p class=words>{escape(remark)}</p>" for remark in remarks)
    titles = ("schedule", optimum.called, "excess")
    head = f"<tr>{''.join(f'<th scope=col>{title}</th>' for title in titles)}</tr>"
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>{notes}"


def _excess(error: float, best: float) -> str:
    if _same(error, best):
        return "0 %"
    percent = 100 * (error - best) / abs(best) if best else np.inf
    return f"{percent:+.0f} %" if abs(percent) >= 100 else f"{percent:+.2g} %"


def certificate(optimum: Optimum) -> str:
    """The certificate as questions and answers, and how the problem was solved."""
    c = optimum.certificate
    verdict = "converged" if c.converged else "not converged"
    pairs = "".join(
        f"<div><dt>{escape(asked)}</dt><dd>{escape(said)}</dd></div>" for asked, said in optimum.words
    )
    how = f"{optimum.method}, {count_of(optimum.schedule.intervals, 'interval')}, {optimum.seconds:.2f} s"
    more = "" if optimum.full else " “Solve at full accuracy” takes the scenario's own grid and three starts."
    remarks = "".join(f"<p class=words>{escape(remark)}</p>" for remark in optimum.remarks)
    return (
        f'<p class="verdict {"good" if c.converged else "warning"}">{verdict}</p>'
        f"<dl>{pairs}</dl><p class=words>{escape(how)}.{more}</p>{remarks}"
    )


def simulation(result: Simulated) -> str:
    """The difference between theory and simulation, in words."""
    z, name, alpha = result.largest_z()
    return (
        f'<p class="words"><b>{result.simulated.seeds} of {result.seeds} seeds</b> at N = {result.N:,}, '
        f"{result.seconds:.1f} s. Largest deviation of a mean from the theory: a z-score of {z:.1f} "
        f"({escape(name)} at α = {alpha:.3g}). The theory is that of N → ∞: at finite N deviations of "
        "order 1/N remain, and many seeds resolve them.</p>"
    )


def legend(lines: Iterable[Line]) -> str:
    """Colour and name of every line."""
    entries = "".join(f"<li>{_swatch(line)}{escape(line.name)}</li>" for line in lines)
    return f'<ul class="legend">{entries}</ul>'


def _swatch(line: Line) -> str:
    """A short sample of a line."""
    light, dark = (colours[line.look % len(colours)] for colours in (COLOURS, DARK_COLOURS))
    colours = f"--light: {light}; --dark: {dark}"
    dash = line.dash.replace("solid", "none")
    return (
        f'<svg class="swatch" width="26" height="8" aria-hidden="true" style="{colours}">'
        f'<line x1="1" x2="25" y1="4" y2="4" stroke-dasharray="{dash}"/></svg>'
    )


def _plain(name: str) -> str:
    return name.replace("_", " ").capitalize()
