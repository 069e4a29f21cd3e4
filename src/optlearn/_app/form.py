"""Controls and the status line, as native elements of the browser."""

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import panel as pn
import param
from panel.custom import JSComponent

from optlearn.scenarios._arguments import Argument, Choice, Flag, Number

STYLE = (files("optlearn._app") / "parts.css").read_text(encoding="utf-8")


class Form(JSComponent):
    """A column of labelled controls; what the user does is passed on as (name, text).

    Args:
        heard: called with the name of the control and what was typed or chosen, as text.
    """

    fields = param.List(doc="Descriptions of the controls, see ``field``.")
    values = param.Dict({}, doc="Name → value that is shown.")
    errors = param.Dict({}, doc="Name → what is wrong with it.")

    layout = param.String("", doc="Class of the form, for the style sheet.")
    in_address = param.Boolean(False, doc="Are the values kept in the page's address?")

    _esm = (files("optlearn._app") / "form.js").read_text(encoding="utf-8")

    def __init__(self, heard: Callable[[str, str], None], **params: Any) -> None:
        super().__init__(stylesheets=[STYLE], sizing_mode="stretch_width", **params)
        self._heard = heard

    def _handle_msg(self, data: dict[str, str]) -> None:
        self._heard(data["name"], data["text"])

    def download(self, name: str, text: str, kind: str) -> None:
        """Let the browser save a file."""
        self._send_msg({"name": name, "text": text, "type": kind})


class Status(JSComponent):
    """A line that screen readers follow; ``busy`` shows that something is being computed.

    Without a server nothing is, and nothing that was said before is certain (see connection.js).
    """

    text = param.String("")
    busy = param.Boolean(False)
    tone = param.Selector(default="", objects=["", "good", "warning", "bad"])

    _esm = """
export function render({model}) {
  const line = document.createElement("p")
  line.id = "status"
  line.setAttribute("role", "status")
  const show = () => {
    const lost = document.documentElement.dataset.connection === "lost"
    line.textContent = lost ? "Connection lost: what is shown may be out of date." : model.text
    line.className = lost ? "bad" : model.busy ? "busy" : model.tone
    line.setAttribute("aria-busy", model.busy && !lost)
  }
  for (const name of ["text", "busy", "tone"]) model.on(name, show)
  window.addEventListener("connection", show)
  show()
  return line
}"""

    def __init__(self, **params: Any) -> None:
        super().__init__(stylesheets=[STYLE], sizing_mode="stretch_width", **params)


class Address(JSComponent):
    """What stands behind the ``?`` in the browser's address; "": as it was opened."""

    search = param.String("")

    _esm = """
export function render({model}) {
  const show = () => { if (model.search) history.replaceState(null, "", model.search) }
  model.on("search", show)
  show()
  return document.createElement("span")
}"""


class Scheme(JSComponent):
    """Does the user prefer a dark page?"""

    dark = param.Boolean(False)

    _esm = """
export function render({model}) {
  const query = window.matchMedia("(prefers-color-scheme: dark)")
  model.dark = query.matches
  query.addEventListener("change", () => { model.dark = query.matches })
  return document.createElement("span")
}"""


def field(parameter: Argument) -> dict[str, Any]:
    """The description of a scenario's parameter, for ``Form.fields``."""
    common = {
        "name": parameter.name,
        "label": parameter.label,
        "symbol": parameter.symbol,
        "help": parameter.help,
        "more": not parameter.main,
    }
    if isinstance(parameter, Number):
        limits = {"low": parameter.low, "high": parameter.high, "step": parameter.step}
        empty = "auto" if parameter.default is None else "none" if parameter.optional else ""
        return {"kind": "number", **common, **limits, "empty": empty}
    if isinstance(parameter, Choice):
        return {"kind": "choice", **common, "options": [[word, word] for word in parameter.known]}
    assert isinstance(parameter, Flag)
    return {"kind": "flag", **common}


def button(name: str, label: str, help_text: str = "", main: bool = False) -> dict[str, Any]:
    """The description of a button."""
    return {"kind": "button", "name": name, "label": label, "help": help_text, "main": main}


def choice(name: str, label: str, options: dict[str, str]) -> dict[str, Any]:
    """The description of a list to choose from: value → text."""
    return {"kind": "choice", "name": name, "label": label, "options": [list(o) for o in options.items()]}


def html(text: str = "") -> Any:
    """Words on the page, in its style."""
    return pn.pane.HTML(text, stylesheets=[STYLE], sizing_mode="stretch_width", margin=0)
