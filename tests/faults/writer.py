"""A process that syncs a small lake and can be killed: `python -m faults.writer BUCKET [--kill-at
N] [--resume]`.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable
from typing import Any

from faults.faulty import Proxy
from faults.resuming_lake import ResumingLake
from faults.small_lake import SmallLake

CHANGES = frozenset({"create", "replace", "exchange", "move", "delete", "delete_all", "sweep"})


class KilledAt(Proxy):
    """Kills this process right before its n-th change to the bucket."""

    def __init__(self, inner: Any, nth: int) -> None:
        super().__init__(inner)
        self.left = nth

    def around(self, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        self.left -= name in CHANGES
        if self.left == 0 and name in CHANGES:
            os.kill(os.getpid(), signal.SIGKILL)
        return call()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bucket")
    parser.add_argument("--kill-at", type=int)
    parser.add_argument("--resume", action="store_true", help="continue where a dead run stopped")
    arguments = parser.parse_args()
    lake = (ResumingLake if arguments.resume else SmallLake)(arguments.bucket, {})
    if arguments.kill_at:
        lake.sync(lake.faulty_files(lambda files: KilledAt(files, arguments.kill_at)))
        return
    while True:
        print(lake.sync(), flush=True)


if __name__ == "__main__":
    main()
