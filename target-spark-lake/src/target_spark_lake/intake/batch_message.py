"""BATCH messages, as singer-sdk defines them, with the additions of our own tap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from singer_spark.errors import ProtocolError
from target_spark_lake.config.batch_address import shown
from target_spark_lake.error_codes import LakeCode

JSONL, PARQUET = "jsonl", "parquet"
# A Parquet file itself records its compression; for JSON lines the first bytes show it.
COMPRESSIONS = {
    JSONL: ("gzip", "none"),
    PARQUET: ("zstd", "snappy", "gzip", "lz4", "brotli", "none"),
}


@dataclass(frozen=True)
class BatchFile:
    """A file of a manifest, its URL as spelled there.

    Rows and bytes are None if the tap does not give them.
    """

    url: str
    rows: int | None = None
    bytes: int | None = None

    @cached_property
    def shown(self) -> str:
        """The URL for messages to users, without possible secrets."""
        return shown(self.url)

    def check_rows(self, stream: str, rows: int) -> None:
        """Refuse the file if its number of records differs from the tap's.

        Raises:
            ProtocolError: the counts differ.
        """
        if self.rows not in (None, rows):
            raise ProtocolError(
                LakeCode.BATCH_FILE_DAMAGED,
                f"stream {stream}: batch file {self.shown} holds {rows} records, the tap wrote "
                f"{self.rows}; nothing was published, run the tap again",
            )


@dataclass(frozen=True)
class BatchMessage:
    """One BATCH message.

    Attributes:
        format: `jsonl` or `parquet`.
        files: The files, in the order of the records.
        time_extracted: When the records were read, as in RECORD lines; None if the tap does not
            give it.
        version: Table version of the records; None if the tap does not give it.
    """

    stream: str
    format: str
    files: tuple[BatchFile, ...]
    time_extracted: str | None = None
    version: int | None = None

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> BatchMessage:
        """Read a BATCH message.

        Raises:
            ProtocolError: it is malformed, or its encoding is unknown.
        """
        stream = message.get("stream")
        if not isinstance(stream, str) or not stream:
            raise ProtocolError(LakeCode.BATCH_MESSAGE, "a BATCH message has no stream")
        extracted, version = message.get("time_extracted"), message.get("version")
        return cls(
            stream,
            _format(stream, message.get("encoding")),
            _files(stream, message.get("manifest"), message.get("files")),
            extracted if isinstance(extracted, str) else None,
            version if isinstance(version, int) and not isinstance(version, bool) else None,
        )


def _format(stream: str, encoding: object) -> str:
    details: Mapping[str, Any] = encoding if isinstance(encoding, Mapping) else {}
    name, compression = details.get("format"), details.get("compression")
    if not isinstance(name, str) or name not in COMPRESSIONS:
        raise ProtocolError(
            LakeCode.BATCH_MESSAGE,
            f"stream {stream}: a BATCH message has the format {name!r}; known are "
            f"{', '.join(COMPRESSIONS)}: set "
            "batch_config of the tap (encoding, format) to one of them",
        )
    if compression not in (None, "", *COMPRESSIONS[name]):
        known = ", ".join(COMPRESSIONS[name])
        raise ProtocolError(
            LakeCode.BATCH_MESSAGE,
            f"stream {stream}: a BATCH message of format {name} has the compression "
            f"{compression!r}; known are "
            f"{known}: set batch_config of the tap (encoding, compression) to one of them",
        )
    return name


def _files(stream: str, manifest: object, entries: object) -> tuple[BatchFile, ...]:
    if not isinstance(manifest, list) or not all(isinstance(url, str) and url for url in manifest):
        raise ProtocolError(
            LakeCode.BATCH_MESSAGE,
            f"stream {stream}: the manifest of a BATCH message is not a list of URLs",
        )
    if entries is None:
        return tuple(BatchFile(url) for url in manifest)
    if not isinstance(entries, list) or len(entries) != len(manifest):
        raise ProtocolError(
            LakeCode.BATCH_MESSAGE,
            f"stream {stream}: the list of files in a BATCH message does not match its manifest of "
            f"{len(manifest)}",
        )
    return tuple(
        BatchFile(url, _count(stream, url, each, "rows"), _count(stream, url, each, "bytes"))
        for url, each in zip(manifest, entries, strict=True)
    )


def _count(stream: str, url: str, entry: object, name: str) -> int | None:
    count = entry.get(name) if isinstance(entry, Mapping) else None
    if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 0):
        raise ProtocolError(
            LakeCode.BATCH_MESSAGE,
            f"stream {stream}: a BATCH message gives {name} {count!r} for {shown(url)}, which is "
            "not a count",
        )
    return count
