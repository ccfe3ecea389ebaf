"""A real MinIO on a free port, where one was built: for the tests' fixture, and by hand with
`python -m servers.minio`.

`python -m servers.minio --build` builds it from source into the user's cache, once, where a Go
toolchain is. Without one, or where the build fails, it says so on standard error and the tests are
served by moto.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.built import go_install, memory_disk, served
from servers.child import FOLLOW, serve
from servers.postgresql import free_port
from singer_spark.engine.java import cache_folder

PACKAGE = "github.com/minio/minio"
VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
ACCOUNT = {"key": "tester", "secret": "not-so-secret"}


def program() -> Path:
    """Where the built program is kept, whether it is there or not."""
    return cache_folder() / "minio" / VERSION / "minio"


def build() -> str:
    """Builds the program, unless it was; says in one line how it went."""
    return go_install("MinIO", program(), f"{PACKAGE}@{VERSION}", "moto serves the tests")


@contextmanager
def running(folder: Path) -> Iterator[dict[str, str]]:
    """A server whose objects lie in the folder; ended at the end."""
    port, console = free_port(), free_port()
    address = f"http://127.0.0.1:{port}"
    login = {"MINIO_ROOT_USER": ACCOUNT["key"], "MINIO_ROOT_PASSWORD": ACCOUNT["secret"]}
    listen: list[str | Path] = [
        "--address",
        f"127.0.0.1:{port}",
        "--console-address",
        f"127.0.0.1:{console}",
    ]
    environment = {**login, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off", "HOME": str(folder)}
    with served(
        [program(), "server", folder / "data", *listen],
        environment,
        f"{address}/minio/health/ready",
        folder,
    ):
        yield {"endpoint": address, **ACCOUNT}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--build", action="store_true", help="only build the program, if it is not there"
    )
    parser.add_argument(FOLLOW, action="store_true", help="end with standard input")
    arguments = parser.parse_args()
    if arguments.build:
        print(build(), file=sys.stderr)
        return
    with (
        tempfile.TemporaryDirectory(prefix="minio-", dir=memory_disk()) as folder,
        running(Path(folder)) as facts,
    ):
        serve(facts, follow_stdin=arguments.follow_stdin)


if __name__ == "__main__":
    main()
