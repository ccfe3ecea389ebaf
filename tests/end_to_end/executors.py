"""What clusters have: executors, the workers or containers around them, and files that no other
machine sees.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from servers.clusters.standalone import Cluster
from servers.clusters.yarn import Yarn

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
WORKER = "org.apache.spark.deploy.worker.Worker"
# What containers of YARN run.
CONTAINER = "org.apache.spark.executor.YarnCoarseGrainedExecutorBackend"
APPLICATION_MASTER = "org.apache.spark.deploy.yarn.ExecutorLauncher"


def kill_executors(cluster: Cluster, name: str) -> int:
    """Kills all executors of a program by SIGKILL, and says how many there were."""
    return _killed(_executors(cluster, name))


def kill_worker(cluster: Cluster, name: str) -> int:
    """Kills a worker with all its executors, one of them the program's; returns how many executors
    there were.
    """
    worker = _parent(_executors(cluster, name)[0])
    own = [process for process in _processes(EXECUTOR) if _parent(process) == worker]
    return _killed([worker, *own]) - 1


def containers(yarn: Yarn, main: str) -> list[int]:
    """The processes of YARN's containers that run this class."""
    return [
        each
        for each in _processes(main)
        if Path(f"/proc/{each}/cwd").resolve().is_relative_to(yarn.folder)
    ]


def kill_containers(yarn: Yarn, main: str) -> int:
    """Kills all containers that run this class by SIGKILL, and says how many there were."""
    return _killed(containers(yarn, main))


def masters(yarn: Yarn) -> dict[str, int]:
    """The process of each application's master."""
    found = {}
    for each in containers(yarn, APPLICATION_MASTER):
        with suppress(FileNotFoundError):
            folders = Path(f"/proc/{each}/cwd").resolve().parts
            found |= {name: each for name in folders if name.startswith("application_")}
    return found


def kill_masters(yarn: Yarn) -> dict[str, int]:
    """Kills all application masters by SIGKILL, and says which there were."""
    found = masters(yarn)
    _killed(list(found.values()))
    return found


def disks(cluster: Cluster) -> list[Path]:
    """The temporary files of each worker and of its executors, as this process finds them."""
    temporary = tempfile.gettempdir()
    return [
        Path(f"/proc/{process}/root{temporary}") for process in _processes(WORKER, cluster.master)
    ]


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
    (application,) = (each["id"] for each in cluster.report()["activeapps"] if each["name"] == name)
    return list(_processes(EXECUTOR, application))


def _killed(processes: list[int]) -> int:
    for process in processes:
        os.kill(process, signal.SIGKILL)
    return len(processes)


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def _processes(*words: str) -> Iterator[int]:
    """Those that have all of these words on their command line."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if set(words) <= set(
                (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            ):
                yield int(folder.name)
