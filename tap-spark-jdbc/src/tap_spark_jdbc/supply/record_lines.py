"""Arrow batches as RECORD lines: columns of texts, joined by Arrow.

Bytes come from the database in base64.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc

from tap_spark_jdbc.supply.columnar_query import writing

if TYPE_CHECKING:
    from tap_spark_jdbc.extract.fingerprints import Frame
    from tap_spark_jdbc.supply.streamed_lines import LineFile

# Selects the rows of a batch, with the boundary of each, that belong in a file.
Unsent = Callable[[pa.RecordBatch, pa.Array], pa.RecordBatch]
# The characters that are not allowed in JSON text, escaped as Jackson does; the backslash comes
# first, as the others contain it.
SHORT = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
CONTROLS = {chr(code): f"\\u{code:04X}" for code in range(0x20) if chr(code) not in SHORT}
_ESCAPED = str.maketrans(SHORT | CONTROLS)


class RecordLines:
    """A file of lines; it is created at the latest when it is closed.

    Attributes:
        rows: Number of rows written so far.
    """

    def __init__(self, opened: Callable[[], LineFile], frame: Frame, unsent: Unsent) -> None:
        """Nothing is written yet.

        `unsent` selects a batch's rows that belong in the file, as `BoundaryRows` does.
        """
        self._prefix, self._end = frame.prefix.decode(), f"{frame.suffix.decode()}\n"
        self._unsent = unsent
        self._open = opened
        self._file: LineFile | None = None
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """Close the file, whatever became of it."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    def add(self, read: pa.RecordBatch, boundary: pa.Array) -> None:
        """As `Sink.add`."""
        rows = self._unsent(read, boundary)
        if rows.num_rows:
            self.rows += rows.num_rows
            lines = rendered(rows, self._prefix, self._end)
            with writing():
                self._opened().write(joined_text(lines))

    def close(self) -> int:
        """As `Sink.close`; without rows the file is empty."""
        with writing():
            self._opened().close()
        return self.rows

    def _opened(self) -> LineFile:
        if self._file is None:
            self._file = self._open()
        return self._file


def rendered(
    rows: pa.RecordBatch,
    prefix: str,
    end: str,
    numbers: Callable[[pa.Array], pa.Array] | None = None,
) -> pa.Array:
    """The line of each row.

    `numbers` spells finite floating-point numbers, otherwise Arrow does.
    """
    parts: list[pa.Array | str] = []
    literal = f"{prefix}{{"
    for position, (name, column) in enumerate(zip(rows.schema.names, rows.columns, strict=True)):
        before, texts, after = _texts(column, numbers or _with_point)
        literal += f"{',' if position else ''}{text(name)}:"
        if column.null_count and before:
            before, texts, after = "", pc.binary_join_element_wise(before, texts, after, ""), ""
        parts += [literal + before, texts]
        literal = after
    return pc.binary_join_element_wise(
        *parts, f"{literal}}}{end}", "", null_handling="replace", null_replacement="null"
    )


def joined_text(lines: pa.Array) -> memoryview:
    """All texts of an array, concatenated as in its buffer."""
    if not len(lines):
        return memoryview(b"")
    _, offsets, data = lines.buffers()
    ends = memoryview(offsets).cast("q" if pa.types.is_large_string(lines.type) else "i")
    first, last = ends[lines.offset], ends[lines.offset + len(lines)]
    return memoryview(data)[first:last] if last > first else memoryview(b"")


def text(value: str) -> str:
    """A text as a JSON string."""
    return f'"{value.translate(_ESCAPED)}"'


def _texts(column: pa.Array, numbers: Callable[[pa.Array], pa.Array]) -> tuple[str, pa.Array, str]:
    """The text of each value, with the JSON before and after it."""
    kind = column.type
    if pa.types.is_string(kind):
        return '"', _escaped(column), '"'
    if pa.types.is_timestamp(kind):
        texts = pc.binary_replace_slice(
            column.cast(pa.timestamp("us")).cast(pa.string()), 10, 11, "T"
        )
        return '"', texts, '"' if kind.tz is None else 'Z"'
    if pa.types.is_date(kind):
        return '"', column.cast(pa.string()), '"'
    if pa.types.is_floating(kind):
        return "", _quoted_if_endless(numbers(column), column), ""
    if pa.types.is_list(kind):
        before, texts, after = _texts(column.values, numbers)
        values = pc.coalesce(pc.binary_join_element_wise(before, texts, after, ""), "null")
        return (
            "[",
            pc.binary_join(
                pa.ListArray.from_arrays(column.offsets, values, mask=column.is_null()), ","
            ),
            "]",
        )
    if pa.types.is_binary(kind):
        return (
            '"',
            pa.array(
                [each and base64.b64encode(each).decode() for each in column.to_pylist()],
                pa.string(),
            ),
            '"',
        )
    return "", column.cast(pa.string()), ""


def _escaped(texts: pa.Array) -> pa.Array:
    if not _any(texts, r'[\x00-\x1f"\\]'):
        return texts
    for raw, written in SHORT.items():
        texts = pc.replace_substring(texts, raw, written)
    if _any(texts, r"[\x00-\x1f]"):
        for raw, written in CONTROLS.items():
            texts = pc.replace_substring(texts, raw, written)
    return texts


def _with_point(column: pa.Array) -> pa.Array:
    """Floats with a point or an exponent, as reading an integer loses a zero's sign."""
    texts = column.cast(pa.string())
    return pc.if_else(
        pc.match_substring_regex(texts, "[.en]"),
        texts,
        pc.binary_join_element_wise(texts, ".0", ""),
    )


def _quoted_if_endless(texts: pa.Array, column: pa.Array) -> pa.Array:
    if pc.all(pc.is_finite(column), min_count=0).as_py():
        return texts
    endless = pc.if_else(pc.greater(column, 0), '"Infinity"', '"-Infinity"')
    return pc.case_when(
        pc.make_struct(pc.is_nan(column), pc.is_inf(column)), pa.scalar('"NaN"'), endless, texts
    )


def _any(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())
