"""Loss curves from files and tables: CSV, pandas, TensorBoard, Weights & Biases, logs of trainers."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from optlearn._errors import SpecificationError
from optlearn.laws._curves import Curve, as_rates, check_together
from optlearn.laws._event_files import read_events
from optlearn.laws._log_files import is_text_log, read_csv, read_text, read_trainer_state

# Spellings of the columns, in lower case and without a run's name or a folder in front; the first match is
# used.
SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "step": ("step", "steps", "global_step", "trainer/global_step", "_step", "iteration", "iter"),
    "rate": ("lr", "learning_rate", "learning rate", "learning-rate", "rate", "eta"),  # or lr-NAME
    "validation": ("val_loss", "eval_loss", "val/loss", "eval/loss", "validation/loss", "validation_loss",
                   "loss/val", "loss/validation", "test_loss", "test/loss", "val loss", "validation loss"),
    "training": ("loss", "train_loss", "train/loss", "training_loss", "loss/train", "lm loss", "lm_loss",
                 "train_loss_step", "metrics/train/loss", "train loss", "training loss"),
    "run": ("run", "run_name", "name", "run_id"),
    "batch": ("batch", "batch_size", "batch-size", "global_batch_size"),
}  # fmt: skip
LOSSES = ("validation", "training")
BLANKS = ("", "NA")  # the second is Keras'
MISSING = ("nan", "None", "<NA>")  # in a frame
BLANK_WORDS = ("none", "null", "n/a", "<na>")  # in a CSV file, in lower case
FEW = 8  # validation losses of a run, below which training losses are read
WORDS = {word: what for what, words in SPELLINGS.items() for word in words}
EVENTS = "tfevents"
TRAINER_STATE = "trainer_state.json"
CHECKPOINT = re.compile(r"checkpoint-(\d+)")  # folders of Hugging Face; each state holds the log so far
TEXT = (".txt", ".log")
TABLES = (".csv", ".csv.gz", ".tsv")
Source = Any  # a path, a pandas frame, or a mapping from columns to numbers


def read_curves(curves: Any, same_unit: bool = False, rates: Mapping[str, Any] | None = None) -> list[Curve]:
    """Loss curves from files and tables.

    Args:
        curves: a folder (a run for every log in it: CSV, gzipped or not, TensorBoard, trainer_state.json,
            .txt or .log), a mapping from names to files, pandas frames or mappings of columns, one such table
            alone, a list of files, or curves that were read before. Event files in one folder are one run,
            and so are the checkpoints of one trainer. Runs are named by their files, or the folders of
            these, with the folders above where names would be the same. If a log has both, validation losses
            are read, unless a run has fewer than 8 of them.
        same_unit: losses are known to be of one kind and in one unit.
        rates: for logs without rates, by name of the run: a rate for every step from the first, or a function
            of the steps done.
    """
    parts: list[Curve | _Part] = []
    for name, source in named_sources(curves):
        parts += [source] if isinstance(source, Curve) else runs_of(name, read_table(name, source))
    tables = [part for part in parts if isinstance(part, _Part)]
    # All runs need losses of the same kind.
    often = all(part.logged("validation") >= FEW for part in tables)
    kinds = LOSSES if often else LOSSES[::-1]
    read = [part.curve(kinds, rates or {}) if isinstance(part, _Part) else part for part in parts]
    if not read:
        raise SpecificationError(f"curves must hold at least one loss curve, got {curves!r}")
    check_together(read, same_unit)
    return read


def named_sources(curves: Any) -> Iterator[tuple[str, Source]]:
    """Names and sources; files are named by the shortest distinct ends of their paths."""
    sources = list(_sources(curves))
    paths = {name.absolute().parts for name, _ in sources if isinstance(name, Path)}
    ends = Counter(parts[-length:] for parts in paths for length in range(1, len(parts) + 1))
    tables = [name for name, _ in sources].count(None)
    numbers = iter(range(1, tables + 1))
    for name, source in sources:
        if isinstance(name, Path):
            parts = name.absolute().parts
            tails = (parts[-length:] for length in range(1, len(parts) + 1))
            name = "/".join(next(tail for tail in tails if ends[tail] == 1))
        elif name is None:
            name = "run" if tables == 1 else f"run {next(numbers)}"
        yield name, source


def _sources(curves: Any) -> Iterator[tuple[str | Path | None, Source]]:
    """The origin of each run's name (a name, a path, or None for a lone table), and its source."""
    if isinstance(curves, str | PathLike):
        path = Path(curves)
        if not path.exists():
            raise SpecificationError(f"curves: there is no file or folder {str(path)!r}")
        if path.is_dir():
            yield from _in_folder(path)
        else:
            yield _names_run(path), path
    elif isinstance(curves, Curve):
        yield curves.name, curves
    elif hasattr(curves, "columns") or _is_table(curves):
        yield None, curves
    elif isinstance(curves, Mapping):
        yield from ((str(name), source) for name, source in curves.items())
    elif isinstance(curves, Sequence):
        for source in curves:
            yield from _sources(source)
    else:
        raise SpecificationError(
            f"curves must be a folder, or map names to files or tables, got {type(curves).__name__}"
        )


