"""Makes the lakes of one version: `python tests/golden/make.py FOLDER`, with its own sources and
tests on the path.

Four buckets, each with a pipeline `test`, as that version leaves them behind:

- `parquet` and `delta`: three streams by three load methods (one keeps its history), two
  good runs, an invalid record;
- `committed`: a second run that had committed and died before it published;
- `cut`: a second run whose tap died, with the checkpoint from which the next one continues.

`expected.json` says beside them what their tables hold, and what they hold after one more run, with
its messages.
"""

from __future__ import annotations

import json
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from singer_spark.core import identity
from target.delta_lake import DeltaLake
from target.loading import JSON, Lake, record, schema, state
from target_spark_lake.commit import pipeline_run
from target_spark_lake.load import checkpointing

INT = {"type": ["integer", "null"]}
NAIVE = {"type": ["string", "null"], "format": "date-time", "x-sql-datatype": "TIMESTAMP"}
PROPERTIES = {"id": INT, "name": {"type": ["string", "null"]}, "at": NAIVE}
METHODS = {"events": "append-only", "people": "upsert", "prices": "append-dedup"}
COLUMNS = 'id, name, CAST("at" AS VARCHAR)'
SETTINGS: JSON = {"on_invalid_record": "quarantine"}
NOWHERE = "golden"


def main(folder: Path) -> None:
    """Makes all buckets and what is expected of them."""
    with (
        patch.object(socket, "gethostname", lambda: NOWHERE),
        patch.object(identity, "_machine", lambda: NOWHERE),
    ):
        expected = {
            "parquet": whole(Lake(folder / "parquet"), SETTINGS),
            "delta": whole(DeltaLake(folder / "delta"), {**SETTINGS, "format": "delta"}),
            "committed": committed(Lake(folder / "committed")),
            "cut": cut(Lake(folder / "cut")),
        }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def whole(lake: Lake, settings: JSON) -> JSON:
    """Two good runs; the next one changes, adds and keeps rows in each table."""
    lake.load(*lake.announced(run(1, [(1, "a"), (2, "b")])), **settings)
    broken = {
        "type": "RECORD",
        "stream": "events",
        "record": {"id": "broken", "name": "x", "at": None},
    }
    second = run(2, [(2, "B"), (3, "c")])
    lake.load(*lake.announced([*second[:3], broken, *second[3:]]), **settings)
    current, every = (
        [(1, "a", 1), (2, "B", 2), (3, "c", 2)],
        [(1, "a", 1), (2, "b", 1), (2, "B", 2), (3, "c", 2)],
    )
    then, more = [(1, "A", 3), (2, "B", 2), (3, "c", 2), (4, "d", 3)], [(1, "A", 3), (4, "d", 3)]
    return {
        "settings": settings,
        "state": second[-1]["value"],
        "rows": {
            "events": rows(every),
            "people": rows(current),
            "prices": rows(current),
            "prices__history": rows(every),
        },
        "next": run(3, [(1, "A"), (4, "d")]),
        "rows_after": {
            "events": rows([*every, *more]),
            "people": rows(then),
            "prices": rows(then),
            "prices__history": rows([*every, *more]),
        },
    }


def committed(lake: Lake) -> JSON:
    """What the second run committed is there once somebody takes the pipeline."""
    lake.load(*lake.announced(increment(1, [1, 2])))
    with patch.object(pipeline_run, "publish", died), suppress(Died):
        lake.load(*lake.announced(increment(2, [3, 4])))
    (lake.folder / "raw/events").mkdir(exist_ok=True)
    return {
        "settings": {},
        "state": increment(1, [])[-1]["value"],
        "rows": {"events": numbered([1, 2], 1)},
        "next": increment(3, [5]),
        "rows_after": {
            "events": rows(
                [(n, f"n{n}", run_) for run_, n in [(1, 1), (1, 2), (2, 3), (2, 4), (3, 5)]]
            )
        },
    }


def cut(lake: Lake) -> JSON:
    """The tap of the second run died between two of its STATE messages.

    Its body is what the next one sends, too.
    """
    lake.load(*lake.announced(increment(1, [1, 2])))
    body = [*increment(2, [3, 4]), *increment(3, [5, 6])[1:]]
    quick = {"CUT_SECONDS": 0, "WRITE_SECONDS": 0, "CUTS_A_RUN": 1 << 62, "WRITES_A_RUN": 1 << 62}
    with patch.multiple(checkpointing, **quick), suppress(Exception):
        lake.load(*lake.announced(body)[:-2])
    assert lake.checkpoint() is not None
    return {
        "settings": {},
        "state": increment(1, [])[-1]["value"],
        "rows": {"events": numbered([1, 2], 1)},
        "next": body,
        "resumes": True,
        "rows_after": {
            "events": rows(
                [(n, f"n{n}", r) for n, r in [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3)]]
            )
        },
    }


class Died(BaseException):
    """Simulates `kill -9`."""


def died(*_: Any) -> None:
    raise Died


def run(number: int, changed: list[tuple[int, str]]) -> list[JSON]:
    """All messages of a run that sends these rows of every stream."""
    messages = []
    for stream, method in METHODS.items():
        described = schema(
            stream, PROPERTIES, ("id",), **{"x-load-method": method, "x-extent": "delta"}
        )
        messages.append({**described, "bookmark_properties": ["at"]})
        messages += [record(stream, id=id, name=name, at=moment(number)) for id, name in changed]
    return [*messages, state(bookmarks={stream: bookmark(number) for stream in METHODS})]


def increment(number: int, ids: list[int]) -> list[JSON]:
    """A run of one stream that grows."""
    sent = [record("events", id=id, name=f"n{id}", at=moment(number)) for id in ids]
    return [
        schema("events", PROPERTIES, ("id",)),
        *sent,
        state(bookmarks={"events": bookmark(number)}),
    ]


def bookmark(number: int) -> JSON:
    """As the tap writes it, with all of its parts."""
    return {
        "replication_key": "at",
        "replication_key_value": moment(number),
        "boundary": {
            "format_version": 1,
            "rows": 1,
            "hashes": "AAECAwQFBgc=",
            "value": moment(number),
        },
        "snapshot": {
            "format_version": 1,
            "system": "7",
            "xmin": 740 + number,
            "xmax": 740 + number,
        },
    }


def moment(number: int) -> str:
    return f"2026-11-{number:02d}T10:00:00.000000"


def numbered(ids: list[int], number: int) -> list[list[Any]]:
    return rows([(id, f"n{id}", number) for id in ids])


def rows(found: list[tuple[int, str, int]]) -> list[list[Any]]:
    """As `Lake.rows` gives them for `COLUMNS`."""
    return sorted([id, name, moment(number).replace("T", " ")[:19]] for id, name, number in found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
