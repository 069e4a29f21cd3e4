"""TensorBoard's event files, read without TensorFlow.

An event file is a sequence of records (length, checksum, data, checksum). The data are protocol-buffer
messages ``Event``; only the step and scalar summaries are read, old (``simple_value``) and new (``tensor``).
"""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from optlearn._errors import SpecificationError

# Numbers of the fields, from TensorBoard's event.proto, summary.proto and tensor.proto.
STEP, SUMMARY = 2, 5
VALUE = 1
TAG, SIMPLE_VALUE, TENSOR = 1, 2, 8
DTYPE, CONTENT, FLOATS, DOUBLES = 1, 4, 5, 6
FLOAT, DOUBLE = 1, 2


def read_events(paths: Sequence[Path]) -> dict[str, np.ndarray]:
    """Columns ``step`` and one per scalar tag, at all steps; later files override earlier ones.

    Losses are blank at steps where they were not logged; anything else keeps its value until it is logged
    again.
    """
    series: dict[str, dict[int, float]] = {}
    for record in (record for path in paths for record in _records(path)):
        step = 0
        values: list[bytes] = []
        for number, content in _fields(record):
            if number == STEP and isinstance(content, int):
                step = content
            elif number == SUMMARY and isinstance(content, bytes):
                values += [v for n, v in _fields(content) if n == VALUE and isinstance(v, bytes)]
        for tag, scalar in map(_scalar, values):
            if tag and scalar is not None:
                series.setdefault(tag, {})[step] = scalar
    losses = {tag: s for tag, s in series.items() if "loss" in tag.lower()}
    if not losses:
        files = " and ".join(map(str, paths))
        raise SpecificationError(
            f"{files} must hold scalars of a loss, got {', '.join(series) or 'no scalars'}"
        )
    steps = np.array(sorted({step for one in series.values() for step in one}))
    at_steps = {
        tag: np.array([repr(one[s]) if s in one else "" for s in steps.tolist()])
        for tag, one in losses.items()
    }
    return {"step": steps, **{tag: _held(s, steps) for tag, s in series.items()}, **at_steps}


def _held(series: dict[int, float], steps: np.ndarray) -> np.ndarray:
    logged = np.array(sorted(series))
    index = np.searchsorted(logged, steps, side="right") - 1
    values = np.array([series[step] for step in logged.tolist()])
    return np.where(index >= 0, values[np.maximum(index, 0)], np.nan)


def _records(path: Path) -> Iterator[bytes]:
    data, at = path.read_bytes(), 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        end = at + 12 + length
        if end + 4 > len(data):  # a killed run leaves half a record at the end
            return
        yield data[at + 12 : end]
        at = end + 4


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and content of each field: whole numbers, or bytes (also for fixed-size numbers)."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            content, at = _varint(message, at)
            yield key >> 3, content
            continue
        if kind == 2:
            length, at = _varint(message, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise SpecificationError(f"not a TensorBoard event file: field of kind {kind}")
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message):
        byte = message[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at
    raise SpecificationError("not a TensorBoard event file: a number is cut off")


def _scalar(value: bytes) -> tuple[str, float | None]:
    tag, number = "", None
    for field, content in _fields(value):
        if field == TAG and isinstance(content, bytes):
            tag = content.decode("utf-8", "replace")
        elif field == SIMPLE_VALUE and isinstance(content, bytes):
            (number,) = struct.unpack("<f", content)
        elif field == TENSOR and isinstance(content, bytes):
            number = _from_tensor(content)
    return tag, number


def _from_tensor(tensor: bytes) -> float | None:
    kind, raw = FLOAT, b""
    for field, content in _fields(tensor):
        if field == DTYPE and isinstance(content, int):
            kind = content
        elif field in (CONTENT, FLOATS, DOUBLES) and isinstance(content, bytes):
            raw = content
    form = {FLOAT: "<f", DOUBLE: "<d"}.get(kind)
    if form is None or len(raw) != struct.calcsize(form):  # text, images or arrays
        return None
    return float(struct.unpack(form, raw)[0])
