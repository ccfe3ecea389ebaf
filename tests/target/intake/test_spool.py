"""The spool: what is cut back is as if it had never come."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from target_spark_lake.intake.singer_lines import RecordLines
from target_spark_lake.intake.spool import SpooledBatch, batch_bytes


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.one_of(st.just("mark"), st.integers(1, 5)), max_size=12))
def test_cut_back_restores_batch_at_its_mark(tmp_path: Path, steps: list[object]) -> None:
    batch = SpooledBatch(tmp_path / "batch.jsonl")
    number, kept = 0, 0
    for step in steps:
        if isinstance(step, int):
            data = b"".join(b'{"n": %d}\n' % (number + each) for each in range(step))
            # Between two groups of lines some were another stream's.
            batch.write(RecordLines("s", data, step, 2 * number + 1))
            number += step
        else:
            batch.mark()
            kept = number
    begun = batch.size > 0
    batch.cut_back()
    batch.close()
    wanted = b"".join(b'{"n": %d}\n' % each for each in range(kept))
    assert (batch.rows, batch.size) == (kept, len(wanted))
    if begun:
        assert batch.path.read_bytes() == wanted
        assert batch.location_of(b'{"n": %d}\n' % kept) is None
    if kept:
        assert batch.location_of(b'{"n": 0}\n') == "input line 1"
    batch.remove()


def test_batch_size_is_limited_by_target_file_size() -> None:
    """Batches grow with their stream, up to a limit set by the target file size."""
    mb = 1 << 20
    assert [batch_bytes(before * mb, 128) // mb for before in (0, 90, 300, 10_000)] == [
        32,
        32,
        100,
        256,
    ]
    assert [batch_bytes(before * mb, 16) // mb for before in (0, 300, 10_000)] == [32, 64, 64]
    assert batch_bytes(0, 1) == 4 * mb
