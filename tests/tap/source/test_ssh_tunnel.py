"""The tunnel, on a real OpenSSH server: which logins are accepted, which host keys count, what
becomes of a dropped connection.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from end_to_end.marked import until
from servers import ssh as ssh_server
from servers.postgresql import client_ports
from servers.ssh import PASSPHRASE, Ssh
from singer_spark.errors import ConfigurationError, SourceError, redact
from tap.in_process import run_tap
from tap.opened import filled, login
from tap.supply.test_retries import EACH_ONCE, SCRIPT, blocked, config_of, meanwhile
from tap_spark_jdbc.config.database_settings import SshSettings
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.source.ssh_tunnel import SshTunnel, _known_hosts


@contextmanager
def tunnel(**settings: Any) -> Iterator[SshTunnel]:
    config = {"jdbc_url": "jdbc:postgresql://db/shop", "ssh_tunnel": settings}
    found = TapSettings.from_config(config).ssh_tunnel
    assert found is not None
    with closing(SshTunnel(found)) as opened:
        yield opened


def connected(opened: SshTunnel, database: Any) -> psycopg.Connection[Any]:
    host, port = opened.local(database.host, database.port)
    return psycopg.connect(
        host=host,
        port=port,
        user=database.user,
        password=database.password,
        dbname=database.name,
        autocommit=True,
    )


WAYS: dict[str, Callable[[Ssh], dict[str, Any]]] = {
    "key as a file": lambda ssh: {},
    "key as text": lambda ssh: {
        "private_key_path": None,
        "private_key": Path(ssh.folder, "plain").read_text(),
    },
    "key with passphrase": lambda ssh: {
        "private_key_path": f"{ssh.folder}/locked",
        "private_key_password": PASSPHRASE,
    },
    "as ssh-keyscan prints it": lambda ssh: {
        "host_key": f"[127.0.0.1]:{ssh.port} {ssh.host_key}\n"
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_each_kind_of_key_reaches_database(ssh: Ssh, postgresql: Any, way: str) -> None:
    given = {
        name: value for name, value in ssh.settings(**WAYS[way](ssh)).items() if value is not None
    }
    with tunnel(**given) as opened, connected(opened, postgresql.new_database()) as connection:
        answer = connection.execute("select repeat('x', 3000000) || 'end'").fetchone()
        assert answer is not None
        assert answer[0].endswith("xend")


def test_unknown_host_key_is_refused(ssh: Ssh, postgresql: Any, tmp_path: Path) -> None:
    """A host key in the known_hosts file is accepted."""
    known, other = tmp_path / "known_hosts", tmp_path / "other"
    known.write_text(f"[127.0.0.1]:{ssh.port} {ssh.host_key}\n")
    database = postgresql.new_database()
    given = ssh.settings()
    del given["host_key"]
    with (
        tunnel(**given, known_hosts_path=str(known)) as opened,
        connected(opened, database) as connection,
    ):
        assert connection.execute("select 1").fetchone() == (1,)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    elsewhere = Path(f"{other}.pub").read_text()
    known.write_text(f"[127.0.0.1]:{ssh.port} {elsewhere}\n")
    for wrong in ({"known_hosts_path": str(known)}, {"host_key": elsewhere}):
        with tunnel(**given, **wrong) as opened, pytest.raises(ConfigurationError) as raised:
            opened.local(database.host, database.port)
        assert f"TAP-011 ssh_tunnel: the host key of 127.0.0.1:{ssh.port}" in str(raised.value)
        assert f"ssh-keyscan -p {ssh.port} 127.0.0.1" in str(raised.value)
    known.write_text("")
    with (
        tunnel(**given, known_hosts_path=str(known)) as opened,
        pytest.raises(ConfigurationError, match="TAP-011"),
    ):
        opened.local(database.host, database.port)


def test_login_problems_are_one_line_without_secrets(ssh: Ssh, tmp_path: Path) -> None:
    """Problems with a login are reported in one line without secrets."""
    phrase = {"private_key_path": f"{ssh.folder}/locked", "private_key_password": "planted-phrase"}
    cases: list[tuple[dict[str, Any], str]] = [
        (ssh.settings(**phrase), "ssh_tunnel.private_key_path: the key can't be read"),
        (
            ssh.settings(private_key_path=str(tmp_path / "gone")),
            "the key can't be read: No such file",
        ),
        (ssh.settings(username="nobody-here"), "refused the login of nobody-here"),
        (ssh.settings(port=1), "TAP-013 "),
        (ssh.settings(host_key="no key"), "ssh_tunnel.host_key: is not a public key"),
    ]
    for settings, said in cases:
        with (
            tunnel(**settings) as opened,
            pytest.raises((ConfigurationError, SourceError)) as raised,
        ):
            opened.local("127.0.0.1", 5432)
        assert said in str(raised.value)
        assert "planted" not in str(raised.value)
    assert "planted-phrase" not in redact("planted-phrase")


def test_dropped_tunnel_reopens_on_same_port(ssh: Ssh, postgresql: Any) -> None:
    database = postgresql.new_database()
    with tunnel(**ssh.settings()) as opened:
        with connected(opened, database) as first:
            assert first.execute("select 1").fetchone() == (1,)
            before = opened.local(database.host, database.port)
            assert ssh.drop() >= 1
            with pytest.raises(psycopg.OperationalError):
                first.execute("select 1")
        with connected(opened, database) as second:
            assert second.execute("select 2").fetchone() == (2,)
        assert opened.local(database.host, database.port) == before


def test_unreachable_server_closes_connection(ssh: Ssh, caplog: pytest.LogCaptureFixture) -> None:
    """The log says why the tunnel could not reach the server."""
    with tunnel(**ssh.settings()) as opened:
        host, port = opened.local("127.0.0.1", 1)
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(host=host, port=port, user="u", dbname="d", connect_timeout=10)
    assert "ssh_tunnel: 127.0.0.1 can't reach 127.0.0.1:1: " in caplog.text


def test_password_login_is_accepted(postgresql: Any) -> None:
    import asyncssh

    class Server(asyncssh.SSHServer):
        def password_auth_supported(self) -> bool:
            return True

        def validate_password(self, username: str, password: str) -> bool:
            return (username, password) == ("reader", "planted-password")

        def connection_requested(self, *_: Any) -> bool:
            return True

    key = asyncssh.generate_private_key("ssh-ed25519")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def listening() -> Any:
        return await asyncssh.listen("127.0.0.1", 0, server_factory=Server, server_host_keys=[key])

    async def closed() -> None:
        # In the loop's own thread: asyncio's servers are not safe for others.
        server.close()
        await server.wait_closed()

    server = asyncio.run_coroutine_threadsafe(listening(), loop).result()
    public = key.export_public_key().decode()
    given = {
        "host": "127.0.0.1",
        "port": server.get_port(),
        "username": "reader",
        "host_key": public,
    }
    try:
        database = postgresql.new_database()
        with (
            tunnel(**given, password="planted-password") as opened,
            connected(opened, database) as connection,
        ):
            assert connection.execute("select 1").fetchone() == (1,)
        with (
            tunnel(**given, password="wrong") as opened,
            pytest.raises(SourceError, match="TAP-012"),
        ):
            opened.local(database.host, database.port)
    finally:
        asyncio.run_coroutine_threadsafe(closed(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("reader", ["arrow", "jdbc"])
def test_run_reads_only_through_tunnel(ssh: Ssh, postgresql: Any, reader: str) -> None:
    # A view without key, before which a reader waits, and a table that is cut.
    with filled(postgresql, f"{SCRIPT}; alter table rows add primary key (id)") as (
        database,
        connection,
    ):
        config = login(
            database,
            reader=reader,
            ssh_tunnel=ssh.settings(),
            tables=["a_held", "rows"],
            slice_rows=500,
        )
        config["jdbc_url"] = database.jdbc_url.replace(database.host, "localhost")
        connection.execute("select pg_advisory_lock(7)")

        def look() -> None:
            try:
                blocked(connection)
                clients = client_ports(connection)
                assert len(clients) > 1, "the tap's own, and the reader's"
                # One may be closed between the two looks; one past the tunnel is held, and stays.
                until(lambda: client_ports(connection) <= ssh.ports(), "no client past the tunnel")
            finally:
                connection.execute("select pg_advisory_unlock(7)")

        with meanwhile(look):
            sent = run_tap(config).succeeded()
        assert all(
            sent.values(stream, "id") == EACH_ONCE for stream in ("public-a_held", "public-rows")
        )
        refused = run_tap({**config, "password": "planted-wrong"}).failed()
        assert "through ssh_tunnel" in refused
        assert "planted" not in refused


@pytest.mark.usefixtures("spark", "short_pauses")
def test_ssh_restart_fails_only_current_stream(
    postgresql: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An SSH server that restarts during a run fails only the stream that was being read."""
    with filled(postgresql, SCRIPT) as (database, connection), ExitStack() as stack:
        ssh = Ssh(**stack.enter_context(ssh_server.running(tmp_path)))
        config = {
            **config_of(database, "jdbc"),
            "ssh_tunnel": ssh.settings(),
            "on_stream_error": "skip",
        }
        connection.execute("select pg_advisory_lock(7)")

        def restart() -> None:
            blocked(connection)
            ssh.crash()
            # The tap's own connection breaks at once, and its next one finds nobody.
            until(
                lambda: f"can't connect to 127.0.0.1:{ssh.port}" in caplog.text,
                "an attempt to connect again",
            )
            stack.enter_context(ssh_server.serving(tmp_path, ssh.port))
            connection.execute("select pg_advisory_unlock(7)")

        with meanwhile(restart):
            sent = run_tap(config)
        continued = run_tap(config, sent.final["value"])

    assert "the server has lost the snapshot" in str(sent.error)
    assert (sent.values("public-a_held", "id"), sent.values("public-b_next", "id")) == (
        {},
        EACH_ONCE,
    )
    assert continued.succeeded().values("public-a_held", "id") == EACH_ONCE


