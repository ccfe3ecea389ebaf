"""What `spark-lake verify` found, for programs and for people."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

MISSING, EXTRA, DIFFERENT = "missing", "extra", "different"
KINDS = (MISSING, EXTRA, DIFFERENT)
# Keys of each kind that are shown to people.
SHOWN_KEYS = 10


@dataclass(frozen=True)
class StreamReport:
    """One stream.

    Attributes:
        stream: Its name.
        counts: Rows: `missing`, `extra`, `different`, `source_rows`, `lake_rows`, `not_compared`, `older_versions`;
            what is not there is 0.
        keys: The first keys of `missing`, `extra` and `different` rows.
        key_properties: Columns of the key; empty where whole rows stand for keys.
        replication_key: None where the stream has none.
        watermark: The bookmark's value; None where all rows are compared.
    """

    stream: str
    counts: Mapping[str, int]
    keys: Mapping[str, Sequence[Any]]
    key_properties: tuple[str, ...]
    replication_key: str | None
    watermark: str | None

    @property
    def agrees(self) -> bool:
        """Whether there is no difference."""
        return not any(self.count(kind) for kind in KINDS)

    def count(self, name: str) -> int:
        """Rows of a kind."""
        return self.counts.get(name, 0)

    def to_json(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {
            "source_rows": self.count("source_rows"),
            "lake_rows": self.count("lake_rows"),
            **{kind: list(self.keys.get(kind, ())) for kind in KINDS},
            "counts": {kind: self.count(kind) for kind in KINDS},
            "not_compared": self.count("not_compared"),
            "older_versions": self.count("older_versions"),
            "key_properties": list(self.key_properties),
            "replication_key": self.replication_key,
            "watermark": self.watermark,
        }


@dataclass(frozen=True)
class VerifyReport:
    """All streams.

    Attributes:
        streams: Those that were compared.
        problems: Why others were not, a line each.
    """

    streams: tuple[StreamReport, ...]
    problems: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether all streams were compared, and there is no difference in any."""
        return not self.problems and all(each.agrees for each in self.streams)

    def to_json(self) -> dict[str, Any]:
        """As `--json` has it; `problems` only where there are some."""
        told: dict[str, Any] = {"streams": {each.stream: each.to_json() for each in self.streams}}
        return {**told, "problems": list(self.problems)} if self.problems else told


def verify_table(report: VerifyReport) -> RenderableType:
    """For people: a table, and the first keys of each kind of difference."""
    from rich.box import SIMPLE
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, pad_edge=False)
    for name in ("stream", "up to", "source rows", "lake rows", *KINDS, "not compared"):
        table.add_column(name, overflow="fold", justify="left" if name in ("stream", "up to") else "right")
    for each in report.streams:
        counts = [each.count(name) for name in ("source_rows", "lake_rows", *KINDS, "not_compared")]
        told = (each.stream, each.watermark or "now", *(f"{count:,}" for count in counts))
        table.add_row(*(Text(cell) for cell in told))
    lines = [line for each in report.streams for line in _lines(each)]
    lines += report.problems
    return Group(table, *map(Text, lines or ["Source and lake agree."]))


def _lines(report: StreamReport) -> list[str]:
    lines = []
    for kind in KINDS:
        keys = list(report.keys.get(kind, ()))[:SHOWN_KEYS]
        if keys:
            # A row without key may be there several times; then its text says less than the count.
            more = report.count(kind) - len(keys)
            shown = ", ".join(each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in keys)
            lines.append(f"{report.stream}, {kind}: {shown}" + (f", and {more:,} more" if more > 0 else ""))
    return lines
