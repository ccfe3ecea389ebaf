"""What becomes of a commit to a table's log that can't be published and needs a person's
decision.
"""

from __future__ import annotations

from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING

from singer_spark.errors import ConfigurationError, StorageError, UnpublishableError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Fate(Enum):
    """The effect on a table of giving up the run that changed it."""

    MADE = "its commit was made, and is undone"
    NOT_MADE = (
        "its commit was not made, and what is left with the table keeps it from being made later"
    )
    NO_TABLE = "the table that it was to make is made empty, so nobody makes it later"
    LEFT = "someone else's table, or one that this program can't keep any more, stays as it is"


@contextmanager
def as_unpublishable() -> Iterator[None]:
    """Convert refusals for a committed run's table, which need a person's decision, to
    UnpublishableError.
    """
    try:
        yield
    except (ConfigurationError, StorageError) as refusal:
        raise UnpublishableError(str(refusal)) from refusal
