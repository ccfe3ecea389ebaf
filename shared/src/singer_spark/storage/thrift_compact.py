"""Thrift's compact protocol, as Parquet writes its footers: read to plain values and written back, without an IDL.

A struct is a dict of field number to `Value`; what is not known here is kept as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_INTEGERS = (I16, I32, I64)
_SHORT_LIST = 15


@dataclass
class Value:
    """A value with its type; of lists the items are bare values of `items`' type.

    Attributes:
        type: One of the constants above; a boolean is `TRUE` or `FALSE`, and has no other content.
        content: int, bytes (texts, doubles), list, or dict (struct).
        items: Type of a list's items.
    """

    type: int
    content: Any
    items: int = 0


Struct = dict[int, Value]


def read_struct(data: bytes) -> Struct:
    """Reads one struct.

    Raises:
        ValueError: it is none, or uses what Parquet does not (maps).
    """
    try:
        return _Reader(data).struct()
    except IndexError as error:
        raise ValueError("a Thrift struct ends too early") from error


def write_struct(struct: Struct) -> bytes:
    """Writes one struct."""
    data = bytearray()
    _write_struct(data, struct)
    return bytes(data)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, length: int) -> bytes:
        self._at += length
        if self._at > len(self._data):
            raise IndexError
        return self._data[self._at - length : self._at]

    def _unsigned(self) -> int:
        result = shift = 0
        while True:
            byte = self._byte()
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7

    def _signed(self) -> int:
        number = self._unsigned()
        return (number >> 1) ^ -(number & 1)

    def struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            fields[number] = self._value(head & 0x0F)
        return fields

    def _value(self, kind: int) -> Value:
        if kind in (LIST, SET):
            head = self._byte()
            length = head >> 4 if head >> 4 < _SHORT_LIST else self._unsigned()
            items = head & 0x0F
            return Value(kind, [self._content(items, in_list=True) for _ in range(length)], items)
        return Value(kind, self._content(kind, in_list=False))

    def _content(self, kind: int, *, in_list: bool) -> Any:
        if kind in (TRUE, FALSE):
            return self._byte() if in_list else None
        if kind == BYTE:
            return self._byte()
        if kind in _INTEGERS:
            return self._signed()
        if kind == DOUBLE:
            return self._bytes(8)
        if kind == BINARY:
            return self._bytes(self._unsigned())
        if kind == STRUCT:
            return self.struct()
        if kind in (LIST, SET):
            return self._value(kind)
        raise ValueError(f"Thrift type {kind} is not expected here")


def _write_unsigned(data: bytearray, number: int) -> None:
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)


def _write_signed(data: bytearray, number: int) -> None:
    _write_unsigned(data, number << 1 if number >= 0 else ~(number << 1))


def _write_struct(data: bytearray, struct: Struct) -> None:
    before = 0
    for number, value in sorted(struct.items()):
        step = number - before
        if 0 < step < 16:
            data.append(step << 4 | value.type)
        else:
            data.append(value.type)
            _write_signed(data, number)
        before = number
        if value.type not in (TRUE, FALSE):
            _write_content(data, value.type, value.content if value.type not in (LIST, SET) else value)
    data.append(0)


def _write_content(data: bytearray, kind: int, content: Any) -> None:
    if kind in (TRUE, FALSE, BYTE):
        data.append(content)
    elif kind in _INTEGERS:
        _write_signed(data, content)
    elif kind == DOUBLE:
        data += content
    elif kind == BINARY:
        _write_unsigned(data, len(content))
        data += content
    elif kind == STRUCT:
        _write_struct(data, content)
    else:
        _write_list(data, content)


def _write_list(data: bytearray, value: Value) -> None:
    length = len(value.content)
    data.append(min(length, _SHORT_LIST) << 4 | value.items)
    if length >= _SHORT_LIST:
        _write_unsigned(data, length)
    for each in value.content:
        _write_content(data, value.items, each)
