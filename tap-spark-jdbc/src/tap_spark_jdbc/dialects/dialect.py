"""Dialects: data about one kind of database, and the quoting that follows from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from singer_spark.core.key_value import KeyType, KeyValue
from singer_spark.core.sql_type import SqlType
from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.dialects.tables import Column, Key, Reading, Table
from tap_spark_jdbc.dialects.templates import LITERALS, Alive, CatalogQueries, Checksums, Marks
from tap_spark_jdbc.dialects.type_rules import (
    TypeRule,
    complaint,
    complaint_of_bytes,
    complaint_of_key,
    matching,
    spark_string,
)
from tap_spark_jdbc.error_codes import TapCode

CONNECTORX = "connectorx"


@dataclass(frozen=True)
class Dialect:
    """One kind of database.

    Attributes:
        name: For users and for `python -m tap_spark_jdbc.source.drivers NAME`.
        url_prefixes: Prefixes of its JDBC URLs.
        driver: The driver's class.
        driver_package: Maven coordinates of its jar; None if Spark ships it or only the user knows
            it.
        type_rules: The first whose pattern matches the native type applies.
        literals: SQL template for each key type; `{v}` is the value as a string literal, `{w}` that
            without its zone (UTC), `{n}` its bare text; a template with `{u}`, a string literal for
            UNISTR, supports more than ASCII.
        page: SQL template with `{limit}` and `{offset}`, for use after ORDER BY.
        unordered_page: The same for use without ORDER BY; None: as `page`.
        all_rows: A limit of rows that exceeds any slice, and that the database accepts.
        text_select: SQL template for any column's text.
        text_read_as: Spark type of the result of `text_select`.
        text_becomes: Spark SQL template over `{c}` that turns it into text.
        bytes_select: SQL template for the stored bytes of any column's text; None: there is none.
        key_select: SQL template for each key type that must be selected as text (otherwise the
            column itself is selected); `{complaint}` begins the error of a value that does not
            compare as the key's type.
        integer_expression: SQL template over `{e}`, an expression, that turns texts of integers
            into integers, and leaves all else unchanged; None: the database's expressions have
            types.
        now: SQL expression for the database's clock, in UTC.
        now_has_zone: `now` includes its zone, instead of being in UTC.
        has_schemas: Whether tables are in schemas.
        system_schemas: Glob patterns of schemas that discovery leaves out.
        system_schemas_query: SQL for the names of further schemas that discovery by the driver
            leaves out.
        system_properties: System properties of the JVM, set before the first connection unless
            already set.
        described_at_most: The rows after which the driver truncates a list of tables or columns;
            None: it does not.
        table_types: The types passed to `DatabaseMetaData.getTables`.
        catalog: Queries of the database's own catalog; None: the driver's `DatabaseMetaData` is
            used.
        quote_mark: Encloses identifiers, doubled inside.
        properties: Connection properties; parameters in the URL override them.
        session_statements: Run once on each new connection.
        text_moments: Dates and times are stored and compared as text.
        backslash_string: Template of a string literal with a backslash in it, over its UTF-8 bytes
            `{hex}`, or over its text `{doubled}` with quotes and backslashes doubled; None: a
            backslash means itself in any literal.
        line_continuation: A backslash before a line feed in a literal removes both.
        takes_with: A subselect may begin with WITH.
        takes_order_by: A subselect may end in ORDER BY alone, without a clause that limits rows.
        national_strings: A string literal with non-ASCII characters begins with N.
        url_form: The prefix and the parameter that the URL must have, for both Spark and the
            driver; the latter may be empty.
        parameters: The driver's spelling of URL parameters that users of another driver write.
        by_other_drivers: The dialect as another driver needs it, by the group and name of the
            driver's package.
        described_type: SQL expression over `{name}` (a string literal), `{precision}` and
            `{scale}`, by which the driver describes a query's column, for its type as in `catalog`;
            None: the driver's name is used.
        undeclared_type: The driver's name for the type of a query's column that has none.
        late_keys: Why no row can be committed late, by kind of key: `numbers`, or `all`; empty: it
            can.
        open_transactions: SQL for the age of the oldest transaction that may still write, in whole
            seconds, NULL if there is none; for the clock in seconds since 1970; for the age of the
            oldest that has written; and 1 if the server is a replica, otherwise 0. None: unknown.
        open_transactions_kept: For how many seconds after it was last read the server may show the
            same list of transactions.
        open_transactions_begin: Begins a transaction that a new list shows: its query then has a
            fifth column, 1 if the list has that transaction; None: each list is new.
        open_transactions_grant: The statement by which `{user}` may run it.
        shares_snapshots: Several connections can read in one snapshot, and rows have their writer's
            transaction.
        width: SQL template for the size in bytes: over `{c}` for a text or bytes, over `{s}` for
            what is read of the column; None: none is known to be cheap.
        fetch_bound: The URL's parameter for how many bytes a round trip may bring before it is
            aborted; None: the driver has none.
        hides_tables: A user does not see a table on which the user has no privilege.
        key_ranges: A range of a primary key costs less than a scan of the table; otherwise tables
            are not cut along it.
        secondary_ranges: A large range of a secondary key costs less than a scan of the table;
            otherwise a first load is cut along the primary key.
        text_as_bytes: Whether the driver's `getBytes` returns a text's original UTF-8, which saves
            two copies of it.
        fetch_size: Rows a round trip for a driver that streams rows, where more of them would only
            take memory.
        columnar_driver: Module of the ADBC driver, or ConnectorX's, that reads it as Arrow; None:
            there is none.
        connection_driver: Module of the Python driver that asks for metadata and bounds, so that
            only rows may need a JVM; None: the JDBC driver asks.
        statement_timeout: Statement that limits each later one of its session to `{seconds}` or
            `{milliseconds}`; if it contains `{session}`, it replaces the last of
            `session_statements`, which is put there; None: unknown.
        base64: SQL template over `{c}` for bytes in base64, which Arrow can't encode; otherwise
            Python does that, value by value.
        checksums: How rows are summed up; None: unknown.
        marks: How rows are marked; None: unknown, or the database shares snapshots, in which rows
            have their writer.
        together: Template over `{parts}`, a query with the columns `n` and `found`, for its rows as
            one text: a line a row, with a space between both.
        alive: How the server is asked whether it is still there; None: it is no server, or its
            driver sets no limit.
    """

    name: str
    url_prefixes: tuple[str, ...]
    driver: str
    driver_package: str | None
    type_rules: tuple[TypeRule, ...]
    text_select: str
    now: str
    literals: Mapping[KeyType, str] = field(default_factory=lambda: LITERALS)
    page: str = "OFFSET {offset} ROWS FETCH NEXT {limit} ROWS ONLY"
    text_read_as: str = "STRING"
    text_becomes: str = "{c}"
    bytes_select: str | None = None
    key_select: Mapping[KeyType, str] = field(default_factory=dict)
    now_has_zone: bool = False
    has_schemas: bool = True
    system_schemas: tuple[str, ...] = ()
    system_schemas_query: str | None = None
    described_at_most: int | None = None
    table_types: tuple[str, ...] = ("TABLE", "VIEW")
    catalog: CatalogQueries | None = None
    quote_mark: str = '"'
    system_properties: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    session_statements: tuple[str, ...] = ()
    text_moments: bool = False
    unordered_page: str | None = None
    all_rows: int = 10**15
    backslash_string: str | None = None
    line_continuation: bool = False
    takes_with: bool = True
    takes_order_by: bool = True
    national_strings: bool = False
    url_form: tuple[str, str] | None = None
    parameters: Callable[[list[str]], list[str]] = list
    by_other_drivers: Mapping[str, Dialect] = field(default_factory=dict)
    described_type: str | None = None
    undeclared_type: str | None = None
    integer_expression: str | None = None
    late_keys: Mapping[str, str] = field(default_factory=dict)
    open_transactions: str | None = None
    open_transactions_kept: float = 0
    open_transactions_begin: str | None = None
    open_transactions_grant: str = ""
    shares_snapshots: bool = False
    width: str | None = None
    fetch_bound: str | None = None
    fetch_size: int | None = None
    text_as_bytes: bool = False
    hides_tables: bool = False
    key_ranges: bool = True
    secondary_ranges: bool = True
    columnar_driver: str | None = None
    connection_driver: str | None = None
    statement_timeout: str | None = None
    base64: str = "{c}"
    checksums: Checksums | None = None
    marks: Marks | None = None
    together: str = ""
    alive: Alive | None = None

    @property
    def own_connections(self) -> int:
        """Connections of each begun stream besides its readers': for queries, for the snapshot."""
        return 2 if self.shares_snapshots else 1

    def with_driver(self, driver: str | None, package: str | None) -> Dialect:
        """The dialect for the user's choice of a driver's class, or of its package."""
        for name, dialect in self.by_other_drivers.items():
            if driver == dialect.driver or (
                driver is None and (package or "").startswith(f"{name}:")
            ):
                return dialect
        return self

    def driver_url(self, jdbc_url: str) -> str:
        """The user's URL in a form that both Spark and the dialect's driver accept."""
        if self.url_form is None:
            return jdbc_url
        prefix, parameter = self.url_form
        known = next(each for each in self.url_prefixes if jdbc_url.startswith(each))
        address, _, parameters = jdbc_url.partition("?")
        others = [
            each for each in parameters.split("&") if each and each.partition("=")[0] != parameter
        ]
        words = [*self.parameters(others), *([parameter] if parameter else [])]
        return f"{prefix}{address.removeprefix(known)}{'?' if words else ''}{'&'.join(words)}"

    def bounded_url(self, url: str, fetch_bytes: int) -> str:
        """The driver's URL for connections whose round trips bring at most `fetch_bytes`.

        The user's own bound is kept.

        A property would be lost over Spark Connect, whose server writes the names of properties in
        lower case.
        """
        if self.fetch_bound is None or self.fetch_bound in url:
            return url
        return f"{url}{'&' if '?' in url else '?'}{self.fetch_bound}={fetch_bytes}"

    def quote(self, name: str) -> str:
        """An identifier, quoted."""
        if "\0" in name:
            raise ConfigurationError(
                TapCode.NAME_UNUSABLE,
                f"the name {name!r} holds a NUL character, which no database accepts",
            )
        mark = self.quote_mark
        return mark + name.replace(mark, mark + mark) + mark

    def table(self, table: Table) -> str:
        """The table's full name, quoted, or a query in parentheses that no comment swallows."""
        if table.query is not None:
            return f"(\n{table.query}\n) q"
        parts = [table.name] if table.schema is None else [table.schema, table.name]
        return ".".join(self.quote(part) for part in parts)

    def column_of(self, table: Table, name: str) -> str:
        """A column of a table that is read, with its qualifier: without one, ORDER BY would mean an
        alias of that name.
        """
        return f"{'q' if table.query is not None else self.table(table)}.{self.quote(name)}"

    def string(self, text: str) -> str:
        """A string literal."""
        if "\0" in text:
            raise ConfigurationError(
                TapCode.NAME_UNUSABLE,
                f"the value {text!r} holds a NUL character, which no database accepts",
            )
        quoted = text.replace("'", "''")
        if self.backslash_string is not None and "\\" in text:
            literal = self.backslash_string.replace("{hex}", text.encode().hex())
            return literal.replace("{doubled}", quoted.replace("\\", "\\\\"))
        sign = "N" if self.national_strings and not text.isascii() else ""
        if self.line_continuation:
            parts = re.sub(r"\\(?=\r?\n)", lambda _: f"\\' + {sign}'", quoted)
            return f"{sign}'{quoted}'" if parts == quoted else f"({sign}'{parts}')"
        return f"{sign}'{quoted}'"

    def literal(
        self, key: Key, value: KeyValue, *, raw: str | None = None, like: str | None = None
    ) -> str:
        """A literal that compares like the column; of a textual key `raw`, or like `like`."""
        if key.textual:
            return self.string(raw if raw is not None else text_form(value, like))
        template = key.column.reading.key_literal or self.literals[_literal_type(key)]
        shown = value.text
        if value.key_type.is_moment:
            shown = shown.replace("T", " ")
            template = template.replace("{w}", self.string(shown.removesuffix("Z")))
            shown = shown.replace("Z", "+00:00")
        if "{u}" not in template:
            return template.replace("{n}", shown).replace("{v}", self.string(shown))
        if shown.isascii():
            return self.string(shown)
        return template.replace("{u}", self.string(_escaped(shown)))

    def key_text(self, key: Key) -> str:
        """SQL of the key's text (`getString`) that `Key.parse` and `literal(raw=)` accept."""
        template = self.key_select.get(_literal_type(key), "{c}")
        message = self.string(complaint_of_key(key.column.name, key.key_type))
        return template.replace("{complaint}", message).replace("{c}", self.quote(key.column.name))

    def operand(self, column: Column) -> str:
        """SQL of a column for comparisons with the literals of a key."""
        return column.reading.key_operand.replace("{c}", self.quote(column.name))

    def select(self, column: Column) -> str:
        """SQL that reads a column exactly.

        A value that its type can't hold makes the database raise a clear error.
        """
        return column.reading.select.replace("{c}", self.quote(column.name))

    def limited(self, limit: int, offset: int = 0, *, ordered: bool = True) -> str:
        """The clause, after ORDER BY if `ordered`, for `limit` rows after the first `offset`."""
        page = self.page if ordered else self.unordered_page or self.page
        return page.replace("{limit}", str(limit)).replace("{offset}", str(offset))

    def column(self, name: str, native_type: str, *, nullable: bool) -> Column:
        """A column of this native type, with its reading."""
        fallback = Reading(SqlType("TEXT"), self.text_select, self.text_read_as, self.text_becomes)
        problem = f"no exact reading of type {native_type} is known"
        unread = replace(fallback, problem=problem), ""
        reading, text_select = matching(self.type_rules, native_type) or unread
        messages = {
            "{complaint}": complaint(name, native_type, reading.sql_type),
            "{no_text}": complaint_of_bytes(name, native_type),
        }

        def filled(reading: Reading) -> Reading:
            select, columnar, becomes = reading.select, reading.columnar, reading.becomes
            for slot, text in messages.items():
                select = select.replace(slot, self.string(text))
                columnar = columnar and columnar.replace(slot, self.string(text))
                becomes = becomes.replace(slot, spark_string(text))
            return replace(reading, select=select, becomes=becomes, columnar=columnar)

        as_text = replace(fallback, select=text_select) if text_select else fallback
        stored = self.bytes_select
        as_bytes = None if stored is None else Reading(SqlType("VARBINARY"), stored, "BINARY")
        return Column(name, native_type, nullable, filled(reading), filled(as_text), as_bytes)


