"""A standalone Spark cluster of two workers on free ports, by PySpark's own classes: for a fixture,
and by hand.

Where the system lets it, each worker has a host of its own (`servers.clusters.hosts`), and an empty
folder in the place of this machine's temporary files: what a program writes to its own disk, or
listens for on its loopback, is not there for executors, as on a real cluster. `python -m
servers.clusters.standalone` starts one.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyspark

from servers.child import FOLLOW, serve
from servers.clusters.hosts import LOOPBACK, network
from servers.postgresql import free_port
from singer_spark.engine import class_archive
from singer_spark.engine.java import find_java_home

WORKERS = 2
START_SECONDS = 300
SPARK = Path(pyspark.__file__).parent
# How a process gets a view of the file system of its own, for root and for others.
WAYS_APART = (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"])


def class_path() -> str:
    """The class path that Spark makes, with which the archive of classes is used."""
    path = [SPARK / "conf", *SPARK.glob("jars/slf4j-api-*.jar"), SPARK / "jars" / "*"]
    return os.pathsep.join(map(str, path))


def short_lived() -> list[str]:
    """Java's options for what does not live as long as its second compiler takes to pay for itself.

    The classes come from the archive that the programs' own JVMs use; it is bound to the class path
    that Spark makes.
    """
    return [
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *class_archive.java_options(find_java_home()),
    ]


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Attributes:
        master: For `spark.master`.
        status: URL of what the master says of itself.
        apart: Whether the workers do not see this process's temporary files.
        here: This machine's address as the workers know it; its loopback where they have no hosts
            of their own.
    """

    master: str
    status: str
    apart: bool
    here: str = LOOPBACK

    def report(self) -> dict[str, Any]:
        """What the master reports about workers and applications."""
        with urllib.request.urlopen(self.status, timeout=10) as answer:
            reported: dict[str, Any] = json.load(answer)
            return reported


@contextmanager
def running(
    cores: int, memory: str, workers: int = WORKERS, *, hosts: bool = True
) -> Iterator[dict[str, Any]]:
    """A master and its workers, each with these resources and a host of its own; ended at the
    end.
    """
    port, status, way = free_port(), free_port(), _way_apart()
    with tempfile.TemporaryDirectory(prefix="standalone-") as folder, ExitStack() as stack:
        known = stack.enter_context(network(workers, apart=hosts))
        here, address = known.here, f"spark://{known.here}:{port}"
        options = ["--host", here, "--port", str(port), "--webui-port", str(status)]
        stack.enter_context(_daemon(Path(folder, "master"), here, ["master.Master", *options], []))
        cluster = Cluster(address, f"http://{here}:{status}/json/", bool(way), here)
        for number, host in enumerate(known.hosts):
            own = Path(folder, f"worker-{number}")
            # Executors of one address read each other's disks, which these can't.
            options = [
                "--host",
                host.address,
                "--cores",
                str(cores),
                "--memory",
                memory,
                "--webui-port",
                "0",
            ]
            options += ["--work-dir", str(own / "work"), address]
            stack.enter_context(
                _daemon(own, host.address, ["worker.Worker", *options], [*host.way, *way])
            )
        _wait(cluster, Path(folder), workers)
        yield asdict(cluster)


def _way_apart() -> list[str]:
    for way in WAYS_APART:
        try:
            if (
                subprocess.run(
                    [*way, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True
                ).returncode
                == 0
            ):
                return way
        except FileNotFoundError:
            break
    return []


@contextmanager
def _daemon(folder: Path, host: str, arguments: list[str], way: list[str]) -> Iterator[None]:
    """One of Spark's daemons, with its folder and its log; `way` gives it temporary files of its
    own.
    """
    folder.mkdir()
    java = [
        str(find_java_home() / "bin" / "java"),
        "-Xmx192m",
        *short_lived(),
        "-cp",
        class_path(),
    ]
    command = [*java, f"org.apache.spark.deploy.{arguments[0]}", *arguments[1:]]
    if way:
        command = [*way, "sh", "-c", " && ".join([*_hidden(folder), f"exec {shlex.join(command)}"])]
    environment = {
        **{
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))
        },
        "SPARK_HOME": str(SPARK),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "JAVA_HOME": str(find_java_home()),
    }
    with folder.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            yield
        finally:
            # A worker that is asked to leave takes its executors with it.
            process.terminate()
            process.wait()


def _hidden(folder: Path) -> list[str]:
    """Shell commands that put an empty folder in the place of the temporary files; the programs
    that are there stay.
    """
    temporary = Path(tempfile.gettempdir()).resolve()
    programs = [
        path
        for path in (SPARK.resolve(), find_java_home().resolve())
        if path.is_relative_to(temporary)
    ]
    commands = ["mount -t tmpfs tmpfs /mnt"]
    for number, program in enumerate(programs):
        commands.append(
            f"mkdir /mnt/{number} && mount --bind {shlex.quote(str(program))} /mnt/{number}"
        )
    commands.append(f"mount -t tmpfs tmpfs {shlex.quote(str(temporary))}")
    for number, program in enumerate(programs):
        place = shlex.quote(str(program))
        commands.append(f"mkdir -p {place} && mount --move /mnt/{number} {place}")
    return [*commands, f"mkdir -p {shlex.quote(str(folder))}"]


def _wait(cluster: Cluster, folder: Path, workers: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            if cluster.report()["aliveworkers"] == workers:
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise RuntimeError(
                "".join(log.read_text(errors="replace") for log in sorted(folder.glob("*.log")))
            )
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", type=int, default=2, help="of each worker")
    parser.add_argument("--memory", default="3g", help="of each worker")
    parser.add_argument("--workers", type=int, default=WORKERS, help="how many")
    parser.add_argument(
        "--one-host", action="store_true", help="workers at addresses of this machine's loopback"
    )
    parser.add_argument(FOLLOW, action="store_true", help="end with standard input")
    arguments = parser.parse_args()
    given = arguments.cores, arguments.memory, arguments.workers
    with running(*given, hosts=not arguments.one_host) as facts:
        serve(facts, follow_stdin=arguments.follow_stdin)


if __name__ == "__main__":
    main()
