"""The text of the user's queries: where a statement ends, and whether a database can read it as a
table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tap_spark_jdbc.dialects import dialect_of

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
                f"queries: {name!r}: {dialect.name} takes no statement as a table that begins with "
                "WITH; make a view of it, and name that in `tables`"
            )
        elif not dialect.takes_order_by and _only_sorts(words):
            problems.append(
                f"queries: {name!r}: {dialect.name} takes no statement as a table that ends in "
                "ORDER BY without TOP or "
                "OFFSET; leave ORDER BY out, the tap sorts by itself where it needs to"
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
    """Whether a statement ends in ORDER BY without a clause that uses the order (TOP, OFFSET …
    ROWS, FOR XML).
    """
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
