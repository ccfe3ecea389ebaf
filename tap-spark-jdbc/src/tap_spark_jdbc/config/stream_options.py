"""What the user sets for single streams: their options, the specs of `incremental_tables`, and
streams made of SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from singer_spark.core.key_value import KeyType, KeyValue
from singer_spark.core.settings import JSON, NOT_EMPTY, setting
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.dialects import dialect_of
from tap_spark_jdbc.dialects.mask import KINDS, Kind

TEXTS: JSON = {"type": "array", "items": NOT_EMPTY}
SECONDS: JSON = {"type": "number", "minimum": 0}
_KEY: JSON = {
    "type": ["string", "array"],
    "minLength": 1,
    "items": NOT_EMPTY,
    "minItems": 1,
    "maxItems": 2,
}
LATE_ROWS = ["auto", "all", "window", "open"]
_LOAD_METHODS = ["append-only", "upsert", "append-dedup", "overwrite", "overwrite-delete-stale"]
GRAMMAR = "schema.table:column:type[:i|e][@start][!append|upsert]"
_SIGNS = '.:@!"'
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_BARE = re.compile(rf"[^{_SIGNS}]+")
_METHOD_WORDS = {"append": "append-only", "upsert": "upsert"}


@dataclass(frozen=True)
class IncrementalSpec:
    """One parsed spec, with names and start value as written.

    With `:e` it is not `included`: the table is exported whole.
    """

    schema: str | None
    table: str
    column: str
    key_type: KeyType
    included: bool = True
    start: str | None = None
    load_method: str | None = None

    @classmethod
    def parse(cls, text: str) -> IncrementalSpec:
        """Parse a spec; an error shows at which character it goes wrong, and what was expected
        there.
        """
        return _Parser(text).spec()


class _Parser:
    """Parses a spec from left to right; `position` is the current character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def spec(self) -> IncrementalSpec:
        first = self.name("a table")
        schema, table = (first, self.name("a table")) if self.take(".") else (None, first)
        if self.sees("."):
            raise self.error(
                "a name has at most schema and table; put a name that holds a dot in double quotes"
            )
        self.want(":", "the replication key's column")
        column = self.name("a column")
        self.want(":", "the key's type")
        key_type = self.key_type()
        included = self.included() if self.take(":") else True
        start = self.start(key_type) if self.take("@") else None
        load_method = self.load_method() if self.take("!") else None
        if self.position < len(self.text):
            raise self.error("nothing more was expected here")
        return IncrementalSpec(schema, table, column, key_type, included, start, load_method)

    def name(self, what: str) -> str:
        begin = self.position
        if quoted := _QUOTED.match(self.text, begin):
            self.position = quoted.end()
            if not quoted[1]:
                raise self.error(f"the name of {what} is empty", begin)
            return quoted[1].replace('""', '"')
        if self.sees('"'):
            raise self.error("this double quote is never closed")
        bare = _BARE.match(self.text, begin)
        if not bare or not bare[0].strip():
            raise self.error(f"the name of {what} was expected here")
        self.position = bare.end()
        return bare[0].strip()

    def key_type(self) -> KeyType:
        begin = self.position
        bare = _BARE.match(self.text, begin)
        self.position = bare.end() if bare else begin
        try:
            return KeyType.of(bare[0] if bare else "")
        except ValueError as error:
            raise self.error(str(error), begin) from error

    def included(self) -> bool:
        begin = self.position
        bare = _BARE.match(self.text, begin)
        word = bare[0].strip().lower() if bare else ""
        if word not in ("i", "e"):
            raise self.error("i (incremental) or e (exported whole) was expected here", begin)
        self.position = begin + len(bare[0] if bare else "")
        return word == "i"

    def start(self, key_type: KeyType) -> str:
        begin = self.position
        if quoted := _QUOTED.match(self.text, begin):
            self.position, raw = quoted.end(), quoted[1].replace('""', '"')
        else:
            # A start value may contain colons and exclamation marks: it ends where the rest is a
            # load method.
            end = re.search(r"(?i)!\s*(append|upsert)\s*$|!\s*[a-z-]*\s*$|$", self.text[begin:])
            self.position = begin + (end.start() if end else 0)
            raw = self.text[begin : self.position].strip()
        if not raw:
            raise self.error("a start value was expected here", begin)
        try:
            KeyValue.parse(raw, key_type, aware=key_type.is_moment)
        except ValueError as error:
            raise self.error(f"the start value {error}", begin) from error
        return raw

    def load_method(self) -> str:
        begin = self.position
        word = self.text[begin:].strip().lower()
        if word not in _METHOD_WORDS:
            raise self.error("append or upsert was expected here")
        self.position = len(self.text)
        return _METHOD_WORDS[word]

    def sees(self, sign: str) -> bool:
        return self.text.startswith(sign, self.position)

    def take(self, sign: str) -> bool:
        """Skip the sign, and blanks before it, if it comes next."""
        while self.position < len(self.text) and self.text[self.position] == " ":
            self.position += 1
        found = self.sees(sign)
        self.position += len(sign) if found else 0
        return found

    def want(self, sign: str, before: str) -> None:
        if not self.take(sign):
            raise self.error(f"{sign!r} and {before} were expected here")

    def error(self, problem: str, position: int | None = None) -> ConfigurationError:
        at = self.position if position is None else position
        return ConfigurationError(
            RunCode.BAD_SETTING,
            f"spec {self.text!r} goes wrong at character {at + 1} "
            f"({self.text[:at]}-->{self.text[at:]}): {problem}; a spec is {GRAMMAR}",
        )