def test_invalid_tunnel_settings_are_refused_early() -> None:
    def wrong(
        url: str = "jdbc:postgresql://db/shop", spark: dict[str, Any] | None = None, **ssh: Any
    ) -> str:
        with pytest.raises(ConfigurationError) as raised:
            TapSettings.from_config({"jdbc_url": url, "ssh_tunnel": ssh, "spark": spark or {}})
        return str(raised.value)

    ssh = {"host": "h", "username": "u", "password": "p"}
    assert "ssh_tunnel.username: is missing" in wrong(host="h")
    assert "needs private_key, private_key_path or password" in wrong(host="h", username="u")
    assert "host_key and known_hosts_path say the same" in wrong(
        **ssh, host_key="x", known_hosts_path="y"
    )
    assert "ssh_tunnel.bind_address: executors elsewhere" in wrong(
        spark={"master": "spark://m:7077"}, **ssh
    )
    assert "is a file of this machine" in wrong("jdbc:sqlite:shop.db", **ssh)
    config = {"jdbc_url": "jdbc:postgresql://db/shop", "ssh_tunnel": {**ssh, "enable": False}}
    assert TapSettings.from_config(config).ssh_tunnel is None


def test_revoked_key_is_refused() -> None:
    """A revoked key is refused, and a host that is named like a key type is not."""

    def known(line: str) -> Any:
        return _known_hosts(SshSettings(host="h", username="u", host_key=line))

    import asyncssh

    key = asyncssh.generate_private_key("ssh-ed25519")
    public = key.export_public_key().decode()
    assert known(f"ssh-gate.example {public}")[0] == [key.convert_to_public()]
    for marker in ("@revoked", "@cert-authority"):
        with pytest.raises(ConfigurationError, match="TAP-010"):
            known(f"{marker} h {public}")
