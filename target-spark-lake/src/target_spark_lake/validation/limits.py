"""What a schema says of a top-level column's values and bulk checks can decide: bounds, lengths, choices, patterns.

A pattern is decided only where Python, Java and RE2 agree about it, or the latter two match less: nothing that is wrong
may pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from singer_spark.singer.schema_mapping import json_types
from target_spark_lake.validation.value_patterns import declared_types, plain_branch

JSON = dict[str, Any]

LENGTHS = ("minLength", "maxLength")
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
CHOICE, PATTERN = "enum", "pattern"
# The formats that jsonschema knows in Draft 7; of any other name nothing is asked.
KNOWN_FORMATS = frozenset(
    {
        *("date", "date-time", "time", "uuid", "email", "idn-email", "hostname", "idn-hostname", "ipv4", "ipv6"),
        *("iri", "iri-reference", "uri", "uri-reference", "uri-template", "json-pointer", "relative-json-pointer"),
        "regex",
    }
)
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_FORMAT_PATTERNS = {"email": "@", "ipv4": rf"^(?:{_OCTET}\.){{3}}{_OCTET}\z"}

_TIMES = r"(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})?"
_CLASS = r"\[\^?(?:[A-Za-z0-9 _@:/.,;=+*-]|\\[-./+\[\]\\])+\]"
_ONE = rf"(?:[A-Za-z0-9 _@:/,;=<>#%&!~'\"-]|\.|\\[dw]|\\[-./+*?()\[\]{{}}|^$\\]|{_CLASS})"
_PORTABLE = re.compile(rf"(?P<body>\^?(?:{_ONE}{_TIMES}|\((?:\?:)?|\){_TIMES}|\|)*)(?P<end>\$?)")


@dataclass(frozen=True)
class Limit:
    """What a top-level column's values must keep to: any other one makes the record a suspect.

    Attributes:
        column: Its name.
        keyword: One of `BOUNDS` or `LENGTHS`, `CHOICE` or `PATTERN`.
        value: The bound; the texts or integers to choose from; a regular expression, for Java and RE2, to be found.
    """

    column: str
    keyword: str
    value: Any


def limits_of(properties: JSON) -> tuple[list[Limit], JSON]:
    """The limits of the top-level columns, and the properties without what these decide."""
    limits: list[Limit] = []
    left: JSON = {}
    for name, each in properties.items():
        rest = dict(plain_branch(each))
        if isinstance(rest.get("format"), str) and rest["format"] not in KNOWN_FORMATS:
            del rest["format"]
        limits += [Limit(name, keyword, value) for keyword, value in _taken(rest)]
        left[name] = rest
    return limits, left


def _taken(rest: JSON) -> list[tuple[str, Any]]:
    """Takes what can be decided out of a property's schema."""
    kinds = json_types(rest)
    taken: list[tuple[str, Any]] = []
    if kinds == {"string"} and rest.get("format") in _FORMAT_PATTERNS:
        taken.append((PATTERN, _FORMAT_PATTERNS[rest.pop("format")]))
    if kinds == {"string"} and not rest.get("format") and not rest.get("contentEncoding"):
        taken += [(keyword, rest.pop(keyword)) for keyword in LENGTHS if isinstance(rest.get(keyword), int)]
        pattern = _portable(rest.get("pattern"))
        if pattern is not None:
            del rest["pattern"]
            taken.append((PATTERN, pattern))
        taken += _choices(rest, str)
    elif kinds and kinds <= {"integer", "number"}:
        for keyword in BOUNDS:
            if isinstance(rest.get(keyword), int | float):
                value = rest.pop(keyword)
                # Draft 4 wrote a bare true beside the bound; Draft 7 does not know it.
                if not isinstance(value, bool):
                    taken.append((keyword, value))
        if kinds == {"integer"}:
            taken += _choices(rest, int)
    return taken


def _choices(rest: JSON, kind: type) -> list[tuple[str, Any]]:
    """An enum, or a const, of values of one type; with a NULL only where the type has it too."""
    if "enum" in rest and "const" in rest:
        return []
    keyword = "enum" if "enum" in rest else "const"
    values = rest.get("enum", []) if keyword == "enum" else [rest[keyword]] if keyword in rest else []
    chosen = [value for value in values if value is not None]
    plain = all(isinstance(value, kind) and not isinstance(value, bool) for value in chosen)
    fits = kind is str or all(isinstance(value, int) and abs(value) < 2**63 for value in chosen)
    if not chosen or not plain or not fits or ("null" in declared_types(rest) and None not in values):
        return []
    del rest[keyword]
    return [(CHOICE, tuple(chosen))]


def _portable(pattern: object) -> str | None:
    """The pattern for Java and RE2, which then match no more than Python's `re`; None where that is not sure."""
    match = _PORTABLE.fullmatch(pattern) if isinstance(pattern, str) else None
    # Two hyphens in a class are to be a difference of sets one day.
    if match is None or "--" in match[0]:
        return None
    try:
        re.compile(match[0])
    except re.error:
        return None
    # Python's `$` also stands before a last line end, Java's before several kinds of them.
    return match["body"] + (r"\z" if match["end"] else "")
