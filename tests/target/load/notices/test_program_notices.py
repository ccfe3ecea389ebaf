"""The program with a receiver: it ends as it does without, shows no URL, and says how it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from end_to_end.marked import until
from servers.webhook import SECRET, SILENT, Webhook
from target.load.notices.notified_runs import ALL, GOOD, ID, journals, succeed
from target.loading import Lake, schema, to_bytes

pytestmark = pytest.mark.usefixtures("without_jvm")
TARGET = Path(sys.executable).parent / "target-spark-lake"


def command(lake: Lake, hook: Webhook, **settings: Any) -> list[str]:
    """The target whose URL comes from the environment, by two variables that look harmless."""
    path = lake.folder.parent / "target.json"
    notify = [{"url": "${HOOK}/services/${HOOK_PATH}", "on": ALL}]
    path.write_text(
        json.dumps({"bucket": str(lake.folder), "pipeline": "test", "notify": notify, **settings})
    )
    os.environ.update(HOOK=hook.root, HOOK_PATH=SECRET)
    return [str(TARGET), "--config", str(path), "--log-level", "debug"]


@pytest.fixture(autouse=True)
def own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets them, so that they are put back."""
    for name in ("HOOK", "HOOK_PATH"):
        monkeypatch.setenv(name, "")


@pytest.mark.slow
@pytest.mark.parametrize("answer", [200, 500])
@pytest.mark.parametrize(
    ("messages", "outcome"), [(GOOD, "succeeded"), ([*GOOD, b"no message\n"], "failed")]
)
def test_receiver_changes_no_exit_and_leaks_no_url(
    lake: Lake, hook: Webhook, answer: int, messages: list[Any], outcome: str
) -> None:
    """The program exits as it would without a receiver and never shows its URL."""
    hook.answer = answer
    done = subprocess.run(
        command(lake, hook),
        input=to_bytes(*messages),
        capture_output=True,
        timeout=120,
        check=False,
    )
    good = outcome == "succeeded"
    errors = done.stderr.decode()
    assert (done.returncode, done.stdout) == ((0, b'{"x":1}\n') if good else (1, b"")), errors
    assert hook.paths == [f"/services/{SECRET}"]
    assert [reported for reported, _ in hook.outcomes()] == ([outcome] if answer == 200 else [])
    assert errors.count("notify: ") == (answer == 500), errors
    everything = errors + json.dumps(journals(lake))
    assert [part for part in (SECRET, *SECRET.split("/")) if part in everything] == []


@pytest.mark.slow
def test_about_and_bad_setting_hide_receiver_url(lake: Lake, hook: Webhook) -> None:
    about = subprocess.run(
        [*command(lake, hook), "--about"], capture_output=True, text=True, timeout=120, check=True
    )
    assert "notify (array)" in about.stdout
    wrong = subprocess.run(
        command(lake, hook, format="csv"), input=b"", capture_output=True, timeout=120, check=False
    )
    assert wrong.returncode == 1
    for text in (about.stdout, about.stderr, wrong.stderr.decode()):
        assert SECRET not in text
    assert hook.paths == []


@pytest.mark.slow
def test_unprintable_state_is_notified_as_success(lake: Lake, hook: Webhook) -> None:
    """A committed run whose state cannot be printed is notified as succeeded."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command(lake, hook),
            input=to_bytes(*GOOD),
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=120,
            check=False,
        )
    assert done.returncode == 1
    assert (
        b"the run is committed and its state is saved, but it could not be printed" in done.stderr
    )
    assert [outcome for outcome, _ in hook.outcomes()] == ["succeeded"]


@pytest.mark.slow
@pytest.mark.parametrize("answer", [200, SILENT])
def test_stopped_run_is_notified_and_ends(lake: Lake, hook: Webhook, answer: int | str) -> None:
    """A stopped run is notified and ends, even if the receiver never answers."""
    hook.answer = answer
    with begun(lake, hook) as process:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    errors = said(lake).read_text()
    assert process.returncode == 143, errors
    assert hook.paths == [f"/services/{SECRET}"]
    if answer == 200:
        ((outcome, text),) = hook.outcomes()
        assert outcome == "failed"
        assert text.endswith(": stopped by SIGTERM")
    assert errors.count("no complete response within") == (answer == SILENT)


@pytest.mark.slow
def test_signal_ends_wait_for_response(lake: Lake, hook: Webhook) -> None:
    """The run fails with its original error."""
    hook.answer = SILENT
    with begun(lake, hook) as process:
        assert process.stdin is not None
        process.stdin.write(b"no message\n")
        process.stdin.flush()
        until(lambda: hook.paths, "the notice", process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    errors = said(lake).read_text()
    assert process.returncode == 1, errors
    assert errors.splitlines()[-1].startswith("target-spark-lake: LAKE-001 input line 3")


@pytest.mark.slow
def test_killed_run_is_notified_by_next_run(lake: Lake, hook: Webhook) -> None:
    settings = {"notify": [{"url": hook.url}]}
    with begun(lake, hook) as process:
        process.kill()
        process.communicate(timeout=60)
    assert hook.notices == []
    succeed(lake, **settings)
    succeed(lake, **settings)
    dead, own, _ = journals(lake)
    assert [(each["outcome"], each["run_id"]) for each in hook.notices] == [
        ("failed", dead["run_id"]),
        ("recovered", own["run_id"]),
    ]
    assert hook.notices[0]["error"] == dead["error"]
    assert "died before its commit; nothing was changed" in hook.notices[0]["text"]


def begun(lake: Lake, hook: Webhook) -> subprocess.Popen[bytes]:
    """A run that has taken its first messages and waits for more."""
    with said(lake).open("wb") as errors:
        process = subprocess.Popen(
            command(lake, hook), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )
    assert process.stdin is not None
    process.stdin.write(to_bytes(schema("s", ID), {"type": "LAST"}))
    process.stdin.flush()
    until(
        lambda: "'LAST' are unknown and are skipped" in said(lake).read_text(),
        "its first messages",
        process,
    )
    return process


def said(lake: Lake) -> Path:
    """Where its standard error goes."""
    return lake.folder.parent / "errors"


LOADED = """
import atexit, sys
from target_spark_lake.__main__ import main

def report():
    print("http" if "urllib.request" in sys.modules else "-", file=sys.stderr)

atexit.register(report)
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wanted", "loaded"), [([], "-"), (["failed"], "-"), (["succeeded"], "http")]
)
def test_unwanted_notice_loads_no_http_client(
    lake: Lake, hook: Webhook, wanted: list[str], loaded: str
) -> None:
    notify = [{"url": hook.url, "on": wanted}] if wanted else []
    _, *words = command(lake, hook, notify=notify)
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words],
        input=to_bytes(*GOOD),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.decode().splitlines()[-1] == loaded
