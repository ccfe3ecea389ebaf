"""The setting `batch_config`: singer-sdk's, as far as Spark's executors support it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

# The codecs that each format's readers support; the first is the default.
CODECS = {"parquet": ("zstd", "snappy", "gzip", "lz4", "none"), "jsonl": ("gzip", "none")}


@dataclass(frozen=True)
class BatchSettings:
    """Format and location of batches: codec `none` for none; each path below the root begins with the prefix."""

    format: Literal["parquet", "jsonl"]
    compression: str
    root: str
    prefix: str = ""

    @classmethod
    def of(cls, setting: Mapping[str, Any]) -> BatchSettings:
        """Parse the setting, which must have no problems."""
        encoding, storage = setting["encoding"], setting["storage"]
        kind = encoding["format"]
        codec = encoding.get("compression") or CODECS[kind][0]
        return cls(kind, codec, storage["root"], storage.get("prefix") or "")

    @property
    def encoding(self) -> dict[str, str]:
        """The encoding as in a BATCH message."""
        return {"format": self.format, "compression": self.compression}


def batch_problems(setting: Any) -> list[str]:
    """Problems of the setting beyond its shape, which the config's schema checks."""
    encoding = setting.get("encoding") if isinstance(setting, Mapping) else None
    if not isinstance(encoding, Mapping):
        return []
    kind, codec = encoding.get("format"), encoding.get("compression")
    if not isinstance(kind, str) or kind not in CODECS or codec is None or codec in CODECS[kind]:
        return []
    return [f"batch_config.encoding.compression: {kind} takes {', '.join(CODECS[kind])}, not {codec!r}"]
