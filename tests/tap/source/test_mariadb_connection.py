"""Logins by PyMySQL: a server that asks for more than a hash of the password gets none, as from the
JDBC driver; a refused login is not repeated.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from servers.mariadb import MariaDB
from tap.opened import login, opening, refused, source_of
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.mariadb_connection import MariaDbConnection
from tap_spark_jdbc.source.python_connection import UnsuitableError

# CONNECT_WITH_DB, PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH, PLUGIN_AUTH_LENENC_CLIENT_DATA
CAPABILITIES = 1 << 3 | 1 << 9 | 1 << 15 | 1 << 19 | 1 << 21
SALT = bytes(range(1, 21))
# As long as a hash, with its final zero.
PASSWORD = "a password of nineteen!"[:19]
FULL_LOGIN = b"\x01\x04"
KEY = b"\x01-----BEGIN PUBLIC KEY-----"


def switch(plugin: str) -> bytes:
    return b"\xfe" + plugin.encode() + b"\x00" + SALT + b"\x00"


def greeting(plugin: str) -> bytes:
    low, high = CAPABILITIES & 0xFFFF, CAPABILITIES >> 16
    return b"".join(
        [
            b"\x0a8.0.0\x00",
            struct.pack("<I", 7),
            SALT[:8] + b"\x00",
            struct.pack("<HBHHB", low, 45, 2, high, 21),
            bytes(10),
            SALT[8:] + b"\x00",
            plugin.encode() + b"\x00",
        ]
    )


@contextmanager
def asking(plugin: str, *packets: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server that greets, and sends a packet after each that it gets; its port, and what it
    gets.
    """
    received: list[bytes] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            number = 0
            for each in (greeting(plugin), *packets, b""):
                connection.sendall(struct.pack("<I", len(each))[:3] + bytes([number]) + each)
                header = connection.recv(4, socket.MSG_WAITALL)
                if len(header) < 4:
                    return
                number = header[3] + 1
                length = int.from_bytes(header[:3], "little")
                received.append(connection.recv(length, socket.MSG_WAITALL))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], received
        thread.join(60)


def test_refused_login_is_not_repeated(server: MariaDB) -> None:
    """Servers lock an account after some refusals: a run makes one."""
    database = server.new_database()

    def refusals() -> int:
        with database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("show global status like 'Aborted_connects'")
            return int(cursor.fetchone()[1])

    before = refusals()
    with opening(**login(database, password="wrong")) as opened:
        assert refused(lambda: opened().connection).code == TapCode.CONNECTION_FAILED
    assert refusals() == before + 1


@pytest.mark.parametrize(
    ("plugin", "packets"),
    [
        ("mysql_native_password", [switch("mysql_clear_password")]),
        ("mysql_native_password", [switch("dialog") + b"\x05Password: "]),
        ("mysql_native_password", [switch("mysql_old_password")]),
        ("mysql_native_password", [switch("sha256_password"), KEY]),
        ("sha256_password", [KEY]),
        ("caching_sha2_password", [FULL_LOGIN, KEY]),
    ],
)
def test_password_stays_here(plugin: str, packets: list[bytes]) -> None:
    def no_driver() -> None:
        raise AssertionError("the JDBC driver is asked by the caller")

    with asking(plugin, *packets) as (port, received):
        source = source_of(
            {
                "jdbc_url": f"jdbc:mariadb://127.0.0.1:{port}/shop",
                "user": "shop",
                "password": PASSWORD,
            }
        )
        with pytest.raises(UnsuitableError):
            MariaDbConnection(source, no_driver)
    greeted, *secrets = received
    assert b"shop\x00" in greeted
    assert PASSWORD.encode() not in b"".join(received)
    assert {len(each) for each in secrets} <= {0, 20, 32}
