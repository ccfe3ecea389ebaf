"""One measured run of a case: started in a process of its own, then its output is counted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
from cases import Case
from sources.source import Source
from works import Command, Work

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Measurement:
    """What one run took.

    Attributes:
        rows: Of the source.
        source: Bytes of the source's table, as the server keeps it.
        wall: Seconds from the first start to the end of the last process.
        cpu: CPU seconds of all processes but PostgreSQL's.
        server_cpu: CPU seconds of PostgreSQL.
        peak: Bytes, the greatest sum of PSS of all processes but PostgreSQL's.
        others_cpu: CPU seconds of all else on the machine meanwhile, the hypervisor's share
            included: the noise.
        output: Bytes of data files.
        failure: Why the figures don't count; empty where they do.
        cpu_split: CPU seconds by program, as last sampled.
        peak_split: Bytes of PSS by program, at the peak.
    """

    case: str
    rows: int
    source: int
    wall: float
    cpu: float
    server_cpu: float
    others_cpu: float
    peak: int
    output: int
    failure: str
    cpu_split: dict[str, float]
    peak_split: dict[str, int]

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.wall


def measure(
    case: Case, source: Source, folder: Path, limit: float, remote: str | None = None
) -> Measurement:
    """Runs the case once; its folder is recreated unless the case continues in another's."""
    if case.after is None:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    work = case.work(source, folder, remote)
    printed = folder / "output"
    server_before, machine_before = source.server.cpu_seconds(), machine_cpu_seconds()
    seen = observed(work.commands, folder, limit)
    server_cpu, machine_cpu = (
        source.server.cpu_seconds() - server_before,
        machine_cpu_seconds() - machine_before,
    )
    return Measurement(
        case=case.name,
        rows=source.rows,
        source=source.bytes,
        wall=seen["wall"],
        cpu=seen["cpu"],
        server_cpu=server_cpu,
        others_cpu=max(0.0, machine_cpu - server_cpu - seen["cpu"]),
        peak=seen["peak"],
        output=data_bytes(work.output) if work.output else 0,
        failure=failure(work, seen["codes"], source, printed),
        cpu_split=seen["cpu_split"],
        peak_split=seen["peak_split"],
    )


def observed(commands: Sequence[Command], folder: Path, limit: float) -> dict[str, Any]:
    """Runs a pipe of programs and returns what `measuring.py` saw of it; its output and logs are in
    the folder.
    """
    # What the last run left to be written must not slow this one.
    os.sync()
    given = {
        "commands": [asdict(each) for each in commands],
        "output": str(folder / "output"),
        "logs": str(folder),
    }
    command, job = (
        [sys.executable, str(HERE / "measuring.py")],
        json.dumps({**given, "limit": limit}),
    )
    run = subprocess.run(command, input=job, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def machine_cpu_seconds() -> float:
    """Busy CPU seconds of the machine since it started: all columns of /proc/stat but idle and
    waiting ones.
    """
    user, nice, system, _, _, interrupts, soft, stolen = map(
        int, Path("/proc/stat").read_text().split()[1:9]
    )
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")


def data_bytes(folder: Path) -> int:
    """Bytes of all data files below."""
    return sum(
        path.stat().st_size for end in ("parquet", "jsonl") for path in folder.rglob(f"*.{end}")
    )


def failure(work: Work, codes: dict[str, int], source: Source, printed: Path) -> str:
    """Says what is wrong: an exit code, or rows that are not those of the source."""
    if any(codes.values()):
        return "exit codes " + ", ".join(f"{name} {code}" for name, code in codes.items())
    try:
        if not work.relation:
            found: tuple[int, ...] = (int(printed.read_text().split()[-1]),)
            wanted: tuple[int, ...] = (source.rows,)
        else:
            found = (
                duckdb.connect()
                .execute(f"SELECT count(*), sum(id)::bigint FROM {work.relation}")
                .fetchall()[0]
            )
            wanted = (source.rows, source.checksum)
    except (duckdb.Error, ValueError, IndexError) as error:
        return f"output unreadable: {error}".splitlines()[0]
    return "" if found == wanted else f"rows and sum of ids are {found}, not {wanted}"
