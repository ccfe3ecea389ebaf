"""Google's store for the tests: a real fake-gcs-server, built once.

`python -m servers.google` runs it by hand. `python -m servers.google --build` builds it from source
into the user's cache, where a Go toolchain is. Where it can't be had its tests are skipped, and in
CI they fail.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from servers.built import go_install, memory_disk, served
from servers.child import FOLLOW, serve
from servers.postgresql import free_port
from singer_spark.engine.java import cache_folder

PACKAGE = "github.com/fsouza/fake-gcs-server"
VERSION = "v1.56.1"
LACKING = "Google's tests are skipped, in CI they fail"


def program() -> Path:
    """Where the built program is kept, whether it is there or not."""
    return cache_folder() / "fake-gcs-server" / VERSION / "fake-gcs-server"


def build() -> str:
    """Builds the program, unless it was; says in one line how it went."""
    return go_install(
        "fake-gcs-server",
        program(),
        f"{PACKAGE}@{VERSION}",
        "Google's tests are skipped, in CI they fail",
    )


def missing() -> str:
    """Why there is no server; empty where there is one."""
    return (
        ""
        if program().exists()
        else "no fake-gcs-server was built: python -m servers.google --build"
    )


def described() -> str:
    """The line about it in pytest's header."""
    return f"Google's store: {missing() or f'fake-gcs-server {VERSION}'}"


@dataclass(frozen=True)
class GoogleStore:
    """A running server."""

    endpoint: str
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), repr=False)

    @property
    def storage_options(self) -> dict[str, Any]:
        """As a user writes them in a config, in fsspec's words."""
        return self.options_at(self.endpoint)

    def options_at(self, endpoint: str) -> dict[str, Any]:
        """The same at a proxy's endpoint."""
        return {"endpoint_url": endpoint, "token": "anon", "project": "tests"}

    def new_bucket(self) -> str:
        """The URL of an empty bucket that no one else uses."""
        name = f"lake-{next(self.numbers)}"
        body = json.dumps({"name": name}).encode()
        with urllib.request.urlopen(f"{self.endpoint}/storage/v1/b", data=body):
            return f"gs://{name}"

    def keys(self, bucket: str) -> list[str]:
        """All keys of a bucket, as the server itself lists them."""
        name = bucket.removeprefix("gs://").partition("/")[0]
        with urllib.request.urlopen(f"{self.endpoint}/storage/v1/b/{name}/o") as answer:
            return sorted(each["name"] for each in json.load(answer).get("items", ()))


@contextmanager
def running(folder: Path) -> Iterator[dict[str, str]]:
    """A server that keeps its objects in memory; ended at the end."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command: list[str | Path] = [
        program(),
        "-scheme",
        "http",
        "-backend",
        "memory",
        "-host",
        "127.0.0.1",
    ]
    # It does not know its own address, so behind a proxy it answers with the one by which it was
    # asked.
    command += ["-port", str(port), "-public-host", f"127.0.0.1:{port}", "-log-level", "error"]
    with served(command, {}, f"{address}/_internal/healthcheck", folder):
        yield {"endpoint": address}


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
        tempfile.TemporaryDirectory(prefix="google-", dir=memory_disk()) as folder,
        running(Path(folder)) as facts,
    ):
        serve(facts, follow_stdin=arguments.follow_stdin)


if __name__ == "__main__":
    main()
