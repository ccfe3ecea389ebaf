"""The databases that are known; one more is an entry here and a file of data beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tap_spark_jdbc.dialects.dialect import CatalogQueries, Dialect, TypeRule, text_form

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CatalogQueries", "Dialect", "TypeRule", "dialect_of", "known_dialects", "text_form"]


def known_dialects() -> Mapping[str, Dialect]:
    """All dialects by name."""
    raise NotImplementedError


def dialect_of(jdbc_url: str) -> Dialect:
    """The dialect of a JDBC URL; standard SQL for a database that is not known.

    Raises:
        ConfigurationError: it is no JDBC URL.
    """
    raise NotImplementedError
