"""The part of the page that compares theory with a simulation of the shown schedule."""

from collections.abc import Callable
from typing import Any

from optlearn._app import words
from optlearn._app.messages import Failed, Optimum, Simulate, Simulated, Waiting
from optlearn._app.parts import Chart, Form, Status, button, choice, course, html
from optlearn._app.worker import Worker
from optlearn._progress import Progress

DIMENSIONS, SEEDS = ("100", "300", "1000", "3000", "10000"), ("10", "20", "50", "100", "200")
AGAIN = {"once": "when asked", "always": "whenever the schedule changes"}


class SimulationPanel:
    """A form, a chart and its text; the simulation runs in a separate process."""

    def __init__(
        self,
        simulator: Worker,  # that process
        deliver: Callable[[Callable[[], None]], None],  # calls a function in the page's own thread
        toggled: Callable[[], None] = lambda: None,  # called when a simulation begins or ends
    ) -> None:
        self._simulator, self._deliver, self._toggled = simulator, deliver, toggled
        self._request: Simulate | None = None  # that is being worked on
        self._shown: tuple[str, dict[str, Any], Optimum] | None = None
        self.result: Simulated | None = None
        self.choices = {"quantity": "error", "N": "1000", "seeds": "50", "again": "once"}
        self._names = ["error"]
        self.form = Form(self._set, fields=self._fields(), values=self._values(), layout="compact")
        self.status = Status(text="Not run yet.")
        self.chart, self.words = Chart("error"), html()

    def show(self, scenario: str, arguments: dict[str, Any], optimum: Optimum) -> None:
        """Show another schedule: its theory, and no simulation yet."""
        self._shown, self.result = (scenario, arguments, optimum), None
        names = list(optimum.trajectory.values)
        if self.choices["quantity"] not in names:
            self.choices["quantity"] = "error"
        if names != self._names:
            self._names = names
            self.form.fields = self._fields()
        self.form.values = self._values()
        self.status.param.update(text="Not run for this schedule yet.", busy=False, tone="")
        self._draw()

    def clear(self) -> None:
        """Clear the part: no schedule is shown."""
        self._shown = self.result = None
        self.chart.clear()
        self.words.object = ""
        self.status.param.update(text="Not run yet.", busy=False, tone="")
        self.form.values = self._values()

    def _fields(self) -> list[dict[str, Any]]:
        return [
            choice("quantity", "Quantity", {name: name for name in self._names}),
            choice("N", "Input dimension N", {n: f"{int(n):,}" for n in DIMENSIONS}),
            choice("seeds", "Seeds", {n: n for n in SEEDS}),
            choice("again", "Run", AGAIN),
            button("run", "Run the simulation", main=True),
            button("halt", "Stop", "Give up the simulation"),
        ]

    def _values(self) -> dict[str, str]:
        """The current choices, and which buttons are enabled."""
        possible = {"run": self._shown is not None, "halt": self.running}
        return {**self.choices, **{name: "" if can else "disabled" for name, can in possible.items()}}

    @property
    def running(self) -> bool:
        """Is something being simulated?"""
        return self._request is not None

    def settled(self) -> None:
        """Handle that the schedule is final."""
        if self.choices["again"] == "always":
            self._run()

    def stop(self) -> None:
        """Cancel the simulation, if there is one; its results so far stay."""
        self._simulator.cancel(self)
        if self.running:
            self._idle("Stopped.", "warning")

    def _idle(self, text: str, tone: str) -> None:
        self._toggle(None)
        self.status.param.update(text=text, busy=False, tone=tone)

    def _toggle(self, request: Simulate | None) -> None:
        self._request = request
        self.form.values = self._values()
        self._toggled()

    def _set(self, name: str, text: str) -> None:
        if name == "run":
            self._run()
        elif name == "halt":
            self.stop()
        else:
            self.choices = {**self.choices, name: text}
            self.form.values = self._values()
            if name == "quantity":
                self._draw()

    def _run(self) -> None:
        if self._shown is None:
            return
        scenario, arguments, optimum = self._shown
        N, seeds = int(self.choices["N"]), int(self.choices["seeds"])
        request = Simulate(scenario, arguments, optimum.schedule, N, seeds)

        def heard(event: object) -> None:
            self._deliver(lambda: self._receive(request, event))

        self.status.param.update(text="Simulating …", busy=True)
        self._toggle(request)
        self._simulator.ask(self, request, heard)

    def _receive(self, request: Simulate, event: object) -> None:
        """Handle an event of the newest simulation, in the page's thread."""
        if request is not self._request:
            return  # it was on its way when a newer request was made
        if isinstance(event, Progress):
            self.status.param.update(text=f"{event.text[:1].upper()}{event.text[1:]} …", busy=True)
        elif isinstance(event, Waiting):
            self.status.param.update(text=f"Simulating: {event.of('simulation')} …", busy=True)
        elif isinstance(event, Simulated):
            self.result = event
            self._draw()
        elif isinstance(event, Failed):
            self._idle(f"Not simulated: {event.reason}", "bad")
        else:
            self._idle("Simulated.", "good")

    def rescale(self, scale: str) -> None:
        """Choose the vertical axis."""
        self.chart.scale = scale
        self._draw()

    def _draw(self) -> None:
        """Draw the theory, with mean and band of the simulation if there is one for this schedule."""
        if self._shown is None:
            return
        quantity, result = self.choices["quantity"], self.result
        self.chart.label = quantity
        theory = self._shown[2].trajectory if result is None else result.theory
        lines, band, more = [course(theory, quantity, 0, label="theory")], None, ""
        if result is not None:
            lines.append(course(result.simulated, quantity, 1, label="simulation, mean and 95 % band"))
            band, more = (lines[1].x, *result.simulated.band(quantity)), words.simulation(result)
        self.chart.show(lines, band)
        self.words.object = words.legend(lines) + more
