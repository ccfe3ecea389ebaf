"""Iceberg's own REST catalog in a JVM: the server of its compatibility kit, over a JDBC catalog in
SQLite.

Its jars need a network the first time; what else it needs is with PySpark.
"""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.postgresql import free_port
from singer_spark.engine.command import spark_home
from singer_spark.engine.java import find_java_home
from tap_spark_jdbc.source.drivers import JarCache

ICEBERG, JETTY, HTTP = "1.11.0", "12.1.5", "5.4"
SERVER = (
    f"org.apache.iceberg:iceberg-open-api:{ICEBERG}:test-fixtures",
    f"org.apache.iceberg:iceberg-core:{ICEBERG}:tests",
)
LIBRARIES = (
    *(
        f"org.apache.iceberg:iceberg-{each}:{ICEBERG}"
        for each in ("core", "api", "common", "bundled-guava")
    ),
    f"org.eclipse.jetty.ee10:jetty-ee10-servlet:{JETTY}",
    *(
        f"org.eclipse.jetty:jetty-{each}:{JETTY}"
        for each in ("security", "server", "http", "io", "session", "util")
    ),
    *(
        f"org.eclipse.jetty.compression:jetty-compression-{each}:{JETTY}"
        for each in ("server", "common", "gzip")
    ),
    "jakarta.servlet:jakarta.servlet-api:6.0.0",
    "org.apache.httpcomponents.client5:httpclient5:5.6.1",
    *(f"org.apache.httpcomponents.core5:httpcore5{each}:{HTTP}" for each in ("", "-h2")),
    "com.github.ben-manes.caffeine:caffeine:2.9.3",
    "org.xerial:sqlite-jdbc:3.50.3.0",
)
DEADLINE = 60


@contextmanager
def reference_catalog(folder: Path) -> Iterator[str]:
    """Where it listens while the block runs; its tables are registered in a file of the folder."""
    cache = JarCache("iceberg", "Iceberg's REST server", "fetch it where there is a network")
    # One after the other: Ivy brings one jar of a module.
    jars = [*cache.jars(SERVER), *cache.jars(LIBRARIES)]
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    settings = {
        "CATALOG_REST_PORT": str(port),
        "CATALOG_URI": f"jdbc:sqlite:{folder}/reference.db",
        "CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
    }
    command = [
        str(find_java_home() / "bin" / "java"),
        *("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *("-cp", os.pathsep.join([*jars, f"{spark_home()}/jars/*"])),
        "org.apache.iceberg.rest.RESTCatalogServer",
    ]
    with (
        (folder / "reference.log").open("wb") as log,
        subprocess.Popen(
            command, env={**os.environ, **settings}, stdout=log, stderr=log
        ) as process,
    ):
        try:
            _wait(f"{uri}/v1/config", process, folder / "reference.log")
            yield uri
        finally:
            process.terminate()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    over = time.monotonic() + DEADLINE
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError) as error:
            if process.poll() is not None or time.monotonic() > over:
                raise RuntimeError(
                    f"Iceberg's REST server did not start: {log.read_text()[-2000:]}"
                ) from error
            time.sleep(0.1)
