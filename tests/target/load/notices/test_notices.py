"""`notify`: which receiver is notified of what at a run's end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from servers.webhook import Webhook
from singer_spark.error_codes import RunCode
from singer_spark.errors import RecordError, StorageError
from singer_spark.store.storage import Storage
from target.load.notices.notified_runs import ALL, ID, LINES, fail, journals, succeed
from target.loading import Lake, record, schema, state
from target_spark_lake.commit import pipeline_run
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.layout import Layout
from target_spark_lake.load.notices import without_values
from target_spark_lake.table.changes import Commit
from target_spark_lake.table.partitioning import Partitioning

pytestmark = pytest.mark.usefixtures("without_jvm")


def test_only_failures_and_recoveries_are_notified(lake: Lake, hook: Webhook) -> None:
    """By default a failure and the recovery from it are notified, but no other success."""
    settings = {"notify": [{"url": hook.url}]}
    succeed(lake, **settings)
    assert hook.notices == []
    fail(lake, **settings)
    fail(lake, **settings)
    succeed(lake, **settings)
    succeed(lake, **settings)
    reason = "LAKE-001 input line 2 is not JSON"
    assert [outcome for outcome, _ in hook.outcomes()] == ["failed", "failed", "recovered"]
    failed, _, recovered = hook.notices
    _, first, _, third, _ = journals(lake)
    assert failed["text"].startswith("test: failed after ") and reason in failed["text"]
    assert {name: failed[name] for name in failed if name != "text"} == {
        "format_version": 1,
        "pipeline": "test",
        "run_id": first["run_id"],
        "outcome": "failed",
        "error": f"{reason}…; `spark-lake runs` shows the full message",
        "streams": {},
    }
    assert first["error"].startswith(f"{reason} (")
    assert recovered["text"].startswith(
        f"test: recovered: {LINES}; the last run had failed: {reason}"
    )
    assert (recovered["run_id"], recovered["error"]) == (third["run_id"], None)
    assert recovered["streams"] == {"s": 2, "t": 1}
    assert set(hook.types) == {"application/json"}


@pytest.mark.parametrize(
    ("odd", "reported"),
    [
        ({"id": "top secret"}, "stream s: a record is invalid at /id…"),
        ({"id": 1, "price": 1.2345678}, "stream s: column price (decimal(6,2)) can't hold…"),
    ],
)
def test_notice_holds_no_record_value(
    lake: Lake, hook: Webhook, odd: dict[str, Any], reported: str
) -> None:
    price = {"type": ["null", "number"], "x-sql-datatype": "DECIMAL(6,2)"}
    settings = {"notify": [{"url": hook.url}]}
    with pytest.raises(RecordError):
        lake.load(schema("s", {**ID, "price": price}), record("s", **odd), state(x=1), **settings)
    succeed(lake, **settings)
    said = json.dumps(hook.notices, ensure_ascii=False)
    assert said.count(reported) == 3
    assert "top secret" not in said and "1.2345678" not in said


@pytest.mark.parametrize(
    ("reason", "reported"),
    [
        (
            "stream s: a record is invalid at /user email: 'planted' is too long",
            "stream s: a record is invalid at /user email",
        ),
        (str(Partitioning("s", ()).unholdable("email", "planted")), "stream s: the value"),
        (
            "stream s: max_invalid_records allows 1 invalid record(s), and this run has more; "
            "nothing was published. The last one: /id: 'planted' is not an integer",
            "The last one",
        ),
        (
            "LAKE-007 the tap failed: TAP-004 stream s: reading failed: invalid text: 'planted'",
            "stream s: reading failed",
        ),
        (
            "the tap failed: stream s: reading failed: invalid text: 'planted'",
            "stream s: reading failed",
        ),
    ],
)
def test_error_is_cut_before_record_value(reason: str, reported: str) -> None:
    assert "planted" in reason
    assert without_values(reason).endswith(f"{reported}…; `spark-lake runs` shows the full message")


def test_receiver_gets_requested_outcomes_once(lake: Lake, hook: Webhook) -> None:
    wanted = {"all": ALL, "failed": ["failed"], "succeeded": ["succeeded"], "none": []}
    settings = {"notify": [{"url": f"{hook.root}/{name}", "on": on} for name, on in wanted.items()]}
    for run in (succeed, fail, succeed, succeed):
        run(lake, **settings)
    reported = {name: [] for name in wanted}
    for path, (outcome, _) in zip(hook.paths, hook.outcomes(), strict=True):
        reported[path[1:]].append(outcome)
    assert reported == {
        "all": ["succeeded", "failed", "recovered", "succeeded"],
        "failed": ["failed"],
        "succeeded": ["succeeded", "succeeded", "succeeded"],
        "none": [],
    }
    assert hook.outcomes()[0] == ("succeeded", f"test: {LINES}")


def test_silent_tap_is_notified_as_failure(lake: Lake, hook: Webhook) -> None:
    lake.load(notify=[{"url": hook.url}])
    ((outcome, text),) = hook.outcomes()
    assert outcome == "failed"
    assert "LAKE-006" in text


def test_commands_are_neither_failures_nor_recoveries(lake: Lake, hook: Webhook) -> None:
    """Commands of spark-lake count neither as failures nor as recoveries."""
    settings = {"notify": [{"url": hook.url, "on": ALL}]}
    storage, layout = Storage(str(lake.folder), {}), Layout("test")

    def compact(error: Exception | None = None) -> None:
        run = open_run(storage, layout, command="compact")
        if error:
            run.fail(error)
        else:
            run.commit(Commit())

    succeed(lake, **settings)
    compact(StorageError(RunCode.STORAGE_FAILED, "no"))
    succeed(lake, **settings)
    fail(lake, **settings)
    compact()
    succeed(lake, **settings)
    assert [outcome for outcome, _ in hook.outcomes()] == [
        "succeeded",
        "succeeded",
        "failed",
        "recovered",
    ]


def test_unpublished_run_is_notified_as_failed(
    lake: Lake, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that could not publish is notified as failed, and the next as recovered."""

    def refuse(*_: Any) -> None:
        raise StorageError(RunCode.STORAGE_FAILED, "the bucket refuses")

    settings = {"notify": [{"url": hook.url}]}
    with monkeypatch.context() as patched:
        patched.setattr(pipeline_run, "publish", refuse)
        with pytest.raises(StorageError):
            succeed(lake, **settings)
    succeed(lake, **settings)
    (failed, what), (recovered, _) = hook.outcomes()
    assert (failed, recovered) == ("failed", "recovered")
    assert "is committed, but not all of it is published yet" in what
    assert len(lake.rows("s")) == 4
