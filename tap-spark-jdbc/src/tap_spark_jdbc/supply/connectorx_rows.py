"""Rows as Arrow batches from MariaDB and MySQL by ConnectorX, whose child process reaches the
server through this one.

ConnectorX queues what it reads without limit, repeats a refused login for half a minute, and waits
forever for a silent server. So its connection leads through a socket of this process, which passes
on the server's bytes only while no batch waits to be taken, watches over the connection, and sees
the server's last message.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa

from tap_spark_jdbc.source.mariadb_login import connected_to

if TYPE_CHECKING:
    from tap_spark_jdbc.source.mariadb_login import MariaDbLogin

HERE = "127.0.0.1"
CHUNK_BYTES = 1 << 18
# The bytes of the server's answer that are kept to find its last packet, a refusal.
LAST_BYTES = 1024
PIPE_BYTES = 1 << 20
_SET_PIPE_SIZE = 1031
# Bytes passed on without a batch in return, beyond which rows are so wide that a batch of them does
# not fit into memory.
MOST_BYTES = 256 << 20
# In the library's words, and in the server's last packet.
_STATE = re.compile(r"ERROR \d+ \((\w{5})\)")
_REFUSAL = re.compile(rb"\xff..#([0-9A-Z]{5})([^\x00]*)\Z", re.DOTALL)
# It has the same SQLSTATE as a query that was killed.
_KILLED = "ERROR 1927 "
# The client's last request.
_QUIT = b"\x01\x00\x00\x00\x01"
# Its request for a key to encrypt the password by.
_ASKS_KEY = re.compile(rb"\x01\x00\x00[^\x00]\x02", re.DOTALL)
# The library looks for named parameters, `:name`, in a statement that it prepares. That is only
# allowed if it can't mistake a text or a comment for one. A statement with a backslash is refused
# before.
_PLAIN = re.compile(r"(?:[^'\"`:?#/-]++|/(?![*])|-(?!-)|'[^']*'|`[^'\"`:?#/-]*`)*+")


class SupplyError(Exception):
    """The rows can't be read.

    Attributes:
        state: SQLSTATE, or "" if the server gave none.
        lost: The connection broke, or there was none.
        began: The server had accepted the query.
    """

    def __init__(
        self, reason: str, state: str = "", *, lost: bool = False, began: bool = False
    ) -> None:
        super().__init__(" ".join(reason.split()))
        self.state = state
        self.lost = lost
        self.began = began


@dataclass(frozen=True)
class RowQuery:
    """A query, the statements that begin its session, and the rows of a batch."""

    login: MariaDbLogin = field(repr=False)
    statements: tuple[str, ...]
    sql: str
    batch_rows: int


@contextmanager
def rows(query: RowQuery) -> Iterator[Iterator[pa.RecordBatch]]:
    """The batches of a query's rows, over a connection of its own; raises SupplyError."""
    if "\\" in query.sql:
        # It asks for the types before the session is set up in which a backslash is no escape.
        raise SupplyError("its statement has a backslash", began=True)
    with ExitStack() as opened:
        server = opened.enter_context(_connected(query.login))
        listener = opened.enter_context(socket.create_server((HERE, 0)))
        child = opened.enter_context(_child(query, listener.getsockname()[1]))
        relay = opened.enter_context(
            _Relay(server, listener, child, may_ask_key=query.login.may_ask_key)
        )
        yield relay.batches()


def _connected(login: MariaDbLogin) -> socket.socket:
    try:
        return connected_to(login)
    except OSError as error:
        raise SupplyError(
            f"can't connect to {login.host}:{login.port}: {error}", lost=True
        ) from error


@contextmanager
def _child(query: RowQuery, port: int) -> Iterator[subprocess.Popen[bytes]]:
    login = query.login
    name, password, database = (
        quote(text, safe="") for text in (login.user, login.password, login.database)
    )
    order = {
        "conn": f"mysql://{name}:{password}@{HERE}:{port}/{database}"
        "?prefer_socket=false&stmt_cache_size=0",
        "query": query.sql,
        "protocol": "binary" if _PLAIN.fullmatch(query.sql) else "text",
        "pre_execution_query": [login.isolation, *query.statements],
        "batch_size": query.batch_rows,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tap_spark_jdbc.supply.connectorx_child"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        env={**os.environ, "RUST_LOG": "off", "RUST_BACKTRACE": "0"},
    )  # fmt: skip
    with process:
        try:
            assert process.stdin is not None and process.stdout is not None
            with suppress(OSError):  # elsewhere than on Linux, or beyond the user's limit
                fcntl.fcntl(process.stdout, _SET_PIPE_SIZE, PIPE_BYTES)
            # It stays open: the child ends with it.
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(order).encode() + b"\n")
            yield process
        finally:
            process.kill()


