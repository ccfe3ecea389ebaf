"""S3 for the tests: a real MinIO where one was built (`servers.minio`), else moto's server, which
this module starts.

`TEST_S3_SERVER=moto` takes moto in any case, `TEST_S3_SERVER=minio` fails where no MinIO was built.
`python -m servers.s3` starts moto's by hand, on a free port.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from servers import minio
from servers.child import FOLLOW, serve

if TYPE_CHECKING:
    from s3fs import S3FileSystem

CHOICE = "TEST_S3_SERVER"
MODULES = {"minio": "servers.minio", "moto": "servers.s3"}


def chosen_server() -> str:
    """`minio` or `moto`.

    Raises:
        ValueError: the variable names neither.
        FileNotFoundError: MinIO was asked for, and not built.
    """
    asked = os.environ.get(CHOICE, "")
    if asked and asked not in MODULES:
        raise ValueError(f"{CHOICE} is {asked!r}, neither minio nor moto")
    built = minio.program().exists()
    if asked == "minio" and not built:
        raise FileNotFoundError(
            f"no MinIO was built: `python -m servers.minio --build` in tests/ ({minio.program()})"
        )
    return asked or ("minio" if built else "moto")


def described() -> str:
    """The line about it in pytest's header."""
    server = chosen_server()
    if server == "minio":
        return f"S3 server: MinIO {minio.VERSION} ({CHOICE}=moto takes moto)"
    why = (
        f"{CHOICE}=moto"
        if os.environ.get(CHOICE)
        else "no MinIO was built: python -m servers.minio --build"
    )
    return f"S3 server: moto ({why})"


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

    def options_at(self, endpoint: str) -> dict[str, Any]:
        """The same at a proxy's endpoint."""
        return {**self.storage_options, "endpoint_url": endpoint}

    def keys(self, bucket: str) -> list[str]:
        """All keys of a bucket, as the server itself lists them."""
        name = bucket.removeprefix("s3://").partition("/")[0]
        found = self.filesystem().call_s3("list_objects_v2", Bucket=name)
        return [each["Key"] for each in found.get("Contents", ())]

    def filesystem(self) -> S3FileSystem:
        """An independent look at the server, without caches."""
        from s3fs import S3FileSystem

        return S3FileSystem(
            **self.storage_options, use_listings_cache=False, skip_instance_cache=True
        )

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
