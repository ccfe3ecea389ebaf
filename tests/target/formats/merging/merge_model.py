"""What a merged table holds, modelled by a plain dict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from target.loading import record

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
MOMENT = {"type": ["string", "null"], "format": "date-time", "x-sql-datatype": "TIMESTAMP"}
PROPERTIES = {"tenant": TEXT, "id": INT, "clock": MOMENT, "note": TEXT}
DELETED_AT = "2026-01-02T03:04:05Z"
Key = tuple[str, int]
Age = tuple[int, str]


@dataclass(frozen=True)
class Row:
    """A row of the model.

    `clock` is empty and `version` -1 where they are NULL, so that these are the smallest.
    """

    version: int
    clock: str
    note: str | None
    deleted: bool

    @property
    def age(self) -> Age:
        return self.version, self.clock


@dataclass(frozen=True)
class Event:
    """A record of the run: a row, or a delete, which may bring no more than its key."""

    key: Key
    row: Row

    def message(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "tenant": self.key[0],
            "id": self.key[1],
            "clock": self.row.clock or None,
        }
        if self.row.deleted:
            values["_sdc_deleted_at"] = DELETED_AT
        if self.row.note is not None:
            values["note"] = self.row.note
        message = record("s", **values)
        return message if self.row.version < 0 else {**message, "version": self.row.version}


@dataclass(frozen=True)
class Rules:
    hard: bool
    has_cursor: bool
    stale: bool = False


def model_after(
    table: dict[Key, Row], events: list[Event], activated: int | None, rules: Rules
) -> dict[Key, Row]:
    """What the table must hold after a run, key by key, record by record."""
    with_versions = activated is not None or any(event.row.version >= 0 for event in events)

    def age_of(row: Row) -> Age:
        return (row.version if with_versions else -1, row.clock if rules.has_cursor else "")

    after: dict[Key, Row] = {}
    for key in {*table, *(event.key for event in events)}:
        sent = [event.row for event in events if event.key == key]
        now = known = table.get(key)
        age = age_of(now) if now else (-2, "")
        for row in sent:
            own = age_of(row)
            if row.deleted and not row.clock and own[0] == age[0]:
                own = age
            if own >= age:
                now, age = row, own
                if row.deleted and known is not None:
                    now = replace(row, note=row.note or known.note, clock=row.clock or known.clock)
            if not row.deleted and (known is None or age_of(row) >= age_of(known)):
                known = row
        if now is None or (rules.stale and not sent) or (sent and now.deleted and rules.hard):
            continue
        if activated is not None and now.version < activated:
            if rules.hard:
                continue
            now = replace(now, deleted=True)
        after[key] = now
    return after
