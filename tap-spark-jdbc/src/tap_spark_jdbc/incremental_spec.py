"""The specs of `incremental_tables`: `schema.table:column:type[:i|e][@start][!append|upsert]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from singer_spark.bookmark import KeyType


@dataclass(frozen=True)
class IncrementalSpec:
    """One parsed spec.

    Attributes:
        schema: None where the spec has none.
        table: As spelled in the spec.
        column: As spelled in the spec.
        key_type: The key's type.
        included: False (`:e`): the table is exported whole.
        start: Raw start value, or None.
        load_method: `append-only`, `upsert` or None.
    """

    schema: str | None
    table: str
    column: str
    key_type: KeyType
    included: bool = True
    start: str | None = None
    load_method: str | None = None

    @classmethod
    def parse(cls, text: str) -> IncrementalSpec:
        """Reads a spec.

        Raises:
            ConfigurationError: it shows at which character the spec goes wrong, and what was expected there.
        """
        raise NotImplementedError
