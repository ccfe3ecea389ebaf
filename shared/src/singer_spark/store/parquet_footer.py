"""The footers of Parquet files, read without Arrow; StorageError: a file can't be read.

They are in Thrift's compact protocol, which is parsed to plain values and written back without an
IDL. A struct is a dict of field number to type and content; unknown fields are kept as they are. A
list's content is its items' type, and the items; strings and doubles are bytes; a boolean has only
a type.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from singer_spark.error_codes import RunCode
from singer_spark.errors import StorageError

if TYPE_CHECKING:
    from io import BytesIO
    from pathlib import Path

    from singer_spark.store.storage import Storage

MAGIC = b"PAR1"
END_BYTES = 8
BLOCK_BYTES = 1 << 22
# Most footers fit in, so that one request brings them.
LIKELY_BYTES = 1 << 16
# Field numbers of parquet.thrift: of the footer, of a column's description, of a row group, of a
# column chunk.
SCHEMA, ROWS, ROW_GROUPS, METADATA, COLUMN_ORDERS, ENCRYPTION = 2, 3, 4, 5, 7, 8
CHILDREN, FIELD_ID = 5, 9
COLUMNS, BYTES, GROUP_ROWS, GROUP_OFFSET, COMPRESSED_BYTES, ORDINAL = 1, 2, 3, 5, 6, 7
CHUNK_FILE, CHUNK_OFFSET, CHUNK_METADATA, CHUNK_INDEXES, CHUNK_KEYS = 1, 2, 3, (4, 5, 6, 7), (8, 9)
# Fields of a column chunk's metadata: its size, the offsets of its pages, and its Bloom filter.
CHUNK_BYTES, DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE = 7, 9, 10, 11
BLOOM_FILTER, BLOOM_FILTER_BYTES = 14, 15
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
_SHORT_LIST = 15
Struct = dict[int, tuple[int, Any]]


@contextmanager
def open_parquet(storage: Storage, path: str) -> Iterator[BinaryIO]:
    """A file of a storage, opened for reading; only what is read is transferred.

    Raises:
        StorageError: it can't be read, or what is read of it is damaged.
    """
    with storage.open(path) as file, damage_named(path):
        yield file


@contextmanager
def damage_named(path: str) -> Iterator[None]:
    """Turn Arrow's complaint about a file's content into a StorageError that names the file."""
    try:
        yield
    except OSError as error:
        # One without a number: errors of reading have one, or a class of their own.
        if type(error) is not OSError or error.errno is not None:
            raise
        cause = " ".join(str(error).split())
        raise StorageError(
            RunCode.PARQUET_DAMAGED,
            f"{path} can't be read as Parquet: {cause}; run again, and if the error persists, "
            "restore the file",
        ) from error


def download(storage: Storage, path: str, target: Path) -> None:
    """Copy a file of a storage to this machine, a block at a time."""
    with open_parquet(storage, path) as source, target.open("wb") as output:
        shutil.copyfileobj(source, output, BLOCK_BYTES)


def footer_of(file: IO[bytes]) -> bytes | None:
    """The bytes of a file's footer; None if it has none, or an encrypted one."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(size - LIKELY_BYTES, 0))
    end = file.read()
    if end[-len(MAGIC) :] != MAGIC:
        return None
    length = int.from_bytes(end[-END_BYTES : -len(MAGIC)], "little") + END_BYTES
    if length > len(end):
        file.seek(max(size - length, 0))
        end = file.read()
    return end[-length:-END_BYTES]


def read_footer(file: IO[bytes]) -> Struct | None:
    """A file's footer; None if it has none, or an encrypted one.

    Raises:
        ValueError: it is damaged.
    """
    found = footer_of(file)
    return None if found is None else read_struct(io.BytesIO(found))


def items(struct: Struct, number: int) -> list[Struct]:
    """The structs in a list of a struct."""
    found: list[Struct] = struct[number][1][1]
    return found


def rows_of(storage: Storage, path: str) -> int:
    """Number of rows of a Parquet file, from its footer.

    Raises:
        StorageError: it can't be read, or is not a complete Parquet file.
    """
    with open_parquet(storage, path) as file:
        try:
            kind, rows = read_struct(io.BytesIO(footer_of(file) or b"")).get(ROWS, (0, 0))
        except ValueError:
            kind = rows = 0
        if kind != I64:
            raise StorageError(
                RunCode.PARQUET_DAMAGED,
                f"{storage.url}/{path} is not a complete Parquet file; run again",
            )
        return int(rows)


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
