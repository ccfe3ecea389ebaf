"""Runs a pipe of programs and measures all of it: a small process of its own that adopts every
orphan.

Read from standard input: {"commands": [{"name", "argv", "env"}], "output", "logs", "limit"};
printed: one JSON object. Wall seconds count from before the first start to the end of the last
process, whatever started it. CPU seconds are what the kernel accounts for all of them. Memory is
the greatest sum of PSS (resident, each shared page counted once).
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
POLL_SECONDS = 0.02
SAMPLE_SECONDS = 0.1
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
# PSS walks page tables, so it is asked for only where the cheap RSS has grown by this much over its
# last peak.
GROWTH = 1.02
WITHOUT_BYTECODE = "PYTHONDONTWRITEBYTECODE"
# Kept, so that no finaliser of Popen reaps a child before its CPU seconds are read.
CHILDREN: list[subprocess.Popen[bytes]] = []


@dataclass
class Usage:
    """What was seen of the processes so far: bytes, CPU seconds by pid, and the name of each
    pid.
    """

    peak_rss: int = 0
    peak_pss: int = 0
    cpu: dict[int, float] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)


def processes() -> dict[int, tuple[int, str, float]]:
    """Pid -> (parent, program, CPU seconds) of every process on this machine."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue
        program = text[text.index("(") + 1 : text.rindex(")")]
        fields = text[text.rindex(")") + 2 :].split()
        found[int(folder.name)] = (
            int(fields[1]),
            program,
            (int(fields[11]) + int(fields[12])) / TICKS,
        )
    return found


def resident(pid: int) -> int:
    """Bytes of RSS; 0 for a process that has just ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def proportional(pid: int) -> int:
    """Bytes of PSS; 0 for a process that has just ended."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def descendants(roots: dict[int, str]) -> dict[int, tuple[str, float]]:
    """Pid -> (name, CPU seconds) of all that runs below this process; a name is `tap java`."""
    table = processes()
    below: dict[int, tuple[str, float]] = {}

    def root_of(pid: int) -> str | None:
        seen = pid
        while seen in table and seen != 1:
            if seen in roots:
                return roots[seen]
            if seen == os.getpid():
                return "orphan"
            seen = table[seen][0]
        return None

    for pid, (_, program, cpu) in table.items():
        if pid != os.getpid() and (root := root_of(pid)):
            below[pid] = (f"{root} {program}", cpu)
    return below


def sample(usage: Usage, roots: dict[int, str]) -> None:
    """Notes CPU of each process and, at a new peak, memory."""
    running = descendants(roots)
    for pid, (name, cpu) in running.items():
        # The first name stays: an orphan keeps its family; only the program changes, at exec.
        family = usage.names.get(pid, name).split(" ")[0]
        usage.names[pid] = f"{family} {name.split(' ', 1)[1]}"
        usage.cpu[pid] = cpu
    rss = sum(resident(pid) for pid in running)
    if rss > usage.peak_rss * GROWTH:
        usage.peak_rss = rss
        shares = {pid: proportional(pid) for pid in running}
        if (total := sum(shares.values())) > usage.peak_pss:
            usage.peak_pss = total
            usage.peaks = {}
            for pid, size in shares.items():
                usage.peaks[usage.names[pid]] = usage.peaks.get(usage.names[pid], 0) + size


def start(job: dict[str, Any]) -> dict[int, str]:
    """Starts the commands as a shell pipe would; gives pid -> name."""
    logs, roots = Path(job["logs"]), {}
    # Python keeps what it compiled, as on a user's machine, also where this shell says otherwise.
    kept = {name: value for name, value in os.environ.items() if name != WITHOUT_BYTECODE}
    source: Any = subprocess.DEVNULL
    for position, command in enumerate(job["commands"]):
        last = position == len(job["commands"]) - 1
        with (
            (logs / f"{command['name']}.log").open("wb") as log,
            Path(job["output"]).open("wb") as output,
        ):
            child = subprocess.Popen(
                command["argv"],
                env=kept | command["env"],
                stdin=source,
                stdout=output if last else subprocess.PIPE,
                stderr=log,
                cwd=job["logs"],
            )
        if source is not subprocess.DEVNULL:
            source.close()
        source = child.stdout
        roots[child.pid] = command["name"]
        CHILDREN.append(child)
    return roots


def watch(
    roots: dict[int, str], usage: Usage, began: float, limit: float
) -> tuple[dict[str, int], float]:
    """Reaps every process until none is left; gives exit codes by name, and CPU seconds."""
    codes: dict[str, int] = {}
    cpu, next_sample = 0.0, 0.0
    while True:
        try:
            pid, status, spent = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return codes, cpu
        if pid:
            cpu += spent.ru_utime + spent.ru_stime
            if pid in roots:
                codes[roots[pid]] = os.waitstatus_to_exitcode(status)
            continue
        now = time.monotonic()
        if now - began > limit:
            for running in descendants(roots):
                os.kill(running, signal.SIGKILL)
        if now >= next_sample:
            next_sample = now + SAMPLE_SECONDS
            sample(usage, roots)
        time.sleep(POLL_SECONDS)


def stop(*_: object) -> None:
    """Ends all that runs below, for Ctrl-C and a killed runner."""
    for pid in descendants({}):
        os.kill(pid, signal.SIGKILL)
    sys.exit(130)


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    job = json.load(sys.stdin)
    usage, began = Usage(), time.monotonic()
    roots = start(job)
    codes, cpu = watch(roots, usage, began, job["limit"])
    wall = time.monotonic() - began
    split: dict[str, float] = {}
    for pid, seconds in usage.cpu.items():
        split[usage.names[pid]] = split.get(usage.names[pid], 0.0) + seconds
    figures = {"wall": wall, "cpu": cpu, "peak": usage.peak_pss, "codes": codes}
    json.dump({**figures, "cpu_split": split, "peak_split": usage.peaks}, sys.stdout)


if __name__ == "__main__":
    main()
