"""Azure's blob storage for the tests: a real Azurite, installed once.

`python -m servers.azure` runs it by hand. `python -m servers.azure --build` installs it into the
user's cache, where Node and npm are. Where it can't be had its tests are skipped, and in CI they
fail.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import itertools
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree

from servers.built import memory_disk, npm_install, served
from servers.child import FOLLOW, serve
from servers.postgresql import free_port
from singer_spark.engine.java import cache_folder

VERSION = "3.35.0"
API = "2021-12-02"
ACCOUNT = {
    "name": "testaccount",
    "key": base64.b64encode(b"not so secret a key of a test").decode(),
}


def program() -> Path:
    """Where the installed program is kept, whether it is there or not."""
    return cache_folder() / "azurite" / VERSION / "node_modules" / ".bin" / "azurite-blob"


def build() -> str:
    """Installs the program, unless it was; says in one line how it went."""
    return npm_install(
        "Azurite", program(), f"azurite@{VERSION}", "Azure's tests are skipped, in CI they fail"
    )


def missing() -> str:
    """Why there is no server; empty where there is one."""
    return "" if program().exists() else "no Azurite was installed: python -m servers.azure --build"


def described() -> str:
    """The line about it in pytest's header."""
    return f"Azure's store: {missing() or f'Azurite {VERSION}'}"


@dataclass(frozen=True)
class AzureStore:
    """A running server and an account on it."""

    endpoint: str
    name: str
    key: str
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1), repr=False)

    @property
    def storage_options(self) -> dict[str, Any]:
        """As a user writes them in a config, in fsspec's words."""
        return self.options_at(self.endpoint)

    def options_at(self, endpoint: str) -> dict[str, Any]:
        """The same at a proxy's endpoint."""
        blobs = f"{endpoint}/{self.name}"
        login = f"AccountName={self.name};AccountKey={self.key}"
        return {"connection_string": f"DefaultEndpointsProtocol=http;{login};BlobEndpoint={blobs};"}

    def new_bucket(self) -> str:
        """The URL of an empty container that no one else uses."""
        name = f"lake-{next(self.numbers)}"
        self.request("PUT", name, "restype=container")
        return f"az://{name}"

    def keys(self, bucket: str) -> list[str]:
        """All keys of a container, as the server itself lists them."""
        name = bucket.removeprefix("az://").partition("/")[0]
        found = ElementTree.fromstring(self.request("GET", name, "comp=list&restype=container"))
        return sorted(str(each.text) for each in found.iterfind("Blobs/Blob/Name"))

    def shared_access(self, until: datetime) -> str:
        """A signature of the account with which blobs may be read, written, listed and removed."""
        end = until.strftime("%Y-%m-%dT%H:%M:%SZ")
        said = {
            "sp": "rwdlac",
            "ss": "b",
            "srt": "co",
            "st": "",
            "se": end,
            "sip": "",
            "spr": "https,http",
            "sv": API,
        }
        signed = [self.name, *said.values(), "", ""]
        digest = hmac.new(
            base64.b64decode(self.key), "\n".join(signed).encode(), hashlib.sha256
        ).digest()
        given = {name: value for name, value in said.items() if value}
        return urlencode({**given, "sig": base64.b64encode(digest).decode()})

    def request(self, method: str, path: str, query: str) -> bytes:
        """A signed request; the parameters of the query in the order of the alphabet."""
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": API}
        place = f"/{self.name}{urlsplit(f'{self.endpoint}/{self.name}/{path}').path}"
        resource = "\n".join([place, *(each.replace("=", ":", 1) for each in query.split("&"))])
        lines = [
            method,
            *[""] * 11,
            *(f"{name}:{value}" for name, value in headers.items()),
            resource,
        ]
        digest = hmac.new(
            base64.b64decode(self.key), "\n".join(lines).encode(), hashlib.sha256
        ).digest()
        headers["Authorization"] = f"SharedKey {self.name}:{base64.b64encode(digest).decode()}"
        url = f"{self.endpoint}/{self.name}/{path}?{query}"
        with urllib.request.urlopen(
            urllib.request.Request(url, method=method, headers=headers)
        ) as answer:
            return bytes(answer.read())


@contextmanager
def running(folder: Path) -> Iterator[dict[str, str]]:
    """A server that keeps its blobs in memory; ended at the end."""
    port = free_port()
    command: list[str | Path] = [
        program(),
        "--inMemoryPersistence",
        "--silent",
        "--skipApiVersionCheck",
    ]
    command += ["--disableTelemetry", "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    accounts = {"AZURITE_ACCOUNTS": f"{ACCOUNT['name']}:{ACCOUNT['key']}"}
    with served(command, accounts, f"http://127.0.0.1:{port}/{ACCOUNT['name']}", folder):
        yield {"endpoint": f"http://127.0.0.1:{port}", **ACCOUNT}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--build", action="store_true", help="only install the program, if it is not there"
    )
    parser.add_argument(FOLLOW, action="store_true", help="end with standard input")
    arguments = parser.parse_args()
    if arguments.build:
        print(build(), file=sys.stderr)
        return
    with (
        tempfile.TemporaryDirectory(prefix="azure-", dir=memory_disk()) as folder,
        running(Path(folder)) as facts,
    ):
        serve(facts, follow_stdin=arguments.follow_stdin)


if __name__ == "__main__":
    main()
