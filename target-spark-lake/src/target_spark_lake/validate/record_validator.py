"""Validates doubtful records by jsonschema, which decides whether they are valid, and why not, and
keeps the invalid ones that don't fail the run in a separate file, with the reason and the place in
the record.

Each batch stages its own invalid lines; before the commit they become one file per stream, which
the journal publishes along with the tables' files. So they appear exactly once, and only if the run
is published.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from decimal import InvalidOperation
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from singer_sdk.exceptions import MissingKeyPropertiesError

from singer_spark.core.exact_json import from_json, member_text, to_json
from singer_spark.core.messages import METADATA_COLUMNS, timestamp_text
from singer_spark.errors import ProtocolError, RecordError, SchemaError, SingerSparkError
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.table.changes import StagedFile
from target_spark_lake.table.text_columns import as_json
from target_spark_lake.validate.draft7 import draft7
from target_spark_lake.validate.lake_value import (
    UnholdableError,
    lake_value,
    plain_numbers,
    refuse_rounded,
)
from target_spark_lake.validate.patterns import SlowPatternError

if TYPE_CHECKING:
    from datetime import datetime

    from jsonschema.protocols import Validator

    from singer_spark.core.lake_type import Struct
    from singer_spark.store.storage import Storage

JSON = dict[str, Any]

SHOWN_CHARACTERS = 80
_END = 1 << 63
STAGED_NAME = "rejected.jsonl"


class InvalidRecordError(RecordError):
    """A record is invalid.

    Attributes:
        reason: What is wrong, without the stream and the place.
        path: JSON pointer to the invalid value; empty for the record itself.
    """

    def __init__(
        self, code: LakeCode, message: str, reason: str, path: Iterable[str | int] = ()
    ) -> None:
        """Build the error with a `message` for the whole run and a `reason` for the record
        alone.
        """
        super().__init__(code, message)
        self.reason = reason
        self.path = pointer(path)


class MissingKeyError(InvalidRecordError, MissingKeyPropertiesError):
    """A record lacks a property of its stream's primary key."""


