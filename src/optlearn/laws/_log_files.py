"""Logs as text: CSV files, the trainer state of Hugging Face, and printed logs of training scripts.

A line of a printed log counts if it names a step and a number of a quantity that is spelt like a column::

    step:125/5100 val_loss:4.6012 train_time:20813ms
    step 1,300 | loss 3.9121 | lr 6.00e-04 | tok/s 181k
"""

import csv
import gzip
import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from optlearn._errors import SpecificationError, warn
from optlearn.laws._curves import LawWarning

DELIMITERS = ",;\t"
# A number with everything that is glued to it and changes its meaning: 12k, 3,6342, 1 000.
TOKEN = (
    r"[1-9]\d{0,2}(?:[ \u00a0\u202f]\d{3})+(?![\w.,])"
    r"|[-+]?\.?\d(?:[\w.%]|(?<=[eE])[-+](?=\d)|[,'](?=\d))*|(?:nan|[-+]?inf)(?!\w)"
)
# One word or two, then a number after a colon, an equals sign or blanks.
PAIR = re.compile(rf"(?<!\w)([A-Za-z]\w* )?([A-Za-z_][\w/.-]*)\s*(?:[:=]\s*|\s+)({TOKEN})", re.ASCII)
THOUSANDS = re.compile(r"[1-9]\d{0,2}(,\d{3})+", re.ASCII)
COUNTS = ("step", "batch")

# Without a line end, the last line may be half written by a run in progress. It is left out, with a warning,
# if fields are missing or if its last number is shorter than the one before, as a number that was cut short
# would be. So a finished file that lacks only the line end keeps its last line, or loses one point.
CUT = "{}: line {} has no line end and may be half written: it is left out. If it is whole, add a line end"

Columns = dict[str, np.ndarray]  # of text, blank where nothing was logged


def read_csv(path: Path) -> tuple[Columns, list[int]]:
    """Columns of a CSV file, gzipped or not, and the line of each row.

    Commas, semicolons or tabs separate the fields; comments, after ``#``, may precede the names.
    """
    try:
        opened = gzip.open if path.suffix.lower() == ".gz" else open
        with opened(path, "rt", newline="", encoding="utf-8-sig") as file:
            lines = file.readlines()
        above = next((i for i, line in enumerate(lines) if line.strip() and line.lstrip()[0] != "#"), 0)
        delimiter = max(DELIMITERS, key=lines[above].count) if lines else ","
        reader = csv.reader(lines[above:], delimiter=delimiter)
        rows = [(above + reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except UnicodeDecodeError as error:
        raise SpecificationError(f"{path} must be text in UTF-8: save it as UTF-8 ({error})") from error
    except (OSError, EOFError, zlib.error, csv.Error) as error:
        raise SpecificationError(f"{path} cannot be read as CSV: {error}") from error
    if len(rows) > 1 and rows[-1][0] == len(lines) and not lines[-1].endswith(("\n", "\r")):
        (_, before), (line, last) = rows[-2:]
        if len(last) < len(before) or len(last[-1]) < len(before[-1]):
            rows.pop()
            warn(CUT.format(path, line), LawWarning)
    if len(rows) < 2:
        raise SpecificationError(f"{path} must have a line of column names and lines of numbers")
    names = rows[0][1]
    rows = [(line, row) for line, row in rows if row != names]  # repeated where a run was resumed
    for line, row in rows:
        if len(row) != len(names):
            raise SpecificationError(f"{path}: line {line} must have {len(names)} fields, got {len(row)}")
    columns = {name: np.array([row[i] for _, row in rows], dtype=str) for i, name in enumerate(names)}
    return columns, [line for line, _ in rows]


def read_trainer_state(path: Path) -> Columns:
    """Columns of the log history in a ``trainer_state.json``.

    Entries with a training loss and those of an evaluation are separate rows.
    """
    allowed = f"{path} must be a trainer_state.json with a log_history"
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecificationError(f"{allowed}: {error}") from error
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        raise SpecificationError(f"{allowed}, a list of entries {{name: number}}, got {str(state)[:80]}")
    numbers = [{k: v for k, v in entry.items() if isinstance(v, int | float)} for entry in history]
    return _columns([{name: repr(number) for name, number in entry.items()} for entry in numbers])


def is_text_log(path: Path, words: Mapping[str, str]) -> bool:
    """Whether any line names a step and more of ``words``."""
    return bool(_text_rows(_lines(path), words))


def read_text(path: Path, words: Mapping[str, str]) -> tuple[Columns, list[int]]:
    """Columns of the lines that name a step and more of ``words`` (lower case → kind), and these lines.

    A word that occurs twice in a line has the first number.
    """
    lines = _lines(path)
    rows = _text_rows(lines, words)
    if rows and rows[-1][0] == len(lines) and not lines[-1].endswith("\n"):
        last = rows[-1][1]
        like = [row for _, row in rows[:-1] if row.keys() == last.keys()]
        if not like or len([*last.values()][-1]) < len([*like[-1].values()][-1]):
            rows.pop()
            warn(CUT.format(path, len(lines)), LawWarning)
    if not rows:
        raise SpecificationError(f"{path} has no lines (in UTF-8) such as 'step:100 loss:3.21 lr:0.0003'")
    return _columns([row for _, row in rows]), [line for line, _ in rows]


def _lines(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readlines()
    except OSError as error:
        raise SpecificationError(f"{path} cannot be read: {error}") from error


def _text_rows(lines: list[str], words: Mapping[str, str]) -> list[tuple[int, dict[str, str]]]:
    """Numbers of the lines that count, and their contents, as text."""
    steps = [word for word, what in words.items() if what == "step"]
    rows = []
    for line, text in enumerate(lines, 1):
        row: dict[str, str] = {}
        for before, word, token in PAIR.findall(text):
            name = (before + word).lower()
            name = name if name in words else word.lower()
            if name in words:
                whole = words[name] in COUNTS and THOUSANDS.fullmatch(token)
                row.setdefault(name, token.replace(",", "") if whole else token.rstrip("."))
        # Some logs contain the code that prints such lines, without numbers.
        if any(name in steps for name in row) and any(name not in steps for name in row):
            rows.append((line, row))
    # Some lines may say step and others iteration, unless these are two quantities.
    if all(sum(name in steps for name in row) == 1 for _, row in rows):
        rows = [(n, {steps[0] if w in steps else w: x for w, x in row.items()}) for n, row in rows]
    return rows


def _columns(rows: list[dict[str, str]]) -> Columns:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: np.array([row.get(name, "") for row in rows]) for name in names}
