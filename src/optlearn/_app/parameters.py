"""What can be moved: the arguments of a scenario, in the catalogue, as controls of the page."""

from collections.abc import Mapping, Sequence
from typing import Any

from optlearn._errors import SpecificationError
from optlearn.scenarios._arguments import Argument, CodeOnly, Value
from optlearn.scenarios._catalogue import catalogue


def parameters(scenario: str) -> tuple[Argument, ...]:
    """What can be moved in a scenario, the main ones first."""
    return tuple(a for a in catalogue()[scenario].arguments if not isinstance(a, CodeOnly))


def defaults(scenario: str) -> dict[str, Value]:
    """Name → value at first."""
    return {parameter.name: parameter.default for parameter in parameters(scenario)}


def arguments(scenario: str, values: Mapping[str, Value]) -> dict[str, Any]:
    """Arguments of the scenario's function, of which entries are put together again."""
    made: dict[str, Any] = {}
    for name, value in sorted(values.items()):
        argument = name.partition("[")[0]
        if argument == name:
            made[name] = value
        else:
            made[argument] = (*made.get(argument, ()), value)
    return made


def typed(scenario: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Arguments of the scenario's function as they would be typed into the controls.

    Raises:
        SpecificationError: an argument has no control, or its control does not take the value.
    """
    known = {argument.name: argument for argument in catalogue()[scenario].arguments}
    texts = {}
    for name, value in given.items():
        several = isinstance(value, Sequence) and not isinstance(value, str) and name not in known
        entries = {f"{name}[{i}]": entry for i, entry in enumerate(value)} if several else {name: value}
        for key, entry in entries.items():
            if key not in known:
                controls = ", ".join(defaults(scenario))
                raise SpecificationError(f"{key}: {scenario} has no such control; it has {controls}")
            texts[key] = as_text(entry)
            known[key].read(texts[key])
    return texts


def as_text(value: Any) -> str:
    """A value as it would be typed; None, which leaves a box empty, in a word."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
