"""An Iceberg REST catalog for tests: the specification's routes that a writer needs, and its rules
for commits.

A commit is accepted only if each of its requirements holds for the current table, otherwise the
answer is 409. The tables are kept by PyIceberg's SQL catalog; a request may be answered late, or
not at all (`lose_answers`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog.rest import CommitTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

JSON = dict[str, Any]
_CODES = {
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
}


class RestCatalogServer:
    """A running server.

    Attributes:
        uri: Where it listens.
        lose_answers: So many of the next commits are done, and answered with 500.
        token: What a request must bring.
    """

    def __init__(self, folder: Path, token: str) -> None:
        self.tables = SqlCatalog("rest", uri=f"sqlite:///{folder}/rest.db")
        self.lose_answers = 0
        self.token = token
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self, "GET")

            def do_HEAD(self) -> None:
                outer.answer(self, "HEAD")

            def do_POST(self) -> None:
                outer.answer(self, "POST")

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.uri = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request: BaseHTTPRequestHandler, method: str) -> None:
        length = int(request.headers.get("Content-Length") or 0)
        body = json.loads(request.rfile.read(length) or b"null") if length else None
        parts = [unquote(each) for each in urlsplit(request.path).path.strip("/").split("/")][1:]
        code, reported = self.answered(request.headers.get("Authorization"), method, parts, body)
        data = b"" if reported is None else json.dumps(reported).encode()
        request.send_response(code)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        if method != "HEAD":
            request.wfile.write(data)

    def answered(
        self, login: str | None, method: str, parts: list[str], body: Any
    ) -> tuple[int, JSON | None]:
        if login != f"Bearer {self.token}":
            return 401, _error(401, "NotAuthorizedException", "not known")
        try:
            with self.lock:
                return self.done(method, parts, body)
        except tuple(_CODES) as error:
            code = _CODES[type(error)]
            return code, _error(code, type(error).__name__, str(error))

    def done(self, method: str, parts: list[str], body: Any) -> tuple[int, JSON | None]:
        match method, parts:
            case "GET", ["config"]:
                return 200, {"defaults": {}, "overrides": {}}
            case "POST", ["namespaces"]:
                self.tables.create_namespace(tuple(body["namespace"]), body.get("properties") or {})
                return 200, {"namespace": body["namespace"], "properties": {}}
            case (("GET" | "HEAD"), ["namespaces", space]):
                found = self.tables.load_namespace_properties(tuple(space.split("\x1f")))
                return 200, {"namespace": space.split("\x1f"), "properties": found}
            case "POST", ["namespaces", space, "tables"]:
                return 200, self.made((*space.split("\x1f"), body["name"]), body)
            case (("GET" | "HEAD"), ["namespaces", space, "tables", name]):
                return 200, _loaded(self.tables.load_table((*space.split("\x1f"), name)))
            case "POST", ["namespaces", space, "tables", name]:
                return self.committed((*space.split("\x1f"), name), body)
        return 404, _error(404, "NotFound", "/".join(parts))

    def made(self, identifier: tuple[str, ...], body: JSON) -> JSON:
        """A table, or what it would be (stage-create)."""
        spec, properties = body.get("partition-spec"), body.get("properties") or {}
        given = (
            Schema.model_validate(body["schema"]),
            body.get("location"),
            UNPARTITIONED_PARTITION_SPEC if spec is None else PartitionSpec.model_validate(spec),
            UNSORTED_SORT_ORDER,
            properties,
        )
        if self.tables.table_exists(identifier):
            raise TableAlreadyExistsError(str(identifier))
        if not body.get("stage-create"):
            return _loaded(self.tables.create_table(identifier, *given))
        staged = self.tables._create_staged_table(identifier, *given)
        return {
            "metadata": staged.metadata.model_dump(mode="json", by_alias=True, exclude_none=True),
            "config": {},
        }

    def committed(self, identifier: tuple[str, ...], body: JSON) -> tuple[int, JSON]:
        asked = CommitTableRequest.model_validate(body)
        if any(
            each.type == "assert-create" for each in asked.requirements
        ) and self.tables.table_exists(identifier):
            raise CommitFailedException("the table is there already")
        done = self.tables.commit_table(
            SimpleNamespace(name=lambda: identifier),
            tuple(asked.requirements),
            tuple(asked.updates),
        )
        if self.lose_answers:
            self.lose_answers -= 1
            return 500, _error(500, "InternalServerError", "the answer got lost")
        metadata = done.metadata.model_dump(mode="json", by_alias=True, exclude_none=True)
        return 200, {"metadata-location": done.metadata_location, "metadata": metadata}


def _loaded(table: Table) -> JSON:
    metadata = table.metadata.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


def _error(code: int, kind: str, message: str) -> JSON:
    return {"error": {"code": code, "type": kind, "message": message}}


@contextmanager
def rest_catalog(folder: Path, token: str = "a-token") -> Iterator[RestCatalogServer]:
    """A server while the block runs."""
    catalog = RestCatalogServer(folder, token)
    thread = threading.Thread(target=catalog.server.serve_forever)
    thread.start()
    try:
        yield catalog
    finally:
        catalog.server.shutdown()
        thread.join()
        catalog.server.server_close()
        catalog.tables.close()
