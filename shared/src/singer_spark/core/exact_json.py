"""JSON with exact numbers, including those that `json` and `orjson` would round.

Numbers of records are Decimals, to be validated. A state is not validated: its numbers keep their
exact text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from json.encoder import encode_basestring, encode_basestring_ascii
from operator import itemgetter
from typing import Any, Self

import orjson

_MEMBER_NAME = re.compile(r'[\s,]*("(?:[^"\\]|\\.)*")\s*:\s*')
# The longest integer that Python parses and prints.
_LONGEST_INTEGER = 4300
# Of a state. How many levels are parsed depends on the version of Python, and it writes fewer.
MOST_STATE_LEVELS = 300


class Number(float):
    """A number in a state, which keeps its text; in calculations it is the nearest float."""

    text: str

    def __new__(cls, text: str) -> Self:
        """Keep the text, which is a JSON number."""
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override]
        """Copy by the text."""
        return (self.text,)

    def __repr__(self) -> str:
        """The text, also for `str`."""
        return self.text


class Spelled(Decimal):
    """A number of a record that is printed as it was spelled: `1.50`, `1e-10`, `0.0000000001`."""

    _text: str

    def __new__(cls, text: Any) -> Self:
        """Parse the text; from another Decimal, take the digits."""
        number = super().__new__(cls, text)
        number._text = str(text)
        return number

    def __str__(self) -> str:
        """The text."""
        return self._text


def from_json(text: bytes | str) -> Any:
    """Parse JSON; numbers become int or Decimal, and keep their spelling.

    Raises:
        ValueError: it is not JSON (a bare NaN is not), not UTF-8, or a string in it is not Unicode.
    """
    text = text.decode() if isinstance(text, bytes) else text
    value = json.loads(text, parse_float=Spelled, parse_int=_integer, parse_constant=_refuse)
    if "\\u" in text:
        to_json(value).encode()
    return value


def state_from_json(text: bytes | str) -> Any:
    """Parse JSON so that every number and every string can be written again exactly as it was.

    Raises:
        ValueError: it is not JSON (a bare NaN is not), or not UTF-8.
        RecursionError: it is nested too deeply.
    """
    text = text.decode() if isinstance(text, bytes) else text
    return json.loads(text, parse_float=Number, parse_int=_integer_of_state, parse_constant=_refuse)


def is_deep_state(value: Any) -> bool:
    """Whether a state is nested in more than `MOST_STATE_LEVELS` levels."""
    level = [value]
    for _ in range(MOST_STATE_LEVELS):
        level = [
            each
            for group in level
            if isinstance(group, dict | list)
            for each in (group.values() if isinstance(group, dict) else group)
        ]
    return any(isinstance(each, dict | list) for each in level)


def to_json(
    value: Any, indent: int | None = None, *, ascii_only: bool = False, sort_keys: bool = False
) -> str:
    """JSON text that keeps every digit, also of Decimals and Numbers.

    On one line unless `indent` is given.
    """
    return _Writer(
        indent, encode_basestring_ascii if ascii_only else encode_basestring, sort_keys
    ).text(value)


def to_json_bytes(value: Any, indent: int | None = None) -> bytes:
    """JSON in UTF-8 that keeps every digit.

    Lone surrogates, which UTF-8 can't encode, stay escaped.
    """
    if indent is None:
        try:
            return orjson.dumps(value, default=_as_written)
        except TypeError:  # an integer beyond 64 bits, or half of a surrogate pair
            pass
    return to_json(value, indent).encode("utf-8", "backslashreplace")


def rounded(value: Any) -> Any:
    """The value for code that does not support exact numbers: decimals become floats.

    Raises:
        ValueError: an integer in it is longer than Python parses.
    """
    return json.loads(to_json(value))


def member_text(text: str, name: str) -> str:
    """The text of a member's value in the text of a JSON object; the last one if the name occurs
    twice.
    """
    decoder = json.JSONDecoder(parse_int=str, parse_float=str)
    position, found = text.index("{") + 1, ""
    while match := _MEMBER_NAME.match(text, position):
        _, position = decoder.raw_decode(text, match.end())
        if json.loads(match[1]) == name:
            found = text[match.end() : position]
    return found


@dataclass(frozen=True)
class _Writer:
    indent: int | None
    quoted: Callable[[str], str]
    sort_keys: bool
    level: int = 0

    def text(self, value: Any) -> str:
        if isinstance(value, str):
            return self.quoted(value)
        if isinstance(value, Mapping):
            members = sorted(value.items(), key=itemgetter(0)) if self.sort_keys else value.items()
            colon = ":" if self.indent is None else ": "
            below = self._below
            return self._between(
                "{}",
                [f"{self.quoted(str(name))}{colon}{below.text(each)}" for name, each in members],
            )
        if isinstance(value, list | tuple):
            below = self._below
            return self._between("[]", [below.text(each) for each in value])
        return str(value) if isinstance(value, Decimal | Number) else json.dumps(value)

    @property
    def _below(self) -> _Writer:
        return self if self.indent is None else replace(self, level=self.level + 1)

    def _between(self, brackets: str, parts: list[str]) -> str:
        if self.indent is None or not parts:
            return f"{brackets[0]}{','.join(parts)}{brackets[1]}"
        end = "\n" + " " * self.indent * self.level
        start = end + " " * self.indent
        return f"{brackets[0]}{start}{f',{start}'.join(parts)}{end}{brackets[1]}"


def _integer(text: str) -> int | Decimal:
    return Spelled(text) if text == "-0" else int(text)


def _integer_of_state(text: str) -> int | Number:
    return Number(text) if text == "-0" or len(text) > _LONGEST_INTEGER else int(text)


def _as_written(value: Any) -> orjson.Fragment:
    if isinstance(value, Number):
        return orjson.Fragment(value.text)
    raise TypeError


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")
