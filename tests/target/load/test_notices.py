"""`notify`: who is told what of a run's end, and that nothing comes of it for the run."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from end_to_end.marked import until
from servers.webhook import ENDLESS, SECRET, SILENT, Webhook, listening
from singer_spark.errors import ProtocolError, RecordError, StorageError
from singer_spark.storage.storage import Storage
from target.loading import Lake, record, schema, state, to_bytes
from target_spark_lake.columns.partitioning import Partitioning
from target_spark_lake.commit import pipeline_run
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.layout import Layout
from target_spark_lake.load import webhook
from target_spark_lake.load.notices import without_values
from target_spark_lake.tables.changes import Commit

pytestmark = pytest.mark.usefixtures("without_jvm")
TARGET = Path(sys.executable).parent / "target-spark-lake"
ID = {"id": {"type": "integer"}}
GOOD = [schema("s", ID), record("s", id=1), record("s", id=2), schema("t", ID), record("t", id=3), state(x=1)]
ALL = ["failed", "recovered", "succeeded"]
LINES = "3 records in 2 stream(s)"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with listening() as found:
        yield found


def succeed(lake: Lake, **settings: Any) -> None:
    lake.load(*GOOD, **settings)


def fail(lake: Lake, **settings: Any) -> None:
    with pytest.raises(ProtocolError):
        lake.load(schema("s", ID), b"no message\n", **settings)


def journals(lake: Lake) -> list[dict[str, Any]]:
    found = sorted((lake.folder / ".dataspoc/runs/test").iterdir())
    return [json.loads(path.read_text()) for path in found]


def test_a_failure_and_the_recovery_from_it_are_told_and_no_other_success(lake: Lake, hook: Webhook) -> None:
    settings = {"notify": [{"url": hook.url}]}
    succeed(lake, **settings)
    assert hook.notices == []
    fail(lake, **settings)
    fail(lake, **settings)
    succeed(lake, **settings)
    succeed(lake, **settings)
    reason = "input line 2 is not JSON"
    assert [outcome for outcome, _ in hook.told()] == ["failed", "failed", "recovered"]
    failed, _, recovered = hook.notices
    _, first, _, third, _ = journals(lake)
    assert failed["text"].startswith("test: failed after ") and reason in failed["text"]
    assert {name: failed[name] for name in failed if name != "text"} == {
        "format_version": 1,
        "pipeline": "test",
        "run_id": first["run_id"],
        "outcome": "failed",
        "error": f"{reason}…; `spark-lake runs` shows it whole",
        "streams": {},
    }
    assert first["error"].startswith(f"{reason} (")
    assert recovered["text"].startswith(f"test: recovered: {LINES}; the last run had failed: {reason}")
    assert (recovered["run_id"], recovered["error"]) == (third["run_id"], None)
    assert recovered["streams"] == {"s": 2, "t": 1}
    assert set(hook.types) == {"application/json"}


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        ({"id": "top secret"}, "stream s: a record is invalid at /id…"),
        ({"id": 1, "price": 1.2345678}, "stream s: column price (decimal(6,2)) can't hold…"),
    ],
)
def test_no_value_of_a_record_is_told(lake: Lake, hook: Webhook, odd: dict[str, Any], told: str) -> None:
    price = {"type": ["null", "number"], "x-sql-datatype": "DECIMAL(6,2)"}
    settings = {"notify": [{"url": hook.url}]}
    with pytest.raises(RecordError):
        lake.load(schema("s", {**ID, "price": price}), record("s", **odd), state(x=1), **settings)
    succeed(lake, **settings)
    said = json.dumps(hook.notices, ensure_ascii=False)
    assert said.count(told) == 3
    assert "top secret" not in said and "1.2345678" not in said


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (
            "stream s: a record is invalid at /user email: 'planted' is too long",
            "stream s: a record is invalid at /user email",
        ),
        (str(Partitioning("s", ()).unholdable("email", "planted")), "stream s: the value"),
        ("stream s: more than 1 record(s) are invalid. The last one: /id: 'planted' is not an integer", "The last one"),
    ],
)
def test_an_error_is_told_up_to_the_value(reason: str, told: str) -> None:
    assert "planted" in reason
    assert without_values(reason).endswith(f"{told}…; `spark-lake runs` shows it whole")


def test_each_is_told_of_what_it_asks_for_and_of_a_run_once(lake: Lake, hook: Webhook) -> None:
    wanted = {"all": ALL, "failed": ["failed"], "succeeded": ["succeeded"], "none": []}
    settings = {"notify": [{"url": f"{hook.root}/{name}", "on": on} for name, on in wanted.items()]}
    for run in (succeed, fail, succeed, succeed):
        run(lake, **settings)
    told = {name: [] for name in wanted}
    for path, (outcome, _) in zip(hook.paths, hook.told(), strict=True):
        told[path[1:]].append(outcome)
    assert told == {
        "all": ["succeeded", "failed", "recovered", "succeeded"],
        "failed": ["failed"],
        "succeeded": ["succeeded", "succeeded", "succeeded"],
        "none": [],
    }
    assert hook.told()[0] == ("succeeded", f"test: {LINES}")


def test_a_tap_that_says_nothing_is_a_failure_that_is_told(lake: Lake, hook: Webhook) -> None:
    lake.load(notify=[{"url": hook.url}])
    ((outcome, text),) = hook.told()
    assert outcome == "failed"
    assert "the input held no message: the tap did not start" in text


def test_commands_of_spark_lake_are_no_runs_that_something_recovers_from(lake: Lake, hook: Webhook) -> None:
    settings = {"notify": [{"url": hook.url, "on": ALL}]}
    storage, layout = Storage(str(lake.folder), {}), Layout("test")

    def compact(error: Exception | None = None) -> None:
        run = open_run(storage, layout, command="compact")
        if error:
            run.fail(error)
        else:
            run.commit(Commit())

    succeed(lake, **settings)
    compact(StorageError("no"))
    succeed(lake, **settings)
    fail(lake, **settings)
    compact()
    succeed(lake, **settings)
    assert [outcome for outcome, _ in hook.told()] == ["succeeded", "succeeded", "failed", "recovered"]


def test_a_run_that_could_not_publish_is_told_as_failed_and_the_next_one_as_recovered(
    lake: Lake, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise StorageError("the bucket refuses")

    settings = {"notify": [{"url": hook.url}]}
    with monkeypatch.context() as patched:
        patched.setattr(pipeline_run, "publish", refuse)
        with pytest.raises(StorageError):
            succeed(lake, **settings)
    succeed(lake, **settings)
    (failed, what), (recovered, _) = hook.told()
    assert (failed, recovered) == ("failed", "recovered")
    assert "is committed, but not all of it is published yet" in what
    assert len(lake.rows("s")) == 4


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (500, "its answer is 500"),
        (302, "its answer is 302, a redirect that is not followed"),
        (SILENT, "no whole answer within 5 s"),
        (ENDLESS, "its answer has no end"),
    ],
)
def test_an_answer_that_is_no_good_is_one_warning_and_changes_nothing(
    lake: Lake,
    hook: Webhook,
    answer: int | str,
    said: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if answer == SILENT:
        monkeypatch.setattr(webhook, "SECONDS", 0.3)
        said = "no whole answer within 0 s"
    hook.answer, hook.location = answer, hook.url
    warned_of(lake, hook.url, said, caplog)
    assert hook.paths == [f"/services/{SECRET}"] * 2


def warned_of(lake: Lake, url: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    """A good run and a bad one are what they are without a receiver, but for one warning each."""
    settings = {"notify": [{"url": url, "on": ALL}]}
    place = "/".join(url.split("/")[:3])
    with caplog.at_level(logging.WARNING):
        succeed(lake, **settings)
        good = [each.getMessage() for each in caplog.records]
        caplog.clear()
        fail(lake, **settings)
        bad = [each.getMessage() for each in caplog.records]
    assert good == [f"notify: {place} was not told that a run succeeded: {said}"]
    assert bad == [f"notify: {place} was not told that a run failed: {said}"]
    assert (lake.rows("s", "id"), lake.state()) == ([(1,), (2,)], {"x": 1})
    assert [each["outcome"] for each in journals(lake)] == ["succeeded", "failed"]
    assert SECRET not in json.dumps(journals(lake))


def test_a_receiver_that_is_not_there_is_one_warning_and_changes_nothing(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        # Bound, but nobody listens.
        url = f"http://127.0.0.1:{free.getsockname()[1]}/{SECRET}"
        warned_of(lake, url, "Connection refused", caplog)


def test_a_name_that_is_not_known_is_one_warning(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        succeed(lake, notify=[{"url": f"https://hooks.invalid/{SECRET}", "on": ALL}])
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith("notify: https://hooks.invalid was not told that a run succeeded: ")
    assert SECRET not in line


def self_signed(folder: Path) -> ssl.SSLContext:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(1)).not_valid_after(now + timedelta(1))
    file, plain = folder / "certificate.pem", serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(private + builder.sign(key, hashes.SHA256()).public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def test_a_certificate_that_nobody_vouches_for_is_one_warning_and_nothing_is_sent(
    lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with listening(self_signed(tmp_path)) as hook, caplog.at_level(logging.WARNING):
        succeed(lake, notify=[{"url": hook.url, "on": ALL}])
        assert hook.paths == []
    (line,) = [each.getMessage() for each in caplog.records]
    assert "certificate verify failed" in line


def test_a_redirect_is_followed_with_the_content_but_to_no_other_scheme(
    lake: Lake, hook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"notify": [{"url": hook.url, "on": ALL}]}
    hook.answer, hook.location = 307, f"{hook.root}/elsewhere"
    succeed(lake, **settings)
    assert hook.paths == [f"/services/{SECRET}", "/elsewhere"]
    assert hook.told() == [("succeeded", f"test: {LINES}")]
    hook.answer, hook.location = 307, hook.root.replace("http:", "https:") + "/elsewhere"
    with caplog.at_level(logging.WARNING):
        succeed(lake, **settings)
    assert len(hook.notices) == 1
    assert "its answer is 307, a redirect that is not followed" in caplog.text


def test_a_proxy_of_the_environment_is_used(lake: Lake, hook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", hook.root)
    succeed(lake, notify=[{"url": "http://hooks.invalid/x", "on": ALL}])
    assert hook.paths == ["http://hooks.invalid/x"]


def command(lake: Lake, hook: Webhook, **settings: Any) -> list[str]:
    """The target whose URL comes from the environment, by two variables whose names tell no secret."""
    path = lake.folder.parent / "target.json"
    notify = [{"url": "${HOOK}/services/${HOOK_PATH}", "on": ALL}]
    path.write_text(json.dumps({"bucket": str(lake.folder), "pipeline": "test", "notify": notify, **settings}))
    os.environ.update(HOOK=hook.root, HOOK_PATH=SECRET)
    return [str(TARGET), "--config", str(path), "--log-level", "debug"]


@pytest.fixture(autouse=True)
def own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets them, so that they are put back."""
    for name in ("HOOK", "HOOK_PATH"):
        monkeypatch.setenv(name, "")


