"""Thrift's compact protocol, as in Parquet's footers: parsed to plain values and written back,
without an IDL.

A struct is a dict of field number to type and content; unknown fields are kept as they are. A
list's content is its items' type, and the items; strings and doubles are bytes; a boolean has only
a type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from io import BytesIO

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_SHORT_LIST = 15

Struct = dict[int, tuple[int, Any]]


def read_struct(data: BytesIO) -> Struct:
    """Parse one struct.

    Raises:
        ValueError: it is not one, or uses types that Parquet does not (maps).
    """
    struct: Struct = {}
    number = 0
    try:
        while head := data.read(1)[0]:
            number = number + (head >> 4) if head >> 4 else _signed(data)
            kind = head & 0x0F
            struct[number] = kind, None if kind in (TRUE, FALSE) else _content(data, kind)
    except (IndexError, OverflowError) as error:
        raise ValueError("a Thrift struct ends too early") from error
    return struct


def _content(data: BytesIO, kind: int) -> Any:
    if kind in (I16, I32, I64):
        return _signed(data)
    if kind in (DOUBLE, BINARY):
        length = 8 if kind == DOUBLE else _unsigned(data)
        found = data.read(length)
        if len(found) < length:
            raise IndexError
        return found
    if kind == STRUCT:
        return read_struct(data)
    if kind in (TRUE, FALSE, BYTE):
        return data.read(1)[0]
    if kind not in (LIST, SET):
        raise ValueError(f"Thrift type {kind} is not expected here")
    head = data.read(1)[0]
    length = head >> 4 if head >> 4 < _SHORT_LIST else _unsigned(data)
    return head & 0x0F, [_content(data, head & 0x0F) for _ in range(length)]


def _unsigned(data: BytesIO) -> int:
    number = shift = 0
    while (byte := data.read(1)[0]) >= 0x80:
        number |= (byte & 0x7F) << shift
        shift += 7
    return number | byte << shift


def _signed(data: BytesIO) -> int:
    number = _unsigned(data)
    return (number >> 1) ^ -(number & 1)


def struct_bytes(struct: Struct) -> bytes:
    """Serialise one struct."""
    data = bytearray()
    _write(data, STRUCT, struct)
    return bytes(data)


def _write(data: bytearray, kind: int, content: Any) -> None:
    if kind in (I16, I32, I64):
        _write_unsigned(data, content << 1 if content >= 0 else ~(content << 1))
    elif kind == DOUBLE:
        data += content
    elif kind == BINARY:
        _write_unsigned(data, len(content))
        data += content
    elif kind == STRUCT:
        before = 0
        for number, (each, value) in sorted(content.items()):
            short = 0 < number - before < 16
            data.append((number - before) << 4 | each if short else each)
            if not short:
                _write(data, I16, number)
            if each not in (TRUE, FALSE):
                _write(data, each, value)
            before = number
        data.append(0)
    elif kind in (LIST, SET):
        items, values = content
        data.append(min(len(values), _SHORT_LIST) << 4 | items)
        if len(values) >= _SHORT_LIST:
            _write_unsigned(data, len(values))
        for value in values:
            _write(data, items, value)
    else:
        data.append(content)


def _write_unsigned(data: bytearray, number: int) -> None:
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
