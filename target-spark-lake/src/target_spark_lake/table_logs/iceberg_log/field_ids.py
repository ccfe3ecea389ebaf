"""Adds field ids to an existing Parquet file by appending a footer that contains them.

Parquet is read from the end of the file, so its writer (Arrow, Spark, the tap) need not know the
ids, nothing is decoded, and the old footer stays inside, unused.
"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from singer_spark.errors import StorageError
from singer_spark.store.parquet_footer import (
    BINARY,
    I32,
    MAGIC,
    footer_of,
    open_parquet,
    read_struct,
    struct_bytes,
)
from target_spark_lake.error_codes import LakeCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from singer_spark.store.parquet_footer import Struct as ThriftStruct
    from singer_spark.store.storage import Storage
    from target_spark_lake.table.changes import StagedFile

# Field numbers of parquet.thrift.
SCHEMA, METADATA = 2, 5
NAME, CHILDREN, CONVERTED, FIELD_ID, LOGICAL = 4, 5, 6, 9, 10
KEY = 1
INTEGER = 10
SMALL_INTEGERS = (15, 16)
# Arrow's schema embedded in a file would restore the narrow integers that Iceberg does not have.
ARROW = b"ARROW:schema"


def with_field_ids(storage: Storage, file: StagedFile, field_ids: Mapping[str, int]) -> StagedFile:
    """The staged file with the field ids of its columns (by full name, from `schema.field_ids_of`).

    Raises:
        StorageError: it can't be read or written, or is not a Parquet file.
    """
    with open_parquet(storage, file.path) as source:
        tail = field_ids_tail(footer_of(source), field_ids)
    if tail is None:
        raise StorageError(
            LakeCode.STAGED_INCOMPLETE,
            f"staged file {file.path} is not a complete Parquet file; run again",
        )
    if storage.local:
        # No reader sees it yet, and a repetition just appends another footer.
        try:
            with Path(storage.url, file.path).open("ab") as target:
                target.write(tail)
        except OSError as error:
            raise StorageError(
                LakeCode.STAGED_INCOMPLETE, f"can't write {file.path}: {error}; run again"
            ) from error
        return replace(file, bytes=file.bytes + len(tail))
    path = f"{file.path.removesuffix('.parquet')}-numbered.parquet"
    storage.extend(file.path, tail, path)
    return replace(file, path=path, bytes=file.bytes + len(tail))


def field_ids_tail(footer: bytes | None, field_ids: Mapping[str, int]) -> bytes | None:
    """The bytes to append to a file with this footer; None if the footer is invalid."""
    try:
        struct = read_struct(io.BytesIO(footer or b""))
        elements: list[ThriftStruct] = struct[SCHEMA][1][1]
    except (KeyError, ValueError, TypeError):
        return None
    for path, element in _paths(iter(elements)):
        if path in field_ids:
            element[FIELD_ID] = I32, field_ids[path]
        if element.get(CONVERTED, (I32, None))[1] in SMALL_INTEGERS:
            # Iceberg's int: the same four bytes.
            del element[CONVERTED]
            element.pop(LOGICAL, None)
    if METADATA in struct:
        kind, (items, pairs) = struct[METADATA]
        struct[METADATA] = (
            kind,
            (items, [each for each in pairs if each.get(KEY) != (BINARY, ARROW)]),
        )
    written = struct_bytes(struct)
    return written + len(written).to_bytes(4, "little") + MAGIC


def _paths(elements: Iterator[ThriftStruct]) -> Iterator[tuple[str, ThriftStruct]]:
    """Each column below the root with its full name in Iceberg: `address.zip`, `tags.element`."""
    root = next(elements)
    for _ in range(root[CHILDREN][1]):
        yield from _below(elements, "")


def _below(
    elements: Iterator[ThriftStruct], above: str, name: str = ""
) -> Iterator[tuple[str, ThriftStruct]]:
    element = next(elements)
    name = name or element[NAME][1].decode()
    path = f"{above}.{name}" if above else name
    is_list = element.get(CONVERTED) == (I32, 3) or 3 in element.get(LOGICAL, (0, {}))[1]
    yield path, element
    # The middle one of the three levels of a list has no field id, and no level needs to have
    # Iceberg's name.
    above_children = next(elements) if is_list else element
    for _ in range(above_children.get(CHILDREN, (I32, 0))[1]):
        yield from _below(elements, path, "element" if is_list else "")
