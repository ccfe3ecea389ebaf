"""`spark-lake compact` is a run without records: it keeps the state, and what other runs hold or
left.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from faults.faulty import DIE_BEFORE, Died, Faulty
from faults.resuming_lake import ResumingLake
from faults.small_lake import LAYOUT as NUMBERS
from faults.small_lake import NO_BEATS, PIPELINE, STEP, SmallLake, dead_process
from singer_spark.errors import LockedError
from singer_spark.state.run_log import run_ids
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.formats.maintenance import compact
from target_spark_lake.ops.spark_lake import command


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    (tmp_path / "target.json").write_text(
        json.dumps({"bucket": f"{tmp_path}/lake", "pipeline": PIPELINE})
    )
    return SmallLake(f"{tmp_path}/lake", {})


def answer(capsys: Any, lake: SmallLake, *words: str) -> Any:
    capsys.readouterr()
    assert command([*words, "--json", "--config", f"{Path(lake.url).parent}/target.json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_compact_run_keeps_state(lake: SmallLake, capsys: Any) -> None:
    """`compact` is a run without records that keeps the state."""
    lake.sync()
    lake.sync()
    state = answer(capsys, lake, "state", "show")
    done = answer(capsys, lake, "compact", "--stream", "grows")
    (table,) = done["tables"]
    assert (table["stream"], table["retired"], table["published"]) == ("grows", 4, 1)
    (run, *_) = answer(capsys, lake, "runs")
    assert (run["run_id"], run["outcome"]) == (done["run_id"], "succeeded")
    assert run["streams"] == {
        "grows": {
            "records": 0,
            "files": 1,
            "bytes": table["published_bytes"],
            "rejected": 0,
            "deleted": 0,
        },
    }
    assert answer(capsys, lake, "state", "show") == state
    lake.check_exact(2 * STEP)
    assert answer(capsys, lake, "compact") == {"pipeline": PIPELINE, "run_id": None, "tables": []}
    lake.check_exact(lake.sync())


def test_compact_fails_at_once_on_a_locked_pipeline(lake: SmallLake, capsys: Any) -> None:
    """A compaction does not wait for a running load; it fails at once."""
    lake.sync()
    run = open_run(lake.storage(), NUMBERS, lock_ttl_seconds=NO_BEATS)
    with pytest.raises(LockedError, match=rf"LAKE-060 .*{run.run_id}"):
        answer(capsys, lake, "compact")
    run.leave()
    assert len(answer(capsys, lake, "compact")["tables"]) == 1


def test_compact_keeps_resumable_data_of_dead_run(lake: SmallLake, capsys: Any) -> None:
    resuming = ResumingLake(lake.url, {})
    resuming.sync()
    broken = lake.faulty_files(lambda files: Faulty(files, 2, DIE_BEFORE, frozenset({"create"})))
    with pytest.raises(Died):
        resuming.sync(broken, dead_process())
    staged = lake.staged_paths()
    runs = run_ids(lake.storage(), NUMBERS.runs)
    with pytest.raises(LockedError, match="LAKE-060"):
        answer(capsys, lake, "compact")
    assert lake.staged_paths() == staged != []
    assert (
        len(run_ids(lake.storage(), NUMBERS.runs)) == len(runs) + 1
    )  # the dead one is decided as rolled back
    resuming.check_exact(resuming.sync())
    assert resuming.taken_over() == len(staged)
    assert answer(capsys, lake, "compact")["tables"]


def test_s3_lake_is_compacted(s3: Any, tmp_path: Path) -> None:
    url, options = s3.new_bucket(), s3.storage_options
    lake = SmallLake(url, options)
    lake.sync()
    lake.sync()
    config = {"bucket": url, "pipeline": PIPELINE, "storage_options": options}
    (done,) = compact(open_run(lake.storage(), NUMBERS), TargetSettings.from_config(config))
    assert (done.retired, done.published) == (4, 1)
    lake.check_exact(2 * STEP)
    lake.check_exact(lake.sync())
