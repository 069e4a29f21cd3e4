"""Heat maps of sweeps."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from optlearn._errors import SpecificationError

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes


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
        dataset: of a sweep.
        variable: one of its variables, or the name of a new one that was assigned to it.
        ax: axes to draw in; new ones if not given.
        at: dimension → the value (the nearest is taken) at which to cut, where there are more than two.
        label: of the colours; the variable's ``long_name`` if not given.
        options: of Matplotlib's ``pcolormesh``, or ``plot`` in one dimension.

    Returns:
        The axes. A cross marks points that failed, a dot those that are not converged.
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
    """Where the values of a dimension are drawn: words at whole numbers."""
    values = np.asarray(data[dim])
    if np.issubdtype(values.dtype, np.number):
        return values.astype(float)
    axis.set_ticks(range(len(values)), [str(value) for value in values])
    return np.arange(float(len(values)))
