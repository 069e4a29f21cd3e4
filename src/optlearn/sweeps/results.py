"""Results of a sweep: all finished points as one labelled dataset, and heat maps of it."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, product
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optlearn._errors import SpecificationError
from optlearn._io.files import load_dataset
from optlearn._schedule import RESERVED
from optlearn._signatures import checked
from optlearn.sweeps.store import Record, Store, read_description

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes

_MEANINGS = {
    "objective": "objective of the best schedule, re-integrated",
    "relaxed_objective": "objective of the best mixed schedule",
    "hamiltonian_gap": "possible improvement (first-order estimate)",
    "relaxation_gap": "objective minus that of the best mixed schedule",
    "starts_tried": "first guesses that were optimised",
    "starts_agreeing": "first guesses that ended within 1e-6 of the best",
    "seconds": "wall-clock time of the point",
    "cpu_seconds": "CPU time of the point",
    "converged": "the certificate says that the schedule is optimal",
    "warm": "a neighbour's schedule was among the first guesses",
    "finished": "the point was computed, or failed",
    "part": "run of the driver that computed the point, counted from 0",
    "error": "what was raised, if the point failed",
    "reduce_error": "what reduce raised; the solution is kept",
}
# Names in the dataset of a sweep, which ``reduce`` must not use.
RESULTS = (*_MEANINGS, "edges", "edge", "interval", "baseline", "baseline_objective")
PREFIXES = ("free_", "schedule_")
_NUMBERS = ("objective", "hamiltonian_gap", "relaxation_gap", "seconds", "cpu_seconds")


@checked
def load(folder: str | Path) -> "xarray.Dataset":
    """The finished points of a sweep, even while it is running or after it was killed.

    Args:
        folder: folder of the sweep, or its ``sweep.nc``.

    Returns:
        One dimension for each varying argument. ``objective``, ``converged``, ``hamiltonian_gap``,
        ``seconds``, …; ``free_NAME`` for each free parameter; ``schedule_NAME`` (…, interval) for each
        control, between ``edges`` (…, edge) in training time; ``baseline_objective`` (…, baseline); results
        of ``reduce``; ``error``, the error message of a failed point, and ``reduce_error``, that of
        ``reduce``. Numbers of unfinished points are NaN.
    """
    folder = Path(folder)
    if folder.is_file():
        return load_dataset(folder)
    description = read_description(folder)
    over = description["spec"]["over"]
    store = Store(folder, description["id"], len(description["parts"]) - 1)
    indices = list(product(*(range(len(values)) for values in over.values())))
    return make_dataset(over, [store.read(index) for index in indices], description)


def make_dataset(
    over: Mapping[str, Sequence[Any]], records: Sequence[Record | None], description: Mapping[str, Any]
) -> "xarray.Dataset":
    """The records of all points (None: not finished), the last argument varying fastest."""
    import xarray

    shape = tuple(len(values) for values in over.values())
    dims = tuple(over)
    solved = [r if r is not None and r["status"] == "done" else {} for r in records]
    columns: dict[str, tuple[tuple[str, ...], Any]] = {}

    def add(name: str, values: Sequence[Any], extra: tuple[str, ...] = ()) -> None:
        if name in columns or name in dims:
            raise SpecificationError(f"two results are called {name!r}; let reduce return another name")
        array = _stacked(values, len(extra))
        columns[name] = ((*dims, *extra), array.reshape(*shape, *array.shape[1:]))

    for name in _NUMBERS:
        add(name, [(r or {}).get(name) for r in (records if "seconds" in name else solved)])
    add("relaxed_objective", [(r.get("relaxed") or {}).get("objective") for r in solved])
    for place, name in enumerate(("starts_tried", "starts_agreeing")):
        add(name, [r["starts"][place] if r else None for r in solved])
    for name in _names(r.get("free", {}) for r in solved):
        add(f"free_{name}", [r.get("free", {}).get(name) for r in solved])
    controls = [_controls(r) for r in solved]
    for name in _names(controls):
        add(f"schedule_{name}", [values.get(name) for values in controls], ("interval",))
    grids = [r["schedule"]["grid"] for r in solved if r]
    if grids and all(grid == grids[0] for grid in grids):
        columns["edges"] = (("edge",), np.array(grids[0], dtype=float))
    elif grids:
        add("edges", [r["schedule"]["grid"] if r else None for r in solved], ("edge",))
    baselines = list(description["spec"]["baselines"])
    if baselines:
        table = [[r.get("baselines", {}).get(name) for name in baselines] for r in solved]
        add("baseline_objective", [np.array(row, dtype=float) for row in table], ("baseline",))
    for name in _names(r.get("reduced", {}) for r in solved):
        values = [r.get("reduced", {}).get(name) for r in solved]
        depth = max(np.ndim(value) for value in values if value is not None)
        add(name, values, tuple(f"{name}_{axis}" for axis in range(depth)))
    flags: dict[str, list[Any]] = {
        "converged": [bool(r.get("converged")) for r in solved],
        "warm": [bool(r.get("warm")) for r in solved],
        "finished": [r is not None for r in records],
        "part": [-1 if r is None else r["part"] for r in records],
    }
    for name, values in flags.items():
        columns[name] = (dims, np.array(values).reshape(shape))
    for name in ("error", "reduce_error"):
        messages = np.array([(r or {}).get(name, "") for r in records], dtype=object)
        columns[name] = (dims, messages.reshape(shape))
    coordinates: dict[str, Any] = {name: list(values) for name, values in over.items()}
    if baselines:
        coordinates["baseline"] = baselines
    dataset = xarray.Dataset(columns, coordinates)
    for name in set(columns) & set(_MEANINGS):
        units = {"units": "s"} if "seconds" in name else {}
        dataset[name].attrs = {"long_name": _MEANINGS[name], **units}
    dataset.attrs = {key: dumps(description[key]) for key in ("spec", "parts")}
    return dataset


def _stacked(values: Sequence[Any], depth: int) -> np.ndarray:
    """(points, …) numbers, padded with NaN where missing or shorter than the longest."""
    arrays = [None if value is None else np.asarray(value, dtype=float) for value in values]
    sizes = [array.shape for array in arrays if array is not None and array.ndim == depth]
    longest = tuple(max(size[axis] for size in sizes) if sizes else 0 for axis in range(depth))
    table = np.full((len(values), *longest), np.nan)
    for place, array in enumerate(arrays):
        if array is not None:
            where: tuple[Any, ...] = (place, *(slice(0, n) for n in array.shape))
            table[where] = array
    return table


def _names(tables: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(chain.from_iterable(tables)))


def _controls(record: Record) -> dict[str, Any]:
    schedule = record["schedule"] if record else {}
    plain = {name: values for name, values in schedule.items() if name not in RESERVED}
    return {**plain, **schedule.get("controls", {})}


def plot(
    dataset: "xarray.Dataset",
    variable: str = "objective",
    ax: "Axes | None" = None,
    *,
    at: Mapping[str, Any] | None = None,
    label: str | None = None,
    **options: Any,
) -> "Axes":
    """Draw a variable over the one or two arguments that vary.

    Args:
        dataset: dataset of a sweep.
        variable: name of one of its variables, including new ones that you have assigned.
        ax: axes to draw in; new ones by default.
        at: dimension → value at which to cut if there are more than two dimensions; the nearest is used.
        label: label of the colours; by default the variable's ``long_name``.
        options: options of Matplotlib's ``pcolormesh``, or ``plot`` in one dimension.

    Returns:
        The axes. A cross marks failed points, a dot those that are not converged.
    """
    if variable not in dataset:
        raise SpecificationError(
            f"no variable {variable!r}; there are {', '.join(map(str, dataset.data_vars))}"
        )
    for name, value in (at or {}).items():
        is_number = np.issubdtype(dataset[name].dtype, np.number)
        dataset = dataset.sel({name: value}, method="nearest" if is_number else None)
    data = dataset[variable]
    dims = [str(dim) for dim in data.dims if data.sizes[dim] > 1] or [str(data.dims[0])]
    data = data.squeeze([dim for dim in data.dims if str(dim) not in dims])
    if len(dims) > 2:
        raise SpecificationError(
            f"{variable!r} varies over {', '.join(dims)}: cut it with at={{name: value}}"
        )
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(layout="constrained")
    text = str(data.attrs.get("long_name", variable)) if label is None else label
    if len(dims) == 1:
        ax.plot(
            _positions(data, dims[0], ax.xaxis), np.asarray(data, dtype=float), **{"marker": "o", **options}
        )
        ax.set(xlabel=dims[0], ylabel=text)
        return ax
    vertical, horizontal = dims
    x, y = _positions(data, horizontal, ax.xaxis), _positions(data, vertical, ax.yaxis)
    mesh = ax.pcolormesh(x, y, np.asarray(data, dtype=float), shading="nearest", **options)
    ax.figure.colorbar(mesh, ax=ax, label=text)
    ax.set(xlabel=horizontal, ylabel=vertical)
    if "error" in dataset and set(dims) <= set(map(str, dataset["error"].dims)):
        failed = (dataset["error"] != "").squeeze().transpose(*dims).values
        doubtful = (dataset["finished"] & ~dataset["converged"]).squeeze().transpose(*dims).values & ~failed
        for where, marker in ((failed, "x"), (doubtful, ".")):
            rows, columns = np.nonzero(where)
            if len(rows):  # a line without points confuses Matplotlib's layouts
                ax.plot(x[columns], y[rows], marker, color="red", linestyle="none", clip_on=False)
    return ax


def _positions(data: "xarray.DataArray", dim: str, axis: Any) -> np.ndarray:
    """Positions of a dimension's values: words are at whole numbers."""
    values = np.asarray(data[dim])
    if np.issubdtype(values.dtype, np.number):
        return values.astype(float)
    axis.set_ticks(range(len(values)), [str(value) for value in values])
    return np.arange(float(len(values)))
