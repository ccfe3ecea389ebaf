"""Going on from a tap that died: wherever its lines end, the next run brings the rest, and nothing
twice.
"""

from __future__ import annotations

import json

import pytest

from singer_spark.errors import ProtocolError
from target.increment import INT, TEXT, WHOLE, assert_as_before, assert_exact, increment
from target.load.resuming.dying_taps import AFTER_ALL_RECORDS, AFTER_THE_SECOND_STATE, die
from target.loading import JSON, Lake, record, schema, state, to_bytes
from target_spark_lake.ops import spark_lake

pytestmark = pytest.mark.usefixtures("without_jvm")


def runs(lake: Lake, capsys: pytest.CaptureFixture[str]) -> list[JSON]:
    config = lake.folder.parent / "target.json"
    config.write_text(json.dumps({"bucket": str(lake.folder), "pipeline": "test"}))
    capsys.readouterr()
    assert spark_lake.command(["runs", "--config", str(config), "--json"]) == 0
    return list(json.loads(capsys.readouterr().out))


def last_state_before(lines: list[JSON], end: int) -> int | None:
    """What is beside the last STATE before a line, except the first STATE."""
    return next(
        (line["resume"]["sent"] for line in reversed(lines[1:end]) if "resume" in line), None
    )


@pytest.mark.slow
@pytest.mark.parametrize("half", [False, True], ids=["between lines", "inside a line"])
@pytest.mark.parametrize("line", range(len(increment()) + 2))
def test_resume_completes_input_cut_at_any_line(lake: Lake, line: int, half: bool) -> None:
    """Wherever the tap's lines end, the next run loads the rest exactly once."""
    lines = lake.announced(increment())
    whole, rest = to_bytes(*lines[:line]), to_bytes(*lines[line : line + 1]) if half else b""
    if line == 0 and not half:
        lake.load()
    elif line < len(lines):
        with pytest.raises(ProtocolError, match="LAKE-005"):
            lake.load(whole, rest[: len(rest) // 2])
    else:
        lake.load(whole)
    if line < len(lines):
        assert_as_before(lake)
        checkpoint = lake.checkpoint()
        assert (checkpoint.resume["sent"] if checkpoint else None) == last_state_before(lines, line)
        resumed = lake.announced(increment())
        assert (resumed[0]["start"] == "resume") == (checkpoint is not None)
        lake.load(*resumed)
    assert_exact(lake)


@pytest.mark.usefixtures("checkpoints_at_once")
def test_repeatedly_failing_tap_finishes(lake: Lake) -> None:
    """An attempt too short for a new STATE keeps the older checkpoint."""
    reached = []
    for length in range(100):
        lines = lake.announced(increment())
        if 1 + length >= len(lines):
            break
        with pytest.raises(ProtocolError, match="LAKE-005"):
            lake.load(*lines[: 1 + length])
        assert_as_before(lake)
        checkpoint = lake.checkpoint()
        reached.append(checkpoint.resume["sent"] if checkpoint else 0)
    assert reached == sorted(reached)
    assert len(set(reached)) > 3
    lake.load(*lines)
    assert_exact(lake)


@pytest.mark.usefixtures("checkpoints_at_once")
def test_failed_target_keeps_its_last_checkpoint(lake: Lake) -> None:
    """Nothing is salvaged from a run that failed by itself."""
    with pytest.raises(ProtocolError, match="LAKE-001"):
        lake.load_slowly(*lake.announced(increment())[:9], b'"broken\n')
    assert_as_before(lake)
    lines = lake.announced(increment())
    assert lines[0]["resume"]["sent"] == 6
    lake.load(*lines)
    assert_exact(lake)


def begun_again(lake: Lake) -> list[JSON]:
    """What a tap sends that continues from a checkpoint, but begins one stream again, because its
    table has changed since.
    """
    opening, *_ = lake.announced(increment())
    assert opening["start"] == "resume"
    body = increment()
    start = body.index(WHOLE)
    value = body[start - 1]["value"]
    resume = {"format_version": 1, "sent": start - 1}
    again = {"type": "STATE", "value": value, "resume": resume, "restarted": ["whole"]}
    grows, *rest, last = lake.announced(body[:1] + body[start:], resume=False)[1:]
    for message in rest:
        if "resume" in message:
            message["resume"]["sent"] += start - 1
    return [opening, grows, again, *rest, last]


@pytest.mark.usefixtures("checkpoints_at_once")
def test_restarted_stream_drops_rows_of_dead_run(lake: Lake) -> None:
    """This holds even if the tap dies again afterwards."""
    part_of_whole = increment().index(WHOLE) + 7
    die(lake, part_of_whole)
    checkpoint = lake.checkpoint()
    assert checkpoint is not None
    assert checkpoint.state["whole"] == 3
    lines = begun_again(lake)
    with pytest.raises(ProtocolError, match="LAKE-005"):
        lake.load_slowly(*lines[:4])
    resumed = lake.announced(increment())
    assert resumed[0]["start"] == "resume"
    assert resumed[0]["resume"]["sent"] == increment().index(WHOLE) - 1
    lake.load(*resumed)
    assert_exact(lake)


def test_restart_after_own_records_is_refused(lake: Lake) -> None:
    """A stream that restarts after its own records is refused."""
    die(lake, increment().index(WHOLE) + 7)
    opening, grows, again, whole, *_ = begun_again(lake)
    with pytest.raises(ProtocolError, match=r"LAKE-004 .*whole"):
        lake.load(opening, grows, whole, again)


def test_report_counts_resumed_rows_in_publishing_run(lake: Lake, capsys) -> None:
    """Resumed rows are counted in the report of the run that published them."""
    die(lake, AFTER_ALL_RECORDS)
    lake.load(*lake.announced(increment()))
    published, died, _ = runs(lake, capsys)
    assert (published["outcome"], died["outcome"], died["streams"]) == ("succeeded", "failed", {})
    assert {name: stream["records"] for name, stream in published["streams"].items()} == {
        "grows": 5,
        "whole": 5,
        "empty": 0,
    }


def test_resumed_new_columns_reach_table(
    lake: Lake,
) -> None:
    """New columns of a resumed run reach the table, even without further records."""
    wider = schema("grows", {"id": INT, "name": TEXT, "extra": TEXT}, ("id",))
    body = [wider, record("grows", id=3, extra="x"), state(grows=3), state(grows=3)]
    with pytest.raises(ProtocolError, match="LAKE-005"):
        lake.load(*lake.announced(body)[:-2])
    lake.load(*lake.announced(body))
    assert lake.rows("grows", "id, extra") == [(1, None), (2, None), (3, "x")]
    table = json.loads((lake.folder / ".dataspoc/tables/raw/grows.json").read_text())
    assert ["extra", "string"] in table["columns"]


def test_column_of_dead_run_reaches_table(lake: Lake) -> None:
    """The resuming run sends only the last SCHEMA, without that column."""
    narrow = schema("grows", {"id": INT}, ("id",))
    body = [schema("grows", {"id": INT, "extra": TEXT}), record("grows", id=3, extra="x"), narrow]
    body += [record("grows", id=4), state(grows=4), record("grows", id=5), state(grows=5)]
    with pytest.raises(ProtocolError, match="LAKE-005"):
        lake.load(*lake.announced(body)[:6])
    opening, *_, rest, mid, last = lake.announced(body)
    assert opening["start"] == "resume"
    lake.load(opening, narrow, rest, mid, last)
    assert [id for (id,) in lake.rows("grows", "id")] == [1, 2, 3, 4, 5]
    table = json.loads((lake.folder / ".dataspoc/tables/raw/grows.json").read_text())
    assert ["extra", "string"] in table["columns"]


def test_empty_input_keeps_checkpoint(lake: Lake, capsys) -> None:
    """Empty input means that the tap did not start, e.g. because the database was down."""
    die(lake, AFTER_THE_SECOND_STATE)
    before = lake.files()
    known = len(runs(lake, capsys))
    lake.load()
    lake.load()
    assert lake.files() == before
    newest, *others = runs(lake, capsys)
    assert (newest["outcome"], newest["streams"], len(others)) == ("failed", {}, known + 1)
    assert "the tap did not start" in newest["error"]
    lake.load(*lake.announced(increment()))
    assert_exact(lake)


def test_irrelevant_settings_do_not_block_resume(lake: Lake) -> None:
    """Settings that do not change rows may differ in the resuming run."""
    die(lake, AFTER_THE_SECOND_STATE)
    lake.load(
        *lake.announced(increment()), lock_ttl_seconds=5, target_file_mb=1, path="raw", resume=False
    )
    assert_exact(lake)