# SQL's tokens, as far as they are needed to find words and the end of a statement. Transact-SQL has
# names in brackets.
_TOKENS = re.compile(
    r"(?P<comment>--[^\n]*|/\*.*?\*/)"
    r"|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\[[^\]'\"]*\]|(?P<tag>\$\w*\$).*?(?P=tag)"
    r"|(?P<word>[\w@#$]+)|(?P<opens>\()|(?P<closes>\))|(?P<end>;)|(?P<blank>\s+)|.",
    re.DOTALL,
)


def query_problems(jdbc_url: object, queries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Problems with configured queries that this kind of database would refuse as a table."""
    if not isinstance(jdbc_url, str) or not jdbc_url.startswith("jdbc:"):
        return []
    dialect = dialect_of(jdbc_url)
    problems = []
    for query in queries:
        name, words = query.get("name"), list(_outer_words(str(query.get("sql"))))
        if not dialect.takes_with and words[:1] == ["WITH"]:
            problems.append(
                f"queries: {name!r}: {dialect.name} does not accept a subquery that begins with "
                "WITH; make a view of it, and name the view in `tables`"
            )
        elif not dialect.takes_order_by and _only_sorts(words):
            problems.append(
                f"queries: {name!r}: {dialect.name} does not accept a subquery that ends in "
                "ORDER BY without TOP or OFFSET; leave ORDER BY out: the tap sorts by itself "
                "where it needs to"
            )
    return problems


def bare(sql: str) -> str:
    """A statement without its final semicolon, and anything after it."""
    parts = list(_TOKENS.finditer(sql))
    while parts and (parts[-1]["comment"] or parts[-1]["blank"] or parts[-1]["end"]):
        if parts.pop()["end"]:
            return bare(sql[: parts[-1].end()] if parts else "")
    return sql.strip()


def _only_sorts(words: list[str]) -> bool:
    """Whether a statement ends in ORDER BY, and no clause (TOP, OFFSET … ROWS, FOR XML) uses it."""
    behind = next(
        (words[n + 2 :] for n in range(len(words)) if words[n : n + 2] == ["ORDER", "BY"]), None
    )
    if behind is None or "TOP" in words or "FOR" in behind:
        return False
    return not ("OFFSET" in behind and {"ROW", "ROWS"} & set(behind))


def _outer_words(sql: str) -> Iterator[str]:
    """The words of a statement outside of parentheses, names in quotes, strings and comments, in
    upper case.
    """
    depth = 0
    for token in _TOKENS.finditer(sql):
        depth += bool(token["opens"]) - bool(token["closes"])
        if token["word"] and depth == 0:
            yield token["word"].upper()


@dataclass(frozen=True)
class StreamOptions:
    """A config's options for the streams that match a glob pattern; None where not set."""

    replication_key: str | None = setting(
        _KEY,
        "Column whose values grow with each change; it makes the stream INCREMENTAL. Also an "
        "SQL expression with parentheses, or a list of such a column and one that breaks its "
        "ties",
    )
    replication_key_type: KeyType | None = setting(
        NOT_EMPTY,
        "Type of the replication key: date, datetime, timestamp, integer, decimal, string, uuid "
        "or binary; by default the column's own",
    )
    start_value: str | int | float | None = setting(
        {"type": ["string", "number"]}, "Value at which a run without a bookmark starts, inclusive"
    )
    end_value: str | int | float | None = setting(
        {"type": ["string", "number"]},
        "Value at which the run ends, exclusive; such a run is a backfill of a range, and the "
        "bookmark stays",
    )
    key_properties: tuple[str, ...] | None = setting(
        TEXTS, "The record's key, where it is not the table's primary key"
    )
    load_method: str | None = setting(
        {"type": "string", "enum": _LOAD_METHODS}, "Load method that the target should use"
    )
    settle_seconds: float | None = setting(SECONDS, "Instead of the setting `settle_seconds`")
    where: str | None = setting(NOT_EMPTY, "SQL condition that rows must meet")
    partition_column: str | None = setting(
        NOT_EMPTY, "Column by which a full table is cut into slices, if not by its primary key"
    )
    detect_deletes: bool | None = setting(
        {"type": "boolean"},
        "Sends the keys of all rows too, so that the target deletes rows that are gone",
    )
    late_rows: Literal["auto", "all", "window", "open"] | None = setting(
        {"type": "string", "enum": LATE_ROWS}, "Instead of the setting `late_rows`"
    )
    late_window: float | None = setting(SECONDS, "Instead of the setting `late_window`")
    replication_method: Literal["FULL_TABLE", "INCREMENTAL", "LOG_BASED"] | None = setting(
        {"type": "string", "enum": ["FULL_TABLE", "INCREMENTAL", "LOG_BASED"]},
        "`LOG_BASED`: changes and deletes are read from the log of PostgreSQL, MySQL or MariaDB "
        "([log-based](log-based.md))",
    )
    columns: tuple[str, ...] | None = setting(
        TEXTS,
        "Globs of the columns to read; `!glob` leaves columns out. By default all. Columns of "
        "keys are always sent ([columns](columns.md))",
    )
    exclude_columns: tuple[str, ...] | None = setting(
        TEXTS, "Globs of columns to leave out of those that `columns` selects"
    )
    rename: Mapping[str, str] = setting(
        {"type": "object", "additionalProperties": NOT_EMPTY},
        "Maps a column to its name in the lake, in lines and in batches; all other settings use "
        "the source's names",
        of=dict,
    )
    type_overrides: Mapping[str, str] = setting(
        {"type": "object", "additionalProperties": NOT_EMPTY},
        "Maps a column to an SQL type, or to `text` for its exact text",
        of=dict,
    )
    mask: Mapping[str, Kind] = setting(
        {"type": "object", "additionalProperties": {"enum": [*KINDS, None]}},
        "Maps a column to `hash`, `redact`, `null` or `last4`; it is masked while a row is "
        "read, before anything is written",
        of=dict,
    )


@dataclass(frozen=True)
class QueryStream:
    """A stream made of SQL."""

    name: str = setting(NOT_EMPTY, "The stream's name", required=True)
    sql: str = setting(NOT_EMPTY, "A SELECT statement", required=True)
    key_properties: tuple[str, ...] = setting(TEXTS, "The record's key", default=())
    replication_key: str | None = setting(
        NOT_EMPTY, "Column of the result by which the stream is incremental"
    )


def stream_options(given: Mapping[str, Any], problems: list[str]) -> dict[str, StreamOptions]:
    """The options by pattern; what is wrong beyond their JSON Schema is added to the problems."""
    read = {}
    for pattern, options in given.items():
        if not isinstance(options, dict):
            continue
        fields = StreamOptions.__dataclass_fields__
        known = {name: value for name, value in options.items() if name in fields}
        try:
            if kind := known.get("replication_key_type"):
                known["replication_key_type"] = KeyType.of(str(kind))
        except ValueError as error:
            problems.append(f"stream_options.{pattern}.replication_key_type: {error}")
        for name in ("type_overrides", "rename", "mask"):
            known[name] = value if isinstance(value := known.get(name), dict) else {}
        # YAML parses a bare null as no value.
        known["mask"] = {name: kind or "null" for name, kind in known["mask"].items()}
        _part_composite(pattern, known, problems)
        read[pattern] = StreamOptions(**with_tuples(known))
    return read


def _part_composite(pattern: str, known: dict[str, Any], problems: list[str]) -> None:
    """Split a composite key into the replication key and the column that breaks its ties."""
    key = known.get("replication_key")
    if not isinstance(key, list) or not key:
        return
    known["replication_key"], *rest = key
    if rest and known.setdefault("partition_column", rest[0]) != rest[0]:
        problems.append(
            f"stream_options.{pattern}: partition_column is {known['partition_column']!r}, but "
            f"the second column of its replication_key is {rest[0]!r}; remove one of them"
        )


def with_tuples(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values with tuples instead of lists."""
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
    }
