"""Order parameters: the state of the theory, its names and its minimal flat form."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from optlearn._arguments import as_numbers
from optlearn._arrays import Array, Bool, Float
from optlearn._errors import SpecificationError
from optlearn._pytrees import Pytree, field
from optlearn._signatures import checked


@dataclass(frozen=True)
class Shapes(Mapping[str, tuple[int, ...]]):
    """Name → shape of arrays. Hashable, because the structure of a model must be."""

    items_: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def __getitem__(self, name: str) -> tuple[int, ...]:
        return dict(self.items_)[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.items_)

    def __len__(self) -> int:
        return len(self.items_)

    def __repr__(self) -> str:
        return repr(dict(self.items_))

    @classmethod
    def of(cls, shapes: Mapping[str, Any]) -> "Shapes":
        """From any mapping; a number n is the shape (n,)."""
        if not isinstance(shapes, Mapping):
            raise SpecificationError(f"trained must map names to shapes, such as (3, 2), got {shapes!r}")
        return cls(tuple((name, _shape(name, shape)) for name, shape in shapes.items()))


def entry_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """Names of an array's entries, row by row: ``hidden11``, ``hidden12``, …; ``W2_11`` after a digit."""
    return [_entry_name(name, place) for place in np.ndindex(*shape)]


def _entry_name(name: str, place: tuple[int, ...]) -> str:
    if not place:
        return name
    comma = "," if max(place) >= 9 else ""
    return name + "_" * name[-1].isdigit() + comma.join(str(index + 1) for index in place)


class OrderParameters(Pytree):
    """The state of a learner in high dimension.

    Attributes:
        Q: (K, K) student-student overlaps ``w_k·w_k'/N``.
        M: (K, M) student-teacher overlaps ``w_k·w*_m/N``.
        R: (K, C) student-centroid overlaps ``w_k·μ_c/N``; C counts the centroids of all slots.
        v: (K, H) trained readout, one column per head; H = 0 if the readout is not trained.
        extras: further trained scalars of a model, such as the skip connection ``b``.
        trained: name → weights behind the first layer, with the shapes that the model defines.

    Under a spectrum of B blocks, Q, M and R have a leading axis of blocks.

    ``x["Q12"]``, ``x["M11"]``, ``x["v1"]``, ``x["b"]``, ``x["hidden12"]`` are entries by name (indices from
    1), and ``x["hidden"]`` are trained weights as a whole; under a spectrum ``x["Q12"]`` has B numbers, and
    ``x["Q12_3"]`` is the one of block 3.
    """

    Q: Array
    M: Array
    R: Array
    v: Array
    extras: dict[str, Array]
    trained: dict[str, Array] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Array:
        if name in self.extras:
            return self.extras[name]
        if name in self.trained:
            return self.trained[name]
        leading = self.v.ndim - 2  # leading axes, such as times or seeds, common to all parts
        for key, weights in self.trained.items():
            if name.startswith(key) and name in (of := entry_names(key, weights.shape[leading:])):
                return weights.reshape(*weights.shape[:leading], -1)[..., of.index(name)]
        name, _, block = name.partition("_")
        if block.isdigit() and self.Q.ndim > 2:
            return self[name][..., int(block) - 1]
        kind, digits = name[:1], name[1:]
        matrix = {"Q": self.Q, "M": self.M, "R": self.R, "v": self.v}.get(kind)
        if matrix is None or not digits:
            raise KeyError(f"no order parameter {name!r}; examples: 'Q11', 'M12', 'R21', 'v1'")
        rows, columns = matrix.shape[-2:]
        parts = digits.split(",") if "," in digits else list(digits)
        if kind == "v" and columns == 1:
            parts = [digits, "1"]
        try:
            row, column = (int(part) - 1 for part in parts)
        except ValueError:
            raise KeyError(f"no order parameter {name!r}") from None
        if not (0 <= row < rows and 0 <= column < columns):
            raise KeyError(f"no order parameter {name!r}: {kind} is {rows} by {columns}")
        return matrix[..., row, column]