class RecordValidator:
    """Judges the records of one stream under one schema."""

    def __init__(
        self,
        stream: str,
        schema: JSON,
        key_properties: Iterable[str],
        columns: Struct,
        *,
        validate: bool,
        keys_have_values: bool = False,
        texts: Mapping[str, Any] = {},
    ) -> None:
        """Prepare for one schema.

        Without `validate`, invalid records are accepted too if the lake's columns can hold them.
        With `keys_have_values`, NULL in a key is an error, whatever the schema says. `texts` is
        where texts get quotes (`JsonTexts.locations`).
        """
        self._stream = stream
        self._schema = schema
        self._keys = tuple(key_properties)
        self._columns = columns
        self._validate = validate
        self._keys_have_values = keys_have_values
        self.texts = texts

    @cached_property
    def _validator(self) -> Validator:
        try:
            return draft7(self._schema)
        except (RecursionError, TypeError, ValueError, AttributeError) as error:
            raise SchemaError(
                LakeCode.SCHEMA_UNUSABLE,
                f"stream {self._stream}: its JSON Schema can't be read ({error})",
            ) from error

    @cached_property
    def _plain_numbers(self) -> JSON:
        """Where values are plain numbers by the schema and doubles in the lake."""
        found = plain_numbers({"type": "object", **self._schema}, self._columns)
        return found if isinstance(found, dict) else {}

    def message(self, line: bytes) -> JSON:
        """Parse a RECORD line into a message whose record has values of the lake's columns.

        Raises:
            ProtocolError: the line is malformed.
            InvalidRecordError: the record is invalid, or a column can't hold its value.
        """
        try:
            message = self._parse(line)
            return {**message, "record": self._held(message["record"])}
        except RecursionError as error:
            raise self._unreadable("it is nested too deeply", line) from error
        except (SingerSparkError, OSError, MemoryError):
            raise
        except Exception as error:
            # Records are also judged by code of other projects; whatever it raises, the other
            # records are read.
            raise self._unreadable(
                f"{type(error).__name__}: {_cut(str(error), SHOWN_CHARACTERS)}", line
            ) from error

    def _held(self, record: JSON) -> JSON:
        missing = [name for name in self._keys if name not in record]
        if missing:
            lacks = f"lacks its key property {', '.join(missing)}"
            raise MissingKeyError(
                LakeCode.KEY_VALUE_MISSING,
                f"stream {self._stream}: a record {lacks}",
                f"the record {lacks}",
            )
        self._refuse_null_key(record)
        if self._validate:
            self._judge(record)
        types = self._columns.types
        return {name: self._value(name, record[name]) for name in types if name in record}

    def _unreadable(self, reason: str, line: bytes) -> InvalidRecordError:
        return InvalidRecordError(
            LakeCode.INVALID_RECORD,
            f"stream {self._stream}: a record can't be read: {reason}: {shown(line)}",
            reason,
        )

    def _value(self, name: str, value: Any) -> Any:
        kind = self._columns.types[name]
        try:
            held = lake_value(as_json(value, self.texts.get(name)), kind)
            refuse_rounded(value, self._plain_numbers.get(name))
            return held
        except UnholdableError as error:
            reason = f"column {name} ({kind}) can't hold {shown(value)}: {error}"
            raise InvalidRecordError(
                LakeCode.INVALID_RECORD,
                f"stream {self._stream}: {reason}; name a type that holds it in stream_options "
                "(columns), or correct the column's type in the tap's schema",
                reason,
                (name, *error.path),
            ) from error

    def _refuse_null_key(self, record: JSON) -> None:
        empty = [name for name in self._keys if record[name] is None]
        if empty and self._keys_have_values:
            row = _cut(to_json(record), 3 * SHOWN_CHARACTERS)
            reason = f"a record has NULL in its key {', '.join(empty)}, so it can't be merged"
            raise InvalidRecordError(
                LakeCode.KEY_VALUE_MISSING,
                f"stream {self._stream}: {reason}: {row}; correct it at the source, or choose "
                "other key_properties",
                reason,
                empty[:1],
            )

    def _parse(self, line: bytes) -> JSON:
        try:
            message = from_json(line)
        except (ValueError, InvalidOperation) as error:
            if _is_json(line):
                # A lone surrogate, or a number that is too long: Python's json writes them.
                half = _surrogate(error.object) if isinstance(error, UnicodeEncodeError) else None
                reason = half or "it has a number that is too long"
                raise self._unreadable(reason, line) from error
            raise ProtocolError(
                LakeCode.INPUT_MALFORMED,
                f"stream {self._stream}: a line is not JSON ({error}): {shown(line)}",
            ) from error
        if not isinstance(message, dict) or not isinstance(message.get("record"), dict):
            raise ProtocolError(
                LakeCode.INPUT_MALFORMED,
                f"stream {self._stream}: a RECORD line has no record object: {shown(line)}",
            )
        version = message.get("version")
        if (
            not isinstance(version, int | None)
            or isinstance(version, bool)
            or not -_END <= (version or 0) < _END
        ):
            raise self._unreadable("its version is not an integer of 64 bits", line)
        return message

    def _judge(self, record: JSON) -> None:
        own = self._schema.get("properties", {})
        if any(name in record and name not in own for name in METADATA_COLUMNS):
            # The metadata columns are ours, even if the tap sends them.
            record = {
                name: each
                for name, each in record.items()
                if name in own or name not in METADATA_COLUMNS
            }
        try:
            errors = sorted(
                self._validator.iter_errors(record), key=lambda each: list(map(str, each.path))
            )
        except SlowPatternError as slow:
            raise InvalidRecordError(
                LakeCode.INVALID_RECORD,
                f"stream {self._stream}: a record can't be validated: {slow}",
                str(slow),
            ) from slow
        error = next(iter(errors), None)
        if error is not None:
            path, reason = tuple(error.absolute_path), _cut(error.message, 3 * SHOWN_CHARACTERS)
            location = pointer(path) or "/"
            raise InvalidRecordError(
                LakeCode.INVALID_RECORD,
                f"stream {self._stream}: a record is invalid at {location}: {reason}",
                reason,
                path,
            )


