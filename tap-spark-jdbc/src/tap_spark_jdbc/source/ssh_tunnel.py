"""A tunnel to the database through an SSH host, for the duration of a run.

Each server of the database gets a port on this machine. Connections to it, from the JVM, the
columnar driver or an executor, are forwarded through one SSH connection, which is re-established if
it breaks.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, ConnectionLostError, SourceError
from tap_spark_jdbc.error_codes import TapCode

if TYPE_CHECKING:
    import asyncssh

    from tap_spark_jdbc.config.database_settings import SshSettings

T = TypeVar("T")
logger = logging.getLogger("tap-spark-jdbc")
LOOPBACK = "127.0.0.1"
CONNECT_SECONDS = 30
ALIVE_SECONDS = 15
CHUNK_BYTES = 1 << 18
_KEY_TYPE = re.compile(r"ssh-(?:ed25519|ed448|rsa)|(?:ecdsa-sha2|sk)-\S+")


class SshTunnel:
    """An SSH tunnel, opened by the first call of `local`."""

    def __init__(self, settings: SshSettings) -> None:
        """No connection is made yet."""
        self._settings = settings
        self._bind = settings.bind_address or LOOPBACK
        self._ports: dict[tuple[str, int], int] = {}
        self._servers: list[asyncio.Server] = []
        self._passing: set[asyncio.Task[None]] = set()
        self._connecting = asyncio.Lock()
        self._ssh: asyncssh.SSHClientConnection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def local(self, host: str, port: int) -> tuple[str, int]:
        """The local address that is forwarded to a server, as the SSH host resolves its name.

        Raises:
            ConfigurationError: asyncssh is not installed, the key can't be read, or the host's key
                is not known.
            SourceError: the SSH host can't be reached, or refuses the login.
        """
        if (host, port) not in self._ports:
            self._ports[host, port] = self._run(self._listen(host, port))
        return self._bind, self._ports[host, port]

    def close(self) -> None:
        """Close the tunnel, even if it is still in use."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._run(self._end())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        self._loop = self._thread = None
        self._ports.clear()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="ssh-tunnel", daemon=True
            )
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _listen(self, host: str, port: int) -> int:
        # A problem with the login should be reported at once, and in one line.
        await self._connected()

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)
            # A cancellation by `_end` is caught here: asyncio would print a traceback of a
            # cancelled task.
            with suppress(asyncio.CancelledError):
                await self._pass_on(host, port, reader, writer)

        try:
            server = await asyncio.start_server(accepted, self._bind, 0, limit=CHUNK_BYTES)
        except OSError as error:
            raise ConfigurationError(
                TapCode.SSH_SETTING,
                f"ssh_tunnel: can't listen at {self._bind}: {error.strerror or error}",
            ) from error
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        logger.info("%s:%d is reached through %s", host, port, self._settings.host)
        return bound

    async def _pass_on(
        self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        import asyncssh

        try:
            connection = await self._connected()
            far_reader, far_writer = await connection.open_connection(host, port, encoding=None)
        except (asyncssh.Error, OSError, SourceError, ConfigurationError) as error:
            # The driver only sees that a connection ends.
            logger.warning(
                "ssh_tunnel: %s can't reach %s:%d: %s", self._settings.host, host, port, error
            )
            writer.transport.abort()
            return
        try:
            await asyncio.gather(_pumped(reader, far_writer), _pumped(far_reader, writer))
        except (asyncssh.Error, OSError):
            writer.transport.abort()
        finally:
            far_writer.close()
            writer.close()

    async def _connected(self) -> asyncssh.SSHClientConnection:
        """The SSH connection; a new one if the last one is gone."""
        async with self._connecting:
            if self._ssh is None or self._ssh.is_closed():
                if self._ssh is not None:
                    logger.warning(
                        "ssh_tunnel: the connection to %s broke: reconnecting", self._settings.host
                    )
                self._ssh = await _login(self._settings)
            return self._ssh

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._passing):
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)
        if self._ssh is not None:
            self._ssh.abort()
            with suppress(Exception):
                await self._ssh.wait_closed()
        self._servers, self._ssh = [], None