class Overlaps(Pytree):
    """The constants of a problem: teachers' and centroids' mutual overlaps.

    Attributes:
        T: (M, M) teacher-teacher ``w*_m·w*_m'/N``.
        S: (M, C) teacher-centroid ``w*_m·μ_c/N``.
        Omega: (C, C) centroid-centroid ``μ_c·μ_c'/N``.

    Under a spectrum of B blocks each may have a leading axis of blocks. Without it, vectors lie in random
    directions, and every block gets its share of them.
    """

    T: Float[Array, "*B M M"]
    S: Float[Array, "*B M C"]
    Omega: Float[Array, "*B C C"]

    @checked
    def __init__(self, T: Array = (), S: Array | None = None, Omega: Array = ()) -> None:
        self.T, self.Omega = _same_blocks(_square(T, "T"), _square(Omega, "Omega"))
        teachers, centroids = self.T.shape[-1], self.Omega.shape[-1]
        shape = (*self.T.shape[:-2], teachers, centroids)
        self.S = np.zeros(shape) if S is None else _as_float(S, "S")
        if self.S.shape != shape:
            raise SpecificationError(
                f"S has shape {self.S.shape}; with {teachers} teachers and {centroids} centroids "
                f"it must be {shape}"
            )
        if _concrete(self.T, self.S, self.Omega):
            for block in self.gram if self.by_block else self.gram[None]:
                check_gram(block, "overlaps T, S, Omega")

    @property
    def by_block(self) -> bool:
        """Whether there is an axis of blocks."""
        return self.T.ndim == 3

    @property
    def gram(self) -> Float[np.ndarray, "*B n n"]:
        """(…, M + C, M + C) Gram matrix of teachers and centroids."""
        T, S, Omega = (np.asarray(part) for part in (self.T, self.S, self.Omega))
        return np.block([[T, S], [np.swapaxes(S, -1, -2), Omega]])


