"""Foreign taps at random against a model.

To be run by hand: `cd tests && ../.venv/bin/python -m soak.foreign_taps --minutes 20 --seed 1`.
Every seed is a lake of its own: a tap with streams of several kinds, loaded a dozen times, well or
not. After each run every table and the state are compared. A difference is printed with its seed,
which brings it back (`--only`).
"""

from __future__ import annotations

import argparse
import gzip
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from singer_spark.engine.session import SparkOptions, get_session
from singer_spark.errors import SingerSparkError
from soak.load_model import JSON, MERGING, LoadModel, Seen, Sent, Stream
from target.delta_lake import DeltaLake
from target.formats.merging.merge_model import PROPERTIES, TEXT, Event, Row
from target.loading import Lake, schema, to_bytes

METHODS = ("append-only", "upsert", "append-dedup", "overwrite", "overwrite-delete-stale")
PLAIN_METHODS = ("append-only", "overwrite")
RUNS = 12
COLUMNS = (
    "tenant, id, coalesce(strftime(clock, '%Y-%m-%dT%H:%M:%S'), ''), note, _sdc_deleted_at IS NOT "
    "NULL, coalesce(_sdc_table_version, -1)"
)
BAD = Stream("bad", "append-only", keyed=False, cursor=False, bookmark=None)
ENDINGS = ("good", "announced", "dead", "cut", "invalid", "unknown", "behind")


class Soak:
    """One seed."""

    def __init__(self, seed: int, folder: Path, methods: Sequence[str] = METHODS) -> None:
        """Thinks the tap out.

        Args:
            seed: Of all that is random.
            folder: An empty one.
            methods: Load methods that its streams may have.
        """
        self.rng = random.Random(seed)
        self.folder = folder
        self.lake = (DeltaLake if self.rng.random() < 0.4 else Lake)(folder / "lake")
        self.model = LoadModel(hard=self.rng.random() < 0.5)
        self.streams = [
            self._stream(name, methods) for name in ("s", "t.u", "V")[: self.rng.randrange(1, 4)]
        ]
        self.batches = 0
        self.refused = 0

    def _stream(self, name: str, methods: Sequence[str]) -> Stream:
        method = self.rng.choice(methods)
        cursor = self.rng.random() < 0.3
        bookmark = self.rng.choice([name, f"shop-{name}", None, None]) if not cursor else name
        return Stream(name, method, method in MERGING or self.rng.random() < 0.5, cursor, bookmark)

    def runs(self, count: int = RUNS) -> Iterator[str | None]:
        """Loads again and again; gives of each run what differs, None where nothing does."""
        for number in range(1, count + 1):
            yield self._run(number)

    def _run(self, number: int) -> str | None:
        ending = self.rng.choice(ENDINGS) if self.rng.random() < 0.4 else "good"
        messages, sent, came = self._messages(number)
        fails = ending not in ("good", "announced") or self.model.refuses(sent, came)
        if ending == "announced":
            came = came if came is not None else {"bookmarks": {}}
            fails = self.model.refuses(sent, came)
        error = self._load(self._ended(messages, sent, came, ending))
        what = f"run {number} ({ending}; {', '.join(f'{s.name} {s.method}' for s in sent)})"
        if (error is not None) != fails:
            return (
                f"{what}: it should {'fail' if fails else 'succeed'}, but: "
                f"{error or 'it succeeded'}"
            )
        if not fails:
            self.model.load(sent, came)
        self.refused += fails and ending in ("good", "announced")
        return self._difference(what)

    def _messages(self, number: int) -> tuple[list[JSON | bytes], dict[Stream, Sent], JSON | None]:
        """A run's messages, what they send, and its last STATE."""
        rng = self.rng
        present = [stream for stream in self.streams if rng.random() < 0.85]
        sent = {stream: Sent() for stream in present}
        first: list[JSON | bytes] = [_in_any_case(rng, _schema(stream)) for stream in present]
        rest: list[JSON | bytes] = []
        came: JSON | None = None
        for _ in range(rng.choice([0, 1, 4, 12]) if present else 0):
            stream = rng.choice(present)
            rest += self._piece(stream, sent[stream], number)
            if rng.random() < 0.2:
                came = self._state(number, present)
                rest.append(_in_any_case(rng, {"type": "STATE", "value": came}))
        if rng.random() < 0.7:
            came = self._state(number, present)
            rest.append({"type": "STATE", "value": came})
        return [*first, *rest], sent, came

    def _piece(self, stream: Stream, sent: Sent, number: int) -> list[JSON | bytes]:
        """A few messages of one stream: records, the same as a batch, a version, another SCHEMA."""
        kind = self.rng.random()
        if kind < 0.1:
            version = number - self.rng.randrange(2)
            sent.activated = max(version, sent.activated or version)
            return [
                _in_any_case(
                    self.rng,
                    {"type": "ACTIVATE_VERSION", "stream": stream.name, "version": version},
                )
            ]
        if kind < 0.2:
            return [
                _in_any_case(
                    self.rng, _schema(stream, more=TEXT) if kind < 0.15 else _schema(stream)
                )
            ]
        events = [self._event(number) for _ in range(self.rng.randrange(1, 6))]
        if kind < 0.35:
            # Files of a batch say no version.
            events = [replace(event, row=replace(event.row, version=-1)) for event in events]
            sent.events += events
            return [self._batch(stream, events)]
        sent.events += events
        return [
            _in_any_case(self.rng, {**event.message(), "stream": stream.name}) for event in events
        ]

    def _event(self, number: int) -> Event:
        rng = self.rng
        deleted = rng.random() < 0.15
        clock = "" if rng.random() < 0.2 else f"2026-01-0{rng.randint(1, 5)}T00:00:00"
        note = None if deleted and rng.random() < 0.7 else f"n{rng.randrange(10**6)}"
        version = number - rng.randrange(2) if rng.random() < 0.2 else -1
        return Event((rng.choice("ab"), rng.randrange(6)), Row(version, clock, note, deleted))

    def _batch(self, stream: Stream, events: list[Event]) -> JSON:
        self.batches += 1
        file = self.folder / f"lake/.dataspoc/staging/batches/{self.batches}.jsonl.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress(to_bytes(*(event.message()["record"] for event in events))))
        encoding = {"format": "jsonl", "compression": "gzip"}
        return {
            "type": "BATCH",
            "stream": stream.name,
            "encoding": encoding,
            "manifest": [file.as_uri()],
        }

    def _state(self, number: int, present: list[Stream]) -> JSON:
        reported = self.streams if self.rng.random() < 0.7 else present
        marks = [stream.bookmark_at(number) for stream in reported]
        return {"bookmarks": {name: value for each in marks for name, value in each.items()}}

    def _ended(
        self, messages: list[Any], sent: dict[Stream, Sent], came: JSON | None, ending: str
    ) -> list[Any]:
        """The messages, ended as the ending says."""
        opening = {"type": "STATE", "value": {}, "final": False, "start": "full"}
        last = {"type": "STATE", "value": came or {"bookmarks": {}}, "final": True}
        one = {"type": "RECORD", "stream": "s", "record": {"tenant": "a", "id": 1}}
        match ending:
            case "announced":
                return [opening, *messages, {**last, "value": came}]
            case "dead":
                return [opening, *messages]
            case "behind":
                behind = [{**one, "stream": stream.name} for stream in sent] or [_schema(BAD)]
                return [opening, *messages, last, behind[0]]
            case "cut":
                return [*messages, b'{"type": "RECORD", "stream": "s", "rec']
            case "unknown":
                return [*messages, {**one, "stream": "nobody"}]
            case "invalid":
                return [
                    *messages,
                    _schema(BAD),
                    {**one, "stream": "bad", "record": {"id": "no number"}},
                ]
        return messages

    def _load(self, messages: list[Any]) -> Exception | None:
        try:
            self.lake.load(*messages, hard_delete=self.model.hard)
        except SingerSparkError as error:
            return error
        return None

    def _difference(self, what: str) -> str | None:
        if self.lake.state() != self.model.state:
            return f"{what}: the state is {self.lake.state()}, not {self.model.state}"
        for table, rows in self.model.tables().items():
            found = self._rows(table)
            if found != rows:
                return (
                    f"{what}: {table} lacks {dict(rows - found)}, and has beside them "
                    f"{dict(found - rows)}"
                )
        return None

    def _rows(self, table: str) -> Counter[Seen]:
        is_there = (self.lake.folder / "raw" / table).exists()
        return Counter(self.lake.rows(table, COLUMNS)) if is_there else Counter()


