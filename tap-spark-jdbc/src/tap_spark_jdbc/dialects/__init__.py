"""The databases that are known; one more is an entry here and a file of data beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.dialects.derby import DERBY
from tap_spark_jdbc.dialects.dialect import CatalogQueries, Dialect, TypeRule, overridden, text_form
from tap_spark_jdbc.dialects.mariadb import MARIADB
from tap_spark_jdbc.dialects.postgresql import POSTGRESQL
from tap_spark_jdbc.dialects.sqlite import SQLITE
from tap_spark_jdbc.dialects.standard import STANDARD

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CatalogQueries", "Dialect", "TypeRule", "dialect_of", "known_dialects", "overridden", "text_form"]


def known_dialects() -> Mapping[str, Dialect]:
    """All dialects of known databases by name."""
    return {dialect.name: dialect for dialect in (POSTGRESQL, MARIADB, SQLITE, DERBY)}


def dialect_of(jdbc_url: str) -> Dialect:
    """The dialect of a JDBC URL; standard SQL for a database that is not known.

    Raises:
        ConfigurationError: it is no JDBC URL.
    """
    if not jdbc_url.startswith("jdbc:"):
        raise ConfigurationError(
            "setting jdbc_url: it must begin with jdbc:, as in jdbc:postgresql://host:5432/shop or jdbc:sqlite:shop.db"
        )
    for dialect in known_dialects().values():
        if jdbc_url.startswith(dialect.url_prefixes):
            return dialect
    return STANDARD
