"""The catalog in which the lake's Iceberg tables are registered, read from the settings without
loading PyIceberg.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_DEFAULT_CATALOG = "lake"
_CATALOG_KINDS = ("sql", "rest", "glue", "hive")
# Properties that, besides the address, distinguish catalogs of one type.
_WHICH = {"rest": ("warehouse", "prefix"), "glue": ("glue.id", "glue.region")}


@dataclass(frozen=True)
class IcebergCatalog:
    """The settings `catalog` and `namespace`.

    Attributes:
        properties: PyIceberg's own (`type`, `uri`, …) and `name`; empty for a catalog file in the
            bucket.
        namespace: Namespace of all tables, levels separated by dots; None to derive it from each
            table's folder.
    """

    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    namespace: str | None = None

    @classmethod
    def of(cls, properties: Mapping[str, Any] | None, namespace: str | None) -> IcebergCatalog:
        """Read the two settings."""
        found = {
            name: _spelled(value) for name, value in (properties or {}).items() if value is not None
        }
        return cls(found, namespace)

    @property
    def name(self) -> str:
        """The catalog's name, which a SQL catalog stores with each table."""
        return self.properties.get("name") or _DEFAULT_CATALOG

    def identifier(self, table: str) -> tuple[str, ...]:
        """Namespace and name of the table stored in a folder."""
        *above, name = table.split("/")
        levels = self.namespace.split(".") if self.namespace else above
        return (*(levels or [_DEFAULT_CATALOG]), name)

    def registered(self, table: str, *, is_new: bool = False) -> str:
        """The table's identifier and catalog for messages, without secrets.

        For a new table the catalog's address is included, since nothing else distinguishes it from
        others.
        """
        kind = self.properties.get("type", "")
        where = f" of type {kind}" if kind else ""
        if is_new and self.properties:
            scheme, _, rest = self.properties.get("uri", "").partition("?")[0].rpartition("://")
            host, slash, path = rest.partition("/")
            uri = f"{scheme}://{host.rpartition('@')[2]}{slash}{path}" if rest else ""
            named = (uri, *(self.properties.get(name, "") for name in _WHICH.get(kind, ())))
            where += f" ({' '.join(filter(None, named))})" if any(named) else ""
        return f"{'.'.join(self.identifier(table))} in catalog {self.name}{where}"


def catalog_problems(given: Mapping[str, Any], *, local: bool) -> list[str]:
    """Problems of these settings taken alone; `local`: whether the bucket is a directory."""
    properties, namespace, problems = given.get("catalog"), given.get("namespace"), []
    if given.get("format") != "iceberg":
        return []
    if not properties and not local:
        problems.append(
            "catalog: is required for format iceberg where the bucket is not a directory, such as "
            '{"type": "sql", "uri": "postgresql+psycopg://…"}, or of type rest, glue, hive'
        )
    if isinstance(properties, Mapping) and properties:
        kind = properties.get("type")
        if kind not in _CATALOG_KINDS and not properties.get("py-catalog-impl"):
            problems.append(f"catalog.type: is {kind!r}, use {', '.join(_CATALOG_KINDS)}")
        if kind in ("sql", "rest", "hive") and not properties.get("uri"):
            problems.append(f"catalog.uri: is required for a catalog of type {kind}")
    if isinstance(namespace, str) and not all(level.strip() for level in namespace.split(".")):
        problems.append(f"namespace: {namespace!r} has a level without a name")
    return problems


def _spelled(value: Any) -> str:
    """The value in the spelling that PyIceberg expects."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_directory(bucket: str) -> bool:
    """Whether a bucket is a local directory."""
    return "://" not in bucket or bucket.startswith(("file:", "local:"))