def _schema(stream: Stream, **more: JSON) -> JSON:
    keys = ("tenant", "id") if stream.keyed else ()
    message = schema(stream.name, {**PROPERTIES, **more}, keys, **{"x-load-method": stream.method})
    if stream.cursor:
        return {**message, "bookmark_properties": ["clock"]}
    return message


def _in_any_case(rng: random.Random, message: JSON) -> JSON:
    kind = message["type"]
    return {**message, "type": rng.choice([kind, kind, kind.lower(), kind.capitalize()])}


def main() -> int:
    """Runs until the time is over; 1 where something differed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--only", action="store_true", help="no other seed than that")
    parser.add_argument(
        "--plain", action="store_true", help="append-only and overwrite alone, which need no JVM"
    )
    chosen = parser.parse_args()
    # What the target says of thousands of runs goes nowhere.
    report = os.fdopen(os.dup(1), "w")
    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    sys.stderr = Path(os.devnull).open("w")
    logging.disable(logging.CRITICAL)
    if not chosen.plain:
        # One session for all runs, as a test suite has it.
        get_session(SparkOptions(app_name="soak", master="local[2]"))
    end = time.monotonic() + chosen.minutes * 60
    seed, runs, refused, differences = chosen.seed, 0, 0, 0
    while time.monotonic() < end:
        with tempfile.TemporaryDirectory() as folder:
            soak = Soak(seed, Path(folder), PLAIN_METHODS if chosen.plain else METHODS)
            for difference in soak.runs():
                runs += 1
                if difference is not None:
                    differences += 1
                    print(f"seed {seed}: {difference}", file=report, flush=True)
                    break
            refused += soak.refused
        seed += 1
        if chosen.only:
            break
    seeds = seed - chosen.seed
    print(
        f"{runs} runs of {seeds} seed(s), {refused} of them refused as deltas; {differences} "
        "difference(s)",
        file=report,
        flush=True,
    )
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