async def _pumped(reader: Any, writer: Any) -> None:
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _login(settings: SshSettings) -> asyncssh.SSHClientConnection:
    try:
        import asyncssh
    except ImportError as error:
        raise ConfigurationError(
            RunCode.PACKAGE_MISSING,
            "ssh_tunnel: asyncssh is not installed: it comes with the extra ssh (pip install "
            "'tap-spark-jdbc[ssh]')",
        ) from error
    # It logs each connection that it forwards.
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    location = f"{settings.host}:{settings.port}"
    try:
        return await asyncssh.connect(
            settings.host,
            settings.port,
            username=settings.username,
            password=settings.password,
            client_keys=_keys(settings),
            known_hosts=_known_hosts(settings),
            agent_path=None,
            config=None,
            keepalive_interval=ALIVE_SECONDS,
            connect_timeout=CONNECT_SECONDS,
            login_timeout=CONNECT_SECONDS,
        )
    except asyncssh.HostKeyNotVerifiable as error:
        raise ConfigurationError(
            TapCode.SSH_HOST_KEY,
            f"ssh_tunnel: the host key of {location} is not the known one ({error.reason}); "
            f"check it by `ssh-keyscan -p {settings.port} {settings.host}`, and if it is "
            "genuine, set host_key to it",
        ) from error
    except asyncssh.PermissionDenied as error:
        raise SourceError(
            TapCode.SSH_REFUSED,
            f"ssh_tunnel: {location} refused the login of {settings.username}: {error.reason}",
        ) from error
    except (asyncssh.Error, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ConnectionLostError(
            TapCode.SSH_UNREACHABLE, f"ssh_tunnel: can't connect to {location}: {reason}"
        ) from error


def _keys(settings: SshSettings) -> list[Any] | None:
    import asyncssh

    if settings.private_key is None and settings.private_key_path is None:
        return None
    try:
        if settings.private_key is not None:
            return [
                asyncssh.import_private_key(settings.private_key, settings.private_key_password)
            ]
        path = Path(settings.private_key_path or "").expanduser()
        return [asyncssh.read_private_key(path, settings.private_key_password)]
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, OSError) as error:
        name = "private_key" if settings.private_key is not None else "private_key_path"
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(
            TapCode.SSH_SETTING, f"ssh_tunnel.{name}: the key can't be read: {reason}"
        ) from error


def _known_hosts(settings: SshSettings) -> Any:
    """The keys that the host may have; never None, which would accept any."""
    import asyncssh

    if settings.host_key is None:
        path = Path(settings.known_hosts_path or "~/.ssh/known_hosts").expanduser()
        try:
            return asyncssh.read_known_hosts(str(path))
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                TapCode.SSH_SETTING,
                f"ssh_tunnel.known_hosts_path: can't read {path}: "
                f"{getattr(error, 'strerror', None) or error}",
            ) from error
    try:
        lines = [line for line in settings.host_key.splitlines() if line.strip()]
        return [asyncssh.import_public_key(_bare(line)) for line in lines], [], []
    except asyncssh.KeyImportError as error:
        raise ConfigurationError(
            TapCode.SSH_SETTING, f"ssh_tunnel.host_key: is not a public key: {error}"
        ) from error


def _bare(line: str) -> str:
    """A key without the host's name before it, as `ssh-keyscan` prints it."""
    if line.lstrip().startswith("@"):
        raise ConfigurationError(
            TapCode.SSH_SETTING,
            "ssh_tunnel.host_key: a line with a marker (@revoked, @cert-authority) is not a key "
            "to trust; give a file with such lines in known_hosts_path",
        )
    words = line.split()
    first = next((location for location, word in enumerate(words) if _KEY_TYPE.fullmatch(word)), 0)
    return " ".join(words[first:])