class _Relay:
    """Passes bytes between the server and the child, and takes the child's messages."""

    def __init__(
        self,
        server: socket.socket,
        listener: socket.socket,
        child: subprocess.Popen[bytes],
        *,
        may_ask_key: bool,
    ) -> None:
        assert child.stdout is not None
        self._server = server
        self._listener = listener
        self._child = child
        self._messages: IO[bytes] = child.stdout
        self._client: socket.socket | None = None
        self._may_ask_key = may_ask_key
        self._poll = select.poll()
        self._poll.register(self._messages, select.POLLIN)
        self._poll.register(listener, select.POLLIN)
        # One for all: a new one of this size would be mapped and cleared by the kernel each time.
        self._chunk = memoryview(bytearray(CHUNK_BYTES))
        self._last = b""
        self._passed = 0
        self._logged_in = self._leaves = self._closed = False

    def __enter__(self) -> _Relay:
        return self

    def __exit__(self, *raised: object) -> None:
        """Close the child's connection."""
        if self._client is not None:
            self._client.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows; raises SupplyError."""
        schema = pa.ipc.read_schema(self._message())
        while (message := self._message()).size:
            yield pa.ipc.read_record_batch(message, schema)

    def _message(self) -> pa.Buffer:
        self._passed = 0
        while not self._pass_on():
            if self._passed > MOST_BYTES:
                raise SupplyError("its rows are too wide to be read in batches")
        header = self._read(8)
        return self._read(int.from_bytes(header, "little"))

    def _read(self, size: int) -> pa.Buffer:
        buffer = pa.allocate_buffer(size)
        with memoryview(buffer) as view:
            read = 0
            while read < size:
                count = self._messages.readinto(view[read:])  # type: ignore[attr-defined]
                if not count:
                    raise self._failure()
                read += count
        return buffer

    def _pass_on(self) -> bool:
        """Pass on what has arrived, unless a message has arrived; True: one has."""
        ready = {file for file, _ in self._poll.poll()}
        if self._messages.fileno() in ready:
            return True
        if self._client is None:
            self._client, _ = self._listener.accept()
            self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._poll.unregister(self._listener)
            self._listener.close()
            for each in (self._client, self._server):
                self._poll.register(each, select.POLLIN)
            return False
        if self._server.fileno() in ready:
            self._pass_answer(self._client)
        elif self._client.fileno() in ready:
            self._pass_request(self._client)
        return False

    def _end(self) -> None:
        """Pass on nothing more, because one side has closed; raises SupplyError if no query had
        begun.
        """
        for each in (self._client, self._server):
            if each is not None:
                self._poll.unregister(each)
        if not self._logged_in:
            raise self._refusal()

    def _pass_request(self, client: socket.socket) -> None:
        try:
            data = client.recv(CHUNK_BYTES)
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        # The first packet of a command has the number 0; a client that was refused may still close
        # the session.
        self._logged_in = self._logged_in or (data[3:4] == b"\0" and data != _QUIT)
        self._leaves = data.endswith(_QUIT)
        if not self._logged_in and not self._may_ask_key and _ASKS_KEY.fullmatch(data):
            raise SupplyError("the server wants this password encrypted", "28000", lost=True)
        with suppress(OSError):  # the server has gone, which its answer will show
            self._server.sendall(data)

    def _pass_answer(self, client: socket.socket) -> None:
        try:
            size = self._server.recv_into(self._chunk)
        except OSError:  # a reset, maybe after a refusal that has been read
            size = 0
        if not size:
            self._closed = not self._leaves
            self._end()
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            return
        with self._chunk[:size] as data:
            self._last = (self._last + bytes(data[-LAST_BYTES:]))[-LAST_BYTES:]
            self._passed += size
            with suppress(OSError):  # the child has ended, which its messages will show
                client.sendall(data)

    def _failure(self) -> SupplyError:
        if self._closed:
            return self._refusal()
        assert self._child.stderr is not None
        said = self._child.stderr.read().decode(errors="replace")
        state = _STATE.search(said)
        lost = _KILLED in said
        said = said or f"ConnectorX's process ended silently ({_ending(self._child.wait())})"
        return SupplyError(said, state[1] if state else "", lost=lost, began=True)

    def _refusal(self) -> SupplyError:
        """What the server said before it closed the connection."""
        said = _REFUSAL.search(self._last)
        reason = said[2].decode(errors="replace") if said else "the server closed the connection"
        return SupplyError(
            reason, said[1].decode() if said else "", lost=True, began=self._logged_in
        )


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
