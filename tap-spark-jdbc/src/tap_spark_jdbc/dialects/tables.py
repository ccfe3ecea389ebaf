"""Tables, columns and keys as found by discovery, and how each column is read. Plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from singer_spark.core.key_value import KeyType, KeyValue
from singer_spark.core.sql_type import SqlType
from tap_spark_jdbc.dialects.mask import Mask

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
    """How a column's values are read exactly: by SQL, then by Spark.

    Attributes:
        sql_type: The ANSI type shown in the catalog.
        select: SQL template; `{c}` is the quoted column, `{complaint}` a string literal that begins
            an error text, `{no_text}` the same for bytes that are not a text.
        read_as: Spark type of the result of `select` (for `customSchema`).
        becomes: Spark SQL template over the column read (`{c}`); the value in the natural type of
            `sql_type`, or its text.
        problem: Why the column can't be read; None if it can.
        typed: The column's values are all of one type; otherwise only the user knows their order.
        ordered: The database can compare the column's values; otherwise it can't be a key of any
            kind.
        key_literal: SQL template for a value that compares with the column itself, if the dialect's
            template for the key type does not.
        key_operand: SQL template over `{c}` by which the column is compared with such a value.
        columnar: SQL template by which the database's columnar driver reads the value itself, if it
            differs from `select`.
        checked: SQL template over `{c}` for the text of a value (of a type other than text) in a
            checksum of its row;
            None: there is none.
        as_key: SQL template over `{c}` for the text in a record's key, if equal values have several
            texts.
        remark: What is logged about the column.
    """

    sql_type: SqlType
    select: str = "{c}"
    read_as: str = "STRING"
    becomes: str = "{c}"
    problem: str | None = None
    typed: bool = True
    ordered: bool = True
    key_literal: str | None = None
    key_operand: str = "{c}"
    columnar: str | None = None
    checked: str | None = None
    as_key: str | None = None
    remark: str | None = None

    @property
    def columnar_select(self) -> str | None:
        """The SQL template for the columnar driver; None: the value needs Spark's conversion."""
        return self.columnar or (self.select if self.becomes == "{c}" else None)


@dataclass(frozen=True)
class Column:
    """A column of a table or view.

    Attributes:
        name: As the database spells it.
        native_type: The database's own name for its type, with parameters: `numeric(12,2)`.
        reading: How its values are read.
        as_text: How any value's text is read.
        as_bytes: How the bytes of any value's text are read; None if the database can't return
            them.
        mask: The mask of its values; `reading` then reads the mask's input, unless the database
            itself masks.
    """

    name: str
    native_type: str
    nullable: bool
    reading: Reading
    as_text: Reading = field(default_factory=lambda: Reading(SqlType("TEXT")))
    as_bytes: Reading | None = None
    mask: Mask | None = None

    @property
    def as_key(self) -> Column:
        """The column in a record's key: equal values have one text."""
        select = self.reading.as_key
        if select is None:
            return self
        reading, text = (
            replace(each, select=select, as_key=select) for each in (self.reading, self.as_text)
        )
        return replace(self, reading=reading, as_text=text)

    @property
    def has_key_text(self) -> bool:
        """Whether it is read `as_key`, because equal values have several texts."""
        return self.reading.as_key is not None and self.reading.select == self.reading.as_key

    @property
    def made_mask(self) -> Mask | None:
        """The mask still to be applied to the values read."""
        return None if self.mask is None or self.mask.is_in_select else self.mask

    @property
    def sql_type(self) -> SqlType:
        """The ANSI type of the values that are read."""
        return self.reading.sql_type

    @property
    def key_type(self) -> KeyType | None:
        """The natural key type; None: rows can't be ordered by it (doubles, arrays, JSON)."""
        has_order = self.reading.typed and self.reading.ordered
        return _KEY_TYPES.get(self.sql_type.name) if has_order else None


