"""What discovery finds in a database: tables, their columns, and how each column is read. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field

from singer_spark.singer.bookmark import KeyType, KeyValue
from singer_spark.singer.sql_type import SqlType
from tap_spark_jdbc.masking.mask import Mask

_KEY_TYPES = {
    "TINYINT": KeyType.INTEGER,
    "SMALLINT": KeyType.INTEGER,
    "INTEGER": KeyType.INTEGER,
    "BIGINT": KeyType.INTEGER,
    "DECIMAL": KeyType.DECIMAL,
    "DATE": KeyType.DATE,
    "TIMESTAMP": KeyType.DATETIME,
    "TIMESTAMP WITH TIME ZONE": KeyType.TIMESTAMP,
    "CHAR": KeyType.STRING,
    "VARCHAR": KeyType.STRING,
    "TEXT": KeyType.STRING,
    "UUID": KeyType.UUID,
    "VARBINARY": KeyType.BINARY,
}
_ZONED = "TIMESTAMP WITH TIME ZONE"
_CHARACTERS = ("CHAR", "VARCHAR", "TEXT")


@dataclass(frozen=True)
class Reading:
    """How a column's values leave the database exactly: SQL, then Spark.

    Attributes:
        sql_type: The ANSI type that the catalog shows.
        select: SQL template; `{c}` is the quoted column, `{complaint}` a string literal that begins an
            error text, `{no_text}` the like for bytes that are no text.
        read_as: Spark type of what `select` gives (for `customSchema`).
        becomes: Spark SQL template over the column read (`{c}`); the value in the natural type of `sql_type`,
            or its text.
        problem: Why the column can't be read; None where it can.
        typed: The column's values are all of one type; else only the user can say how they are ordered.
        ordered: The database can compare the column's values: without that it is no key of any kind.
        key_literal: SQL template of a value that compares with the column as it stands, where the dialect's for the
            key type does not.
        columnar: SQL template of what the database's columnar driver reads as the value itself, where that is another
            than `select`.
        checked: SQL template over `{c}` of the text that stands for a value, no text itself, in a checksum of its row;
            None: there is none.
    """

    sql_type: SqlType
    select: str = "{c}"
    read_as: str = "STRING"
    becomes: str = "{c}"
    problem: str | None = None
    typed: bool = True
    ordered: bool = True
    key_literal: str | None = None
    columnar: str | None = None
    checked: str | None = None

    @property
    def columnar_select(self) -> str | None:
        """What the database's columnar driver is asked for; None where only Spark makes the value of what is read."""
        return self.columnar or (self.select if self.becomes == "{c}" else None)


@dataclass(frozen=True)
class Column:
    """A column of a table or view.

    Attributes:
        name: As the database spells it.
        native_type: The database's own name of its type, with parameters: `numeric(12,2)`.
        nullable: Whether it may hold NULL.
        reading: How its values are read.
        as_text: How any value's text is read.
        as_bytes: How the bytes of any value's text are read; None where the database can't tell them.
        mask: What becomes of each value; `reading` then gives what it is made of, or the database masks already.
    """

    name: str
    native_type: str
    nullable: bool
    reading: Reading
    as_text: Reading = field(default_factory=lambda: Reading(SqlType("TEXT")))
    as_bytes: Reading | None = None
    mask: Mask | None = None

    @property
    def made_mask(self) -> Mask | None:
        """What is still to be made of what is read of it."""
        return None if self.mask is None or self.mask.is_in_select else self.mask

    @property
    def sql_type(self) -> SqlType:
        """The ANSI type of the values that are read."""
        return self.reading.sql_type

    @property
    def key_type(self) -> KeyType | None:
        """The natural key type; None where rows can't be ordered by the column (doubles, arrays, JSON)."""
        return _KEY_TYPES.get(self.sql_type.name) if self.reading.typed and self.reading.ordered else None


