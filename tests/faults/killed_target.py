"""The real target as `python -m faults.killed_target …`: takes checkpoints at every STATE, dies at
a chosen change.

The environment names the change: `before` or `after`, an operation of the storage or `any`, and
what its path contains, as in `before create /runs/`; a fourth word says which of these calls, the
first being 1.
"""

from __future__ import annotations

import os
import re
import runpy
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from end_to_end.pipe import BIN
from faults.faulty import Proxy
from singer_spark.store.storage import Storage
from target_spark_lake.load import checkpointing

KILLED_AT = "TARGET_KILLED_AT"
TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Step:
    """One call of an operation on the bucket.

    Attributes:
        when: `before` or `after`.
        operation: A method of the storage, or `any`.
        path: A regular expression that fits somewhere in its first path.
        nth: Which of these calls.
    """

    when: str
    operation: str
    path: str
    nth: int = 1

    @staticmethod
    def of(words: str) -> Step:
        when, operation, path, *nth = words.split()
        return Step(when, operation, path, *map(int, nth))


class KilledAt(Proxy):
    """Kills this process right before or after a call."""

    def __init__(self, inner: Any, step: Step) -> None:
        super().__init__(inner)
        self.step = step
        self.left = step.nth
        self._lock = threading.Lock()

    def around(self, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        named = self.step.operation in (name, "any")
        fits = named and bool(re.search(self.step.path, str(args[0]) if args else ""))
        with self._lock:
            self.left -= fits
            here = fits and self.left == 0
        if here and self.step.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = call()
        if here:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def command(arguments: list[str]) -> list[str]:
    """The command line of such a target."""
    return [sys.executable, "-m", "faults.killed_target", *arguments]


def main() -> None:
    checkpointing.CUT_SECONDS = checkpointing.WRITE_SECONDS = 0
    checkpointing.CUTS_A_RUN = checkpointing.WRITES_A_RUN = sys.maxsize
    if words := os.environ.get(KILLED_AT):
        made = Storage.__init__

        def make(storage: Storage, *arguments: Any, **options: Any) -> None:
            made(storage, *arguments, **options)
            storage.files = KilledAt(storage.files, Step.of(words))

        Storage.__init__ = make
    sys.argv[0] = str(BIN / "target-spark-lake")
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
