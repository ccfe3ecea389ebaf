"""A real MinIO on a free port, where one was built: for the tests' fixture, and by hand with `python -m servers.minio`.

`python -m servers.minio --build` builds it from source into the user's cache, once, where a Go toolchain is. Without
one, or where the build fails, it says so on standard error and the tests are served by moto.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.child import FOLLOW, serve
from servers.postgresql import free_port
from singer_spark.jvm.java import cache_folder

PACKAGE = "github.com/minio/minio"
VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
BUILD_SECONDS = 1800
START_SECONDS = 60
GO = "/usr/local/go/bin/go"  # where Go's own archive is unpacked, mostly not on the path
MEMORY_DISK = Path("/dev/shm")
ACCOUNT = {"key": "tester", "secret": "not-so-secret"}


def program() -> Path:
    """Where the built program is kept, whether it is there or not."""
    return cache_folder() / "minio" / VERSION / "minio"


def build() -> str:
    """Builds the program, unless it was; says in one line how it went."""
    go = shutil.which("go") or (GO if os.access(GO, os.X_OK) else None)
    if program().exists():
        return f"MinIO is there: {program()}"
    if go is None:
        return "MinIO is not built: no Go toolchain is here; moto serves the tests"
    started = time.monotonic()
    try:
        program().parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program().parent, prefix=".build-") as folder:
            # Go looks for its caches below HOME, which an emptied environment lacks.
            environment = {**os.environ, "HOME": str(Path.home()), "GOBIN": folder, "CGO_ENABLED": "0"}
            command = [go, "install", "-trimpath", "-ldflags=-s -w", f"{PACKAGE}@{VERSION}"]
            subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=BUILD_SECONDS)
            Path(folder, program().name).replace(program())
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return f"MinIO is not built, moto serves the tests: {last[:300]}"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"MinIO is not built, moto serves the tests: {error}"
    return f"MinIO was built in {time.monotonic() - started:.0f} s: {program()}"


@contextmanager
def running(folder: Path) -> Iterator[dict[str, str]]:
    """A server whose objects lie in the folder; ended at the end."""
    port, console = free_port(), free_port()
    address = f"http://127.0.0.1:{port}"
    login = {"MINIO_ROOT_USER": ACCOUNT["key"], "MINIO_ROOT_PASSWORD": ACCOUNT["secret"]}
    listen = ["--address", f"127.0.0.1:{port}", "--console-address", f"127.0.0.1:{console}"]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            [program(), "server", folder / "data", *listen],
            env={**os.environ, **login, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off", "HOME": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        ) as process,
    ):
        try:
            _wait(f"{address}/minio/health/ready", process, folder / "log")
            yield {"endpoint": address, **ACCOUNT}
        finally:
            process.kill()


def _wait(health: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(health, timeout=5):
                return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(log.read_text()) from error
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", action="store_true", help="only build the program, if it is not there")
    parser.add_argument(FOLLOW, action="store_true", help="end with standard input")
    arguments = parser.parse_args()
    if arguments.build:
        print(build(), file=sys.stderr)
        return
    memory = MEMORY_DISK if os.access(MEMORY_DISK, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="minio-", dir=memory) as folder, running(Path(folder)) as facts:
        serve(facts, follow_stdin=arguments.follow_stdin)


if __name__ == "__main__":
    main()
