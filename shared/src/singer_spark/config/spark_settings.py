"""The setting `spark`, which tap and target have alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class SparkSettings:
    """Where Spark runs, and the user's settings for it.

    Attributes:
        master: `local[*]` where not given.
        remote: A Spark Connect URL, instead of a master.
        conf: Lies over the program's own settings.
    """

    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> SparkSettings:
        """Reads the setting as a config holds it."""
        return cls(given.get("master"), given.get("remote"), MappingProxyType(_dotted(given.get("conf") or {})))

    @staticmethod
    def problems(given: Mapping[str, Any]) -> list[str]:
        """What does not go together."""
        if given.get("master") and given.get("remote"):
            return ["spark: master and remote are two places to run at; give one of them"]
        return []


def _dotted(nested: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Meltano makes nested objects of dotted names; here they become names again."""
    names: dict[str, str] = {}
    for name, value in nested.items():
        if isinstance(value, Mapping):
            names |= _dotted(value, f"{prefix}{name}.")
        else:
            names[prefix + name] = str(value).lower() if isinstance(value, bool) else str(value)
    return names
