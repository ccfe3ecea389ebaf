"""Merges against a plain dict: many keys, over several runs, in whatever order rows, deletes and versions come."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from target.delta_lake import DeltaLake
from target.iceberg_lake import IcebergLake
from target.loading import Lake, record, schema

INT = {"type": ["integer", "null"]}
TEXT = {"type": ["string", "null"]}
MOMENT = {"type": ["string", "null"], "format": "date-time", "x-sql-datatype": "TIMESTAMP"}
PROPERTIES = {"tenant": TEXT, "id": INT, "clock": MOMENT, "note": TEXT}
KEYS = 120
DELTA_SEEDS, ICEBERG_SEEDS = (5, 6), (2, 4)
LONG_SEEDS = (1, 5)  # three runs, the second of which comes again: without versions and with them; else two
DELETED_AT = "2026-01-02T03:04:05Z"
Key = tuple[str, int]
Age = tuple[int, str]


@dataclass(frozen=True)
class Row:
    """A row of the model; `clock` is empty and `version` -1 where they are NULL, so that these are the smallest."""

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
        values: dict[str, Any] = {"tenant": self.key[0], "id": self.key[1], "clock": self.row.clock or None}
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


def model_after(table: dict[Key, Row], events: list[Event], activated: int | None, rules: Rules) -> dict[Key, Row]:
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


def random_events(rng: random.Random, version: int | None) -> list[Event]:
    events = []
    for _ in range(3 * KEYS):
        key = (rng.choice(["a", "b", "ü.%"]), rng.randrange(KEYS // 3))
        deleted = rng.random() < 0.2
        clock = "" if rng.random() < 0.2 else f"2026-01-0{rng.randint(1, 5)}T00:00:00"
        note = None if deleted and rng.random() < 0.7 else f"n{rng.randrange(10**6)}"
        own = -1 if version is None or rng.random() < 0.15 else version - rng.randrange(2)
        events.append(Event(key, Row(own, clock, note, deleted)))
    return events


def found(lake: Lake) -> dict[Key, Row]:
    columns = "tenant, id, strftime(clock, '%Y-%m-%dT%H:%M:%S'), note, _sdc_deleted_at IS NOT NULL, _sdc_table_version"
    rows = lake.rows("s", columns)
    held = {
        (tenant, id): Row(-1 if version is None else version, clock or "", note, deleted)
        for tenant, id, clock, note, deleted, version in rows
    }
    assert len(held) == len(rows), "a key stands twice"
    return held


@pytest.mark.parametrize(
    ("seed", "method", "rules", "versions"),
    [
        (1, "upsert", Rules(hard=True, has_cursor=True), False),
        (2, "upsert", Rules(hard=False, has_cursor=True), True),
        (3, "append-dedup", Rules(hard=False, has_cursor=False), False),
        (4, "overwrite-delete-stale", Rules(hard=True, has_cursor=True, stale=True), True),
        (5, "append-dedup", Rules(hard=False, has_cursor=True), True),
        (6, "overwrite-delete-stale", Rules(hard=True, has_cursor=False, stale=True), False),
    ],
)
def test_a_merged_table_holds_what_a_dict_holds_after_every_run(
    spark: object, tmp_path: Path, seed: int, method: str, rules: Rules, versions: bool
) -> None:
    rng = random.Random(seed)
    kind = DeltaLake if seed in DELTA_SEEDS else IcebergLake if seed in ICEBERG_SEEDS else Lake
    lake, table, came = kind(tmp_path / "lake"), {}, 0
    annotations = {"x-load-method": method, "x-extent": "full" if rules.stale else "delta"}
    message = schema("s", PROPERTIES, ("tenant", "id"), **annotations)
    message["bookmark_properties"] = ["clock"] if rules.has_cursor else []
    for run in range(3 if seed in LONG_SEEDS else 2):
        version = 10 + run if versions else None
        events = random_events(rng, version)
        activated = version - 1 if version and run % 2 else None
        messages = [event.message() for event in events]
        if activated is not None:
            activate = {"type": "ACTIVATE_VERSION", "stream": "s", "version": activated}
            messages.insert(rng.randrange(len(messages)), activate)
        lake.load(message, *messages, hard_delete=rules.hard)
        table = model_after(table, events, activated, rules)
        came += len(events)
        assert found(lake) == table
        if run == 1 and seed in LONG_SEEDS:
            lake.load(message, *messages, hard_delete=rules.hard)
            table = model_after(table, events, activated, rules)
            came += len(events)
            assert found(lake) == table
    if method == "append-dedup":
        assert len(lake.rows("s__history")) == came
