"""The report of `spark-lake verify`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MISSING, EXTRA, DIFFERENT = "missing", "extra", "different"
KINDS = (MISSING, EXTRA, DIFFERENT)


@dataclass(frozen=True)
class StreamReport:
    """The result for one stream.

    Attributes:
        counts: Rows: `missing`, `extra`, `different`, `source_rows`, `lake_rows`, `not_compared`,
            `older_versions`; absent ones are 0.
        keys: The first keys of `missing`, `extra` and `different` rows.
        key_properties: Columns of the key; empty if whole rows are used as keys.
        replication_key: None if the stream has none.
        watermark: The bookmark's value; None if all rows are compared.
        repaired: Rows of each kind fixed by a repair; None if none was requested.
    """

    stream: str
    counts: Mapping[str, int]
    keys: Mapping[str, Sequence[Any]]
    key_properties: tuple[str, ...]
    replication_key: str | None
    watermark: str | None
    repaired: Mapping[str, int] | None = None

    @property
    def agrees(self) -> bool:
        """Whether there are no differences, or none left."""
        return not any(self.left(kind) for kind in KINDS)

    def left(self, kind: str) -> int:
        """Rows of a kind that still differ."""
        return self.count(kind) - (self.repaired or {}).get(kind, 0)

    def count(self, name: str) -> int:
        """Rows of a kind."""
        return self.counts.get(name, 0)

    def to_json(self) -> dict[str, Any]:
        """The report as in `--json`."""
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
            **(
                {}
                if self.repaired is None
                else {"repaired": {kind: self.repaired.get(kind, 0) for kind in KINDS}}
            ),
        }


@dataclass(frozen=True)
class VerifyReport:
    """The compared streams, and for each of the others a line that says why it was not compared.

    `run_id` is the id of the run that repaired them, if any.
    """

    streams: tuple[StreamReport, ...]
    problems: tuple[str, ...] = ()
    run_id: str | None = None

    @property
    def agrees(self) -> bool:
        """Whether all streams were compared and none differs."""
        return not self.problems and all(each.agrees for each in self.streams)

    def to_json(self) -> dict[str, Any]:
        """The report as in `--json`; `problems` only if there are any."""
        body: dict[str, Any] = {"streams": {each.stream: each.to_json() for each in self.streams}}
        body |= {"problems": list(self.problems)} if self.problems else {}
        return {**body, "run_id": self.run_id} if self.run_id is not None else body
