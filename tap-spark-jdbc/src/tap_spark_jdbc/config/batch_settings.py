"""The setting `batch_config`: singer-sdk's, as far as Spark's executors support it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from singer_spark.core.settings import NOT_EMPTY, described, object_schema
from singer_spark.state.run_log import BATCHES

# The codecs that each format's readers support; the first is the default.
CODECS = {"parquet": ("zstd", "snappy", "gzip", "lz4", "none"), "jsonl": ("gzip", "none")}
BATCH_CONFIG = object_schema(
    {
        "encoding": object_schema(
            {
                "format": described(
                    {"type": "string", "enum": list(CODECS)}, "Format of the files"
                ),
                "compression": described(
                    {"type": "string"}, "Codec; by default zstd for Parquet, gzip for JSON lines"
                ),
            },
            required=("format",),
        ),
        "storage": object_schema(
            {
                "root": described(
                    NOT_EMPTY,
                    "Path or URL of the files' folder; by default in the bucket of `--state-from`",
                ),
                "prefix": described({"type": "string"}, "Prefix of each file's path below `root`"),
            },
        ),
    },
    required=("encoding",),
)


@dataclass(frozen=True)
class BatchSettings:
    """Format and location of batches: codec `none` for none.

    Each path below the root begins with the prefix.

    The root is None if it should be in the bucket of a target that has not been named yet.
    """

    format: Literal["parquet", "jsonl"]
    compression: str
    root: str | None = None
    prefix: str = ""

    @classmethod
    def of(cls, setting: Mapping[str, Any]) -> BatchSettings:
        """Parse the setting, which must have no problems."""
        encoding, storage = setting["encoding"], setting.get("storage") or {}
        kind = encoding["format"]
        codec = encoding.get("compression") or CODECS[kind][0]
        return cls(kind, codec, storage.get("root"), storage.get("prefix") or "")

    @property
    def encoding(self) -> dict[str, str]:
        """The encoding as in a BATCH message."""
        return {"format": self.format, "compression": self.compression}


def with_staging(config: dict[str, Any], target: Mapping[str, Any] | None) -> dict[str, Any]:
    """The tap's config, completed from the target's: where batch files go, and with which storage
    options.
    """
    batches = config.get("batch_config")
    if target is None or not isinstance(batches, dict):
        return config
    storage = batches.get("storage") or {}
    if not isinstance(storage, dict) or storage.get("root"):
        return config
    root = f"{str(target['bucket']).rstrip('/')}/{BATCHES}"
    completed = {**config, "batch_config": {**batches, "storage": {**storage, "root": root}}}
    if not config.get("storage_options") and target.get("storage_options"):
        completed["storage_options"] = target["storage_options"]
    return completed


def batch_problems(setting: Any) -> list[str]:
    """Problems of the setting beyond its shape, which the config's schema checks."""
    encoding = setting.get("encoding") if isinstance(setting, Mapping) else None
    if not isinstance(encoding, Mapping):
        return []
    kind, codec = encoding.get("format"), encoding.get("compression")
    if not isinstance(kind, str) or kind not in CODECS or codec is None or codec in CODECS[kind]:
        return []
    return [
        f"batch_config.encoding.compression: {kind} supports {', '.join(CODECS[kind])}, not "
        f"{codec!r}"
    ]
