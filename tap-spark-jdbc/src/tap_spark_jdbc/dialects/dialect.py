"""What a dialect is: data about one kind of database, and the quoting that follows from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from singer_spark.bookmark import KeyType, KeyValue
from singer_spark.errors import ConfigurationError
from singer_spark.sql_type import SqlType
from tap_spark_jdbc.dialects.text_casts import KNOWN_TYPES, spark_string, text_cast
from tap_spark_jdbc.tables import Column, Key, Reading

if TYPE_CHECKING:
    from tap_spark_jdbc.tables import Table


# Skipped for a column whose digits no decimal of the lake holds: a later rule reads its text.
_DECIMAL = "DECIMAL({p},{s})"


@dataclass(frozen=True)
class TypeRule:
    """How columns of some native types are read; templates take `{p}`, `{s}`, `{e}` from the pattern's groups.

    Attributes:
        pattern: Regular expression over the whole native type, in lower case.
        sql_type: ANSI name template: `DECIMAL({p},{s})`.
        select: SQL template over the quoted column `{c}`, see `Reading`.
        read_as: Spark type of what `select` gives.
        becomes: Spark SQL template over `{c}`.
        cast_text: `select` gives text, or an array of texts, and Spark casts it to `sql_type` under checks.
        typed: See `Reading`.
    """

    pattern: str
    sql_type: str
    select: str = "{c}"
    read_as: str = "STRING"
    becomes: str = "{c}"
    cast_text: bool = False
    typed: bool = True


@dataclass(frozen=True)
class CatalogQueries:
    """SQL that asks a whole database for its tables at once; each query names its columns exactly so.

    Attributes:
        columns: `table_schema, table_name, table_kind, row_estimate, column_name, position, native_type, nullable`;
            kind is `table` or `view`, nullable `1` or `0`.
        primary_keys: `table_schema, table_name, column_name, position` of each column of each key.
        indexes: `table_schema, table_name, column_name, position`: each index's first column.
        as_json: SQL template over `{columns}` and `{query}` that gives all rows as one JSON array of arrays.
    """

    columns: str
    primary_keys: str
    indexes: str
    as_json: str


@dataclass(frozen=True)
class Dialect:
    """One kind of database.

    Attributes:
        name: For people and for `python -m tap_spark_jdbc.drivers NAME`.
        url_prefixes: What its JDBC URLs begin with.
        driver: The driver's class.
        driver_package: Maven coordinates of its jar; None where Spark ships it or only the user knows it.
        type_rules: The first whose pattern fits the native type counts.
        literals: SQL template for each key type; `{v}` is the value as a string literal, `{n}` its bare text.
        page: SQL template with `{limit}` and `{offset}`, to stand behind ORDER BY.
        text_select: SQL template that gives any column's text.
        key_select: SQL template for each key type whose text must be asked for (else the column as it stands).
        now: SQL expression: the database's clock, in UTC.
        has_schemas: Whether tables live in schemas.
        system_schemas: Glob patterns of schemas that discovery leaves out.
        system_properties: Of the JVM, set before the first connection where they are not set yet.
        table_types: What `DatabaseMetaData.getTables` is asked for.
        catalog: Queries of the database's own catalog; None: the driver's `DatabaseMetaData` is asked.
        quote_mark: Encloses identifiers, doubled inside.
        properties: Connection properties; what stands in the URL wins.
        session_statements: Run once on each new connection.
        text_moments: Dates and times are stored and compared as text.
        shares_snapshots: Several connections can read in one snapshot, and rows say which transaction wrote them.
    """

    name: str
    url_prefixes: tuple[str, ...]
    driver: str
    driver_package: str | None
    type_rules: tuple[TypeRule, ...]
    literals: Mapping[KeyType, str]
    page: str
    text_select: str
    now: str
    key_select: Mapping[KeyType, str] = field(default_factory=dict)
    has_schemas: bool = True
    system_schemas: tuple[str, ...] = ()
    table_types: tuple[str, ...] = ("TABLE", "VIEW")
    catalog: CatalogQueries | None = None
    quote_mark: str = '"'
    system_properties: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    session_statements: tuple[str, ...] = ()
    text_moments: bool = False
    shares_snapshots: bool = False

    def quote(self, name: str) -> str:
        """An identifier, quoted."""
        if "\0" in name:
            raise ConfigurationError(f"the name {name!r} holds a NUL character, which no database takes")
        mark = self.quote_mark
        return mark + name.replace(mark, mark + mark) + mark

    def table(self, table: Table) -> str:
        """The table's full name, quoted."""
        parts = [table.name] if table.schema is None else [table.schema, table.name]
        return ".".join(self.quote(part) for part in parts)

    def string(self, text: str) -> str:
        """A string literal."""
        if "\0" in text:
            raise ConfigurationError(f"the value {text!r} holds a NUL character, which no database takes")
        return "'" + text.replace("'", "''") + "'"

    def literal(self, key: Key, value: KeyValue, *, raw: str | None = None, like: str | None = None) -> str:
        """A value of a key as an SQL literal that compares as the key's column does.

        Args:
            key: The key.
            value: The value.
            raw: The database's own text of it, used where the key is textual.
            like: Some value's text as it stands in the column: a textual key's literal gets its form.
        """
        if key.textual:
            return self.string(raw if raw is not None else text_form(value, like))
        template = self.literals[_literal_type(key)]
        shown = value.text
        if value.key_type.is_moment:
            shown = shown.replace("T", " ").replace("Z", "+00:00")
        return template.replace("{n}", shown).replace("{v}", self.string(shown))

    def key_text(self, key: Key) -> str:
        """SQL whose `getString` is a text of the key that `Key.parse` and `literal(raw=)` take."""
        return self.key_select.get(_literal_type(key), "{c}").replace("{c}", self.quote(key.column.name))

    def select(self, column: Column) -> str:
        """SQL that reads a column exactly; a value that its type can't hold makes the database raise a clear error."""
        return column.reading.select.replace("{c}", self.quote(column.name))

    def limited(self, limit: int, offset: int = 0) -> str:
        """The clause behind ORDER BY that gives `limit` rows after the first `offset`."""
        return self.page.replace("{limit}", str(limit)).replace("{offset}", str(offset))

    def column(self, name: str, native_type: str, *, nullable: bool) -> Column:
        """A column of this native type, with the way to read it."""
        lowered = " ".join(native_type.lower().split())
        for rule in self.type_rules:
            match = re.fullmatch(rule.pattern, lowered)
            reading = _filled(rule, match.groupdict()) if match else None
            if reading is not None and (rule.read_as != _DECIMAL or reading.sql_type.is_exact_decimal):
                return self._column(name, native_type, nullable, reading)
        unread = Reading(SqlType("TEXT"), self.text_select, problem=f"no exact reading of type {native_type} is known")
        return self._column(name, native_type, nullable, unread)

    def _column(self, name: str, native_type: str, nullable: bool, reading: Reading) -> Column:
        text = complaint(name, native_type, reading.sql_type)
        select, as_text = (
            template.replace("{complaint}", self.string(text)) for template in (reading.select, self.text_select)
        )
        becomes = reading.becomes.replace("{complaint}", spark_string(text))
        return Column(name, native_type, nullable, replace(reading, select=select, becomes=becomes), as_text)


