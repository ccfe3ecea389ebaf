"""Statements in the log: what they do to which tables."""

from __future__ import annotations

import re
from dataclasses import dataclass

# A quoted name, a text, a comment, a word or a sign; comments that the server executes are read.
_TOKEN = re.compile(
    r"`(?:[^`]|``)*`|\"(?:[^\"\\]|\\.|\"\")*\"|'(?:[^'\\]|\\.|'')*'"
    r"|/\*(?![!M])(?:.|\n)*?\*/|--\s[^\n]*|#[^\n]*"
    r"|/\*M?!\d*|\*/|[\w$\u0080-\U0010ffff]+|[^\s]"
)
_NAMING = ("ALTER", "DROP", "RENAME", "TRUNCATE", "CREATE")
_CHANGING = ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "EXECUTE", "CALL")
_BETWEEN = {
    "TABLE",
    "TABLES",
    "IGNORE",
    "ONLINE",
    "OFFLINE",
    "TEMPORARY",
    "IF",
    "NOT",
    "EXISTS",
    "OR",
    "REPLACE",
}


@dataclass(frozen=True)
class Statement:
    """A statement that describes data, or changes it without its rows in the log.

    Attributes:
        verb: Its first word: `ALTER`, `INSERT`.
        tables: The tables that it names, each with its database; of one that drops a database:
            (database, "").
    """

    verb: str
    tables: frozenset[tuple[str, str]]

    @classmethod
    def parse(cls, database: str, text: str) -> Statement | None:
        """Parse a statement; None: it concerns no table."""
        tokens = [
            each for each in _TOKEN.findall(text) if not each.startswith(("--", "#", "/*", "*/"))
        ]
        if not tokens:
            return None
        verb = tokens[0].upper()
        if verb in _CHANGING:
            return cls(verb, frozenset(_mentioned(database, tokens)))
        if verb not in _NAMING:
            return None
        words = [each.upper() for each in tokens[1:4]]
        if verb == "DROP" and words and words[0] in ("DATABASE", "SCHEMA"):
            names = [each for each in tokens[2:] if each.upper() not in _BETWEEN]
            return cls(verb, frozenset({(_name(names[0]), "")}))
        if verb != "TRUNCATE" and not {"TABLE", "TABLES"} & set(words):
            return None
        rest = tokens[1:]
        while rest and rest[0].upper() in _BETWEEN:
            rest = rest[1:]
        return cls(verb, frozenset(_named(database, rest, verb)))


def _named(database: str, tokens: list[str], verb: str) -> list[tuple[str, str]]:
    """The names at the beginning: one for ALTER and CREATE, a list for the others; RENAME has two
    for each table.
    """
    found, at = [], 0
    while at < len(tokens):
        parts = [_name(tokens[at])]
        at += 1
        while at + 1 < len(tokens) and tokens[at] == ".":
            parts.append(_name(tokens[at + 1]))
            at += 2
        found.append((parts[0], parts[1]) if len(parts) > 1 else (database, parts[0]))
        if verb in ("ALTER", "CREATE"):
            # ALTER may give it another name.
            rest = [each.upper() for each in tokens[at:]]
            if verb == "ALTER" and "RENAME" in rest:
                found += _renamed(database, tokens[at + rest.index("RENAME") + 1 :])
            break
        if at < len(tokens) and (tokens[at] == "," or tokens[at].upper() == "TO"):
            at += 1
            continue
        break
    return found


def _renamed(database: str, tokens: list[str]) -> list[tuple[str, str]]:
    if not tokens or tokens[0].upper() in ("COLUMN", "INDEX", "KEY"):
        return []
    while tokens and tokens[0].upper() in ("TO", "AS", "="):
        tokens = tokens[1:]
    return _named(database, tokens, "DROP")[:1] if tokens else []


def _mentioned(database: str, tokens: list[str]) -> list[tuple[str, str]]:
    """Every name that may be a table's."""
    names = [_name(each) for each in tokens if not each.startswith("'")]
    pairs = zip(names, names[1:], names[2:], strict=False)
    return [(database, each) for each in names] + [
        (first, last) for first, dot, last in pairs if dot == "."
    ]


def _name(token: str) -> str:
    if token[0] in '`"' and len(token) > 1:
        return token[1:-1].replace(token[0] * 2, token[0])
    return token
