"""A real pgBouncer, in transaction mode, before a PostgreSQL; if it is not installed, its tests are
skipped.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from servers.postgresql import Database, free_port

SECONDS = 20


def missing() -> str | None:
    """What to do to have one; None: it is there."""
    return None if _program() else "no pgBouncer on this machine: install pgbouncer"


def _program() -> str | None:
    # Debian keeps it where only root's search path leads.
    return shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


@contextmanager
def pooled(database: Database, *, mode: str = "transaction") -> Iterator[Database]:
    """The same database through a pooler."""
    program, port = _program(), free_port()
    assert program is not None
    with tempfile.TemporaryDirectory(prefix="pgbouncer-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "users").write_text(f'"{database.user}" "{database.password}"\n')
        settings = {
            "listen_addr": "127.0.0.1", "listen_port": port, "unix_socket_dir": "",
            "pool_mode": mode,
            "auth_type": "plain", "auth_file": folder / "users",
            "ignore_startup_parameters": "extra_float_digits",
        }  # fmt: skip
        if os.getuid() == 0:
            settings["user"] = pwd.getpwnam("nobody").pw_name
        lines = [f"{key} = {value}" for key, value in settings.items()]
        server = f"host={database.host} port={database.port} dbname={database.name}"
        (folder / "ini").write_text(
            "\n".join(["[databases]", f"{database.name} = {server}", "[pgbouncer]", *lines])
        )
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, folder / "ini"], stdout=log, stderr=subprocess.STDOUT
            )
        try:
            _wait(process, port, folder / "log")
            yield replace(database, host="127.0.0.1", port=port)
        finally:
            process.terminate()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + SECONDS
    while True:
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"pgbouncer did not start: {log.read_text()}")
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