@pytest.mark.slow
@pytest.mark.parametrize("answer", [200, 500])
@pytest.mark.parametrize(("messages", "outcome"), [(GOOD, "succeeded"), ([*GOOD, b"no message\n"], "failed")])
def test_the_program_ends_as_without_a_receiver_and_never_shows_the_url(
    lake: Lake, hook: Webhook, answer: int, messages: list[Any], outcome: str
) -> None:
    hook.answer = answer
    done = subprocess.run(command(lake, hook), input=to_bytes(*messages), capture_output=True, timeout=120, check=False)
    good = outcome == "succeeded"
    errors = done.stderr.decode()
    assert (done.returncode, done.stdout) == ((0, b'{"x":1}\n') if good else (1, b"")), errors
    assert hook.paths == [f"/services/{SECRET}"]
    assert [told for told, _ in hook.told()] == ([outcome] if answer == 200 else [])
    assert errors.count("notify: ") == (answer == 500), errors
    everything = errors + json.dumps(journals(lake))
    assert [part for part in (SECRET, *SECRET.split("/")) if part in everything] == []


@pytest.mark.slow
def test_neither_about_nor_a_wrong_setting_shows_the_url(lake: Lake, hook: Webhook) -> None:
    about = subprocess.run([*command(lake, hook), "--about"], capture_output=True, text=True, timeout=120, check=True)
    assert "notify (array, [] if not given)" in about.stdout
    wrong = subprocess.run(command(lake, hook, format="csv"), input=b"", capture_output=True, timeout=120, check=False)
    assert wrong.returncode == 1
    for text in (about.stdout, about.stderr, wrong.stderr.decode()):
        assert SECRET not in text
    assert hook.paths == []


