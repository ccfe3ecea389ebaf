"""JSON with exact numbers: what `json` and `orjson` would round stays a Decimal, spelled as it came."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_MEMBER_NAME = re.compile(r'[\s,]*("(?:[^"\\]|\\.)*")\s*:\s*')


class Spelled(Decimal):
    """A number of a JSON text that is printed as it stands there: `1.50`, `1e-10`, `0.0000000001`."""

    _text: str

    def __new__(cls, text: Any) -> Spelled:
        """Reads the text; of another Decimal it takes the digits."""
        number = super().__new__(cls, text)
        number._text = str(text)
        return number

    def __str__(self) -> str:
        return self._text


def from_json(text: bytes | str) -> Any:
    """Parses JSON; numbers become int or Decimal, and keep their spelling.

    Raises:
        ValueError: it is no JSON (a bare NaN is none), no UTF-8, or a text in it is no Unicode.
    """
    text = text.decode() if isinstance(text, bytes) else text
    value = json.loads(text, parse_float=Spelled, parse_int=_integer, parse_constant=_refuse)
    if "\\u" in text:
        to_json(value).encode()
    return value


def to_json(value: Any) -> str:
    """JSON text that keeps every digit of a Decimal."""
    if isinstance(value, Mapping):
        members = (f"{json.dumps(str(name), ensure_ascii=False)}:{to_json(each)}" for name, each in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(to_json, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def member_text(text: str, name: str) -> str:
    """A member's value as it stands in the text of a JSON object; the last one where the name stands twice.

    Args:
        text: What `from_json` reads as an object that has the member.
        name: The member's name.
    """
    decoder = json.JSONDecoder()
    position, found = text.index("{") + 1, ""
    while match := _MEMBER_NAME.match(text, position):
        _, position = decoder.raw_decode(text, match.end())
        if json.loads(match[1]) == name:
            found = text[match.end() : position]
    return found


def _integer(text: str) -> int | Decimal:
    return Spelled(text) if text == "-0" else int(text)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")