def _in_folder(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Names and sources of the runs in a folder, where several files may belong to one run."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and _is_log(file)]
    if not files:
        raise SpecificationError(
            f"curves: {str(folder)!r} holds neither .csv files nor TensorBoard events, nor other logs"
        )
    runs: dict[tuple[Path, str], list[Path]] = {}
    for file in files:
        kind = next((kind for kind in (EVENTS, TRAINER_STATE) if kind in file.name), file.name)
        home = file.parent.parent if kind == TRAINER_STATE and _saved(file) < np.inf else file.parent
        runs.setdefault((home, kind), []).append(file)
    for (home, kind), of_run in runs.items():
        if len(of_run) == 1:
            yield _names_run(of_run[0]), of_run[0]
        else:  # the last state of a trainer contains the others
            yield home, home if kind == EVENTS else max(of_run, key=_saved)


def _saved(state: Path) -> float:
    """The step of the checkpoint of a trainer's state; infinite for the state at the end."""
    checkpoint = CHECKPOINT.fullmatch(state.parent.name)
    return int(checkpoint[1]) if checkpoint else np.inf


def _names_run(file: Path) -> Path:
    """The folder for TensorBoard and trainers, else the file without its endings."""
    if EVENTS in file.name or file.name in (TRAINER_STATE, "metrics.csv"):
        return file.parent
    packed = file.suffix.lower() == ".gz"
    return (file.with_suffix("") if packed else file).with_suffix("")


def _is_table(curves: Any) -> bool:
    """Whether a mapping contains the columns of one run, rather than runs by name."""
    if not isinstance(curves, Mapping) or not any(_spelt(str(name), "step") for name in curves):
        return False
    return all(isinstance(values, np.ndarray | list | tuple) for values in curves.values())


def _is_log(file: Path) -> bool:
    if file.suffix.lower() in TEXT:  # folders also contain other texts
        return is_text_log(file, WORDS)
    return file.name.lower().endswith(TABLES) or EVENTS in file.name or file.name == TRAINER_STATE


def _read_file(path: Path) -> dict[str, np.ndarray]:
    if EVENTS in path.name:
        return read_events([path])
    if path.suffix == ".json":
        return read_trainer_state(path)
    if path.suffix.lower() in TEXT:
        return _of_numbers(path, *read_text(path, WORDS))
    table, lines = read_csv(path)
    return _of_numbers(path, {c: v if _spelt(c, "run") else _gaps(v) for c, v in table.items()}, lines)


def _gaps(cells: np.ndarray) -> np.ndarray:
    """A column of a CSV file, with words for missing values as blanks.

    ``nan`` is a blank if numbers follow it; a loss that is nan to the end shows a run that diverged.
    """
    words = np.char.lower(np.char.strip(cells))
    blank, nan = np.isin(words, BLANK_WORDS), words == "nan"
    numbers = np.flatnonzero(~blank & ~nan & ~_blank(cells))
    if nan.any() and len(numbers) and np.argmax(nan) < numbers[-1]:
        blank |= nan
    return np.where(blank, "", cells)


def _of_numbers(path: Path, table: dict[str, np.ndarray], lines: Sequence[int]) -> dict[str, np.ndarray]:
    """The table of a file, if the columns that will be read contain only numbers and blanks."""
    prefixes = {column.strip().rpartition(" - ")[0] for column in table}
    for what, prefix in product(("step", "rate", *LOSSES, "batch"), prefixes):
        column = _column(table, what, prefix)
        for line, cell in zip(lines, () if column is None else column.tolist(), strict=False):
            try:
                _number(cell)
            except ValueError:
                name = "loss" if what in LOSSES else what
                raise SpecificationError(
                    f"{path}: line {line}: {name} must be a plain number such as 1000 or 0.001, got {cell!r}"
                ) from None
    return table


def read_table(name: str, source: Source) -> dict[str, np.ndarray]:
    """Columns of a file or a table."""
    if isinstance(source, str | PathLike):
        path = Path(source)
        events = sorted(path.glob(f"*{EVENTS}*"))  # of a run that was resumed
        if not path.is_file() and not events:
            raise SpecificationError(f"curve {name!r}: there is no file {str(path)!r}")
        table = read_events(events) if events else _read_file(path)
    elif hasattr(source, "columns") or isinstance(source, Mapping):
        columns = source.columns if hasattr(source, "columns") else source
        table = {str(column): np.asarray(source[column]) for column in columns}
        if hasattr(source, "columns"):
            table = {column: _blanks(values) for column, values in table.items()}
        if len({values.shape for values in table.values()}) > 1 or any(v.ndim != 1 for v in table.values()):
            shapes = ", ".join(f"{column} {values.shape}" for column, values in table.items())
            raise SpecificationError(
                f"curve {name!r}: columns must be lists of one length, got the shapes {shapes}"
            )
    else:
        raise SpecificationError(f"curve {name!r} must be a file or a table, got {type(source).__name__}")
    return table


def _blanks(values: np.ndarray) -> np.ndarray:
    """A column of a frame as text, with NaN, None and NA as blanks."""
    if values.dtype.kind not in "fO":
        return values
    return np.array(["" if str(x) in MISSING else str(x) for x in values.tolist()], dtype=str)


def runs_of(name: str, table: Mapping[str, np.ndarray]) -> "Iterator[_Part]":
    """The runs in a table.

    A single run; one for each value of a column run; or one for each column RUN - loss (Weights & Biases).
    """
    of_run = _column(table, "run", "")
    if of_run is not None:
        for run in dict.fromkeys(of_run.tolist()):
            rows = of_run == run
            yield from runs_of(str(run), {c: v[rows] for c, v in table.items() if v is not of_run})
        return
    ends = (column.strip().rpartition(" - ") for column in table)
    prefixes = {prefix for prefix, _, end in ends if any(_spelt(end, kind) for kind in LOSSES)}
    if not prefixes:
        raise SpecificationError(f"curve {name!r} must have a column loss, got {', '.join(table) or 'none'}")
    for prefix in sorted(prefixes):
        yield _Part(name if prefixes == {prefix} else prefix, table, prefix)


class _Part(NamedTuple):
    """One run in a table: its name, the columns, and the prefix of its own columns."""

    run: str
    table: Mapping[str, np.ndarray]
    prefix: str

    def logged(self, kind: str) -> int:
        """Number of logged losses of a kind."""
        raw = _column(self.table, kind, self.prefix)
        return 0 if raw is None else int((~_blank(raw)).sum())

    def curve(self, kinds: Sequence[str], rates: Mapping[str, Any]) -> Curve:
        """The run, with losses of the first of ``kinds`` that it has."""
        run, table = self.run, self.table
        kind = next((kind for kind in kinds if self.logged(kind)), kinds[0])
        step, rate, loss, batch = (
            _pick(run, table, what, self.prefix) for what in ("step", "rate", kind, "batch")
        )
        if rate is None and step is not None and run in rates:
            rate = _given(run, rates[run], step)
        if step is None or rate is None or loss is None:
            missing = "step" if step is None else "rate" if rate is None else kind
            names = " or ".join(SPELLINGS[missing][:3])
            hint = (
                "; rates={name: one for every step} gives them to a log without" if missing == "rate" else ""
            )
            raise SpecificationError(
                f"curve {run!r} must have a column {names}, got {', '.join(table)}{hint}"
            )
        # Loggers also write rows of other quantities, with no loss but maybe a rate.
        kept = ~_blank(_column(table, kind, self.prefix))
        rate_only = ~kept & np.isfinite(rate) & np.isfinite(step)
        if rate_only.any() and not np.isfinite(rate[kept]).any():  # rates in separate rows
            rate = np.where(kept, np.interp(step, *_increasing(step[rate_only], rate[rate_only])), rate)
        rate_only &= ~np.isin(step, step[kept])
        between = (step[rate_only], rate[rate_only]) if rate_only.any() else None
        kept_batch = None if batch is None else batch[kept]
        return Curve(run, step[kept], rate[kept], loss[kept], kept_batch, between)


def _given(run: str, rates: Any, step: np.ndarray) -> np.ndarray:
    """Rates at the logged steps, from a rate for every step or a function of the steps done."""
    if callable(rates):
        return np.array([_called(run, rates, s) for s in step.tolist()])
    known = as_rates(rates)
    if known is None or np.nanmax(step) > len(known):
        raise SpecificationError(
            f"rates[{run!r}] must be a rate for each of {np.nanmax(step):g} steps, or a function of the step"
        )
    return known[np.maximum(np.nan_to_num(step).astype(int) - 1, 0)]


def _called(run: str, rate: Callable[[float], Any], step: float) -> float:
    if np.isnan(step):  # left blank
        return np.nan
    value = rate(step)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise SpecificationError(
            f"rates[{run!r}] must return a number, got {value!r} at step {step:g}"
        ) from None


def _increasing(step: np.ndarray, rate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Increasing steps, and the last rate logged at each."""
    steps, last = np.unique(step[::-1], return_index=True)
    return steps, rate[::-1][last]


def _blank(raw: np.ndarray | None) -> np.ndarray:
    """(rows,) whether a value was left blank, rather than logged as NaN."""
    if raw is None or raw.dtype.kind not in "US":
        return np.zeros(0 if raw is None else len(raw), dtype=bool)
    return np.isin(np.char.strip(raw), BLANKS)


def _spelt(column: str, what: str) -> bool:
    return column.strip().lower() in SPELLINGS[what]


def _column(table: Mapping[str, np.ndarray], what: str, prefix: str) -> np.ndarray | None:
    others = [c for c in table if " - " in c and not c.strip().startswith(f"{prefix} - ")]
    of_run = [c for c in reversed(list(table)) if c not in others]
    whole = {c.strip().removeprefix(f"{prefix} - ").lower(): c for c in of_run}
    ends = {c.rpartition("/")[2]: original for c, original in whole.items()}
    for spelling in SPELLINGS[what]:
        for names in (whole, ends):
            if spelling in names:
                return table[names[spelling]]
    if what == "rate":  # lr-AdamW, lr-AdamW/pg1: Lightning's monitor
        return next((table[c] for name, c in whole.items() if name.startswith("lr-")), None)
    return None


def _pick(run: str, table: Mapping[str, np.ndarray], what: str, prefix: str) -> np.ndarray | None:
    raw = _column(table, what, prefix)
    if raw is None:
        return None
    try:
        if np.iscomplexobj(raw):
            raise TypeError(f"got the complex {raw.tolist()[0]}")
        values = raw.tolist() if raw.dtype.kind in "US" else raw  # plain text: an error shows the cell
        return np.array([_number(x) for x in values])
    except (TypeError, ValueError, OverflowError) as error:
        what = "loss" if what in LOSSES else what
        raise SpecificationError(f"curve {run!r}: {what} must be numbers: {error}") from error


def _number(cell: Any) -> float:
    return np.nan if str(cell).strip() in BLANKS else float(cell)