@dataclass(frozen=True)
class OverlapLayout:
    """Which order parameters a model has, and the order of the minimal flat state.

    The flat state holds the upper triangle of Q row by row, then M, R, v, ``trained`` and the extras, without
    the entries named in ``untracked``, which stay at zero and affect nothing else. Under a spectrum of B
    ``blocks``, Q is stored block after block, and so are M and R; entries are called ``Q11_1``, ``Q11_2``, ….
    """

    students: int
    teachers: int = 0
    centroids: int = 0
    heads: int = 0
    extras: tuple[str, ...] = ()
    untracked: frozenset[str] = frozenset()
    blocks: int | None = None
    trained: Shapes = Shapes()

    @cached_property
    def entries(self) -> tuple[tuple[str, int, int], ...]:
        """(matrix, row, column) of every tracked entry, in flat order."""
        return tuple(e for e in self.all_entries() if self.name_of(*e) not in self.untracked)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the flat state's entries, such as ``Q11``."""
        trained = [name for part in self.trained.items() for name in entry_names(*part)]
        return (*(name for name, _ in self._flat_entries), *trained, *self.extras)

    @cached_property
    def _flat_entries(self) -> list[tuple[str, bool]]:
        """Name of every entry of a matrix, in flat order, and whether it is a squared norm."""
        named = []
        for kind in self._shapes:
            entries = [entry for entry in self.entries if entry[0] == kind]
            for ending in self._endings(kind):
                named += [(self.name_of(*e) + ending, kind == "Q" and e[1] == e[2]) for e in entries]
        return named

    def _endings(self, kind: str) -> tuple[str, ...]:
        """Suffixes of the names of a matrix's entries, block by block."""
        if self.blocks is None or kind == "v":
            return ("",)
        return tuple(f"_{block + 1}" for block in range(self.blocks))

    @property
    def size(self) -> int:
        """Length of the flat state."""
        return len(self.names)

    @cached_property
    def nonnegative(self) -> Bool[np.ndarray, " size"]:
        """(size,) flags of squared norms; off-diagonal overlaps may be negative."""
        norms = [norm for _, norm in self._flat_entries]
        return np.array(norms + [False] * (self.size - len(norms)))

    def flatten(self, x: OrderParameters) -> Float[Array, "... size"]:
        """(…, size) flat state."""
        numpy = all(isinstance(leaf, np.ndarray | np.generic) for leaf in jax.tree.leaves(x))
        parts = [
            self._in_a_row(kind, getattr(x, kind)[..., rows, columns])
            for kind, (rows, columns) in self._indices.items()
            if len(rows)
        ]
        leading = np.shape(x.v)[:-2]
        parts += [x.trained[name].reshape(*leading, -1) for name in self.trained]
        parts += [x.extras[name][..., None] for name in self.extras]
        return np.concatenate(parts, axis=-1) if numpy else jnp.concatenate(parts, axis=-1)

    def _in_a_row(self, kind: str, entries: Array) -> Array:
        """(…, blocks · entries) from (…, blocks, entries), if the matrix has blocks."""
        if self.blocks is None or kind == "v":
            return entries
        return entries.reshape(*entries.shape[:-2], -1)

    def _pieces(self, flat: Array) -> Iterator[tuple[str, Array]]:
        """The entries of each matrix, (…, entries) or (…, blocks, entries)."""
        start = 0
        for kind, (rows, _) in self._indices.items():
            count = len(rows) * len(self._endings(kind))
            piece = flat[..., start : start + count]
            start += count
            if self.blocks is not None and kind != "v":
                piece = piece.reshape(*flat.shape[:-1], self.blocks, len(rows))
            yield kind, piece

    def unflatten(self, flat: Float[Array, "... size"]) -> OrderParameters:
        """The order parameters of a flat state (…, size)."""
        # In plain NumPy if ``flat`` is, so that checks and plots of finished runs compile nothing.
        numpy, start = isinstance(flat, np.ndarray), len(self._flat_entries)
        matrices = {}
        for kind, piece in self._pieces(flat):
            shape = flat.shape[:-1] + self._shapes[kind]
            matrix: Array = np.zeros(shape) if numpy else jnp.zeros(shape, flat.dtype)
            rows, columns = self._indices[kind]
            mirrored = [(columns, rows)] if kind == "Q" else []
            for place in [(rows, columns), *mirrored] if len(rows) else []:
                if numpy:
                    matrix[..., *place] = piece
                else:
                    matrix = matrix.at[..., *place].set(piece)
            matrices[kind] = matrix
        trained = {}
        for name, shape in self.trained.items():
            size = int(np.prod(shape))
            trained[name] = flat[..., start : start + size].reshape((*flat.shape[:-1], *shape))
            start += size
        extras = {name: flat[..., start + i] for i, name in enumerate(self.extras)}
        return OrderParameters(**matrices, extras=extras, trained=trained)

    def state(self, **values: Array) -> OrderParameters:
        """Build a state from whole arrays (``Q=…``) and named entries (``Q11=1``); the rest is zero.

        One number for an array fills all its entries.
        """
        matrices = {kind: _filled(kind, values.pop(kind, 0.0), shape) for kind, shape in self._shapes.items()}
        if not np.allclose(matrices["Q"], np.swapaxes(matrices["Q"], -1, -2), rtol=0, atol=1e-12):
            raise SpecificationError(f"Q must be symmetric, got {matrices['Q'].tolist()}")
        extras = {name: _as_float(values.pop(name, 0.0), name) for name in self.extras}
        trained = {name: _filled(name, values.pop(name, 0.0), shape) for name, shape in self.trained.items()}
        for key, shape in self.trained.items():
            for place, name in enumerate(entry_names(key, shape)):
                if name in values:
                    trained[key].flat[place] = _filled(name, values.pop(name), ())
        for name, value in values.items():
            kind, block, row, column = self._place(name)
            entry = matrices[kind][block, row, column]
            entry = _filled(name, value, np.shape(entry))
            matrices[kind][block, row, column] = entry
            if kind == "Q":
                matrices[kind][block, column, row] = entry
        return OrderParameters(**matrices, extras=extras, trained=trained)

    def _place(self, name: str) -> tuple[str, Any, int, int]:
        """Matrix, block (… for all), row and column of an entry called ``name``."""
        base, _, block = name.partition("_")
        for kind, row, column in self.all_entries():
            if self.name_of(kind, row, column) == base and (not block or f"_{block}" in self._endings(kind)):
                return kind, int(block) - 1 if block else ..., row, column
        raise SpecificationError(f"unknown order parameter {name!r}; this model has {', '.join(self.names)}")

    @cached_property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        K, blocks = self.students, () if self.blocks is None else (self.blocks,)
        return {
            "Q": (*blocks, K, K),
            "M": (*blocks, K, self.teachers),
            "R": (*blocks, K, self.centroids),
            "v": (K, self.heads),
        }

    @cached_property
    def _indices(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Row and column numbers of the tracked entries of each matrix."""
        places: dict[str, list[tuple[int, int]]] = {kind: [] for kind in self._shapes}
        for kind, row, column in self.entries:
            places[kind].append((row, column))
        tables = {kind: np.array(pairs, dtype=int).reshape(-1, 2) for kind, pairs in places.items()}
        return {kind: (table[:, 0], table[:, 1]) for kind, table in tables.items()}

    def in_blocks(self, name: str) -> bool:
        """Whether a matrix or entry, named without a block, has a number for each block."""
        bare = {"Q", "M", "R"} | {self.name_of(*e) for e in self.all_entries() if e[0] != "v"}
        return name in bare

    def all_entries(self) -> Iterator[tuple[str, int, int]]:
        """(matrix, row, column) of every entry, tracked or not; for Q, the upper triangle."""
        for kind, shape in self._shapes.items():
            rows, columns = shape[-2:]
            for row in range(rows):
                for column in range(row if kind == "Q" else 0, columns):
                    yield kind, row, column

    def name_of(self, kind: str, row: int, column: int) -> str:
        """Name of an entry of the matrix Q, M, R or v, given its row and column from 0."""
        if kind == "v" and self.heads == 1:
            return f"v{row + 1}"
        return _entry_name(kind, (row, column))


def order_parameters(
    Q: Float[Array, "*B K K"],
    M: Float[Array, "*B K M"] | None = None,
    R: Float[Array, "*B K C"] | None = None,
    v: Float[Array, "K H"] | None = None,
    extras: dict[str, Array] | None = None,
) -> OrderParameters:
    """Order parameters, or their drift; omitted matrices have no columns."""
    empty = jnp.zeros((*Q.shape[:-1], 0))
    return OrderParameters(
        Q=Q,
        M=empty if M is None else M,
        R=empty if R is None else R,
        v=jnp.zeros((Q.shape[-1], 0)) if v is None else v,
        extras=extras or {},
    )


def gram_matrix(x: OrderParameters, overlaps: Overlaps) -> Float[Array, "... n n"]:
    """(…, n, n) Gram matrices of students, teachers and centroids, n = K + M + C."""
    T, S, Omega = (jnp.asarray(part) for part in (overlaps.T, overlaps.S, overlaps.Omega))
    M, R = (jnp.swapaxes(jnp.asarray(part), -1, -2) for part in (x.M, x.R))
    return jnp.concatenate(
        [
            jnp.concatenate([x.Q, x.M, x.R], axis=-1),
            jnp.concatenate([M, T, S], axis=-1),
            jnp.concatenate([R, jnp.swapaxes(S, -1, -2), Omega], axis=-1),
        ],
        axis=-2,
    )


def field_covariance(gram: Float[Array, "B n n"], variance: Float[Array, " B"]) -> Float[Array, "n n"]:
    """(n, n) covariance of the fields, Σ_b c_b G_b, from the Gram matrices of the blocks (B, n, n)."""
    return jnp.einsum("b,bij->ij", variance, gram)


def check_gram(gram: Float[np.ndarray, "n n"], what: str, tolerance: float = 1e-9) -> None:
    """Raise unless ``gram`` is finite and positive semidefinite, up to ``tolerance``."""
    if gram.size == 0:
        return
    if not np.all(np.isfinite(gram)):
        raise SpecificationError(f"{what}: not all numbers are finite: {gram.tolist()}")
    lowest = np.linalg.eigvalsh((gram + gram.T) / 2)[0]
    if lowest < -tolerance * max(1.0, float(np.abs(gram).max())):
        raise SpecificationError(
            f"{what}: the Gram matrix is not positive semidefinite "
            f"(lowest eigenvalue {lowest:.6g}): no vectors have these overlaps. {gram.tolist()}"
        )


def _shape(name: Any, shape: Any) -> tuple[int, ...]:
    sizes = shape if isinstance(shape, tuple | list) else (shape,)
    counts = all(isinstance(size, int | np.integer) and size is not True and size > 0 for size in sizes)
    if not (isinstance(name, str) and name.isidentifier() and counts):
        raise SpecificationError(
            f"trained must map names to shapes, such as 'hidden' to (3, 2), got {name!r}: {shape!r}"
        )
    return tuple(int(size) for size in sizes)


def _filled(name: str, value: Array, shape: tuple[int, ...]) -> np.ndarray:
    """A new matrix: ``value`` itself, or a number in every entry."""
    matrix = _as_float(value, name)
    if matrix.shape not in (shape, ()):
        raise SpecificationError(f"{name} must have shape {shape} in this model, got {matrix.shape}")
    return np.array(np.broadcast_to(matrix, shape))


def _square(value: Array, name: str) -> Array:
    matrix = _as_float(value, name)
    if matrix.size == 0:
        return matrix if matrix.ndim == 3 else np.zeros((0, 0))
    if matrix.ndim == 0:
        matrix = matrix.reshape(1, 1)
    if matrix.ndim not in (2, 3) or matrix.shape[-1] != matrix.shape[-2]:
        raise SpecificationError(f"{name} must be a square matrix, got shape {matrix.shape}")
    if _concrete(matrix) and not np.allclose(matrix, np.swapaxes(matrix, -1, -2), 0, 1e-12, equal_nan=True):
        raise SpecificationError(f"{name} must be symmetric, got {matrix.tolist()}")
    return matrix


def _same_blocks(T: Array, Omega: Array) -> tuple[Array, Array]:
    """Both with an axis of blocks if one has it; an omitted matrix is empty in every block."""
    blocks = {part.shape[0] for part in (T, Omega) if part.ndim == 3}
    if not blocks:
        return T, Omega
    wrong = [part for part in (T, Omega) if part.ndim == 2 and part.size]
    if len(blocks) > 1 or wrong:
        raise SpecificationError(
            f"T of shape {T.shape} and Omega of shape {Omega.shape}: both need the same axis of blocks"
        )
    empty = np.zeros((blocks.pop(), 0, 0))
    return T if T.ndim == 3 else empty, Omega if Omega.ndim == 3 else empty


def _as_float(value: Array, name: str) -> Array:
    if isinstance(value, jax.core.Tracer):
        return value
    numbers = as_numbers(value)
    if numbers is None:
        raise SpecificationError(f"{name} must be numbers, got {value!r}")
    return numbers


def _concrete(*arrays: Array) -> bool:
    return not any(isinstance(array, jax.core.Tracer) for array in arrays)
