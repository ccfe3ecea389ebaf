"""The setting `batch_config`: singer-sdk's, as far as Spark's executors write what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

# Of each format the codecs that its readers know; the first is the default.
CODECS = {"parquet": ("zstd", "snappy", "gzip", "lz4", "none"), "jsonl": ("gzip", "none")}


@dataclass(frozen=True)
class BatchSettings:
    """How batches are written (codec `none` for none), and where: each path below the root begins with the prefix."""

    format: Literal["parquet", "jsonl"]
    compression: str
    root: str
    prefix: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> BatchSettings:
        """Reads the setting, if it has no problems."""
        encoding, storage = given["encoding"], given["storage"]
        kind = encoding["format"]
        codec = encoding.get("compression") or CODECS[kind][0]
        return cls(kind, codec, storage["root"], storage.get("prefix") or "")

    @property
    def encoding(self) -> dict[str, str]:
        """As a BATCH message says it."""
        return {"format": self.format, "compression": self.compression}


def batch_problems(given: Any) -> list[str]:
    """What is wrong with the setting beyond its shape, which the config's schema says."""
    encoding = given.get("encoding") if isinstance(given, Mapping) else None
    if not isinstance(encoding, Mapping):
        return []
    kind, codec = encoding.get("format"), encoding.get("compression")
    if not isinstance(kind, str) or kind not in CODECS or codec is None or codec in CODECS[kind]:
        return []
    return [f"batch_config.encoding.compression: {kind} takes {', '.join(CODECS[kind])}, not {codec!r}"]
