"""Logs that are no tables: the trainer state of Hugging Face, and plain text.

A line of a text log counts if it names a step and a number of something that is spelt like a column::

    step:125/5100 val_loss:4.6012 train_time:20813ms
    step 300 | loss 3.9121 | lr 6.00e-04 | tok/s 181000
"""

import json
import re
from collections.abc import Collection
from pathlib import Path

import numpy as np

from optlearn._errors import SpecificationError

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|[-+]?inf"
# A word, then a number after a colon, an equals sign or blanks.
PAIR = re.compile(rf"([A-Za-z_][\w/.-]*)\s*(?:[:=]\s*|\s+)({NUMBER})", re.ASCII)


def read_trainer_state(path: Path) -> dict[str, np.ndarray]:
    """Columns of the log history in a ``trainer_state.json``; what was not logged is blank.

    Entries with a training loss and those of an evaluation are rows of their own.
    """
    try:
        history = json.loads(path.read_text(encoding="utf-8"))["log_history"]
        rows = [{str(k): float(v) for k, v in row.items() if isinstance(v, int | float)} for row in history]
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpecificationError(
            f"{path} must be a trainer_state.json with a log_history: {error}"
        ) from error
    return _table(rows)


def read_text(path: Path, words: Collection[str]) -> dict[str, np.ndarray]:
    """Columns of the lines of a text log that name a step and more of ``words``, in lower case."""
    rows = text_rows(path, words)
    if not rows:
        raise SpecificationError(f"{path} has no lines such as 'step:100 loss:3.21 lr:0.0003'")
    return _table(rows)


def text_rows(path: Path, words: Collection[str]) -> list[dict[str, float]]:
    """The same, line by line."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise SpecificationError(f"{path} cannot be read: {error}") from error
    found = ({word.lower(): float(number) for word, number in PAIR.findall(line)} for line in lines)
    rows = ({word: number for word, number in row.items() if word in words} for row in found)
    # Code that prints such lines is part of some logs; it has no numbers in them.
    return [row for row in rows if len(row) > 1]


def _table(rows: list[dict[str, float]]) -> dict[str, np.ndarray]:
    """Columns of text, blank where a row has no number."""
    columns = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([repr(row[name]) if name in row else "" for row in rows]) for name in columns}
