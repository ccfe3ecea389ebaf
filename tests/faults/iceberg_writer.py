"""A process that syncs two Iceberg tables, and is killed at its n-th change from the commit on:
`BUCKET N`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.faulty import Proxy
from faults.iceberg_tables import TwoIcebergTables, catalog_calls
from faults.storage.test_delta_faults import LAYOUT

CHANGES = frozenset(
    {"create", "replace", "exchange", "move", "delete", "delete_all", "sweep", "commit_table"}
)


class KilledAfterCommit(Proxy):
    """Kills this process right after its n-th change."""

    def __init__(self, step: int) -> None:
        super().__init__(None)
        self.left, self.decided = step, False

    def of(self, files: Any) -> KilledAfterCommit:
        """The same count, for the calls of a storage."""
        self.inner = files
        return self

    def around(self, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        self.decided = self.decided or (name == "create" and str(args[0]).startswith(LAYOUT.runs))
        counts = self.decided and name in CHANGES
        self.left -= counts
        result = call()
        if counts and self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def main() -> None:
    lake, killed = TwoIcebergTables(Path(sys.argv[1])), KilledAfterCommit(int(sys.argv[2]))
    with catalog_calls(pytest.MonkeyPatch(), killed):
        lake.sync(lake.storage(killed.of))


if __name__ == "__main__":
    main()
