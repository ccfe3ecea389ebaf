"""Values from the bytes of the binary log: the same as from the readers, or an error that names the
column.
"""

from __future__ import annotations

import re
import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.errors import SourceError
from tap_spark_jdbc.binlog.encoded_values import Moments, decimals, json_text, times
from tap_spark_jdbc.binlog.events import little
from tap_spark_jdbc.binlog.table_rows import (  # fmt: skip
    BIT,
    BLOB_COMPRESSED,
    DATE,
    DATETIME,
    DECIMAL,
    DOUBLE,
    ENUM,
    FLOAT,
    GEOMETRY,
    INT24,
    JSON,
    LONG,
    LONGLONG,
    NEWDATE,
    OLD_DATETIME,
    OLD_TIME,
    OLD_TIMESTAMP,
    SET,
    SHORT,
    STRING,
    TIME,
    TIMESTAMP,
    TINY,
    VARCHAR_COMPRESSED,
    YEAR,
)
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.supply.columnar_query import masked

if TYPE_CHECKING:
    from tap_spark_jdbc.binlog.position import LoggedColumn
    from tap_spark_jdbc.binlog.table_rows import LoggedType, Values
    from tap_spark_jdbc.dialects.tables import Column

_INTEGERS = {TINY: 1, SHORT: 2, INT24: 3, LONG: 4, LONGLONG: 8}
_DATES = (DATE, NEWDATE, DATETIME, OLD_DATETIME, TIMESTAMP, OLD_TIMESTAMP)
_LABEL = re.compile(r"'((?:[^']|'')*)'")
_OF_BYTES = re.compile(r"(?:var)?binary.*|(?:tiny|medium|long)?blob.*")
_ZEROFILL = re.compile(r"\w+\((\d+)(?:,(\d+))?\).* zerofill")
_VECTOR = re.compile(r"vector.*")
# Character sets that are UTF-8, or a part of it, and those that Python decodes as the server does.
_UTF8 = ("utf8mb4", "utf8mb3", "utf8", "ascii", "")
_CODECS = {
    "ucs2": "utf_16_be", "utf16": "utf_16_be", "utf16le": "utf_16_le", "utf32": "utf_32_be",
    "gbk": "gbk",
    "gb2312": "gb2312", "gb18030": "gb18030", "big5": "big5", "sjis": "shift_jis", "cp932": "cp932",
    "ujis": "euc_jp", "eucjpms": "euc_jp", "euckr": "euc_kr",
}  # fmt: skip


@dataclass(frozen=True)
class BinlogValues:
    """The values of a stream's columns.

    Attributes:
        columns: The columns by name.
        types: Their Arrow types; in lines bytes are texts in base64.
        charmap: The 256 characters of a character set with one byte a character.
        convert: Lets the server turn a type's bytes, or floating-point numbers, into texts.
    """

    stream: str
    columns: Mapping[str, Column]
    types: Mapping[str, pa.DataType]
    charmap: Callable[[str], str]
    convert: Callable[[str, pa.Array], pa.Array]

    def of(self, name: str, values: Values, kind: LoggedType, logged: LoggedColumn) -> pa.Array:
        """The values of a column; SourceError: one does not fit, naming its column."""
        column, is_bytes = self.columns[name], pa.types.is_binary(self.types[name])
        wanted = pa.string() if is_bytes else self.types[name]
        mask = column.made_mask or column.mask
        try:
            if mask is not None and mask.kind == "null":
                return pa.nulls(len(values), wanted)
            if mask is not None:
                return masked(self._texts(values, kind, logged), mask).cast(wanted)
            if is_bytes:
                found = self._natural(values, kind, logged)
                return _each(found, lambda value: b64encode(value).decode())
            if pa.types.is_string(wanted):
                return self._texts(values, kind, logged)
            if kind.code in _DATES:
                return Moments.of(values, kind).array(wanted)
            found = self._natural(values, kind, logged)
            if pa.types.is_boolean(wanted) and pa.types.is_string(found.type):
                return pc.equal(found, "1")
            return found if found.type.equals(wanted) else found.cast(wanted)
        except (pa.ArrowInvalid, ValueError, IndexError) as error:
            raise SourceError(
                TapCode.LOG_VALUE,
                f"stream {self.stream}: column {name} ({logged.native}) holds a value in the log "
                f"that does not fit ({error}); set its type_overrides to text",
            ) from error

    def _texts(self, values: Values, kind: LoggedType, logged: LoggedColumn) -> pa.Array:
        """The values as the server writes them: bytes by two digits each, numbers with the zeros of
        a `zerofill`.
        """
        native = logged.native.lower()
        if kind.code in _DATES:
            return Moments.of(values, kind).texts()
        if _VECTOR.fullmatch(native):
            return _hexadecimal(values.binary())
        found = self._natural(values, kind, logged)
        if pa.types.is_binary(found.type):
            return _hexadecimal(found)
        if pa.types.is_floating(found.type):
            return self.convert("double", found.cast(pa.float64()))
        if pa.types.is_decimal(found.type):
            # Arrow writes small ones with an exponent.
            texts = _each(found, "{:f}".format)
        else:
            texts = found.cast(pa.string())
        if kind.code == YEAR:
            return pc.utf8_lpad(texts, 4, "0")
        if (size := _ZEROFILL.fullmatch(native)) is not None:
            # A point counts, too.
            return pc.utf8_lpad(texts, int(size[1]) + bool(int(size[2] or 0)), "0")
        return texts

    def _natural(self, values: Values, kind: LoggedType, logged: LoggedColumn) -> pa.Array:
        if kind.code in _INTEGERS:
            return _integers(values, _INTEGERS[kind.code], signed="unsigned" not in logged.native)
        if kind.code in (FLOAT, DOUBLE):
            return _floats(values, kind)
        if kind.code == DECIMAL:
            return decimals(values, *kind.meta)
        if kind.code in (TIME, OLD_TIME):
            return times(values, kind)
        if kind.code == YEAR:
            years = _integers(values, 1, signed=False).cast(pa.int16())
            return pc.if_else(pc.equal(years, 0), years, pc.add(years, pa.scalar(1900, pa.int16())))
        if kind.code == BIT:
            return _bits(values, kind)
        if kind.code == ENUM:
            return _members(values, kind, logged)
        if kind.code == SET:
            return _subsets(values, kind, logged)
        if kind.code == JSON:
            return _each(values.binary(), json_text)
        return self._of_bytes(values.binary(), kind, logged)

    def _of_bytes(self, found: pa.Array, kind: LoggedType, logged: LoggedColumn) -> pa.Array:
        """Texts, bytes, vectors, and types that the server turns into texts."""
        native = logged.native.lower()
        if kind.code in (VARCHAR_COMPRESSED, BLOB_COMPRESSED):
            found = _uncompressed(found)
        if _OF_BYTES.fullmatch(native) and not logged.charset:
            width = re.match(r"binary\((\d+)\)", native)
            return _padded(found, int(width[1])) if width else found
        if _VECTOR.fullmatch(native):
            return _vectors(found)
        if kind.code == GEOMETRY or (kind.code == STRING and not logged.charset):
            return self.convert(native, found)
        return self._decoded(found, logged.charset)

    def _decoded(self, found: pa.Array, charset: str) -> pa.Array:
        """Texts of a character set; pa.ArrowInvalid or ValueError: these bytes are none."""
        if charset in _UTF8:
            return found.cast(pa.string())
        if (codec := _CODECS.get(charset)) is not None:
            return _each(found, lambda value: value.decode(codec))
        table = self.charmap(charset)
        return _each(found, lambda value: value.decode("latin-1").translate(table))


