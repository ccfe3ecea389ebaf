"""The limits of discovery: schemas and tables named by settings or a catalog, by globs or exactly.

A name in `schemas` or `tables` that fits no table is an error with the nearest names; a pattern
that fits none is only logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from singer_spark.core.config_file import nearest
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.dialects.tables import Table, qualified

logger = logging.getLogger("tap-spark-jdbc")
Name = tuple[str | None, str]
LEAVE_OUT, EVERYTHING = "!", "*"


@dataclass(frozen=True)
class Bounds:
    """The limits of discovery; patterns match names in any case.

    Attributes:
        schemas: Glob patterns; empty, only negative ones, or `*`: all but the system's.
        tables: Glob patterns `schema.table` or `table`; empty: all.
        only: Exact (schema, table) pairs of a catalog's selected streams; None: no such limit.
        left_out: The negative patterns that a table met so far.
    """

    schemas: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    only: Collection[Name] | None = None
    left_out: set[str] = field(default_factory=set, compare=False)

    def admit(self, schema: str | None, table: str, system_schemas: Iterable[str]) -> bool:
        """Whether this table is within the limits."""
        if self.only is not None:
            return (schema, table) in self.only
        if schema is not None and not self._admit_schema(schema, system_schemas):
            return False
        names = (qualified(schema, table), table)
        self._note(names, self.tables)
        return taken(names, self.tables)

    def _admit_schema(self, schema: str, system_schemas: Iterable[str]) -> bool:
        self._note((schema, *system_schemas), self.schemas)
        is_system = any(fnmatchcase(schema, pattern) for pattern in system_schemas)
        if is_system and not any(fits(schema, each) for each in self.schemas if each != EVERYTHING):
            return False
        return taken((schema,), self.schemas)

    def _note(self, names: Iterable[str], patterns: Sequence[str]) -> None:
        self.left_out.update(
            each for each in patterns if is_exclusion(each) and any_fits(names, each)
        )

    @property
    def names_system_schemas(self) -> bool:
        """Whether a system schema may be meant."""
        return any(each != EVERYTHING and not is_exclusion(each) for each in self.schemas)

    def is_named(self, schema: str | None, table: str) -> bool:
        """Whether the user names exactly this table."""
        names = (qualified(schema, table), table)
        plain = [each for each in self.tables if not is_pattern(each)]
        return self.only is not None or any(any_fits(names, each) for each in plain)

    def table_names(self) -> list[str] | None:
        """The bare table names to query for; None: all tables must be examined."""
        if self.only is not None:
            return sorted({table for _, table in self.only})
        if not self.tables or any(is_pattern(each) for each in self.tables):
            return None
        # A dot may separate schema and table, or be part of the table's name: both are queried.
        parts = [each.split(".") for each in self.tables]
        return sorted({".".join(part[start:]) for part in parts for start in range(len(part))})

    def schema_names(self) -> list[str] | None:
        """The schemas to query for, if they are named; None if all must be looked at."""
        if self.only is not None:
            return sorted({schema for schema, _ in self.only if schema is not None})
        if not self.schemas or any(is_pattern(each) for each in self.schemas):
            return None
        return sorted(self.schemas)


def taken(names: Iterable[str], patterns: Sequence[str]) -> bool:
    """Whether patterns include an item with these names: the last pattern that fits decides, and
    one with `!` in front excludes.
    """
    names = tuple(names)
    found = not patterns or is_exclusion(patterns[0])
    for pattern in patterns:
        if any_fits(names, pattern):
            found = not is_exclusion(pattern)
    return found


def any_fits(names: Iterable[str], pattern: str) -> bool:
    """Whether one of the names matches a pattern, be it negative or not."""
    return any(fits(name, pattern.removeprefix(LEAVE_OUT)) for name in names)


def is_exclusion(pattern: str) -> bool:
    """Whether it leaves out what the patterns before it included."""
    return pattern.startswith(LEAVE_OUT)


def is_pattern(text: str) -> bool:
    """Whether it is a glob, or leaves something out, and is not a plain name."""
    return is_exclusion(text) or any(sign in text for sign in "*?[")


def fits(name: str, pattern: str) -> bool:
    """Whether a name matches a glob or a plain name, in any case."""
    return name == pattern or fnmatchcase(name.lower(), pattern.lower())


# If the database hides tables that the user may not read. A name that is similar to a known one is
# more likely a typo.
PERHAPS_HIDDEN = ", or this user may not read it: check its name, or GRANT SELECT on it"


def unknown_names(
    found: Sequence[Table],
    settings: TapSettings,
    all_within: Callable[[tuple[str, ...]], Sequence[Table]],
    left_out: Collection[str] = (),
    *,
    hides_tables: bool = False,
) -> list[str]:
    """Problems with plain names; patterns only get warnings.

    `all_within` finds the tables within schemas, or all. `left_out` are the negative patterns that
    met a table; `hides_tables` is that of the dialect.
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
