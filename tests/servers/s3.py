"""An S3 server (moto's) on a free port: for the tests' fixture, and by hand with `python -m servers.s3`."""

from __future__ import annotations

import argparse
import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from servers.child import FOLLOW, serve

if TYPE_CHECKING:
    from s3fs import S3FileSystem


@dataclass(frozen=True)
class S3:
    """A running server and an account on it."""

    endpoint: str
    key: str
    secret: str
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), repr=False)

    @property
    def storage_options(self) -> dict[str, Any]:
        """As a user writes them in a config, in fsspec's words."""
        return {"endpoint_url": self.endpoint, "key": self.key, "secret": self.secret}

    def filesystem(self) -> S3FileSystem:
        """An independent look at the server, without caches."""
        from s3fs import S3FileSystem

        return S3FileSystem(**self.storage_options, use_listings_cache=False, skip_instance_cache=True)

    def new_bucket(self) -> str:
        """The URL of an empty bucket that no one else uses."""
        name = f"lake-{next(self.numbers)}"
        self.filesystem().mkdir(name)
        return f"s3://{name}"


def main() -> None:
    from moto.server import ThreadedMotoServer

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(FOLLOW, action="store_true", help="end with standard input")
    arguments = parser.parse_args()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    facts = {"endpoint": f"http://{host}:{port}", "key": "tester", "secret": "not-so-secret"}
    serve(facts, follow_stdin=arguments.follow_stdin)
    server.stop()


if __name__ == "__main__":
    main()