def text_form(value: KeyValue, like: str | None = None) -> str:
    """The text of a value that is compared as text, in the form of another value of its column.

    Without another value it has the shortest form, so that as a lower bound it is below every
    longer spelling of the moment.
    """
    text = value.text.removesuffix("Z")
    if value.key_type is not KeyType.DATETIME and value.key_type is not KeyType.TIMESTAMP:
        return value.text
    day, _, clock = text.partition("T")
    separator = like[10] if like and len(like) > 10 and like[10] in "T " else " "
    clock = clock.rstrip("0").removesuffix(".").removesuffix(":00") if "." in clock else clock
    return day if clock == "00:00" else f"{day}{separator}{clock}"


def _escaped(text: str) -> str:
    """The text for UNISTR, with each UTF-16 unit beyond ASCII, and each backslash, as four
    digits.
    """

    def units(sign: re.Match[str]) -> str:
        return "\\" + sign[0].encode("utf-16-be", "surrogatepass").hex("\\", 2)

    return re.sub(r"[^\x00-\x7f]|\\", units, text)


def _literal_type(key: Key) -> KeyType:
    """The key type of the literal: instants and naive times have their own, and a text column is
    compared as text.
    """
    if key.column.key_type is KeyType.STRING:
        return KeyType.STRING
    return key.key_type
