"""Bookmarks: where a stream's next run starts, which rows at exactly that value were already sent,
and, if some transactions were still open, which ones a run could see.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from singer_spark.core.key_value import KeyType, KeyValue
from singer_spark.error_codes import RunCode
from singer_spark.errors import StateError

FORMAT_VERSION = 1
SNAPSHOT_FORMAT = 1
MAX_SEEN = 50_000
MAX_OPEN = 100
HASH_CHARACTERS = 16
MAX_BOUNDARY_HASHES = 1000
# The limit for a finished stream. A bookmark within a run has fewer, because it is written after
# each slice.
MAX_WINDOW_HASHES = 10_000
BUCKETS = 256
_HASH_BYTES = HASH_CHARACTERS // 2


@dataclass(frozen=True)
class TransactionSnapshot:
    """The rows visible to a run, by the numbers of the transactions that wrote them.

    Attributes:
        system: The database system's identifier: another one's numbers mean nothing.
        xmin: Every transaction below it had ended.
        xmax: No transaction from here on had ended.
        seen: Transactions in between whose rows the run could see, ascending; at most `MAX_SEEN`.
        quiet: No transaction was open for long.
        timeline: The history of the system to which the numbers belong; None: unknown. Another one
            begins with a failover or a restore to an earlier state.
        relation: The object identifier of the table that was read, as another table may have its
            name by now; None: unknown.
        open: What had been open for long, by the server's names; at most `MAX_OPEN`. If it is empty
            and `quiet` is false, it is unknown.
    """

    system: str
    xmin: int
    xmax: int
    seen: tuple[int, ...] = ()
    quiet: bool = False
    timeline: int | None = None
    relation: int | None = None
    open: tuple[str, ...] = ()

    def is_of(self, system: str, timeline: int | None) -> bool:
        """Whether it may belong to this system and timeline; an unknown timeline may be any."""
        return self.system == system and (
            None in (self.timeline, timeline) or self.timeline == timeline
        )

    def to_json(self) -> dict[str, Any]:
        """`{"format_version", "system", "xmin", "xmax"}`, and `seen` as packed distances."""
        packed: dict[str, Any] = {"format_version": SNAPSHOT_FORMAT, "system": self.system}
        packed |= {"xmin": self.xmin, "xmax": self.xmax}
        if self.timeline is not None:
            packed["timeline"] = self.timeline
        if self.relation is not None:
            packed["relation"] = self.relation
        if self.seen:
            distances = [later - earlier for earlier, later in pairwise((self.xmin, *self.seen))]
            packed["seen"] = base64.b64encode(
                zlib.compress(struct.pack(f">{len(distances)}Q", *distances))
            ).decode()
        if self.open:
            packed["open"] = list(self.open)
        return {**packed, "quiet": True} if self.quiet else packed

    @classmethod
    def from_json(cls, packed: Any) -> TransactionSnapshot:
        """Parse the result of `to_json`.

        Raises:
            ValueError: it is malformed, or of a newer format.
        """
        if not isinstance(packed, Mapping) or packed.get("format_version") != SNAPSHOT_FORMAT:
            version = packed.get("format_version") if isinstance(packed, Mapping) else packed
            raise ValueError(
                f"its snapshot has format version {version!r}, and only {SNAPSHOT_FORMAT} is known"
            )
        system, xmin, xmax, seen = (packed.get(name) for name in ("system", "xmin", "xmax", "seen"))
        if (
            not isinstance(system, str)
            or not isinstance(xmin, int)
            or not isinstance(xmax, int)
            or xmin > xmax
        ):
            raise ValueError(f"its snapshot reaches from {xmin!r} to {xmax!r}")
        listed, timeline = () if seen is None else _unpacked(seen, xmin), packed.get("timeline")
        if timeline is not None and not isinstance(timeline, int):
            raise ValueError(f"its snapshot is of timeline {timeline!r}")
        relation = packed.get("relation")
        if relation is not None and not isinstance(relation, int):
            raise ValueError(f"its snapshot is of relation {relation!r}")
        names = packed.get("open", [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"its snapshot names {names!r} as open")
        quiet = packed.get("quiet") is True
        return cls(system, xmin, xmax, listed, quiet, timeline, relation, tuple(names))


def _unpacked(seen: Any, xmin: int) -> tuple[int, ...]:
    try:
        raw = zlib.decompress(base64.b64decode(seen, validate=True))
        distances = struct.unpack(f">{len(raw) // 8}Q", raw)
    except (ValueError, zlib.error, struct.error, TypeError) as error:
        raise ValueError("its snapshot is damaged") from error
    return tuple(accumulate(distances, initial=xmin))[1:]


@dataclass(frozen=True)
class Since:
    """The lowest key of a window below a bookmark.

    `raw` is the database's text if its order is that of the text.
    """

    value: KeyValue
    raw: str | None = None

    def to_json(self) -> dict[str, Any]:
        """`{"value"}`, and `raw` if there is one."""
        packed: dict[str, Any] = {"value": self.value.json_value()}
        return packed if self.raw is None else {**packed, "raw": self.raw}

    @classmethod
    def from_json(cls, packed: Any, like: KeyValue) -> Since:
        """Parse the result of `to_json`, a key `like` another; ValueError: it is malformed."""
        if not isinstance(packed, dict):
            raise ValueError(f"its window begins at {packed!r}")
        raw = packed.get("raw")
        value = KeyValue.parse(packed.get("value"), like.key_type, aware=like.aware)
        return cls(value, raw if isinstance(raw, str) else None)


@dataclass(frozen=True)
class Boundary:
    """Fingerprints of the rows that were sent in a window that ends at the bookmark: a multiset of
    bounded size.

    Attributes:
        rows: Number of rows sent in it.
        hashes: One fingerprint a row, sorted, twins repeated; empty if there are too many.
        buckets: In that case, sums (modulo 2**64) of the fingerprints by their first byte;
            otherwise empty.
        checksum: The database's own checksum of these rows, if it has one: a run that gets the same
            need not read them.
        mixed: Rows that were sent before another one reached this value may have become that one,
            so their fingerprints do not prove that the target has them.
        since: The window's lowest key; None: it has the bookmark's own value alone.
    """

    rows: int = 0
    hashes: tuple[str, ...] = ()
    buckets: tuple[int, ...] = ()
    checksum: str | None = None
    mixed: bool = False
    since: Since | None = None

    @classmethod
    def of(cls, hashes: Iterable[str]) -> Boundary:
        """The boundary of a few rows, given the fingerprint (16 hexadecimal digits) of each."""
        ordered = tuple(sorted(hashes))
        return cls(len(ordered), ordered)

    @classmethod
    def of_buckets(cls, rows: int, sums: Iterable[int]) -> Boundary:
        """The boundary of a group too large for single fingerprints."""
        return cls(rows, (), tuple(value % 2**64 for value in sums))

    def to_json(self) -> dict[str, Any]:
        """`{"format_version", "rows"}`, `hashes` or `buckets` in base64 (8 bytes each), and further
        members if set.
        """
        packed: dict[str, Any] = {"format_version": FORMAT_VERSION, "rows": self.rows}
        if self.hashes:
            packed["hashes"] = base64.b64encode(bytes.fromhex("".join(self.hashes))).decode()
        if self.buckets:
            packed["buckets"] = base64.b64encode(
                b"".join(v.to_bytes(8, "big") for v in self.buckets)
            ).decode()
        if self.checksum is not None:
            packed["checksum"] = self.checksum
        if self.since is not None:
            packed["since"] = self.since.to_json()
        return {**packed, "mixed": True} if self.mixed else packed

    @classmethod
    def from_json(cls, packed: Mapping[str, Any], like: KeyValue) -> Boundary:
        """Parse the result of `to_json`; `like` is a value of the key.

        Raises:
            ValueError: it is malformed, or of a newer format.
        """
        if packed.get("format_version") != FORMAT_VERSION:
            raise ValueError(
                f"its boundary has format version {packed.get('format_version')!r}, and only 1 "
                "is known"
            )
        rows = packed.get("rows")
        if not isinstance(rows, int) or rows < 0:
            raise ValueError(f"its boundary counts {rows!r} rows")
        hashes = tuple(part.hex() for part in _unpack(packed.get("hashes", "")))
        buckets = tuple(int.from_bytes(part, "big") for part in _unpack(packed.get("buckets", "")))
        if len(buckets) not in (0, BUCKETS) or (not buckets and len(hashes) != rows):
            raise ValueError("its boundary does not hold as many fingerprints as it counts rows")
        checksum = packed.get("checksum")
        known = checksum if isinstance(checksum, str) else None
        since = None if packed.get("since") is None else Since.from_json(packed["since"], like)
        return cls(rows, hashes, buckets, known, packed.get("mixed") is True, since)


def _unpack(text: str) -> list[bytes]:
    packed = base64.b64decode(text, validate=True)
    if len(packed) % _HASH_BYTES:
        raise ValueError("its boundary is cut short")
    return [packed[start : start + _HASH_BYTES] for start in range(0, len(packed), _HASH_BYTES)]


@dataclass(frozen=True)
class Bookmark:
    """Where a stream's next run starts; the lower bound is inclusive.

    Attributes:
        replication_key: The column's name.
        value: The greatest value that was sent, or one at which nothing was sent yet.
        boundary: Which rows at that value were sent; None if unknown: then all of them are sent
            again.
        raw: The database's own text of the value, if its order is that of the text (SQLite).
        snapshot: The transactions whose rows below the value could be sent; None: all there will
            ever be.
        runs: The moments at which runs fixed their upper bounds, by the database's clock in whole
            seconds, each with that bound. They range from the last run that began before the oldest
            open transaction to the last run. Only kept for a key of whole numbers. If the database
            does not report which transactions are open, the clock is the tap's, and a transaction
            of some minutes is assumed.
    """

    replication_key: str
    value: KeyValue
    boundary: Boundary | None = None
    raw: str | None = None
    snapshot: TransactionSnapshot | None = None
    runs: tuple[tuple[int, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A stream's entry under `bookmarks`."""
        entry: dict[str, Any] = {
            "replication_key": self.replication_key,
            "replication_key_value": self.value.json_value(),
        }
        if self.raw is not None:
            entry["replication_key_raw"] = self.raw
        if self.boundary is not None:
            # With the value it belongs to: an editor of the bookmark's value will not know about
            # it.
            entry["boundary"] = {**self.boundary.to_json(), "value": entry["replication_key_value"]}
        if self.snapshot is not None:
            entry["snapshot"] = self.snapshot.to_json()
        if self.runs:
            entry["runs"] = [list(each) for each in self.runs]
        return entry

    @classmethod
    def from_json(
        cls,
        stream: str,
        entry: Mapping[str, Any],
        replication_key: str,
        key_type: KeyType,
        *,
        aware: bool,
    ) -> Bookmark | None:
        """Parse a stream's entry; two documented fields suffice. None if it has no value.

        Raises:
            StateError: the value is not of the key's type, or belongs to another key.
        """
        value = entry.get("replication_key_value")
        if value is None:
            return None
        saved_key = entry.get("replication_key", replication_key)
        if saved_key != replication_key:
            raise StateError(
                RunCode.OTHER_REPLICATION_KEY,
                f"stream {stream}: the saved bookmark belongs to replication key {saved_key!r}, "
                f"but the run uses {replication_key!r}; run with --full, or set the bookmark "
                "again",
            )
        try:
            _check_type(value, key_type, aware=aware, ours="boundary" in entry)
            parsed = KeyValue.parse(value, key_type, aware=aware)
            packed, seen = entry.get("boundary"), entry.get("snapshot")
            boundary = Boundary.from_json(packed, parsed) if packed is not None else None
            snapshot = TransactionSnapshot.from_json(seen) if seen is not None else None
            runs = tuple((int(at), int(key)) for at, key in entry.get("runs", ()))
            if packed is not None and "value" not in packed:
                raise ValueError("its boundary does not say which value it belongs to")
        except (ValueError, TypeError) as error:
            raise StateError(
                RunCode.BOOKMARK_UNUSABLE,
                f"stream {stream}: the saved bookmark can't be used: {error}; fix the state, or "
                "run with --full",
            ) from error
        raw = entry.get("replication_key_raw")
        # An editor of the value will not know about the raw text, so it is used only while both
        # agree.
        if raw is not None and _parsed(raw, parsed) != parsed:
            raw, boundary = None, None
        kept = packed.get("value") if packed is not None else None
        if kept is not None and (before := _parsed(kept, parsed)) != parsed:
            boundary = None
            # Rows of open transactions are still to come below a lower value; a greater one skips
            # them.
            snapshot = snapshot if before is not None and parsed < before else None
        return cls(replication_key, parsed, boundary, raw, snapshot, runs)


def _check_type(value: Any, key_type: KeyType, *, aware: bool, ours: bool) -> None:
    """Refuse a value that parses, but is at another place in the current order of the column.

    It is `ours` if it was certainly written by `to_json`, and not by hand.
    """
    changed = "was saved for a key of another type: the column's type has changed since"
    if key_type in (KeyType.STRING, KeyType.UUID, KeyType.BINARY) and not isinstance(value, str):
        raise ValueError(f"{value!r} {changed}")
    if (
        ours
        and key_type in (KeyType.DATETIME, KeyType.TIMESTAMP)
        and isinstance(value, str)
        and "T" in value
        and value.endswith("Z") != aware
    ):
        raise ValueError(f"{value!r} {changed} ({'with' if aware else 'without'} time zone now)")


def _parsed(raw: Any, like: KeyValue) -> KeyValue | None:
    """Another value of the same key; None if it is not one."""
    try:
        return KeyValue.parse(raw, like.key_type, aware=like.aware)
    except ValueError:
        return None
