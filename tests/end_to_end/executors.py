"""What the workers of a standalone cluster have: the programs' executors, and files that no other machine sees."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from servers.clusters.standalone import Cluster

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
WORKER = "org.apache.spark.deploy.worker.Worker"


def kill_executors(cluster: Cluster, name: str) -> int:
    """Kills all executors of a program by SIGKILL, and says how many there were."""
    return _killed(_executors(cluster, name))


def disks(cluster: Cluster) -> list[Path]:
    """The temporary files of each worker and of its executors, as this process finds them."""
    temporary = tempfile.gettempdir()
    return [Path(f"/proc/{process}/root{temporary}") for process in _processes(WORKER, cluster.master)]


def holding(folder: Path, text: bytes) -> list[Path]:
    """Files below a folder that have Parquet's first bytes, or the text."""
    found = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file() and path.suffix != ".jar":
                data = path.read_bytes()
                if data.startswith(b"PAR1") or text in data:
                    found.append(path)
    return found


def _executors(cluster: Cluster, name: str) -> list[int]:
    (application,) = (each["id"] for each in cluster.told()["activeapps"] if each["name"] == name)
    return list(_processes(EXECUTOR, application))


def _killed(processes: list[int]) -> int:
    for process in processes:
        os.kill(process, signal.SIGKILL)
    return len(processes)


def _processes(*words: str) -> Iterator[int]:
    """Those that have all of these words on their command line."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if set(words) <= set((folder / "cmdline").read_bytes().decode(errors="replace").split("\0")):
                yield int(folder.name)