def complaint(name: str, native_type: str, sql_type: SqlType) -> str:
    """How the error begins that a value raises which can't be read exactly."""
    text = f"column {name} ({native_type}) holds a value that is no {sql_type}, set its type_overrides to text: "
    # A name may look like a template's slot.
    return text.replace("{", "{ ")


def overridden(column: Column, type_name: str) -> Column:
    """The column, read as another type: by its text, cast in Spark under checks.

    Raises:
        ValueError: `type_name` is no SQL type, or none that text can be cast to.
    """
    sql_type = SqlType.parse(type_name)
    if sql_type.name not in KNOWN_TYPES:
        raise ValueError(
            f"{type_name!r} is not a type that a column can be read as; known are {', '.join(KNOWN_TYPES)}"
        )
    becomes = text_cast(sql_type).replace(
        "{complaint}", spark_string(complaint(column.name, column.native_type, sql_type))
    )
    return replace(column, reading=Reading(sql_type, column.as_text, "STRING", becomes))


def text_form(value: KeyValue, like: str | None = None) -> str:
    """The text of a value that is compared as text, in the form of other values of its column.

    Without another value it is the shortest form: as a lower bound it is below every longer spelling of the moment.
    """
    text = value.text.removesuffix("Z")
    if value.key_type is not KeyType.DATETIME and value.key_type is not KeyType.TIMESTAMP:
        return value.text
    day, _, clock = text.partition("T")
    separator = like[10] if like and len(like) > 10 and like[10] in "T " else " "
    clock = clock.rstrip("0").removesuffix(".").removesuffix(":00") if "." in clock else clock
    return day if clock == "00:00" else f"{day}{separator}{clock}"


def _literal_type(key: Key) -> KeyType:
    """Instants and naive times have literals of their own; a text column is compared with text."""
    if key.column.key_type is KeyType.STRING:
        return KeyType.STRING
    return key.key_type


def _filled(rule: TypeRule, groups: Mapping[str, str | None]) -> Reading:
    def fill(template: str) -> str:
        for name, value in groups.items():
            template = template.replace("{" + name + "}", value or "0")
        return template

    sql_type = SqlType.parse(fill(rule.sql_type))
    becomes = text_cast(sql_type) if rule.cast_text else fill(rule.becomes)
    return Reading(sql_type, fill(rule.select), fill(rule.read_as), becomes, typed=rule.typed)