def _each(
    found: pa.Array, change: Callable[[Any], Any], kind: pa.DataType | None = None
) -> pa.Array:
    """Each value changed to one of this type, else to a text; NULL stays NULL."""
    changed = [None if each is None else change(each) for each in found.to_pylist()]
    return pa.array(changed, kind or pa.string())


def labels(native: str) -> list[str]:
    """The members of an ENUM or a SET, from its type."""
    return [each.replace("''", "'") for each in _LABEL.findall(native)]


def _integers(values: Values, size: int, *, signed: bool) -> pa.Array:
    numbers = little(values.content, np.where(values.nulls, 0, values.begins), size)
    if signed and size < 8:
        numbers = np.where(numbers >> (8 * size - 1), numbers - (1 << 8 * size), numbers)
    if not signed and size == 8:
        return pa.array(numbers.view(np.uint64), pa.uint64(), mask=values.nulls)
    return pa.array(numbers, pa.int64(), mask=values.nulls)


def _floats(values: Values, kind: LoggedType) -> pa.Array:
    raw = np.ascontiguousarray(values.fixed(kind.size))
    numbers = raw.view("<f4" if kind.code == FLOAT else "<f8").reshape(-1)
    return pa.array(numbers, mask=values.nulls)


def _bits(values: Values, kind: LoggedType) -> pa.Array:
    width = kind.meta[0]
    texts = [
        None if null else format(int.from_bytes(row.tobytes()), f"0{width}b")
        for row, null in zip(values.fixed(kind.size), values.nulls, strict=True)
    ]
    return pa.array(texts, pa.string())


def _numbers(values: Values, kind: LoggedType) -> pa.Array:
    begins = np.where(values.nulls, 0, values.begins)
    return pa.array(little(values.content, begins, kind.size), mask=values.nulls)


def _members(values: Values, kind: LoggedType, logged: LoggedColumn) -> pa.Array:
    # The number 0 is a value that the server did not know.
    return pa.array(["", *labels(logged.native)], pa.string()).take(_numbers(values, kind))


def _subsets(values: Values, kind: LoggedType, logged: LoggedColumn) -> pa.Array:
    members = labels(logged.native)
    encoded = _numbers(values, kind).dictionary_encode()
    texts = [
        ",".join(member for index, member in enumerate(members) if number >> index & 1)
        for number in encoded.dictionary.to_pylist()
    ]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _hexadecimal(found: pa.Array) -> pa.Array:
    return _each(found, lambda value: value.hex().upper())


def _padded(found: pa.Array, width: int) -> pa.Array:
    """Bytes of one size: the log leaves out zeros at their end."""
    return _each(found, lambda value: value.ljust(width, b"\0"), pa.binary())


def _vectors(found: pa.Array) -> pa.Array:
    return _each(found, lambda value: np.frombuffer(value, "<f4"), pa.list_(pa.float32()))


def _uncompressed(found: pa.Array) -> pa.Array:
    """Undo the compression of MariaDB's columns: a byte of flags, the size, then zlib's data
    without its head.
    """

    def whole(data: bytes) -> bytes:
        if not data:
            return data
        method, size = data[0] >> 4, data[0] & 7
        return zlib.decompress(data[1 + size :], -15) if method else data[1:]

    return _each(found, whole, pa.binary())
