"""A Spark Connect server on a free port, as PySpark carries it: for a fixture, and by hand.

`python -m servers.clusters.connect` has the connector to S3 and runs in UTC, as the docs ask for;
`--zone` takes another zone.
"""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.child import FOLLOW, serve
from servers.clusters.standalone import SPARK, START_SECONDS, short_lived
from servers.postgresql import free_port
from singer_spark.engine.java import find_java_home


@contextmanager
def running(zone: str) -> Iterator[dict[str, str]]:
    """A server of one machine; ended at the end."""
    port = free_port()
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": shlex.join([f"-Duser.timezone={zone}", *short_lived()]),
    }
    command = [str(SPARK / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    command += [
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "spark-internal",
    ]
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_"))
    }
    environment = {
        **kept,
        "SPARK_HOME": str(SPARK),
        "JAVA_HOME": str(find_java_home()),
        "PYSPARK_PYTHON": sys.executable,
    }
    with (
        tempfile.TemporaryDirectory(prefix="connect-") as folder,
        Path(folder, "log").open("wb") as log,
    ):
        process = subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            _wait(port, process, Path(folder, "log"))
            yield {"remote": f"sc://127.0.0.1:{port}"}
        finally:
            process.terminate()
            process.wait()


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text(errors="replace")) from error
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zone", default="UTC", help="of the server's JVM")
    parser.add_argument(FOLLOW, action="store_true", help="end with standard input")
    arguments = parser.parse_args()
    with running(arguments.zone) as facts:
        serve(facts, follow_stdin=arguments.follow_stdin)


if __name__ == "__main__":
    main()
