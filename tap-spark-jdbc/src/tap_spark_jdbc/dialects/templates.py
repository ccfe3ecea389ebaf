"""SQL in which databases differ: statements, and templates that are filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from singer_spark.core.key_value import KeyType

# Literals in the form of the SQL standard.
LITERALS = {
    KeyType.INTEGER: "({n})",
    KeyType.DECIMAL: "({n})",
    KeyType.DATE: "DATE {v}",
    KeyType.DATETIME: "TIMESTAMP {v}",
    # The zone in the text gives it a time zone.
    KeyType.TIMESTAMP: "TIMESTAMP {v}",
    KeyType.STRING: "{v}",
    KeyType.UUID: "{v}",
    KeyType.BINARY: "X{v}",
}
LIMIT = "LIMIT {limit} OFFSET {offset}"


@dataclass(frozen=True)
class CatalogQueries:
    """SQL that queries all tables of a database at once.

    The queries' column names must be exactly these.

    Attributes:
        columns: `table_schema, table_name, table_kind, row_estimate, column_name, position,
            native_type, nullable, obstacle`. Kind is `view` or `table`, followed by ` parent` if
            others inherit from the table, and by ` filtered` if some of its rows may be hidden from
            the user. Nullable is `1` or `0`. The obstacle is NULL, or what keeps the user from
            reading the column and what to do; in a row without a column name it counts only if the
            table has no other row.
        primary_keys: `table_schema, table_name, column_name, position` of each column of each key.
        indexes: `table_schema, table_name, column_name, position`: each index's first column.
        as_json: SQL over `{columns}` and `{query}` for all rows as a few JSON arrays of arrays.
        views: `table_schema, table_name` of all views, for a database in which a single broken view
            makes the other queries fail; None: it does not.
        defaults: `table_schema, table_name, column_name, position, filled`: the SQL of each
            column's default, with what fills it when a row changes. A run does not ask for it.
    """

    columns: str
    primary_keys: str
    indexes: str
    as_json: str
    views: str | None = None
    defaults: str | None = None


@dataclass(frozen=True)
class Checksums:
    """SQL by which the database sums up checksums of rows, as defined in
    `singer_spark.compared_source.Summing`.

    Attributes:
        text: Template over `{s}`, a text, for its length in characters, a colon, and itself.
        sha256: Template over `{t}`, a text, for the SHA-256 of its UTF-8 in hexadecimal.
        number: Template over `{h}`, hexadecimal digits of `{bits}` bits, at most 60, for their
            number.
        once: The end of a subselect that keeps its columns from being computed again wherever they
            are used.
    """

    text: str
    sha256: str
    number: str
    once: str = ""


# Added to each mark, so that one sum also shows the number of rows; larger than a billion marks.
MARKED_ROW = 10**30


@dataclass(frozen=True)
class Marks:
    """SQL for the marks of rows: see `plan.stream_sql`.

    Attributes:
        text: Template over `{c}`, a column, and `{s}`, SQL of its values' texts, for a text that no
            other value has.
        joined: Template over `{texts}`, those of a row's columns with `between` between them, for
            the row's.
        between: See `joined`.
        mark: Template over `{t}`, a row's text, for its mark, or for the text itself; NULL: it has
            none.
        hashed: Whether that is the mark; otherwise the database can't hash.
        at_boundary: Template over `{e}`, the number of a row's boundary, and `{m}`, its `mark`, for
            both: a whole number with the mark above the boundary's bits, or the boundary's digit
            followed by the text.
        read_as: Spark type of that.
        all: Template over `m`, the `mark` of each row, for the sum of the marks, each with
            `MARKED_ROW` added; NULL: there are none. Or for all texts as a JSON array.
        begin: Begins a session that asks about many tables in one statement, and so must not wait
            long or for locks.
    """

    text: str
    joined: str
    between: str
    mark: str
    hashed: bool
    at_boundary: str
    read_as: str
    all: str
    begin: tuple[str, ...] = ()


@dataclass(frozen=True)
class Alive:
    """How a server is asked whether it is still there (`open_connections`).

    Attributes:
        properties: Those that limit to 20 s how long a connection waits for the server.
        session: The driver's method for a connection's number at the server.
        idle: SQL over `{session}` with a row if that session of ours waits for a statement.
    """

    properties: Mapping[str, str]
    session: str | None = None
    idle: str | None = None
