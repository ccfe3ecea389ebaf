"""Runs of the real target in forks of a process that has loaded it: `python -m
faults.signalled_target FOLDER`.

Each line of input is a JSON object: `input` (a file), `nth` and `signals` (before the n-th change
of the bucket the process sends them to itself), `breath` (seconds in which a second signal means
the same). Each line of output is one, too: `code`, `output`, `errors`, and `reached`: whether there
were so many changes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import pyarrow.json
import pyarrow.parquet  # noqa: F401  loaded once, for all forks, as what is marked below
import pyspark.sql.types  # noqa: F401

from faults.faulty import Proxy
from singer_spark.core import signals
from singer_spark.program import frame
from singer_spark.store import storage
from singer_spark.store.local_files import LocalFiles
from target_spark_lake import __main__ as target
from target_spark_lake import target as command  # noqa: F401
from target_spark_lake.intake import singer_lines  # noqa: F401
from target_spark_lake.stage import arrow_staging, line_rows, stager  # noqa: F401

CHANGES = frozenset({"create", "replace", "exchange", "move", "delete", "delete_all", "sweep"})


class SignalledAt(Proxy):
    """Sends signals to this process right before its n-th change of the bucket."""

    def __init__(self, inner: Any, left: list[int], numbers: list[int], reached: Path) -> None:
        super().__init__(inner)
        self.left = left
        self.numbers = numbers
        self.reached = reached

    def around(self, name: str, args: tuple[Any, ...], call: Any) -> Any:
        self.left[0] -= name in CHANGES
        if self.left[0] == 0 and name in CHANGES:
            self.left[0] = -1
            self.reached.touch()
            for number in self.numbers:
                signal.raise_signal(number)
        return call()


def run(folder: Path, order: dict[str, Any]) -> NoReturn:
    """The fork's life."""
    for descriptor, name, flags in (
        (0, order["input"], os.O_RDONLY),
        (1, "out", os.O_WRONLY),
        (2, "err", os.O_WRONLY),
    ):
        os.dup2(
            os.open(folder / name, flags | os.O_CREAT | os.O_TRUNC if flags else flags), descriptor
        )
    left = [order["nth"]]

    def signalled(*arguments: Any) -> Any:
        return SignalledAt(LocalFiles(*arguments), left, order["signals"], folder / "reached")

    storage.LocalFiles = signalled
    signals.SAME_BREATH_SECONDS = order["breath"]
    sys.argv = [target.PROGRAM, "--config", str(folder / "target.json")]
    frame.run_program(target._command, target.PROGRAM, if_stopped="nothing was published")


def main() -> None:
    folder = Path(sys.argv[1])
    for line in sys.stdin.buffer:
        (folder / "reached").unlink(missing_ok=True)
        child = os.fork()
        if not child:
            run(folder, json.loads(line))
        _, status = os.waitpid(child, 0)
        answer = {
            "code": os.waitstatus_to_exitcode(status),
            "output": (folder / "out").read_text(),
            "errors": (folder / "err").read_text(),
            "reached": (folder / "reached").exists(),
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
