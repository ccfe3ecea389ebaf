"""Who owns a table of the lake, and which columns it has: one small object beside the data.

`<bucket>/.dataspoc/tables/<table folder>.json` is claimed by create-if-absent, so two pipelines can't both own a
table; its columns change with the commit that changes the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class TableRecord:
    """A table as the last committed run left it.

    Attributes:
        pipeline: The one pipeline that may write the table.
        stream: The stream that fills it.
        columns: Column name to Spark's own name of its type (`DataType.simpleString()`), in order.
        load_method: The method that wrote it last.
        claimed_by: Run that claimed the table; the claim falls with that run if it never committed.
    """

    pipeline: str
    stream: str
    columns: Mapping[str, str] = field(default_factory=dict)
    load_method: str | None = None
    claimed_by: str | None = None
