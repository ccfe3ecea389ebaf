"""The specs of `incremental_tables`: `schema.table:column:type[:i|e][@start][!append|upsert]`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from singer_spark.core.bookmark import KeyType, KeyValue
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError

GRAMMAR = "schema.table:column:type[:i|e][@start][!append|upsert]"
_SIGNS = '.:@!"'
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_BARE = re.compile(rf"[^{_SIGNS}]+")
_LOAD_METHODS = {"append": "append-only", "upsert": "upsert"}


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
        if word not in _LOAD_METHODS:
            raise self.error("append or upsert was expected here")
        self.position = len(self.text)
        return _LOAD_METHODS[word]

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
