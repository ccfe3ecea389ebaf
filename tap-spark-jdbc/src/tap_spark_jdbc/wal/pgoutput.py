"""What PostgreSQL's plug-in `pgoutput` sends, protocol version 1: messages, a whole Arrow batch at
a time, and the values in them.

See "Logical Replication Message Formats" in PostgreSQL's documentation. Numbers are big-endian.

Values are the same as from the readers, or an error. `LogValues` is the only place where a row of
the log gets its output values. Common types are parsed by Arrow, which is strict; all others go
back to the server, whose SQL converts them by the same expression that the readers select a column
with.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from singer_spark.errors import SourceError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.connection_errors import without_words
from tap_spark_jdbc.source.libpq import conninfo
from tap_spark_jdbc.supply.columnar_query import ColumnarQuery, masked, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from tap_spark_jdbc.dialects.tables import Column
    from tap_spark_jdbc.source.database import Database

    Numbers = npt.NDArray[np.int64]
    Bytes = npt.NDArray[np.uint8]

BEGIN, COMMIT, RELATION, TRUNCATE = b"BCRT"
INSERT, UPDATE, DELETE = b"IUD"
NEW, OLD = b"NO"
# Padding after the last message: bytes are read before it is known whether they exist.
_PADDING = np.zeros(8, np.uint8)
# Microseconds from 1970 to 2000, the server's epoch.
EPOCH = 946_684_800_000_000
_COLUMN = "{c}"
# Types whose text in the log is what a cast to text gives, or the value itself.
_TEXTS = re.compile(
    r"character varying(\(\d+\))?|character\(\d+\)|text|citext|name|bpchar|uuid|jsonb?"
    r"|interval( [a-z ]+)?(\(\d\))?|time(\(\d\))? with.*|numeric(\(.*\))?|macaddr8?|tsvector"
    r"|(int4|int8|num|ts|tstz|date)range|point|ltree|bit( varying)?(\(\d+\))?"
)
# For these, that holds whatever the type was when the row was written, so that its hash is that of
# the table's value.
_HASHED = re.compile(r"character varying(\(\d+\))?|text|citext|name|uuid")
_PARSED = re.compile(
    r"smallint|integer|bigint|oid|real|double precision|date|timestamp(\(\d\))? "
    r"with.*|numeric\(.*\)",
    re.ASCII,
)


@dataclass(frozen=True)
class Relation:
    """A table as the log describes it before its first change.

    Attributes:
        columns: Names of its columns, in row order.
        key: Names of the columns that identify an old row.
    """

    oid: int
    schema: str
    name: str
    columns: tuple[str, ...]
    key: frozenset[str]


@dataclass(frozen=True)
class Transactions:
    """Each row's transaction: the commit's position, its time in Unix microseconds, its number."""

    lsn: Numbers
    moment: Numbers
    xid: Numbers

    def take(self, rows: npt.NDArray[Any]) -> Transactions:
        """The transactions of some rows."""
        return Transactions(self.lsn[rows], self.moment[rows], self.xid[rows])


@dataclass(frozen=True)
class Messages:
    """Messages in the order of the log.

    Attributes:
        bytes: All messages, concatenated.
        begins: The offset of each.
        kinds: The first byte of each.
    """

    bytes: Bytes
    begins: Numbers
    kinds: Bytes

    @classmethod
    def of(cls, data: pa.Array) -> Messages:
        """The messages in a column of bytes; none is NULL."""
        _, offsets, content = data.buffers()
        bounds = np.frombuffer(offsets, np.int32)[data.offset : data.offset + len(data) + 1]
        begins = bounds.astype(np.int64)
        whole = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
        padded = np.concatenate([whole[: begins[-1] if len(begins) else 0], _PADDING])
        begins = begins[:-1]
        return cls(padded, begins, padded[begins])

    def __len__(self) -> int:
        return len(self.begins)

    def at(self, *kinds: int) -> Numbers:
        """The numbers of the messages of these kinds."""
        return np.flatnonzero(np.isin(self.kinds, kinds))

    def number(self, messages: Numbers, offset: int, size: int) -> Numbers:
        """The number of `size` bytes at an offset in each of these messages."""
        return number(self.bytes, self.begins[messages] + offset, size)

    def commits(self) -> tuple[Numbers, Numbers]:
        """The messages that end a transaction, and the log position at which each ends."""
        found = self.at(COMMIT)
        return found, self.number(found, 10, 8)

    def transactions(
        self, before: tuple[int, int, int]
    ) -> tuple[Transactions, tuple[int, int, int]]:
        """Each message's transaction, and the last one; `before` is the one already open."""
        begun = self.at(BEGIN)
        fields = [
            np.concatenate([[first], self.number(begun, offset, size)])
            for first, offset, size in zip(before, (1, 9, 17), (8, 8, 4), strict=True)
        ]
        which = np.cumsum(self.kinds == BEGIN)
        lsn, moment, xid = (values[which] for values in fields)
        last = (int(fields[0][-1]), int(fields[1][-1]), int(fields[2][-1]))
        return Transactions(lsn, moment + EPOCH, xid), last

    def relation(self, message: int) -> Relation:
        """Decode a relation message."""
        start = int(self.begins[message])
        content = self.bytes[start : start + (1 << 20)].tobytes()
        oid = int.from_bytes(content[1:5])
        schema, at = _text(content, 5)
        name, at = _text(content, at)
        count = int.from_bytes(content[at + 1 : at + 3])
        at += 3
        columns, key = [], set()
        for _ in range(count):
            is_key = content[at] & 1
            column, at = _text(content, at + 1)
            at += 8
            columns.append(column)
            if is_key:
                key.add(column)
        return Relation(oid, schema or "pg_catalog", name, tuple(columns), frozenset(key))

    def truncated(self, message: int) -> Iterator[int]:
        """The OIDs of the tables that a truncate message empties."""
        start = np.array([message])
        count = int(self.number(start, 1, 4)[0])
        for each in range(count):
            yield int(self.number(start, 6 + 4 * each, 4)[0])


