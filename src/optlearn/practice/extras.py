"""Packages that only some users need."""


def missing(package: str, purpose: str) -> ModuleNotFoundError:
    """The error to raise if an optional package is not installed; it says how to install it."""
    return ModuleNotFoundError(
        f"{purpose} needs {package}, which is not installed: pip install 'optlearn[{package}]'", name=package
    )
