"""What a killed run costs: the tap is killed on its way, and the next run sends the rest.

This is not a part of `make bench`.

usage: resume.py [--rows N] [--percent P ...]
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from environments import CACHE
from sources.source import ROOT, Source, postgresql, table_of

sys.path.insert(0, str(ROOT / "tests"))

from end_to_end.live_pipe import TAP, Ended, LivePipe, Victim
from end_to_end.pipe import Pipe
from end_to_end.relay import Moment

FOLDER = CACHE / "work" / "resume"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Kills the tap on its way, and counts what the next run sends."
    )
    parser.add_argument(
        "--rows", type=int, default=3_000_000, help="rows of the source (3,000,000)"
    )
    parser.add_argument(
        "--percent", nargs="+", type=int, default=[25, 50, 90], help="where the tap is killed"
    )
    return parser.parse_args()


def pipe_of(source: Source) -> Pipe:
    shutil.rmtree(FOLDER, ignore_errors=True)
    server = source.server
    tap = {
        "jdbc_url": server.jdbc_url,
        "user": server.user,
        "password": server.password,
        "tables": [f"{source.schema}.{source.table}"],
        "incremental_tables": [f"{source.schema}.{source.table}:updated_at:timestamp"],
    }
    return Pipe(FOLDER, tap)


def run(pipe: Pipe, **options: Any) -> Ended:
    with LivePipe(pipe, "--state", str(pipe.state_path), **options) as live:
        return live.wait()


def measure(source: Source, percent: int) -> str:
    """A row of the table; ends the program where a promise does not hold."""
    pipe = pipe_of(source)
    moment = Moment(records=source.rows * percent // 100)
    dead = run(pipe, moment=moment, victims=(Victim(TAP),))
    visible = [
        *pipe.bucket.glob("raw/**/*.parquet"),
        *pipe.bucket.glob(".dataspoc/state/*/state.json"),
    ]
    if dead.codes != (-signal.SIGKILL, 1) or visible:
        sys.exit(f"the killed run ended with {dead.codes} and left {visible}: {dead.outcome}")
    kept = dead.states[-1].records
    resumed = run(pipe).succeeded()
    (found,) = pipe.rows(f"{source.schema}-{source.table}", "count(*), sum(id)")
    sent = resumed.sent.total()
    if (
        resumed.start != "resume"
        or kept + sent != source.rows
        or found != (source.rows, source.checksum)
    ):
        sys.exit(f"resumed by {resumed.start}: {kept} kept, {sent} sent, found {found} of {source}")
    cells = (
        f"{percent} %",
        f"{dead.sent.total():,}",
        f"{kept:,}",
        f"{sent:,}",
        *seconds(dead, resumed),
    )
    return "| " + " | ".join(cells) + " |"


def seconds(*runs: Ended) -> list[str]:
    return [f"{each.seconds:.1f} s" for each in runs]


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with (
        tempfile.TemporaryDirectory(prefix="bench-postgresql-") as data,
        postgresql(Path(data)) as server,
    ):
        source = table_of(server, options.rows)
        rows = [measure(source, percent) for percent in options.percent]
    print(f"\n{options.rows:,} rows of 12 columns\n")
    print("| tap killed at | rows sent | kept | sent by the next run | killed run | next run |")
    print("|---|---|---|---|---|---|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
