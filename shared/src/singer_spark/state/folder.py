"""States in another bucket or folder than the lake's: plain JSON as in the lake, with its owner in
a file beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from singer_spark.state.run_log import decode, encode
from singer_spark.state.store import BucketState, Signature, state_text


@dataclass
class FolderState(BucketState):
    """`state.json` in a place of its own, with `lake.json` beside it.

    Attributes:
        lake: URL of the bucket whose runs save it; None if it is only read.
    """

    lake: str | None = None

    def __post_init__(self) -> None:
        """Set `location` to the URL without its user."""
        self.location = re.sub(r"://[^/@]*@", "://", self.origin)

    @property
    def owner_path(self) -> str:
        """The path of the object that names its owner."""
        return f"{self.path.rpartition('/')[0]}/lake.json".lstrip("/")

    def signature(self) -> Signature | None:
        """The lake and run that saved it; None if not recorded.

        Raises:
            StorageError: `lake.json` is damaged, or of a newer version of the programs.
        """
        return self._signature(self.storage.read(self.owner_path))

    def register(self) -> None:
        """Record which lake's runs save it."""
        while True:
            seen = self.storage.read(self.owner_path)
            before = self._signature(seen)
            if before is not None and before.lake == self.lake:
                return
            if self.storage.exchange(
                self.owner_path, seen, self._owner(before.run_id if before else None)
            ):
                return

    def write(
        self,
        value: Mapping[str, Any],
        seen: bytes | None,
        run_id: str | None = None,
        mark: str = "",
    ) -> bool:
        """Replace the content that was `seen`, for a run.

        Returns False if someone else or another lake wrote meanwhile.
        """
        owner = self.storage.read(self.owner_path)
        before = self._signature(owner)
        if before is not None and before.lake not in (None, self.lake):
            return False
        if self.content() not in (seen, state_text(value, mark).encode()):
            return False
        # The owner is written first, because a state saved by a run that is not in the lake's
        # journal counts as another lake's.
        if not self.storage.exchange(self.owner_path, owner, self._owner(run_id)):
            return False
        return super().write(value, seen, run_id, mark)

    def _owner(self, run_id: str | None) -> bytes:
        return encode({"lake": self.lake, "run_id": run_id})

    def _signature(self, data: bytes | None) -> Signature | None:
        if data is None:
            return None
        body = decode(data, f"{self.storage.url}/{self.owner_path}")
        return Signature(body.get("lake"), body.get("run_id"))
