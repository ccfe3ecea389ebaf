"""The transactions whose rows a run could see: kept with a bookmark if some were still open (plain
Python).
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

SNAPSHOT_FORMAT = 1
MAX_SEEN = 50_000
MAX_OPEN = 100


@dataclass(frozen=True)
class TransactionSnapshot:
    """The rows visible to a run, by the numbers of the transactions that wrote them.

    Attributes:
        system: The database system's identifier: another one's numbers mean nothing.
        xmin: Every transaction below it had ended.
        xmax: No transaction from here on had ended.
        seen: The transactions in between whose rows the run could see, ascending; at most
            `MAX_SEEN`.
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
        """`{"format_version", "system", "xmin", "xmax"}`, and `seen`: the distances between its
        numbers, packed.
        """
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
                f"its snapshot has format version {version!r}, known is {SNAPSHOT_FORMAT}"
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
        return cls(
            system,
            xmin,
            xmax,
            listed,
            packed.get("quiet") is True,
            timeline,
            relation,
            tuple(names),
        )


def _unpacked(seen: Any, xmin: int) -> tuple[int, ...]:
    try:
        raw = zlib.decompress(base64.b64decode(seen, validate=True))
        distances = struct.unpack(f">{len(raw) // 8}Q", raw)
    except (ValueError, zlib.error, struct.error, TypeError) as error:
        raise ValueError("its snapshot is damaged") from error
    return tuple(accumulate(distances, initial=xmin))[1:]
