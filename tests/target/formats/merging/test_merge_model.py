"""Merges against a plain dict: many keys, over several runs, in whatever order rows, deletes and
versions come.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from target.delta_lake import DeltaLake
from target.formats.merging.merge_model import PROPERTIES, Event, Key, Row, Rules, model_after
from target.iceberg_lake import IcebergLake
from target.loading import Lake, schema

pytestmark = pytest.mark.usefixtures("engine")

KEYS = 120
DELTA_SEEDS, ICEBERG_SEEDS = (5, 6), (2, 4)
LONG_SEEDS = (
    1,
    5,
)  # three runs, the second of which comes again: without versions and with them; else two


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


def living(table: dict[Key, Row]) -> set[Key]:
    return {key for key, row in table.items() if not row.deleted}


def reported_deletes(lake: Lake) -> int:
    """What the newest journal says."""
    *_, newest = sorted((lake.folder / ".dataspoc/runs/test").glob("*.json"))
    deleted: int = json.loads(newest.read_bytes())["streams"]["s"]["deleted"]
    return deleted


def found(lake: Lake) -> dict[Key, Row]:
    columns = (
        "tenant, id, strftime(clock, '%Y-%m-%dT%H:%M:%S'), note, _sdc_deleted_at IS NOT "
        "NULL, _sdc_table_version"
    )
    rows = lake.rows("s", columns)
    held = {
        (tenant, id): Row(-1 if version is None else version, clock or "", note, deleted)
        for tenant, id, clock, note, deleted, version in rows
    }
    assert len(held) == len(rows), "a key stands twice"
    return held


RUNS = [
    (1, "upsert", Rules(hard=True, has_cursor=True), False),
    (2, "upsert", Rules(hard=False, has_cursor=True), True),
    (3, "append-dedup", Rules(hard=False, has_cursor=False), False),
    (4, "overwrite-delete-stale", Rules(hard=True, has_cursor=True, stale=True), True),
    (5, "append-dedup", Rules(hard=False, has_cursor=True), True),
    (6, "overwrite-delete-stale", Rules(hard=True, has_cursor=False, stale=True), False),
]
# In Spark, each method, format, rule and way to divide the work occurs in one of four.
IN_SPARK = {1: "spark", 2: "spark in pieces", 5: "spark in pieces", 6: "spark in pieces"}


@pytest.mark.parametrize(
    ("engine", "seed", "method", "rules", "versions"),
    [
        (engine, *run)
        for run in RUNS
        for engine in ("local", "local in pieces", IN_SPARK.get(run[0]))
        if engine
    ],
    indirect=["engine"],
)
def test_merged_table_matches_dict_after_every_run(
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
        before, table = table, model_after(table, events, activated, rules)
        came += len(events)
        assert found(lake) == table
        assert reported_deletes(lake) == len(living(before) - living(table))
        if run == 1 and seed in LONG_SEEDS:
            lake.load(message, *messages, hard_delete=rules.hard)
            table = model_after(table, events, activated, rules)
            came += len(events)
            assert found(lake) == table
    if method == "append-dedup":
        assert len(lake.rows("s__history")) == came
