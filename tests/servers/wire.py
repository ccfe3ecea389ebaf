"""The wire to a server: a relay of TCP connections that can fall silent without closing any."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

PIECE = 1 << 16
LOOK_SECONDS = 0.1


@dataclass
class Wire:
    """A running relay.

    Attributes:
        port: Where it listens.
        server: Host and port behind.
        bytes: How many came from the server.
        unanswered: How many from clients came to nothing.
    """

    port: int
    server: tuple[str, int]
    bytes: int = 0
    unanswered: int = 0
    _cut: set[int] = field(default_factory=set)
    _sockets: list[socket.socket] = field(default_factory=list)
    _opened: int = 0
    _all: bool = False
    _over: threading.Event = field(default_factory=threading.Event)

    def silence(self) -> None:
        """From now on nothing passes, on the connections that there are and on new ones."""
        self._all = True

    def cut(self) -> None:
        """Nothing more passes on the connections that there are; new ones work."""
        self._cut.update(range(self._opened))

    def end(self) -> None:
        """Closes all connections."""
        # First, as a socket that its thread closes is left open by the other thread, which waits
        # for its bytes.
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._over.set()

    def _serve(self, listener: socket.socket) -> None:
        while not self._over.is_set():
            with suppress(TimeoutError):
                client, _ = listener.accept()
                number, self._opened = self._opened, self._opened + 1
                server = socket.create_connection(self.server)
                self._sockets += [client, server]
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for source, sink, counted in ((client, server, False), (server, client, True)):
                    arguments = (number, source, sink, counted)
                    threading.Thread(target=self._pass, args=arguments, daemon=True).start()

    def _pass(self, number: int, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        with suppress(OSError), source, sink:
            while data := source.recv(PIECE):
                if self._all or number in self._cut:
                    self.unanswered += 0 if counted else len(data)
                    self._over.wait()
                    return
                self.bytes += len(data) if counted else 0
                sink.sendall(data)


@contextmanager
def relayed(host: str, port: int, at: tuple[str, int] = ("127.0.0.1", 0)) -> Iterator[Wire]:
    """A relay to a server; `at` is where it listens."""
    with socket.create_server(at) as listener:
        listener.settimeout(LOOK_SECONDS)
        wire = Wire(listener.getsockname()[1], (host, port))
        thread = threading.Thread(target=wire._serve, args=(listener,))
        thread.start()
        try:
            yield wire
        finally:
            wire.end()
            thread.join()
