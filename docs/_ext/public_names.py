"""Public names in the API reference: a directive that writes them down, and a check that none is missing.

``{public-names} optlearn.models`` documents what a module exports, in the order of its ``__all__``;
``:only: Problem Objective`` restricts and orders it. Constants are described by hand, with ``py:data``.
At the end of reading, a public name without a docstring or without a place in the reference is a warning,
and with -W the build fails.
"""

import inspect
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.ext.autodoc.mock import mock
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)
MODULES = (
    "optlearn",
    "optlearn.benchmarks",
    "optlearn.laws",
    "optlearn.models",
    "optlearn.scenarios",
    "optlearn.practice",
    "optlearn.plotting",
    "optlearn.paper",
    "optlearn.sweeps",
)
# Large packages that only some adapters import; the reference can be built without them.
OPTIONAL = ("distributed", "keras", "lightning", "optax", "panel", "torch", "transformers")
MISSING = [name for name in OPTIONAL if find_spec(name) is None]
WITH_MEMBERS = ("autoclass", "automodule")


def exported(module: str) -> Iterator[tuple[str, Any]]:
    """Name and value of everything that a module exports."""
    with mock(MISSING):
        home = import_module(module)
        for name in home.__all__:
            if not name.startswith("__"):
                yield name, getattr(home, name)


def kind(value: Any) -> str | None:
    """The autodoc directive for a value; None for constants."""
    if isinstance(value, ModuleType):
        return "automodule"
    if inspect.isclass(value):
        return "autoexception" if issubclass(value, BaseException) else "autoclass"
    return "autofunction" if callable(value) else None


def members(value: Any) -> str:
    """Which members to document: all of a class; what a module itself defines, not what it imports."""
    if not isinstance(value, ModuleType):
        return ""
    own = (name for name, part in vars(value).items() if getattr(part, "__module__", "") == value.__name__)
    return ", ".join(name for name in own if not name.startswith("_"))


class PublicNames(SphinxDirective):
    """What a module exports, with signatures and docstrings."""

    required_arguments = 1
    option_spec: ClassVar = {"only": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        module = self.arguments[0]
        known = dict(exported(module))
        lines = []
        for name in self.options.get("only", " ".join(known)).split():
            directive = kind(known[name])
            if directive is not None:
                lines += [f".. {directive}:: {module}.{name}"]
                lines += [f"   :members: {members(known[name])}"] * (directive in WITH_MEMBERS) + [""]
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *lines, "```"]))


def undocumented(value: Any) -> Iterator[str]:
    """Parts of a public value that lack a docstring; the value itself is the empty string."""
    if not inspect.getdoc(value):
        yield ""
    if inspect.isclass(value):
        for name, member in vars(value).items():
            part = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if name.startswith("_") or not inspect.isfunction(part):
                continue
            # An override without a docstring of its own is described by what it overrides.
            described = (getattr(vars(base).get(name), "__doc__", None) for base in value.__mro__)
            if not inspect.getdoc(part) and not any(described):
                yield f".{name}"


def check(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of public names that the reference lacks."""
    python = env.domains.python_domain
    documented = {*python.objects, *python.modules}
    places: dict[int, set[str]] = {}  # a value may be exported twice; one place is enough
    for module in MODULES:
        for name, value in exported(module):
            places.setdefault(id(value), set()).add(f"{module}.{name}")
    for module in MODULES:
        for name, value in exported(module):
            own = f"{module}.{name}"
            found = {own} if kind(value) is None else places[id(value)] | {getattr(value, "__name__", own)}
            if not found & documented:
                logger.warning("public name %s is on no page of the API reference", own, type="public_names")
            if kind(value) is not None:
                for part in undocumented(value):
                    logger.warning("public name %s%s has no docstring", own, part, type="public_names")


def do_without(app: Sphinx, config: Config) -> None:
    """Let autodoc do without the packages that are missing."""
    config.autodoc_mock_imports = MISSING


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", do_without)
    app.add_directive("public-names", PublicNames)
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
