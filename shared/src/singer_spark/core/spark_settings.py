"""The setting `spark`, which is the same for tap and target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class SparkSettings:
    """Where Spark runs, and the user's settings for it.

    Attributes:
        master: The Spark master; `local[*]` if None.
        remote: A Spark Connect URL, instead of a master.
        conf: Spark settings, which override the program's own.
    """

    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, setting: Mapping[str, Any]) -> SparkSettings:
        """Parse the setting as a config holds it."""
        return cls(
            setting.get("master"),
            setting.get("remote"),
            MappingProxyType(_dotted(setting.get("conf") or {})),
        )

    @staticmethod
    def problems(setting: Mapping[str, Any]) -> list[str]:
        """Members that contradict each other."""
        if setting.get("master") and setting.get("remote"):
            return ["spark: master and remote exclude each other; give one of them"]
        return []


def _dotted(nested: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Flatten nested objects, which Meltano makes of dotted names, to dotted names again."""
    names: dict[str, str] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            names |= _dotted(value, f"{prefix}{name}.")
        else:
            names[prefix + name] = str(value).lower() if isinstance(value, bool) else str(value)
    return names
