"""The seam between the table of states and a database: one transaction at a time, in SQL that all of them know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from singer_spark.state.database_url import TableName


class StateSession(Protocol):
    """One transaction.

    Attributes:
        moment_type: Column type of a moment.
        ascii_only: Whether the database can't hold every character.
    """

    moment_type: str
    ascii_only: bool

    def has_table(self, table: TableName) -> bool:
        """Whether the table is there."""

    def keep_others_from_creating(self) -> None:
        """Until the end of the transaction nobody else makes tables of states."""

    def query(self, sql: str, table: TableName, values: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """The first row; `{table}` stands for the table, `:name` for a value."""

    def execute(self, sql: str, table: TableName, values: Mapping[str, Any]) -> int:
        """Changes rows, and tells how many."""


class StateDatabase(Protocol):
    """A database that keeps states.

    Attributes:
        place: Which one it is, without user and password.
    """

    place: str

    def reading(self) -> AbstractContextManager[StateSession | None]:
        """A transaction that changes nothing; None where there is no database yet."""

    def writing(self) -> AbstractContextManager[StateSession]:
        """A transaction, committed at its end, or undone by an error."""

    def is_error(self, error: Exception) -> bool:
        """Whether the driver says so of the database."""
