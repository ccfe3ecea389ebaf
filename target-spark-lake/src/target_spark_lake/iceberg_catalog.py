"""Which catalog the lake's Iceberg tables are registered in, as the settings say it; PyIceberg is not loaded for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DEFAULT_NAME = "lake"
KINDS = ("sql", "rest", "glue", "hive")
# What tells catalogs of one kind apart besides their address.
WHICH = {"rest": ("warehouse", "prefix"), "glue": ("glue.id", "glue.region")}


@dataclass(frozen=True)
class IcebergCatalog:
    """The settings `catalog` and `namespace`.

    Attributes:
        properties: PyIceberg's own (`type`, `uri`, …), and `name`; empty: a file in the bucket.
        namespace: Of all tables, levels separated by dots; None: each table's folder says it.
    """

    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    namespace: str | None = None

    @classmethod
    def of(cls, properties: Mapping[str, Any] | None, namespace: str | None) -> IcebergCatalog:
        """Reads the settings."""
        found = {name: _text(value) for name, value in (properties or {}).items() if value is not None}
        return cls(found, namespace)

    @property
    def name(self) -> str:
        """The catalog's name, which a SQL catalog keeps with each table."""
        return self.properties.get("name") or DEFAULT_NAME

    def identifier(self, table: str) -> tuple[str, ...]:
        """Namespace and name of the table in a folder."""
        *above, name = table.split("/")
        levels = self.namespace.split(".") if self.namespace else above
        return (*(levels or [DEFAULT_NAME]), name)

    def registered(self, table: str, *, is_new: bool = False) -> str:
        """What a table is called, and where, without secrets.

        Of a new table also at which address: nothing else tells its catalog from others.
        """
        kind = self.properties.get("type", "")
        where = f" of type {kind}" if kind else ""
        if is_new and self.properties:
            scheme, _, rest = self.properties.get("uri", "").partition("?")[0].rpartition("://")
            host, slash, path = rest.partition("/")
            uri = f"{scheme}://{host.rpartition('@')[2]}{slash}{path}" if rest else ""
            named = (uri, *(self.properties.get(name, "") for name in WHICH.get(kind, ())))
            where += f" ({' '.join(filter(None, named))})" if any(named) else ""
        return f"{'.'.join(self.identifier(table))} in catalog {self.name}{where}"


def catalog_problems(given: Mapping[str, Any], *, local: bool) -> list[str]:
    """What is wrong with the settings on their own; `local`: whether the bucket is a directory."""
    properties, namespace, problems = given.get("catalog"), given.get("namespace"), []
    if given.get("format") != "iceberg":
        return []
    if not properties and not local:
        problems.append(
            "catalog: is required for format iceberg where the bucket is no directory, such as "
            '{"type": "sql", "uri": "postgresql+psycopg://…"}, or of type rest, glue, hive'
        )
    if isinstance(properties, Mapping) and properties:
        kind = properties.get("type")
        if kind not in KINDS and not properties.get("py-catalog-impl"):
            problems.append(f"catalog.type: is {kind!r}, use {', '.join(KINDS)}")
        if kind in ("sql", "rest", "hive") and not properties.get("uri"):
            problems.append(f"catalog.uri: is required for a catalog of type {kind}")
    if isinstance(namespace, str) and not all(level.strip() for level in namespace.split(".")):
        problems.append(f"namespace: {namespace!r} has a level without a name")
    return problems


def _text(value: Any) -> str:
    """As PyIceberg takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_directory(bucket: str) -> bool:
    """Whether a bucket is a directory of this machine."""
    return "://" not in bucket or bucket.startswith(("file:", "local:"))