@dataclass(frozen=True)
class Table:
    """A table or view.

    Attributes:
        schema: None in a database without schemas.
        name: As the database spells it.
        is_view: Whether it is a view.
        columns: In the table's order.
        primary_key: Column names in the key's order; empty where there is none.
        indexed: Names of columns that are the first of some index.
        row_estimate: Rows by the database's statistics; None where that is not known cheaply.
        query: The SELECT statement that it is instead of a table; None for a table or view.
        computed_key: The expression that its last column is, a replication key of the user's making.
    """

    schema: str | None
    name: str
    columns: tuple[Column, ...]
    is_view: bool = False
    primary_key: tuple[str, ...] = ()
    indexed: frozenset[str] = frozenset()
    row_estimate: int | None = None
    query: str | None = None
    computed_key: str | None = None

    @property
    def stream(self) -> str:
        """The stream's name: `<schema>-<table>`, or the table's where there are no schemas."""
        return self.name if self.schema is None else f"{self.schema}-{self.name}"

    @property
    def qualified_name(self) -> str:
        """For people: `schema.table`."""
        return self.name if self.schema is None else f"{self.schema}.{self.name}"

    def column(self, name: str) -> Column | None:
        """The column spelled exactly so."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True)
class Key:
    """A column by which rows are ordered and bounded: a replication key, or the key that splits a full table.

    Attributes:
        column: The column.
        key_type: How its values are read, compared and kept.
        aware: Its values are instants (the column has a time zone).
        textual: The database compares its values as text, so bookmarks also keep the database's own text.
        indexed: It is the first column of some index, so a range or a hop along it is cheap.
    """

    column: Column
    key_type: KeyType
    aware: bool
    textual: bool
    indexed: bool

    @classmethod
    def of(cls, table: Table, column: Column, key_type: KeyType | None = None, *, text_moments: bool = False) -> Key:
        """The key made of this column, of the type that the user says, or its natural one.

        Raises:
            ValueError: rows can't be ordered by it, or its values can't be of that key type.
        """
        natural = column.key_type
        if natural is not None:
            kind = _agreed(column, natural, key_type or natural)
        elif key_type is not None and not column.reading.typed and column.reading.ordered:
            kind = key_type
        else:
            shown = column.native_type or "that is not declared"
            raise ValueError(f"rows can't be ordered by column {column.name!r} of type {shown}")
        textual = kind.is_moment and (column.sql_type.name in _CHARACTERS or text_moments)
        aware = kind is KeyType.TIMESTAMP and column.sql_type.name == _ZONED
        return cls(column, kind, aware, textual, column.name in table.indexed)

    def compares_alike(self, sent: Column) -> bool:
        """Whether the values that are sent of its column are in one order everywhere: texts have their database's."""
        kind = _KEY_TYPES.get(sent.sql_type.name)
        return kind is self.key_type and kind not in (KeyType.STRING, KeyType.UUID) and not self.textual

    def parse(self, raw: str | float) -> KeyValue:
        """A value as the database prints it, a state holds it or a user writes it; ValueError where it is none."""
        return KeyValue.parse(raw, self.key_type, aware=self.aware)


def _agreed(column: Column, natural: KeyType, asked: KeyType) -> KeyType:
    """The key type that the user's word and the column agree on."""
    moments = (KeyType.DATETIME, KeyType.TIMESTAMP)
    if asked is natural:
        return natural
    if natural in moments and asked in moments:
        # A zone is the column's, not the user's to say; "timestamp" of a naive column stays naive.
        return natural
    if natural is KeyType.DECIMAL and asked is KeyType.INTEGER and not column.sql_type.scale:
        return asked
    if natural is KeyType.INTEGER and asked is KeyType.DECIMAL:
        return natural
    if natural is KeyType.STRING and (asked.is_moment or asked is KeyType.UUID):
        return KeyType.DATETIME if asked is KeyType.TIMESTAMP else asked
    raise ValueError(
        f"column {column.name!r} is of type {column.native_type}, which is no {asked} key; its key type is {natural}"
    )
