"""The page: its parts, and its reactions to the user."""

from collections.abc import Callable, Mapping
from typing import Any

import panel as pn

from optlearn._app import messages, parts, words
from optlearn._app.simulation import SimulationPanel
from optlearn._app.worker import Worker
from optlearn._errors import SpecificationError
from optlearn._progress import Progress
from optlearn.scenarios._arguments import Value
from optlearn.scenarios._files import known

PURE, MIXED = "pure values", "mixed, sample by sample"
WIDE, TALL = 1.25, 320
NOT_POSITIVE = "Some values are 0 or below: the axis stays linear."
CURVES = {"trajectory": "Order parameters", "costates": "Costates: what a small change is worth"}


class Page:
    """One visitor's page; for an unknown scenario, it says so and waits for another choice."""

    def __init__(
        self,
        solver: Worker,
        simulator: Worker,
        scenario: str,  # shown at first
        texts: Mapping[str, str] | None = None,  # name of a parameter → initial text
        deliver: Callable[[Callable[[], None]], None] = lambda call: call(),  # in the page's own thread
    ) -> None:
        self._solver, self._deliver = solver, deliver
        self.simulation = SimulationPanel(simulator, deliver, lambda: self._show_buttons())
        self.scenario = ""
        self.values: dict[str, Value] = {}
        self.optimum: messages.Optimum | None = None
        self.compared: messages.Compared | None = None
        # Scenario and arguments that ``optimum`` and ``compared`` belong to.
        self._solved: tuple[str, dict[str, Any]] = (scenario, {})
        self._compared = self._solved
        self._request: messages.Solve | None = None  # that is being worked on
        self.changed: Callable[[str, dict[str, Value]], None] = lambda scenario, values: None
        self._build()
        if scenario in known():
            self._enter(scenario, texts or {})
        else:
            self._idle(f"There is no scenario {scenario!r}: choose one from the list.", "bad")

    # --- parts ---------------------------------------------------------------------------------------

    def _build(self) -> None:
        names = {name: name.replace("_", " ") for name in known()}
        self.scenario_form = parts.one_list(self._choose, "scenario", "Scenario", names, "", in_address=True)
        self.about = parts.html("")
        self.parameter_form = parts.Form(self._move, in_address=True)
        actions = [
            parts.button(
                "full", "Solve at full accuracy", "The scenario's own grid, three starts", main=True
            ),
            parts.button("reset", "Reset", "Back to the paper's values"),
            parts.button("stop", "Stop", "Give up what is being solved or simulated"),
        ]
        self.action_form = parts.Form(self._act, fields=actions, layout="below")
        self.status, self.headline = parts.Status(), parts.html("")
        self.schedule = pn.Column(sizing_mode="stretch_width")
        self.schedule_charts: dict[str, parts.Chart] = {}
        self.schedule_words = parts.html("")
        self.schedule_axis, self.error_axis = self._axis("schedule"), self._axis("error")
        self.error, self.table = parts.Chart("error"), parts.html("")
        self.order, self.order_legend = parts.Chart("order parameters", TALL), parts.html("")
        curves = ("curves", "Show", CURVES, "trajectory")
        self.order_form = parts.one_list(self._show_courses, *curves, layout="compact")
        self.certificate = parts.html("")
        kinds = {"json": "JSON", "csv": "CSV", "torch": "PyTorch code", "optax": "optax code"}
        buttons = [parts.button(kind, label, main=kind == "json") for kind, label in kinds.items()]
        self.download_form = parts.Form(self._download, fields=buttons)
        self.address, self.scheme = parts.Address(), parts.Scheme()
        self.scheme.param.watch(lambda event: self._darken(event.new), "dark")

    def _axis(self, name: str) -> parts.Form:
        scales = {scale: scale for scale in parts.SCALES}
        return parts.one_list(self._rescale, name, "Vertical axis", scales, parts.AUTOMATIC, layout="beside")

    def template(self) -> pn.Template:
        """The page as Panel serves it."""
        template = pn.Template(parts.asset("page.html"))
        template.add_variable("style", parts.asset("page.css"))
        template.add_variable("connection", parts.asset("connection.js"))
        panels = {
            "scenario": self.scenario_form, "about": self.about, "parameters": self.parameter_form,
            "actions": self.action_form, "status": self.status, "headline": self.headline,
            "schedule_axis": self.schedule_axis, "schedule": self.schedule,
            "schedule_words": self.schedule_words, "error_axis": self.error_axis, "error": self.error.pane,
            "table": self.table, "order_form": self.order_form, "order": self.order.pane,
            "order_legend": self.order_legend, "simulation_form": self.simulation.form,
            "simulation_status": self.simulation.status, "simulation": self.simulation.chart.pane,
            "simulation_words": self.simulation.words, "certificate": self.certificate,
            "downloads": self.download_form, "scheme": self.scheme,
            "address": self.address,
        }  # fmt: skip
        for name, part in panels.items():
            template.add_panel(name, part)
        return template

    @property
    def charts(self) -> list[parts.Chart]:
        """All of them."""
        return [*self.schedule_charts.values(), self.error, self.order, self.simulation.chart]

    def _darken(self, dark: bool) -> None:
        for chart in self.charts:
            chart.darken(dark)

    def close(self) -> None:
        """The visitor has left."""
        self._solver.cancel(self)
        self.simulation.stop()

    # --- user actions --------------------------------------------------------------------------------

    def _choose(self, name: str, text: str) -> None:
        self._enter(text, {})

    def _enter(self, scenario: str, texts: Mapping[str, str]) -> None:
        """Show a scenario at its defaults, except for the values in ``texts``."""
        if scenario != self.scenario:
            self._clear()
        self.scenario, self.values = scenario, messages.defaults(scenario)
        self.scenario_form.values = {"scenario": scenario}
        self.about.object = words.about(scenario, sorted(texts.keys() - self.values.keys()))
        controls = {parameter.name: parameter for parameter in messages.parameters(scenario)}
        errors = {}
        for name in controls.keys() & texts.keys():
            try:
                self.values[name] = controls[name].read(texts[name])
            except SpecificationError as error:
                errors[name] = str(error)
        fields = [parts.control(parameter) for parameter in controls.values()]
        self.parameter_form.param.update(fields=fields, values=dict(self.values), errors=errors)
        self._solve()

    def _move(self, name: str, text: str) -> None:
        (parameter,) = [p for p in messages.parameters(self.scenario) if p.name == name]
        form = self.parameter_form
        others = {key: error for key, error in form.errors.items() if key != name}
        try:
            value = parameter.read(text)
        except SpecificationError as error:
            form.errors = {**others, name: str(error)}
            return
        before = self.values.get(name)
        self.values = {**self.values, name: value}
        form.param.update(values=dict(self.values), errors={})
        if value != before or others or self.optimum is None:
            self._solve()

    def _act(self, name: str, text: str) -> None:
        if name == "full":
            self._solve(full=True)
        elif name == "reset":
            self._enter(self.scenario, {})
        else:
            self.simulation.stop()
            if self._request is not None:
                self._solver.cancel(self)
                self._idle(f"Stopped.{self._kept}", "warning")

    @property
    def _kept(self) -> str:
        """What the page shows after a failed solve."""
        if self.optimum is None:
            return " Nothing is solved yet."
        return " What is shown belongs to earlier values."

    def _rescale(self, name: str, text: str) -> None:
        form = self.schedule_axis if name == "schedule" else self.error_axis
        form.values = {name: text}
        charts = list(self.schedule_charts.values()) if name == "schedule" else [self.error]
        for chart in charts:
            chart.scale = text
            chart.show(chart.lines)
        if name == "error":
            self.simulation.rescale(text)
        self._show_axes()

    def _download(self, name: str, text: str) -> None:
        if self.optimum is not None:
            self.download_form.download(*messages.FILES[name](*self._solved, self.optimum))

    # --- solving -------------------------------------------------------------------------------------

    def _solve(self, full: bool = False) -> None:
        request = messages.Solve(self.scenario, messages.arguments(self.scenario, self.values), full)
        self.changed(self.scenario, self.values)
        self.simulation.stop()
        self._busy(request, f"Solving {self.scenario} …")

        def heard(event: object) -> None:
            self._deliver(lambda: self._receive(request, event))

        self._solver.ask(self, request, heard)

    def _receive(self, request: messages.Solve, event: object) -> None:
        """Handle an event of the newest solve, in the page's thread."""
        if request is not self._request:
            return  # it was on its way when a newer request was made
        solved_for = (request.scenario, dict(request.arguments))
        if isinstance(event, Progress):
            self._busy(request, f"Solving {self.scenario}: {event} …")
        elif isinstance(event, messages.Waiting):
            self._busy(request, f"Solving {self.scenario}: {event.of('solve')} …")
        elif isinstance(event, messages.Optimum):
            self.optimum, self._solved = event, solved_for
            self._show_optimum()
        elif isinstance(event, messages.Compared):
            self.compared, self._compared = event, solved_for
            self._show_compared()
        elif isinstance(event, messages.Done):
            if self.optimum is not None:
                self._idle(*words.status(self.optimum))
            self.simulation.settled()
        elif isinstance(event, messages.Failed):
            self._fail(event)

    def _fail(self, event: messages.Failed) -> None:
        """Show an error, next to the control if one caused it; the last result stays."""
        at_fault = [name for name in self.values if f"({name.partition('[')[0]}=" in event.reason]
        self.parameter_form.errors = dict.fromkeys(at_fault, event.reason)
        self._idle(f"Not solved: {event.reason}.{self._kept}", "bad")

    def _busy(self, request: messages.Solve, text: str) -> None:
        self._request = request
        self.status.param.update(text=text, busy=True)
        self._show_buttons()

    def _idle(self, text: str, tone: str) -> None:
        self._request = None
        self.status.param.update(text=text, busy=False, tone=tone)
        self._show_buttons()

    def _show_buttons(self) -> None:
        """Which buttons are enabled now."""
        possible = dict.fromkeys(("full", "reset"), bool(self.scenario))
        possible["stop"] = self._request is not None or self.simulation.running
        self.action_form.values = {name: "" if can else "disabled" for name, can in possible.items()}
        files = () if self.optimum is None else messages.files_of(self.optimum)
        self.download_form.values = {name: "" if name in files else "disabled" for name in messages.FILES}

    # --- results -------------------------------------------------------------------------------------

    def _clear(self) -> None:
        """Clear the page for another scenario."""
        self.optimum = self.compared = None
        self.schedule_charts, self.schedule.objects = {}, []
        for chart in (self.error, self.order):
            chart.clear()
        for text in (self.headline, self.schedule_words, self.table, self.order_legend, self.certificate):
            text.object = ""
        self.simulation.clear()
        self._show_axes()

    def _show_axes(self) -> None:
        """Show a note if an axis cannot have the requested scale."""
        axes = ((self.schedule_axis, self.schedule_charts.values()), (self.error_axis, [self.error]))
        for form, charts in axes:
            ((name, scale),) = form.values.items()
            refused = scale == parts.LOGARITHMIC and not all(chart.logarithmic for chart in charts)
            form.errors = {name: NOT_POSITIVE} if refused else {}

    def _show_optimum(self) -> None:
        optimum = self.optimum
        assert optimum is not None
        if list(self.schedule_charts) != list(optimum.schedule.controls):
            names = optimum.schedule.controls
            self.schedule_charts = {name: parts.Chart(name.replace("_", " ")) for name in names}
            for chart in self.schedule_charts.values():
                chart.scale = self.schedule_axis.values["schedule"]
                chart.darken(self.scheme.dark)
            self.schedule.objects = [chart.pane for chart in self.schedule_charts.values()]
        for name, chart in self.schedule_charts.items():
            lines = [parts.Line(PURE, *parts.stairs(optimum.schedule, name), look=0)]
            if optimum.mixed is not None and name in optimum.mixed.mixtures:
                mixed = parts.stairs(optimum.mixed, name)
                lines.insert(0, parts.Line(MIXED, *mixed, look=2, width=3 * WIDE, solid=True))
            chart.show(lines)
        several = [line for chart in self.schedule_charts.values() for line in chart.lines]
        key = words.legend(reversed(several)) if len(several) > len(self.schedule_charts) else ""
        self.schedule_words.object = key + words.schedule_words(optimum.schedule)
        self.certificate.object = words.certificate(optimum)
        self._show_courses("curves", self.order_form.values["curves"])
        self._show_compared()
        self.simulation.show(*self._solved, optimum)

    def _show_compared(self) -> None:
        """Show error and table; baselines of earlier values are faded."""
        optimum, compared = self.optimum, self.compared
        stale = self._compared != self._solved
        assert optimum is not None
        usual = () if compared is None else compared.usual
        own = words.name_of(optimum, () if stale else usual)
        looks = {name: i for i, name in enumerate([own, *sorted(baseline.name for baseline in usual)])}
        alpha = parts.FADED if stale else 1.0
        lines = [
            parts.course(baseline.trajectory, "error", looks[baseline.name], label=baseline.name, alpha=alpha)
            for baseline in usual
            if baseline.trajectory is not None
        ]
        self.error.show([*lines, parts.course(optimum.trajectory, "error", 0, label=own, width=2 * WIDE)])
        table = words.table(optimum, own, usual, looks)
        self.table.object = f'<div class="{"stale" if stale else ""}">{table}</div>'
        self.headline.object = words.headline(optimum, None if stale else compared)
        self._show_axes()

    def _show_courses(self, name: str, text: str) -> None:
        self.order_form.values = {"curves": text}
        if self.optimum is None:
            return
        trajectory = self.optimum.trajectory if text == "trajectory" else self.optimum.costates
        lines = [parts.course(trajectory, n, look) for look, n in enumerate(trajectory.order_parameters)]
        self.order.label = text if text == "costates" else "order parameters"
        self.order.show(lines)
        self.order_legend.object = words.legend(lines)
