"""Warnings point at the line of the user that caused them."""

import sys
import warnings
from pathlib import Path

# Frames of the package, and of the decorators around its functions, are nobody's line.
_PASSED_OVER = (str(Path(__file__).parent), "contextlib.py", "functools.py", "_ufunc_config.py")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the first line, going up, that is not the package's own."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _is_passed_over(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _is_passed_over(file: str) -> bool:
    return file.startswith(_PASSED_OVER[0]) or file.endswith(_PASSED_OVER[1:])