def _is_json(line: bytes) -> bool:
    """Whether the line is grammatically JSON, whatever its numbers and texts."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        json.loads(line.decode(), parse_int=str, parse_float=str, parse_constant=refuse)
    except ValueError:
        return False
    return True


def _surrogate(text: str) -> str:
    half = next(each for each in text if "\ud800" <= each <= "\udfff")
    return f"it has half of a surrogate pair, \\u{ord(half):04x}, which is no character"


def pointer(path: Iterable[str | int]) -> str:
    """A path as a JSON pointer (RFC 6901), `/address/zip`; empty for the whole record."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def shown(value: Any) -> str:
    """A value for an error message, cut to a readable length."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else to_json(value)
    return _cut(text, SHOWN_CHARACTERS)


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[:characters] + "…"


class Quarantine:
    """Counts the invalid records of a run; safe to use from any thread."""

    def __init__(self, limit: int | None) -> None:
        """Start counting: more than `limit` fail the run."""
        self._limit = limit
        self._count = 0
        self._lock = threading.Lock()

    def count(self, stream: str, records: int, example: str) -> None:
        """Add to the count; `example` is what is wrong with the last of these records.

        Raises:
            RecordError: there are too many.
        """
        with self._lock:
            self._count += records
            if records and self._limit is not None and self._count > self._limit:
                raise RecordError(
                    LakeCode.TOO_MANY_INVALID,
                    f"stream {stream}: max_invalid_records allows {self._limit} invalid record(s), "
                    f"and this run has more; nothing was published. The last one: {example}",
                )


class RejectedRecords:
    """The invalid records of one batch, on the local disk until they are staged."""

    def __init__(self, quarantine: Quarantine, stream: str, received: datetime, path: Path) -> None:
        """Write nothing yet; the batch was started when `received`, the local `path` is unused."""
        self.rows = 0
        self._quarantine = quarantine
        self._stream = stream
        self._received = json.dumps(timestamp_text(received))
        self._path = path
        self._file: BinaryIO | None = None

    def add(self, line: bytes, error: InvalidRecordError) -> None:
        """Add a RECORD line with an invalid record; the record is kept as spelled in the line.

        Raises:
            RecordError: the run has too many of them.
        """
        self._quarantine.count(self._stream, 1, str(error))
        if self._file is None:
            self._file = self._path.open("wb")
        record = _record_text(line.decode())
        reason, path = (json.dumps(text, ensure_ascii=False) for text in (error.reason, error.path))
        members = f'"error": {reason}, "path": {path}, "received_at": {self._received}'
        text = f'{{"record": {record}, {members}}}\n'
        self._file.write(text.encode())
        self.rows += 1

    def stage(self, storage: Storage, folder: str) -> StagedFile | None:
        """Upload the records to the batch's staging folder; None if there are none.

        Raises:
            StorageError: the bucket can't be written.
        """
        if self._file is None:
            return None
        self._file.close()
        staged = StagedFile(f"{folder}/{STAGED_NAME}", self.rows, self._path.stat().st_size)
        storage.upload(self._path, staged.path)
        return staged

    def remove(self) -> None:
        """Free the local disk space."""
        if self._file is not None:
            self._file.close()
            self._path.unlink(missing_ok=True)


def _record_text(line: str) -> str:
    try:
        return member_text(line, "record")
    except RecursionError:
        # Nested too deeply to be extracted, by this program or by readers of the file: keep the
        # line as a text.
        return json.dumps(line)


def one_file(
    storage: Storage, parts: Iterable[StagedFile], path: str, scratch: Path
) -> StagedFile | None:
    """Stage the rejected records of a stream's batches, in order, as one file at `path`; None if
    there are none.

    Raises:
        StorageError: the bucket can't be read or written.
    """
    parts = tuple(parts)
    if len(parts) < 2:
        return parts[0] if parts else None
    local = scratch / STAGED_NAME
    with local.open("wb") as output:
        for part in parts:
            output.write(storage.read(part.path) or b"")
    whole = StagedFile(path, sum(part.rows for part in parts), sum(part.bytes for part in parts))
    storage.upload(local, path)
    local.unlink()
    return whole
