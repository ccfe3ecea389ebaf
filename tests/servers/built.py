"""Servers that are built from source or installed once, into the user's cache, and started from
there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from singer_spark.engine.java import trusted_bundle

BUILD_SECONDS = 1800
START_SECONDS = 60
GO = "/usr/local/go/bin/go"  # where Go's own archive is unpacked, mostly not on the path
MEMORY_DISK = Path("/dev/shm")
MEMORY_BYTES = 2 << 30  # a container of Docker has 64 MB


def memory_disk() -> Path | None:
    """Where files cost least; None where there is no such place, or hardly any room in it."""
    if not os.access(MEMORY_DISK, os.W_OK) or shutil.disk_usage(MEMORY_DISK).free < MEMORY_BYTES:
        return None
    return MEMORY_DISK


def go_install(name: str, program: Path, package: str, lacking: str) -> str:
    """Builds a Go program, unless it was; says in one line how it went."""
    go = shutil.which("go") or (GO if os.access(GO, os.X_OK) else None)
    if program.exists():
        return f"{name} is there: {program}"
    if go is None:
        return f"{name} is not built: no Go toolchain is here; {lacking}"

    def build(folder: Path) -> None:
        # Go looks for its caches below HOME, which an emptied environment lacks.
        environment = {
            **os.environ,
            "HOME": str(Path.home()),
            "GOBIN": str(folder),
            "CGO_ENABLED": "0",
        }
        run([go, "install", "-trimpath", "-ldflags=-s -w", package], environment)
        Path(folder, program.name).replace(program)

    return made(name, program, build, lacking)


def npm_install(name: str, program: Path, package: str, lacking: str) -> str:
    """Installs a package of Node's with all that it needs, unless it is installed.

    Prints in one line how it went. The program is in `node_modules/.bin` of a folder that holds
    nothing else.
    """
    npm = shutil.which("npm")
    if program.exists():
        return f"{name} is there: {program}"
    if npm is None:
        return f"{name} is not installed: no npm is here; {lacking}"
    place = program.parent.parent.parent

    def install(folder: Path) -> None:
        command = [
            npm,
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--prefix",
            str(folder),
            package,
        ]
        # Node trusts none of the machine's own authorities by itself.
        trusted = {"NODE_EXTRA_CA_CERTS": str(bundle)} if (bundle := trusted_bundle()) else {}
        run(command, {**trusted, **os.environ, "HOME": str(Path.home())})
        shutil.rmtree(place, ignore_errors=True)
        folder.rename(place)

    return made(name, place, install, lacking)


def made(name: str, target: Path, make: Callable[[Path], None], lacking: str) -> str:
    """Calls `make` with a scratch folder on the target's file system, and prints in one line how it
    went.
    """
    started = time.monotonic()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=target.parent, prefix=".build-", ignore_cleanup_errors=True
        ) as folder:
            make(Path(folder))
    except subprocess.CalledProcessError as error:
        said = "; ".join(error.stderr.strip().splitlines()[-5:]) or "it said nothing"
        return f"{name} is not built, {lacking}: {said[:500]}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{name} is not built, {lacking}: {error}"
    return f"{name} was built in {time.monotonic() - started:.0f} s: {target}"


def run(command: list[str], environment: Mapping[str, str], *, cwd: Path | None = None) -> str:
    """What a command that succeeds prints."""
    done = subprocess.run(
        command,
        env=environment,
        cwd=cwd,
        check=True,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
    )
    return done.stdout


@contextmanager
def served(
    command: list[str | Path], environment: Mapping[str, str], health: str, folder: Path
) -> Iterator[None]:
    """A server that answers at a URL, killed at the end; its output goes to `log` in the folder."""
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        ) as process,
    ):
        try:
            _wait(health, process, folder / "log")
            yield
        finally:
            process.kill()


def _wait(health: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(health, timeout=5):
                return
        except urllib.error.HTTPError:
            return  # it answers, if only that it wants a login
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text()) from error
        time.sleep(0.05)
