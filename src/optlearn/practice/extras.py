"""Packages that only some users need."""

from optlearn._errors import how_to_install


def missing(package: str, purpose: str) -> ModuleNotFoundError:
    """The error to raise if an optional package is not installed; it says how to install it."""
    advice = how_to_install(package)
    return ModuleNotFoundError(f"{purpose} needs {package}, which is not installed: {advice}", name=package)
