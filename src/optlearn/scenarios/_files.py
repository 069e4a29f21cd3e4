"""A user's own problem as a scenario: a Python file that defines ``problem``.

Importing this loads nothing heavy.
"""

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from optlearn._errors import SpecificationError
from optlearn.scenarios._arguments import take_ranges, words
from optlearn.scenarios._catalogue import Entry, Example, catalogue, no_scenario

if TYPE_CHECKING:
    from optlearn._control.problem import Problem

NAME = "problem"  # that the file defines
_NO_EXAMPLE = Example(values={}, intervals=1)

# File, as named by the user → modification time and size, and its entry.
_OPENED: dict[str, tuple[tuple[int, int], Entry]] = {}


def is_file(scenario: str) -> bool:
    """Does the name denote a file rather than a scenario?"""
    return scenario.endswith(".py")


def check_file(scenario: str) -> None:
    """Raise if there is no such file."""
    if not Path(scenario).is_file():
        raise SpecificationError(f"there is no file {scenario!r} (in {Path.cwd()})")


def known() -> Mapping[str, Entry]:
    """The catalogue, and the files that have been opened."""
    return {**catalogue(), **{name: entry for name, (_, entry) in _OPENED.items()}}


def find(scenario: str) -> Entry:
    """The entry of a scenario or of a file; a changed file is run again.

    Raises:
        SpecificationError: there is no such scenario or file, or the file defines no problem; the message
            names the line of an error in it.
    """
    if not is_file(scenario):
        if scenario not in catalogue():
            raise SpecificationError(no_scenario(scenario))
        return catalogue()[scenario]
    check_file(scenario)
    status = Path(scenario).stat()
    state = status.st_mtime_ns, status.st_size
    if scenario not in _OPENED or _OPENED[scenario][0] != state:
        _OPENED[scenario] = state, _opened(Path(scenario))
    return _OPENED[scenario][1]


def _opened(path: Path) -> Entry:
    module = _run(path)
    if not hasattr(module, NAME):
        others = [name for name in vars(module) if not name.startswith("_")]
        raise SpecificationError(
            f"{path} must define {NAME!r}, an ol.Problem or a function that returns one, and defines "
            f"{', '.join(others) or 'nothing'}"
        )
    function = _as_function(path, getattr(module, NAME), module.__doc__ or "")
    return Entry(function, _NO_EXAMPLE, (), take_ranges(function), (), _without_controls(function), ())


def _run(path: Path) -> ModuleType:
    """The file as a module. Like a script, it can import modules next to it."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    taken = sys.modules.get(path.stem)
    if taken is None or Path(getattr(taken, "__file__", None) or "") == path.resolve():
        sys.modules[path.stem] = module  # where dataclasses and pickle look for it
    with _located(path):
        spec.loader.exec_module(module)
    return module


def _as_function(path: Path, defined: Any, docstring: str) -> Callable[..., "Problem"]:
    """A function that makes the problem; its errors name the line in the file."""
    from optlearn._control.problem import Problem

    if isinstance(defined, Problem):

        def problem() -> Problem:
            return defined

        problem.__doc__ = docstring
        return problem
    if not callable(defined) or isinstance(defined, type):
        raise SpecificationError(
            f"{NAME!r} in {path} must be an ol.Problem or a function that returns one, got {defined!r}"
        )

    @wraps(defined)
    def made(*args: Any, **kwargs: Any) -> Problem:
        _check_call(path, defined, kwargs)
        with _located(path):
            result = defined(*args, **kwargs)
        if not isinstance(result, Problem):
            raise SpecificationError(f"{NAME}(…) in {path} must return an ol.Problem, got {result!r}")
        return result

    made.__doc__ = inspect.getdoc(defined) or docstring
    return made


def _check_call(path: Path, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise SpecificationError(f"{NAME}(…) in {path}: {error}") from None


@contextmanager
def _located(path: Path) -> Iterator[None]:
    """Turn an exception raised by a file into a message that names the line."""
    try:
        yield
    except SyntaxError as error:
        where = Path(error.filename or path).name
        raise SpecificationError(
            f"{where}, line {error.lineno}: {type(error).__name__}: {error.msg}"
        ) from error
    except SystemExit as error:
        raise SpecificationError(f"{path} ends the program when it is run: keep to definitions") from error
    except Exception as error:
        here = [frame for frame in traceback.extract_tb(error.__traceback__) if _same(frame.filename, path)]
        line = f", line {here[-1].lineno}" if here else ""
        what = str(error) if isinstance(error, SpecificationError) else f"{type(error).__name__}: {error}"
        raise SpecificationError(f"{path}{line}: {what}") from error


def _same(name: str, path: Path) -> bool:
    return Path(name).resolve() == path.resolve()


def _without_controls(function: Callable[..., Any]) -> dict[str, str]:
    """Arguments that no slider, switch or choice can set → reason."""
    reasons = {}
    for name, parameter in inspect.signature(function).parameters.items():
        default = parameter.default
        if default is inspect.Parameter.empty:
            reasons[name] = "without a default"
        elif isinstance(default, str):
            if default not in words(parameter.annotation):
                reasons[name] = "any text"
        elif not _numbers(default if isinstance(default, tuple) and default else (default,)):
            reasons[name] = "no number"
    return reasons


def _numbers(values: tuple[Any, ...]) -> bool:
    return all(isinstance(value, int | float) for value in values)