@pytest.mark.slow
def test_a_run_whose_state_can_not_be_printed_is_told_as_what_it_is(lake: Lake, hook: Webhook) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command(lake, hook), input=to_bytes(*GOOD), stdout=full, stderr=subprocess.PIPE, timeout=120, check=False
        )
    assert done.returncode == 1
    assert b"the run is committed and its state is saved, but it could not be printed" in done.stderr
    assert [outcome for outcome, _ in hook.told()] == ["succeeded"]


@pytest.mark.slow
@pytest.mark.parametrize("answer", [200, SILENT])
def test_a_run_that_is_stopped_is_told_and_ends_though_nobody_answers(
    lake: Lake, hook: Webhook, answer: int | str
) -> None:
    hook.answer = answer
    with begun(lake, hook) as process:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    errors = said(lake).read_text()
    assert process.returncode == 143, errors
    assert hook.paths == [f"/services/{SECRET}"]
    if answer == 200:
        ((outcome, text),) = hook.told()
        assert outcome == "failed"
        assert text.endswith(": stopped by SIGTERM")
    assert errors.count("no whole answer within 5 s") == (answer == SILENT)


@pytest.mark.slow
def test_a_signal_ends_the_waiting_for_an_answer_and_the_run_has_failed_as_before(lake: Lake, hook: Webhook) -> None:
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
    assert errors.splitlines()[-1].startswith("target-spark-lake: input line 3 is not JSON")