@dataclass(frozen=True)
class Table:
    """A table or view.

    Attributes:
        schema: None in a database without schemas.
        name: As the database spells it.
        columns: In the table's order.
        primary_key: Column names in the key's order; empty if there is none.
        indexed: Names of columns that are the first of some index.
        row_estimate: Rows by the database's statistics; None if not known cheaply.
        query: The SELECT statement of a stream made of SQL; None for a table or view.
        computed_key: The expression of its last column, a replication key defined by the user.
        parent_key: The primary key of a table that others inherit from. It does not hold for the
            rows of those tables, which are read with it, so `primary_key` is empty.
        filtered: Row-level security applies to the user, and may hide rows.
        obstacles: What keeps the user from reading it, by column; an empty name stands for all
            columns.
        defaults: SQL that fills columns when a row is inserted or changed, by column, if that was
            requested.
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
    parent_key: tuple[str, ...] = ()
    filtered: bool = False
    obstacles: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)

    @property
    def stream(self) -> str:
        """The stream's name: `<schema>-<table>`, or the table's if there are no schemas."""
        return self.name if self.schema is None else f"{self.schema}-{self.name}"

    @property
    def is_query(self) -> bool:
        """Whether it is a stream made of SQL, and not a table with a computed key."""
        return self.query is not None and self.computed_key is None

    @property
    def qualified_name(self) -> str:
        """The name for messages: `schema.table`."""
        return qualified(self.schema, self.name)

    def obstacle(self, columns: Iterable[str]) -> str | None:
        """What keeps the user from reading these columns, and what to do; None: nothing known."""
        if why := self.obstacles.get(""):
            return f"it can't be read: {why}"
        denied = [name for name in columns if name in self.obstacles]
        if not denied:
            return None
        why = self.obstacles[denied[0]]
        if len(denied) == len(self.columns):
            return f"it can't be read: {why}"
        return (
            f"its column {', '.join(denied)} can't be read: {why}, or leave the column out by "
            "exclude_columns in stream_options"
        )

    def column(self, name: str) -> Column | None:
        """The column with exactly this name."""
        return next((column for column in self.columns if column.name == name), None)


def qualified(schema: str | None, name: str) -> str:
    """A table's name for messages and patterns: `schema.table`."""
    return name if schema is None else f"{schema}.{name}"


@dataclass(frozen=True)
class Key:
    """A column by which rows are ordered and bounded: a replication key, or the key that splits a
    full table.

    Attributes:
        key_type: How its values are read, compared and kept.
        aware: Its values are instants (the column has a time zone).
        textual: The database compares its values as text, so bookmarks also keep the database's own
            text.
        indexed: It is the first column of some index, so a range or a hop along it is cheap.
    """

    column: Column
    key_type: KeyType
    aware: bool
    textual: bool
    indexed: bool

    @classmethod
    def of(
        cls,
        table: Table,
        column: Column,
        key_type: KeyType | None = None,
        *,
        text_moments: bool = False,
    ) -> Key:
        """The key for this column, of the user's type, or its natural one.

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
        """Whether the sent values of its column have the same order everywhere; the order of texts
        is the database's.
        """
        kind = _KEY_TYPES.get(sent.sql_type.name)
        is_text = self.textual or kind in (KeyType.STRING, KeyType.UUID)
        return kind is self.key_type and not is_text

    def parse(self, raw: str | float) -> KeyValue:
        """Parse a value printed by the database, held by a state or written by a user.

        ValueError: it is not one.
        """
        return KeyValue.parse(raw, self.key_type, aware=self.aware)


def _agreed(column: Column, natural: KeyType, wanted: KeyType) -> KeyType:
    """The key type compatible with both the user's choice and the column."""
    moments = (KeyType.DATETIME, KeyType.TIMESTAMP)
    if wanted is natural:
        return natural
    if natural in moments and wanted in moments:
        # The column, not the user, decides whether there is a zone; "timestamp" of a naive column
        # stays naive.
        return natural
    if natural is KeyType.DECIMAL and wanted is KeyType.INTEGER and not column.sql_type.scale:
        return wanted
    if natural is KeyType.INTEGER and wanted is KeyType.DECIMAL:
        return natural
    if natural is KeyType.STRING and (wanted.is_moment or wanted is KeyType.UUID):
        return KeyType.DATETIME if wanted is KeyType.TIMESTAMP else wanted
    raise ValueError(
        f"column {column.name!r} is of type {column.native_type}, which can't be a key of type "
        f"{wanted}; its key type is {natural}: name that one, or another column"
    )
