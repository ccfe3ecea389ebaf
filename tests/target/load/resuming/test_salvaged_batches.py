"""What a run that died leaves to continue from: only whole batches before a STATE that says how."""

from __future__ import annotations

import pytest

from singer_spark.errors import ProtocolError
from target.increment import GROWS, WHOLE, assert_as_before, assert_exact, increment
from target.load.resuming.dying_taps import AFTER_ALL_RECORDS, AFTER_THE_SECOND_STATE, die
from target.loading import JSON, Lake, SlowInput, record, state, to_bytes
from target_spark_lake.load.checkpointing import Checkpointing

pytestmark = pytest.mark.usefixtures("without_jvm")


def test_malformed_line_salvages_nothing(lake: Lake) -> None:
    with pytest.raises(ProtocolError, match=r"LAKE-001 .*12"):
        lake.load(*lake.announced(increment())[:11], b'{"type": "RECORD", "stream": "gr\n')
    assert lake.checkpoint() is None
    assert not [path for path in lake.files() if "staging" in path]
    assert_as_before(lake)


def test_with_resume_false_nothing_is_kept(lake: Lake) -> None:
    die(lake, AFTER_THE_SECOND_STATE, resume=False)
    assert lake.checkpoint() is None
    assert not [path for path in lake.files() if "staging" in path or "checkpoint" in path]
    assert_as_before(lake)


@pytest.mark.parametrize("start", [{"final": False, "start": "full"}, {}], ids=["full", "foreign"])
def test_full_run_or_foreign_tap_discards_checkpoint(lake: Lake, start: JSON) -> None:
    """A full run and a foreign tap write no checkpoint and discard an earlier one."""
    die(lake, AFTER_THE_SECOND_STATE)
    assert lake.checkpoint() is not None
    opening = {**state(), **start}
    with pytest.raises(ProtocolError):
        lake.load(opening, GROWS, record("grows", id=3), lake.announced(increment())[4], b"{")
    assert not [path for path in lake.files() if "staging" in path or "checkpoint" in path]
    assert_as_before(lake)


def test_run_without_resume_discards_checkpoint(lake: Lake) -> None:
    die(lake, AFTER_THE_SECOND_STATE)
    lines = lake.announced(increment(), resume=False)
    with pytest.raises(ProtocolError, match="LAKE-005"):
        lake.load(*lines[:3])
    assert not [path for path in lake.files() if "staging" in path or "checkpoint" in path]
    lake.load(*lake.announced(increment(), resume=False))
    assert_exact(lake)


def test_run_from_other_start_keeps_no_checkpoint(lake: Lake) -> None:
    """With `accept_any_start` the rows do not follow the saved state, so no run can resume."""
    lines = lake.announced(increment())
    lines[0] = {**lines[0], "value": {"grows": 1}}
    with pytest.raises(ProtocolError, match="LAKE-005"):
        lake.load(*lines[:AFTER_THE_SECOND_STATE], accept_any_start=True)
    assert lake.checkpoint() is None
    assert_as_before(lake)


def test_state_without_resume_data_is_no_checkpoint(lake: Lake) -> None:
    """A STATE without the tap's resume data is no checkpoint."""
    lines = [
        {name: value for name, value in line.items() if name != "resume"}
        for line in lake.announced(increment())
    ]
    with pytest.raises(ProtocolError, match="LAKE-005"):
        lake.load(*lines[:AFTER_ALL_RECORDS])
    assert lake.checkpoint() is None
    lake.load(*lake.announced(increment()))
    assert_exact(lake)


@pytest.mark.parametrize(
    ("batch_size", "kept"), [(100, 3), (1000, None)], ids=["cut at the STATE", "not cut there"]
)
def test_batch_outgrown_after_a_state_is_not_salvaged(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, batch_size: int, kept: int | None
) -> None:
    """It may hold rows of both sides of the last STATE, so only an older cut counts."""
    monkeypatch.setattr(
        "target_spark_lake.load.batches.batch_bytes", lambda before, target_file_mb: batch_size
    )
    lines = [
        *lake.announced(increment())[:5],
        *(record("grows", id=n, name="x" * 99) for n in range(9, 99)),
    ]
    with pytest.raises(ProtocolError, match="LAKE-005"):
        lake.load(*lines)
    checkpoint = lake.checkpoint()
    assert (checkpoint.resume["sent"] if checkpoint else None) == kept
    lake.load(*lake.announced(increment()))
    assert_exact(lake)


@pytest.mark.slow
def test_no_batch_spans_a_written_checkpoint(lake: Lake, monkeypatch) -> None:
    """Whatever the batches' size, the files of each checkpoint hold just the rows before its
    STATE.
    """
    monkeypatch.setattr("target_spark_lake.load.checkpointing.WRITE_SECONDS", 0)
    monkeypatch.setattr("target_spark_lake.load.checkpointing.WRITES_A_RUN", 1 << 62)
    written: list[int] = []
    write = Checkpointing._write

    def checked(self: Checkpointing) -> bool:
        staged = self._staged
        assert staged is not None
        done = write(self)
        rows = sum(
            file["rows"]
            for stream in lake.checkpoint().target["streams"].values()
            for file in stream["files"]
        )
        written.append(rows)
        assert rows == staged.state["n"]
        return done

    monkeypatch.setattr(Checkpointing, "_write", checked)
    for size in (1, 100, 333, 1000):
        monkeypatch.setattr(
            "target_spark_lake.load.batches.batch_bytes",
            lambda before, target_file_mb, size=size: size,
        )
        body = [GROWS, WHOLE]
        for n in range(60):
            body += [record("whole" if n % 7 < 3 else "grows", id=n)]
            body += [state(n=n + 1)] if n % 5 in (1, 2) else []
        with pytest.raises(ProtocolError, match="LAKE-005"):
            lines = lake.announced([*body, state(n=60)], resume=False)[:-2]
            lake.listen(SlowInput(to_bytes(*lines), lambda line: True))
    assert len(written) > 8
