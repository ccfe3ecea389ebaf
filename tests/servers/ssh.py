"""A real OpenSSH server on a free port: for the tests' fixture, and by hand with `python -m
servers.ssh`.
"""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servers.child import FOLLOW, serve
from servers.postgresql import free_port

SEARCH_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
START_SECONDS = 30
PASSPHRASE = "phrase of the key"
CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/keys.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
AllowTcpForwarding yes
"""


@dataclass(frozen=True)
class Ssh:
    """A server that lets one user in, by the key `plain` or by `locked`, which has the
    passphrase.
    """

    port: int
    username: str
    host_key: str
    folder: str
    pid: int

    def settings(self, **other: Any) -> dict[str, Any]:
        """The setting `ssh_tunnel`."""
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "username": self.username,
            "private_key_path": f"{self.folder}/plain",
            "host_key": self.host_key,
            **other,
        }

    def drop(self) -> int:
        """Kills the processes that serve a connection now; returns how many there were."""
        return _killed([int(child.name) for child in self._children()])

    def crash(self) -> None:
        """Kills the server with the processes that serve a connection."""
        _killed([self.pid, *(int(child.name) for child in self._children())])

    def ports(self) -> set[int]:
        """Where the connections begin that it passes on now."""
        sockets = set()
        for opened in (each for child in self._children() for each in (child / "fd").iterdir()):
            with suppress(OSError):
                sockets.add(str(opened.readlink()))
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return {
            int(words[1].rpartition(":")[2], 16)
            for words in lines
            if f"socket:[{words[9]}]" in sockets
        }

    def _children(self) -> list[Path]:
        return [path for path in Path("/proc").glob("[0-9]*") if _parent(path) == self.pid]


def missing() -> str | None:
    """Why no server can be started here; None where one can."""
    lacking = [
        name for name in ("sshd", "ssh-keygen") if shutil.which(name, path=SEARCH_PATH) is None
    ]
    return (
        f"no {' and no '.join(lacking)} on this machine: install openssh-server"
        if lacking
        else None
    )


@contextmanager
def running(folder: Path) -> Iterator[dict[str, Any]]:
    """A server whose files lie in the folder; ended at the end."""
    for name, phrase in (("host", ""), ("plain", ""), ("locked", PASSPHRASE)):
        # OpenSSH's own form of a key with a passphrase needs bcrypt.
        kind = ["-t", "rsa", "-b", "2048", "-m", "PEM"] if phrase else ["-t", "ed25519"]
        command = ["ssh-keygen", "-q", *kind, "-N", phrase, "-C", name, "-f", str(folder / name)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    public = [(folder / f"{name}.pub").read_text() for name in ("plain", "locked")]
    (folder / "keys.pub").write_text("".join(public))
    port = free_port()
    (folder / "config").write_text(CONFIG.format(port=port, folder=folder))
    host_key = " ".join((folder / "host.pub").read_text().split()[:2])
    user = pwd.getpwuid(os.geteuid()).pw_name
    with serving(folder, port) as process:
        yield {
            "port": port,
            "username": user,
            "host_key": host_key,
            "folder": str(folder),
            "pid": process,
        }


@contextmanager
def serving(folder: Path, port: int) -> Iterator[int]:
    """The server of a folder that is made, or that another one left; its process."""
    if os.geteuid() == 0:
        # Where the server locks a process into that talks to strangers.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    program = shutil.which("sshd", path=SEARCH_PATH)
    assert program is not None, missing()
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [program, "-D", "-e", "-f", str(folder / "config")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        _wait_until_ready(server, port, folder / "log")
        yield server.pid
    finally:
        server.kill()
        server.wait()


def _wait_until_ready(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text()) from error
            time.sleep(0.05)


def _killed(processes: list[int]) -> int:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return len(processes)


def _parent(process: Path) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(FOLLOW, action="store_true", help="end with standard input")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ssh-") as folder, running(Path(folder)) as facts:
        serve(facts, follow_stdin=arguments.follow_stdin)


if __name__ == "__main__":
    main()
