"""`notify` on `schema` and `lag`: a table changed its columns or key, and the lake fell behind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from servers.webhook import Webhook
from singer_spark.errors import ConfigurationError, ProtocolError
from target.loading import Lake, record, schema, state
from target_spark_lake.load import notices

pytestmark = pytest.mark.usefixtures("without_jvm")
NUMBER = {"type": ["null", "integer"]}
AB = {"a": {"type": "integer"}, "b": NUMBER}


def load(
    lake: Lake,
    properties: Any,
    *rows: Any,
    at: str = "",
    ended_early: bool = False,
    **settings: Any,
) -> None:
    bookmarks = {"s": {"replication_key": "b", "replication_key_value": at}}
    end = state(bookmarks=bookmarks, **({"currently_syncing": "s"} if ended_early else {}))
    lake.load(
        schema("s", properties, ("a",)), *(record("s", **row) for row in rows), end, **settings
    )


def test_column_change_is_notified_once(lake: Lake, hook: Webhook) -> None:
    """Beside the outcome, if that is wanted too; a new table is no change."""
    settings = {"notify": [{"url": hook.url, "on": ["succeeded", "schema"]}]}
    load(lake, AB, {"a": 1}, **settings)
    load(lake, {**AB, "c": NUMBER}, {"a": 2, "c": 1}, **settings)
    load(lake, {"a": AB["a"], "c": NUMBER}, **settings)
    load(lake, {"a": AB["a"], "c": NUMBER}, {"a": 3}, **settings)
    outcomes = [outcome for outcome, _ in hook.outcomes()]
    assert sorted(outcomes[1:3]) == sorted(outcomes[3:5]) == ["schema", "succeeded"]
    assert len(outcomes) == 6
    added, gone = [each for each in hook.notices if each["outcome"] == "schema"]
    assert added["changes"] == {"s": ["new column c (bigint)"]}
    assert "stream s: new column c (bigint)" in added["text"]
    assert gone["changes"] == {
        "s": ["column b is gone from the source, or not selected; rows from before keep it"]
    }


def hours_ago(hours: float) -> str:
    return (datetime.now(UTC) - timedelta(hours=hours)).replace(tzinfo=None).isoformat()


def test_lag_is_notified_once_per_threshold_crossing(lake: Lake, hook: Webhook) -> None:
    """A lag is notified when it exceeds its limit, and again only after it fell below it."""
    settings = {"notify": [{"url": hook.url, "on": ["lag"]}], "max_lag_minutes": 60}
    for hours in (0.5, 3, 2, 0.1, 5):
        load(lake, AB, {"a": 1}, at=hours_ago(hours), ended_early=True, **settings)
    load(lake, AB, {"a": 1}, at=hours_ago(0.1), **settings)
    # All was read: the source has nothing newer.
    load(lake, AB, {"a": 1}, at=hours_ago(9), **settings)
    first, second = hook.notices
    assert (first["outcome"], second["outcome"]) == ("lag", "lag")
    assert (first["lags"]["s"] // 3600, second["lags"]["s"] // 3600) == (3, 5)
    assert "stream s: it has been read only up to 3 h" in first["text"]


def test_lag_of_failing_runs_is_notified_once(
    lake: Lake, hook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no replication key is a time."""
    settings = {"notify": [{"url": hook.url, "on": ["lag"]}], "max_lag_minutes": 60}
    load(lake, AB, {"a": 1}, at="7", **settings)

    def fail() -> None:
        with pytest.raises(ProtocolError):
            lake.load(b"no message\n", **settings)

    fail()
    assert hook.notices == []

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(hours=2)

    with monkeypatch.context() as patched:
        patched.setattr(notices, "datetime", Later)
        fail()
    (notice,) = hook.notices
    assert "no run has succeeded for 2 h" in notice["text"]


def test_lag_notice_needs_max_lag_minutes(lake: Lake, hook: Webhook) -> None:
    with pytest.raises(ConfigurationError, match=r"RUN-004 .*notify\.0\.on.*max_lag_minutes"):
        load(lake, AB, {"a": 1}, notify=[{"url": hook.url, "on": ["lag"]}])
