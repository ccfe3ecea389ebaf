"""A real YARN of two nodes on free ports, Hadoop's own cluster for tests: for a fixture, and by
hand.

`python -m servers.clusters.yarn --build` fetches its jars into the user's cache, once. Where they
can't be had its tests are skipped, and in CI they fail. All else that it needs is among Spark's
jars, in whose version it comes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from py4j.java_gateway import JavaGateway

from servers.child import FOLLOW, serve
from servers.clusters.standalone import SPARK, START_SECONDS
from singer_spark.engine.java import find_java_home
from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.source.drivers import JarCache

NODES = 2
LACKING = "YARN's tests are skipped, in CI they fail"
CACHE = JarCache("yarn", "the mini cluster", LACKING)
# The proxy of the resource manager signs certificates; folders of the cluster are made by JUnit's
# assertions.
OTHERS = [
    "org.junit.jupiter:junit-jupiter-api:5.13.4",
    "org.junit.platform:junit-platform-commons:1.13.4",
]
OTHERS += ["org.opentest4j:opentest4j:1.3.0"]
OTHERS += [f"org.bouncycastle:{name}-jdk18on:1.81" for name in ("bcprov", "bcpkix", "bcutil")]
QUEUE = "yarn.scheduler.capacity.root"
SETTINGS = {
    "yarn.scheduler.minimum-allocation-mb": "128",
    # Containers that ended, or are wanted, are heard of by this.
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "100",
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100.0",
    # The jar has no settings of a queue.
    f"{QUEUE}.queues": "default",
    f"{QUEUE}.default.capacity": "100",
    f"{QUEUE}.default.maximum-capacity": "100",
    f"{QUEUE}.default.state": "RUNNING",
    f"{QUEUE}.default.acl_submit_applications": "*",
    f"{QUEUE}.default.acl_administer_queue": "*",
    "yarn.scheduler.capacity.node-locality-delay": "-1",
    # Tap and target are two applications, whose masters may take a tenth of a queue unless it says
    # otherwise.
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1",
}
# What clients must know, and applications too.
ADDRESSES = [f"yarn.resourcemanager.{name}address" for name in ("", "scheduler.", "webapp.")]
STATUS = ADDRESSES[-1]


@dataclass(frozen=True)
class Yarn:
    """A running cluster.

    Attributes:
        settings: The folder that `HADOOP_CONF_DIR` names.
        folder: Where its containers are.
        status: URL of what the resource manager says.
    """

    settings: str
    folder: str
    status: str

    def applications(self) -> list[dict[str, Any]]:
        """All that were submitted."""
        with urllib.request.urlopen(f"{self.status}/ws/v1/cluster/apps", timeout=10) as answer:
            found = json.load(answer)["apps"] or {}
            return list(found.get("app", []))


def packages() -> list[str]:
    """The jars that PySpark does not bring, by their Maven coordinates."""
    (client,) = (SPARK / "jars").glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    return [f"org.apache.hadoop:hadoop-client-minicluster:{version}", *OTHERS]


def missing() -> str | None:
    """Why no cluster can be started here; None where one can."""
    return (
        None
        if all(map(CACHE.has, packages()))
        else "no YARN was fetched: python -m servers.clusters.yarn --build"
    )


def build() -> str:
    """Fetches the jars, unless they are there; says in one line how it went."""
    if missing() is None:
        return f"YARN is there: {CACHE.path}"
    try:
        return f"YARN was fetched: {', '.join(CACHE.jars(packages()))}"
    except ConfigurationError as error:
        return f"YARN is not fetched: {error}"


@contextmanager
def running(folder: Path) -> Iterator[dict[str, Any]]:
    """A cluster whose files are in the folder; ended at the end."""
    # Containers are started by the one of the cluster.
    os.environ["JAVA_HOME"] = str(find_java_home())
    (bridge,) = (SPARK / "jars").glob("py4j-*.jar")
    with (folder / "log").open("w") as log:
        gateway = JavaGateway.launch_gateway(
            jarpath=str(bridge),
            classpath=os.pathsep.join([str(SPARK / "jars" / "*"), *CACHE.jars(packages())]),
            javaopts=["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
            java_path=None,
            die_on_exit=True,
            enable_auth=True,
            redirect_stdout=log,
            redirect_stderr=log,
            cwd=str(folder),
        )
        try:
            cluster = _started(gateway.jvm)
            addresses = {name: str(cluster.getConfig().get(name)) for name in ADDRESSES}
            settings = folder / "settings"
            settings.mkdir()
            _write(settings / "yarn-site.xml", addresses)
            _write(settings / "core-site.xml", {"fs.defaultFS": "file:///"})
            yield asdict(Yarn(str(settings), str(folder), f"http://{addresses[STATUS]}"))
        except Exception as error:
            log.flush()
            raise RuntimeError((folder / "log").read_text()[-5000:]) from error
        finally:
            gateway.shutdown()
            gateway.java_process.kill()
            gateway.java_process.wait()


def _started(jvm: Any) -> Any:
    conf = jvm.org.apache.hadoop.yarn.conf.YarnConfiguration()
    for name, value in SETTINGS.items():
        conf.set(name, value)
    cluster = jvm.org.apache.hadoop.yarn.server.MiniYARNCluster("nodes", NODES, 1, 1)
    cluster.init(conf)
    cluster.start()
    deadline = time.monotonic() + START_SECONDS
    while any(str(cluster.getConfig().get(name)).endswith(":0") for name in ADDRESSES):
        if time.monotonic() > deadline:
            raise RuntimeError("the resource manager does not say where it is")
        time.sleep(0.05)
    if not cluster.waitForNodeManagersToConnect(START_SECONDS * 1000):
        raise RuntimeError("its nodes did not come")
    return cluster


def _write(path: Path, settings: Mapping[str, str]) -> None:
    """A file of settings as Hadoop reads them."""
    lines = [
        f"<property><name>{name}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    ]
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>", ""]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--build", action="store_true", help="only fetch its jars, if they are not there"
    )
    parser.add_argument(FOLLOW, action="store_true", help="end with standard input")
    arguments = parser.parse_args()
    if arguments.build:
        print(build(), file=sys.stderr)
        return
    with tempfile.TemporaryDirectory(prefix="yarn-") as folder, running(Path(folder)) as facts:
        serve(facts, follow_stdin=arguments.follow_stdin)


if __name__ == "__main__":
    main()
