"""Names in `schemas` and `tables` without a table: an error with the nearest names.

A pattern is only logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from singer_spark.core.setting_problems import nearest
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.dialects.tables import Table
from tap_spark_jdbc.source.discovery_bounds import fits, is_exclusion, is_pattern

# Where a user sees no table that the user may not read. A name that is like a known one is rather a
# slip.
PERHAPS_HIDDEN = ", or this user may not read it: check its name, or GRANT SELECT on it"
logger = logging.getLogger("tap-spark-jdbc")


def unknown_names(
    found: Sequence[Table],
    settings: TapSettings,
    all_within: Callable[[tuple[str, ...]], Sequence[Table]],
    left_out: Collection[str] = (),
    *,
    hides_tables: bool = False,
) -> list[str]:
    """Problems of plain names, warnings for patterns.

    `all_within` finds the tables within schemas, or all.

    `left_out` are the negative patterns that met a table; `hides_tables` is that of the dialect.
    """
    tables = [
        each for each in settings.tables if not any(_is_table(each, table) for table in found)
    ]
    schemas = [
        each for each in settings.schemas if not any(_is_schema(each, table) for table in found)
    ]
    tables, schemas = (
        [each for each in names if each not in left_out] for names in (tables, schemas)
    )
    # A schema may exist without any table that matches `tables`.
    if settings.tables and (positive := tuple(each for each in schemas if not is_exclusion(each))):
        inside = all_within(positive)
        schemas = [each for each in schemas if not any(_is_schema(each, table) for table in inside)]
    for setting, names in (("tables", tables), ("schemas", schemas)):
        for name in (each for each in names if is_pattern(each)):
            logger.warning("setting %s: %r fits no %s", setting, name, setting.removesuffix("s"))
    tables, schemas = (
        [each for each in names if not is_pattern(each)] for names in (tables, schemas)
    )
    if not tables and not schemas:
        return []
    known = all_within(settings.schemas) or all_within(()) if not schemas else all_within(())
    names = sorted({name for table in known for name in (table.qualified_name, table.name)})
    inside_of = sorted({table.schema for table in known if table.schema is not None})
    hidden = PERHAPS_HIDDEN if hides_tables else ""
    return [
        *(
            f"tables: there is no table {each!r}{nearest(each, _alike(each, names)) or hidden}"
            for each in tables
        ),
        *(
            f"schemas: there is no table in a schema {each!r}{nearest(each, inside_of)}"
            for each in schemas
        ),
    ]


def _alike(name: str, names: Sequence[str]) -> list[str]:
    """The names in the same form as `name`, with or without schema."""
    return [each for each in names if ("." in each) == ("." in name)]


def _is_table(pattern: str, table: Table) -> bool:
    return fits(table.qualified_name, pattern) or fits(table.name, pattern)


def _is_schema(pattern: str, table: Table) -> bool:
    return table.schema is None or fits(table.schema, pattern)
