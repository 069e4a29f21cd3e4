"""Loss curves from files and tables: CSV, pandas, TensorBoard, Weights & Biases' CSV exports."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from optlearn._errors import SpecificationError
from optlearn.laws._curves import Curve, check_together
from optlearn.laws._events import read_events

# Spellings of the columns, in lower case and without a run's name or a folder in front; the first that is
# found.
SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "step": ("step", "steps", "global_step", "trainer/global_step", "_step", "iteration", "iter"),
    "rate": ("lr", "learning_rate", "learning rate", "learning-rate", "rate", "eta"),
    "loss": ("loss", "train_loss", "train/loss", "training_loss", "loss/train", "lm loss", "lm_loss",
             "val_loss",
             "eval_loss", "eval/loss", "validation_loss", "metrics/train/loss"),
    "run": ("run", "run_name", "name", "run_id"),
    "batch": ("batch", "batch_size", "batch-size", "global_batch_size"),
}  # fmt: skip
EVENTS = "tfevents"

Source = Any  # a path, a pandas frame, or a mapping from columns to numbers


def read_curves(curves: Any) -> list[Curve]:
    """Curves from what a user has.

    Args:
        curves: a folder (a run for every CSV or TensorBoard file in it), a mapping from names to files,
            pandas frames or mappings of columns, a list of files, or curves that were read before.
    """
    found = [curve for name, source in _named(curves) for curve in _read(name, source)]
    if not found:
        raise SpecificationError(f"curves must hold at least one loss curve, got {curves!r}")
    check_together(found)
    return found


def _named(curves: Any) -> Iterator[tuple[str, Source]]:
    if isinstance(curves, str | PathLike):
        folder = Path(curves)
        if not folder.exists():
            raise SpecificationError(f"curves: there is no file or folder {str(folder)!r}")
        files = sorted(folder.rglob("*")) if folder.is_dir() else [folder]
        wanted = [f for f in files if f.suffix == ".csv" or EVENTS in f.name or f == folder]
        if not wanted:
            raise SpecificationError(
                f"curves: {str(folder)!r} holds neither .csv files nor TensorBoard events"
            )
        for file in wanted:
            # TensorBoard names a run by its folder.
            yield (file.parent.name if EVENTS in file.name else file.stem), file
    elif isinstance(curves, Curve):
        yield curves.name, curves
    elif isinstance(curves, Mapping):
        yield from ((str(name), source) for name, source in curves.items())
    elif isinstance(curves, Sequence):
        for source in curves:
            yield from _named(source)
    else:
        raise SpecificationError(
            f"curves must be a folder, or map names to files or tables, got {type(curves).__name__}"
        )


def _read(name: str, source: Source) -> Iterator[Curve]:
    if isinstance(source, Curve):
        yield source
        return
    if isinstance(source, str | PathLike):
        path = Path(source)
        if not path.is_file():
            raise SpecificationError(f"curve {name!r}: there is no file {str(path)!r}")
        table = read_events(path) if EVENTS in path.name else _read_csv(path)
    elif hasattr(source, "columns") or isinstance(source, Mapping):
        columns = source.columns if hasattr(source, "columns") else source
        table = {str(column): np.asarray(source[column]) for column in columns}
    else:
        raise SpecificationError(f"curve {name!r} must be a file or a table, got {type(source).__name__}")
    yield from _runs(name, table)


def _read_csv(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SpecificationError(f"{path} cannot be read as CSV: {error}") from error
    if len(rows) < 2:
        raise SpecificationError(f"{path} must have a line of column names and lines of numbers")
    ragged = [i for i, row in enumerate(rows) if len(row) != len(rows[0])]
    if ragged:
        raise SpecificationError(
            f"{path}: line {ragged[0] + 1} must have {len(rows[0])} fields, got {len(rows[ragged[0]])}"
        )
    return {column: np.array([row[i] for row in rows[1:]]) for i, column in enumerate(rows[0])}


def _runs(name: str, table: Mapping[str, np.ndarray]) -> Iterator[Curve]:
    """The curves in a table.

    One; one for each value of a column run; or one for each column RUN - loss (Weights & Biases).
    """
    of_run = _column(table, "run", "")
    if of_run is not None:
        for run in dict.fromkeys(of_run.tolist()):
            rows = of_run == run
            rest = {c: v[rows] for c, v in table.items() if v is not of_run}
            yield from _runs(str(run), rest)
        return
    columns = {column: column.strip() for column in table}
    prefixes = {c.rpartition(" - ")[0] for c in columns.values() if _spelt(c.rpartition(" - ")[2], "loss")}
    if not prefixes:
        raise SpecificationError(f"curve {name!r} must have a column loss, got {', '.join(table)}")
    for prefix in sorted(prefixes):
        run = name if prefixes == {prefix} else prefix
        numbers = {what: _pick(run, table, what, prefix) for what in ("step", "rate", "loss", "batch")}
        missing = [what for what in ("step", "rate", "loss") if numbers[what] is None]
        if missing:
            names = " or ".join(SPELLINGS[missing[0]][:3])
            raise SpecificationError(f"curve {run!r} must have a column {names}, got {', '.join(table)}")
        step, rate, loss = (numbers[what] for what in ("step", "rate", "loss"))
        assert step is not None
        assert rate is not None
        assert loss is not None
        # A logger writes rows of other quantities in between, with no loss at all, but maybe a rate.
        kept = ~_blank(table, loss, prefix)
        others = ~kept & np.isfinite(rate) & np.isfinite(step)
        batch = numbers["batch"]
        yield Curve(
            run,
            step[kept],
            rate[kept],
            loss[kept],
            None if batch is None else batch[kept],
            (step[others], rate[others]) if others.any() else None,
        )


def _blank(table: Mapping[str, np.ndarray], loss: np.ndarray, prefix: str) -> np.ndarray:
    """(rows,) whether the loss was left blank, in contrast to logged as NaN."""
    raw = _column(table, "loss", prefix)
    if raw is None or raw.dtype.kind not in "US":
        return np.zeros(len(loss), dtype=bool)
    return np.char.strip(raw) == ""


def _spelt(column: str, what: str) -> bool:
    return column.strip().lower() in SPELLINGS[what]


def _column(table: Mapping[str, np.ndarray], what: str, prefix: str) -> np.ndarray | None:
    others = [c for c in table if " - " in c and not c.strip().startswith(f"{prefix} - ")]
    mine = [c for c in reversed(list(table)) if c not in others]
    own = {c.strip().removeprefix(f"{prefix} - ").lower(): c for c in mine}
    ends = {c.rpartition("/")[2]: original for c, original in own.items()}
    for spelling in SPELLINGS[what]:
        for names in (own, ends):
            if spelling in names:
                return table[names[spelling]]
    return None


def _pick(run: str, table: Mapping[str, np.ndarray], what: str, prefix: str) -> np.ndarray | None:
    raw = _column(table, what, prefix)
    if raw is None:
        return None
    try:
        return np.array([float(x) if str(x).strip() else np.nan for x in raw])
    except (TypeError, ValueError) as error:
        raise SpecificationError(f"curve {run!r}: {what} must be numbers: {error}") from error
