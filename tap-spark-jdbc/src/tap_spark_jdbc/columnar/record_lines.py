"""Arrow batches as RECORD lines: columns of texts, joined by Arrow. Bytes come from the database in base64."""

from __future__ import annotations

import base64
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc

from tap_spark_jdbc.columnar.columnar_query import writing
from tap_spark_jdbc.reading.text_buffer import joined_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tap_spark_jdbc.columnar.columnar_query import Unsent
    from tap_spark_jdbc.extraction.fingerprints import Frame
    from tap_spark_jdbc.reading.streamed_lines import LineFile

# As Jackson escapes characters that are not allowed in JSON text; the backslash first, as the others contain it.
SHORT = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
CONTROLS = {chr(code): f"\\u{code:04X}" for code in range(0x20) if chr(code) not in SHORT}
_ESCAPED = str.maketrans(SHORT | CONTROLS)


class RecordLines:
    """A file of lines; it is created at the latest when it is closed.

    Attributes:
        rows: Number of rows written so far.
    """

    def __init__(self, opened: Callable[[], LineFile], frame: Frame, unsent: Unsent) -> None:
        """Nothing is written yet; `unsent` selects a batch's rows that belong in the file, as `EdgeRows` does."""
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

    def add(self, read: pa.RecordBatch, edge: pa.Array, records: pa.Array | None = None) -> None:
        """As `Sink.add`."""
        rows = self._unsent(read, edge, records)
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
    rows: pa.RecordBatch, prefix: str, end: str | pa.Array, printed: Mapping[int, pa.Array] = MappingProxyType({})
) -> pa.Array:
    """The line of each row, which may have an ending of its own.

    `printed` are Java's texts of floating-point numbers, by the places of their columns.
    """
    parts: list[pa.Array | str] = []
    literal = f"{prefix}{{"
    for position, (name, column) in enumerate(zip(rows.schema.names, rows.columns, strict=True)):
        before, texts, after = _texts(column, printed.get(position))
        literal += f"{',' if position else ''}{text(name)}:"
        if column.null_count and before:
            before, texts, after = "", pc.binary_join_element_wise(before, texts, after, ""), ""
        parts += [literal + before, texts]
        literal = after
    parts += [f"{literal}}}{end}"] if isinstance(end, str) else [f"{literal}}}", end]
    return pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement="null")


def text(value: str) -> str:
    """A text as a JSON string."""
    return f'"{value.translate(_ESCAPED)}"'


def _texts(column: pa.Array, printed: pa.Array | None = None) -> tuple[str, pa.Array, str]:
    """The text of each value, with the JSON before and after it; `printed` as in `rendered`."""
    kind = column.type
    if pa.types.is_string(kind):
        return '"', _escaped(column), '"'
    if pa.types.is_timestamp(kind):
        texts = pc.binary_replace_slice(column.cast(pa.timestamp("us")).cast(pa.string()), 10, 11, "T")
        return '"', texts, '"' if kind.tz is None else 'Z"'
    if pa.types.is_date(kind):
        return '"', column.cast(pa.string()), '"'
    if pa.types.is_floating(kind):
        return "", _numbers(column) if printed is None else _quoted_if_endless(printed, column), ""
    if pa.types.is_list(kind):
        before, texts, after = _texts(column.values, None if printed is None else printed.values)
        values = pc.coalesce(pc.binary_join_element_wise(before, texts, after, ""), "null")
        return "[", pc.binary_join(pa.ListArray.from_arrays(column.offsets, values, mask=column.is_null()), ","), "]"
    if pa.types.is_binary(kind):
        return (
            '"',
            pa.array([each and base64.b64encode(each).decode() for each in column.to_pylist()], pa.string()),
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


def _numbers(column: pa.Array) -> pa.Array:
    """Floats with a point or an exponent, as reading an integer loses a zero's sign; NaN and infinities as strings."""
    texts = column.cast(pa.string())
    texts = pc.if_else(pc.match_substring_regex(texts, "[.en]"), texts, pc.binary_join_element_wise(texts, ".0", ""))
    return _quoted_if_endless(texts, column)


def _quoted_if_endless(texts: pa.Array, column: pa.Array) -> pa.Array:
    if pc.all(pc.is_finite(column), min_count=0).as_py():
        return texts
    endless = pc.if_else(pc.greater(column, 0), '"Infinity"', '"-Infinity"')
    return pc.case_when(pc.make_struct(pc.is_nan(column), pc.is_inf(column)), pa.scalar('"NaN"'), endless, texts)


def _any(texts: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, pattern)).as_py())


def prints_numbers(kind: pa.DataType) -> bool:
    """Whether values have floating-point numbers, whose text is not Spark's."""
    return prints_numbers(kind.value_type) if pa.types.is_list(kind) else pa.types.is_floating(kind)