def number(content: Bytes, starts: Numbers, size: int) -> Numbers:
    """The unsigned number of `size` bytes at each start."""
    found = content[starts].astype(np.int64)
    for each in range(1, size):
        found = (found << 8) | content[starts + each]
    return found


def _text(content: bytes, at: int) -> tuple[str, int]:
    end = content.index(b"\0", at)
    return content[at:end].decode(), end + 1


@dataclass(frozen=True)
class LogValues:
    """The values of a stream's columns.

    Attributes:
        columns: The columns by name.
        types: Their Arrow types as used in lines: bytes are texts.
        table: The table's full name, quoted.
    """

    stream: str
    columns: Mapping[str, Column]
    types: Mapping[str, pa.DataType]
    database: Database
    table: str

    def of(self, texts: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """The values of some columns from their texts in the log.

        SourceError: one does not fit, naming its column.
        """
        found: dict[str, pa.Array] = {}
        for_server = {}
        for name, column_texts in texts.items():
            self._check_text(name, column_texts)
            make = self._parser(self.columns[name])
            if make is None:
                for_server[name] = column_texts
                continue
            try:
                found[name] = make(column_texts, self.types[name])
            except (pa.ArrowInvalid, ValueError) as error:
                raise self._unfit(name, str(error)) from error
        if for_server:
            found |= self._converted(for_server)
        return {name: found[name] for name in texts}

    def _parser(self, column: Column) -> Callable[[pa.Array, pa.DataType], pa.Array] | None:
        """The function that parses the column's texts; None: the server must."""
        native, mask = column.native_type.lower(), column.mask
        select = column.reading.columnar_select
        if mask is not None and mask.kind == "null":
            return lambda texts, kind: pa.nulls(len(texts), kind)
        if mask is not None and (mask.kind == "redact" or _HASHED.fullmatch(native)):
            return lambda texts, kind: masked(texts, mask).cast(kind)
        if column.has_key_text:
            return None
        natural = column.reading.becomes == _COLUMN or column.reading.columnar is not None
        if not natural or mask is not None:
            return None
        if native == "boolean" and select == _COLUMN:
            return lambda texts, _: pc.equal(texts, "t")
        if native == "bytea" and select == _COLUMN:
            return _base64
        if _PARSED.fullmatch(native) and not pa.types.is_string(self.types[column.name]):
            return lambda texts, kind: texts.cast(kind)
        if _TEXTS.fullmatch(native) and pa.types.is_string(self.types[column.name]):
            return lambda texts, _: texts
        return None

    def looked_up(self, names: Sequence[str], key: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """The table's values for rows with these keys (texts); NULL if there is no row."""
        quote = self.database.source.dialect.quote
        selected = [
            self._select(name, f"t.{quote(name)}", index) for index, name in enumerate(names)
        ]
        same = (
            f"t.{quote(name)} = CAST(u.t{index} AS {self.columns[name].native_type})"
            for index, name in enumerate(key)
        )
        source = f"{self._unnested(key.values())} LEFT JOIN {self.table} t ON {' AND '.join(same)}"
        return self._answer(f"SELECT {', '.join(selected)} FROM {source} ORDER BY u.n", names)

    def _converted(self, texts: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """Values of texts, converted by one query to the server."""
        selected = [
            self._select(name, f"CAST(u.t{index} AS {self.columns[name].native_type})", index)
            for index, name in enumerate(texts)
        ]
        source = self._unnested(texts.values())
        return self._answer(f"SELECT {', '.join(selected)} FROM {source} ORDER BY u.n", [*texts])

    def _select(self, name: str, value: str, index: int) -> str:
        column = self.columns[name]
        select = (column.reading.columnar_select or column.reading.select).replace(_COLUMN, value)
        if column.sql_type.name in ("VARBINARY", "BINARY"):
            select = self.database.source.dialect.base64.replace(_COLUMN, select)
        return f"{select} AS c{index}"

    def _unnested(self, texts: Iterable[pa.Array]) -> str:
        """Rows `u` of texts, `u.t0`, `u.t1` and so on, with their number `u.n`.

        Without the qualifier a table's own column of that name would be meant, too.
        """
        string = self.database.source.dialect.string
        arrays = [f"pg_catalog.unnest(CAST({string(_array(each))} AS text[]))" for each in texts]
        names = ", ".join(f"t{index}" for index in range(len(arrays)))
        return f"ROWS FROM ({', '.join(arrays)}) WITH ORDINALITY AS u({names}, n)"

    def _answer(self, sql: str, names: Sequence[str]) -> dict[str, pa.Array]:
        source = self.database.source
        schema = pa.schema([(f"c{index}", self.types[name]) for index, name in enumerate(names)])
        masks = tuple(self.columns[name].made_mask for name in names)
        statements, sink = source.dialect.session_statements, _Kept()
        query = ColumnarQuery(conninfo(source), statements, sql, schema, masks)
        outcome = read(query, sink, self.database.columnar)
        if outcome.state is not None:
            # The server's message quotes the value, even of a key that was looked up.
            is_masked = any(each.mask for each in self.columns.values())
            why = without_words(outcome.state) if is_masked else outcome.refused
            raise self._unfit(", ".join(names), why)
        found = pa.Table.from_batches(sink.batches, schema)
        return {name: found.column(index).combine_chunks() for index, name in enumerate(names)}

    def _check_text(self, name: str, texts: pa.Array) -> None:
        """Raise SourceError for bytes that are not UTF-8, as a database without encoding may
        have.
        """
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SourceError(
                TapCode.LOG_VALUE,
                f"stream {self.stream}: column {name} holds bytes in the log that are not UTF-8; "
                "leave the column out, "
                "or set another replication_method and the column's type_overrides to binary",
            ) from error

    def _unfit(self, name: str, why: str) -> SourceError:
        return SourceError(
            TapCode.LOG_VALUE,
            f"stream {self.stream}: column {name} holds a value in the log that does not fit "
            f"({why}); set its type_overrides to text; where its type was changed since, read the "
            "stream again with --full",
        )


class _Kept:
    """A sink that keeps all batches."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def add(self, rows: pa.RecordBatch, _boundary: pa.Array) -> None:
        """Keep one more batch."""
        self.batches.append(rows)

    def close(self) -> int:
        """The number of rows kept."""
        return sum(batch.num_rows for batch in self.batches)


def _base64(texts: pa.Array, _: pa.DataType) -> pa.Array:
    """Bytes in base64, from PostgreSQL's hexadecimal form after a backslash and an x."""
    encoded = [
        None if each is None else b64encode(bytes.fromhex(each[2:])) for each in texts.to_pylist()
    ]
    return pa.array(encoded, pa.binary()).cast(pa.string())


def _array(texts: pa.Array) -> str:
    """Texts as a PostgreSQL array."""
    escaped = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    quoted = pc.binary_join_element_wise('"', escaped, '"', "")
    return "{" + ",".join(pc.coalesce(quoted, "NULL").to_pylist()) + "}"
