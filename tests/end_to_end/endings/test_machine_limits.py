"""Limits on threads, processes, files and memory, and a host without a name: one line that says it,
nothing left.
"""

from __future__ import annotations

import json
import os
import pwd
import sqlite3
from pathlib import Path

import pytest

from end_to_end.marked import Marked, said
from end_to_end.pipe import Pipe

TAP = "tap-spark-jdbc"
# Root has no limit on processes, but keeps its rights to files under another account.
RIGHTS = "+dac_override,+dac_read_search,+fowner,+chown"
ACCOUNT = "games"


@pytest.fixture
def pipe(tmp_path: Path) -> Pipe:
    """A tap of one small table."""
    path = tmp_path / "source.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table rows (id integer primary key)")
        connection.execute("insert into rows values (1)")
    connection.close()
    return Pipe(
        tmp_path / "run", {"jdbc_url": f"jdbc:sqlite:{path}", "spark": {"master": "local[2]"}}
    )


def threads_of(user: int) -> int:
    """How many threads the account has."""
    found = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == user:
                found += len(list((folder / "task").iterdir()))
        except OSError:  # it has ended
            continue
    return found


def limited_threads(more: int) -> list[str]:
    """Begins a command that may start only so many threads, its processes among them."""
    if os.geteuid() != 0:
        return ["prlimit", f"--nproc={threads_of(os.geteuid()) + more}"]
    user = pwd.getpwnam(ACCOUNT).pw_uid
    as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    kept = [f"--inh-caps={RIGHTS}", f"--ambient-caps={RIGHTS}"]
    return [*as_user, *kept, "prlimit", f"--nproc={threads_of(user) + more}"]


@pytest.mark.parametrize("more", [4, 8, 12, 16, 20])
def test_few_threads(pipe: Pipe, marked: Marked, more: int) -> None:
    """Wherever the tap or its JVM meets the limit, it ends and says so; it neither hangs nor leaves
    anything.
    """
    code, _, errors = marked.run([*limited_threads(more), *pipe.tap_command()])
    assert code == 1, errors
    assert "ulimit -u" in said(errors, TAP)
    marked.leave_nothing()


@pytest.mark.parametrize(
    ("limit", "words"), [("nofile=64", "ulimit -n"), ("as=1500000000", "ulimit -v")]
)
def test_few_files_and_little_memory(pipe: Pipe, marked: Marked, limit: str, words: str) -> None:
    code, _, errors = marked.run(["prlimit", f"--{limit}", *pipe.tap_command()])
    assert code == 1, errors
    assert words in said(errors, TAP)
    assert errors.count("\n") <= 2, errors


def test_host_without_a_name(pipe: Pipe, marked: Marked) -> None:
    """A machine whose own name does not resolve runs the tap as any other."""
    namespace = (
        ["unshare", "--uts"]
        if os.geteuid() == 0
        else ["unshare", "--user", "--map-root-user", "--uts"]
    )
    script = 'hostname no-such-host.invalid && exec "$@"'
    code, output, errors = marked.run([*namespace, "sh", "-c", script, "sh", *pipe.tap_command()])
    assert code == 0, errors
    assert json.loads(output.splitlines()[-1])["final"] is True
