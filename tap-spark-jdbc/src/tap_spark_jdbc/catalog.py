"""The Singer catalog of discovered tables, and what a catalog that comes in says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tap_spark_jdbc.settings import TapSettings
    from tap_spark_jdbc.tables import Table


def catalog_of(tables: Sequence[Table], settings: TapSettings, *, text_moments: bool) -> dict[str, Any]:
    """`{"streams": [...]}` with standard metadata, everything selected, methods and keys by the settings."""
    raise NotImplementedError


def selected_tables(catalog: Mapping[str, Any]) -> list[tuple[str | None, str]]:
    """(schema, table) of each selected stream of a catalog, for `Bounds.only`."""
    raise NotImplementedError