@pytest.mark.slow
def test_a_run_that_was_killed_is_told_by_the_next_one(lake: Lake, hook: Webhook) -> None:
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
    assert "died before its commit; nothing of the run happened" in hook.notices[0]["text"]


def begun(lake: Lake, hook: Webhook) -> subprocess.Popen[bytes]:
    """A run that has taken its first messages and waits for more."""
    with said(lake).open("wb") as errors:
        process = subprocess.Popen(command(lake, hook), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
    assert process.stdin is not None
    process.stdin.write(to_bytes(schema("s", ID), {"type": "LAST"}))
    process.stdin.flush()
    until(lambda: "'LAST' are unknown, skipped" in said(lake).read_text(), "its first messages", process)
    return process


def said(lake: Lake) -> Path:
    """Where its standard error goes."""
    return lake.folder.parent / "errors"


LOADED = """
import atexit, sys
from target_spark_lake.__main__ import main
atexit.register(lambda: print("webhook" if "target_spark_lake.load.webhook" in sys.modules else "-", file=sys.stderr))
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("wanted", "loaded"), [([], "-"), (["failed"], "-"), (["succeeded"], "webhook")])
def test_a_run_that_tells_nobody_loads_nothing_for_it(
    lake: Lake, hook: Webhook, wanted: list[str], loaded: str
) -> None:
    notify = [{"url": hook.url, "on": wanted}] if wanted else []
    _, *words = command(lake, hook, notify=notify)
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words], input=to_bytes(*GOOD), capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.decode().splitlines()[-1] == loaded
