"""Meltano's state backend: Meltano reads and edits the state of the lake's pipelines, and never
undoes a run's.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from meltano.core.state_store import MeltanoState, StateBackend

from faults.faulty import Died, Interrupted
from faults.small_lake import LAYOUT, PIPELINE, SmallLake, dead_process, state_of
from singer_spark.state.handover import STATE_VARIABLE, handed_over
from singer_spark.state.source import source_of_target
from target.loading import Lake, record, schema, state
from target_spark_lake.commit import run_reports
from target_spark_lake.commit.pipeline_run import change_state, open_run
from target_spark_lake.commit.saved_state import pipeline_of, state_id_of
from target_spark_lake.layout import Layout
from target_spark_lake.meltano.lake_backend import (
    SCHEMES,
    LakeStateBackend,
    LakeStateError,
    LakeStateStoreManager,
)

JSON = dict[str, Any]
STATE_ID = "dev:tap-a-to-target-b"
NAMED_BY_IT = "dev.tap-a-to-target-b"


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    """The backend passes its place to the programs that Meltano starts, but to no other test."""
    with mock.patch.dict(os.environ):
        yield


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    # So that it is gone after the test.
    monkeypatch.setenv(STATE_VARIABLE, "")
    return SmallLake(str(tmp_path / "lake"), {})


def backend(lake: SmallLake, **settings: Any) -> LakeStateStoreManager:
    return LakeStateStoreManager(uri=f"lake+file://{lake.url}", lock_timeout_seconds=10, **settings)


def numbers(lake: SmallLake) -> LakeStateStoreManager:
    return backend(lake, pipelines={STATE_ID: PIPELINE})


def completed(value: JSON, state_id: str = STATE_ID) -> MeltanoState:
    return MeltanoState(state_id, completed_state={"singer_state": value}, partial_state={})


def partial(value: JSON, state_id: str = STATE_ID) -> MeltanoState:
    return MeltanoState(state_id, completed_state={}, partial_state={"singer_state": value})


def value_of(states: LakeStateStoreManager, state_id: str = STATE_ID) -> JSON | None:
    found = states.get(state_id)
    return None if found is None else json.loads(found.json_merged())["singer_state"]


def outcomes(lake: SmallLake, layout: Layout = LAYOUT) -> list[str]:
    return [run["outcome"] for run in run_reports.runs(lake.storage(), layout)]


def dying_before_the_state(files: Any) -> Any:
    def die() -> None:
        raise Died

    return Interrupted(
        files, lambda name, args: name == "exchange" and args[0] == LAYOUT.state, die
    )


def test_meltano_reads_committed_unpublished_state(
    lake: SmallLake,
) -> None:
    """Meltano reads the last committed state, even before it is published."""
    states = numbers(lake)
    assert states.get(STATE_ID) is None
    first = lake.sync()
    assert value_of(states) == state_of(first)
    with pytest.raises(Died):
        lake.sync(lake.faulty_files(dying_before_the_state), dead_process())
    assert json.loads(lake.storage().read(LAYOUT.state) or b"") == state_of(first)
    assert value_of(states) == state_of(first + 4)


def test_state_set_by_meltano_is_a_run_of_its_own(lake: SmallLake) -> None:
    """A state that Meltano sets is a run of its own, with the previous state in its journal."""
    states, bound = numbers(lake), lake.sync()
    states.update(completed(state_of(1)))
    assert json.loads(lake.storage().read(LAYOUT.state) or b"") == state_of(1)
    newest, older = list(run_reports.entries(lake.storage(), LAYOUT))
    assert newest.state == state_of(1)
    assert newest.body["previous_state"] == older.state == state_of(bound)
    assert newest.body["streams"] == {}
    # No sync, which `status` would take for a success.
    assert newest.body["command"] == "state set"

    states.clear(STATE_ID)
    assert states.get(STATE_ID) is None
    assert json.loads(lake.storage().read(LAYOUT.state) or b"") == {"bookmarks": {}}
    assert next(run_reports.entries(lake.storage(), LAYOUT)).body["previous_state"] == state_of(1)
    assert outcomes(lake) == ["succeeded"] * 3


def test_setting_same_state_needs_no_lock(lake: SmallLake) -> None:
    """Setting the state that is already saved leaves no trace and needs no lock."""
    states, bound = numbers(lake), lake.sync()
    run = open_run(lake.storage(), LAYOUT)
    states.update(completed(state_of(bound)))
    states.update(partial(state_of(bound)))
    run.leave()
    assert outcomes(lake) == ["succeeded"]
    # Where nothing was, nothing is made either.
    states.clear("dev:nothing-to-see")
    assert not lake.storage().list(Layout("dev.nothing-to-see").runs)


def test_locked_pipeline_refuses_state_changes(
    lake: SmallLake, caplog: pytest.LogCaptureFixture
) -> None:
    states, bound = numbers(lake), lake.sync()
    run = open_run(lake.storage(), LAYOUT)
    with pytest.raises(LakeStateError, match=rf"LAKE-060 .*{PIPELINE}.* {os.getpid()}"):
        states.update(completed(state_of(0)))
    assert PIPELINE in caplog.text
    with pytest.raises(LakeStateError, match=PIPELINE):
        states.clear(STATE_ID)
    run.leave()
    assert value_of(states) == state_of(bound)


@pytest.mark.parametrize("reported", [completed, partial])
def test_late_meltano_state_does_not_move_state_back(lake: SmallLake, reported: Any) -> None:
    """A state that Meltano reports late does not move the pipeline back."""
    first, second = lake.sync(), lake.sync()
    with (
        click.Context(click.Command("meltano")) as meltano,
        click.Context(click.Command("run"), meltano, "run"),
    ):
        numbers(lake).update(reported(state_of(first)))
        assert value_of(numbers(lake)) == state_of(second)
        # Another target's state is none of the lake's runs: Meltano is its only keeper.
        numbers(lake).update(reported(state_of(77)))
        assert value_of(numbers(lake)) == state_of(77)
    # A person may go back.
    numbers(lake).update(completed(state_of(first)))
    assert value_of(numbers(lake)) == state_of(first)


def test_late_idle_run_keeps_newer_state(
    lake: SmallLake,
) -> None:
    """The late state of a run without rows does not move the pipeline back."""
    lake.sync()

    def idle(value: int) -> None:
        change_state(open_run(lake.storage(), LAYOUT), lambda saved: state_of(value))

    def heard(value: int) -> JSON | None:
        with (
            click.Context(click.Command("meltano")) as meltano,
            click.Context(click.Command("run"), meltano, "run"),
        ):
            numbers(lake).update(completed(state_of(value)))
            return value_of(numbers(lake))

    idle(50)
    idle(60)
    assert heard(50) == state_of(60)
    # Another target reaches it again, after somebody went back: there Meltano is the only keeper.
    numbers(lake).update(completed(state_of(20)))
    assert heard(50) == state_of(50)


def test_merged_state_takes_bookmarks_whole(
    lake: SmallLake,
) -> None:
    """A merged state replaces whole bookmarks and keeps those of other streams."""
    states = backend(lake)
    old = {"replication_key": "id", "replication_key_value": 1, "boundary": {"rows": 1}}
    states.update(completed({"bookmarks": {"a": old, "b": old}}))
    states.update(partial({"bookmarks": {"b": {"replication_key_value": 2}}}))
    assert value_of(states) == {"bookmarks": {"a": old, "b": {"replication_key_value": 2}}}
    # As `meltano state import` gives them, what is there does not count.
    states.set_all(
        [
            MeltanoState(
                STATE_ID, partial(state_of(2)).partial_state, completed(state_of(1)).completed_state
            )
        ]
    )
    assert value_of(states) == state_of(2)


@pytest.mark.parametrize(
    "body", [{"bookmarks": {}}, {"singer_state": []}, {"singer_state": {"bookmarks": [1]}}]
)
def test_invalid_meltano_state_is_refused(lake: SmallLake, body: JSON) -> None:
    with pytest.raises(LakeStateError, match=r"RUN-030 .*(singer_state|bookmarks)"):
        backend(lake).update(MeltanoState(STATE_ID, completed_state=body))
    assert not lake.storage().list("")


def test_malformed_state_error_names_position(lake: SmallLake) -> None:
    """The error names the line and column in the state file."""
    lake.sync()
    lake.storage().replace(LAYOUT.state, b'{\n "bookmarks": oops}')
    with pytest.raises(LakeStateError, match=r"RUN-030 .*state\.json.*15") as raised:
        numbers(lake).get(STATE_ID)
    assert "line 2" in str(raised.value.args[0])


def test_pipelines_are_found_by_state_id(lake: SmallLake) -> None:
    lake.sync()
    states = numbers(lake)
    other = ["prod:tap-a-to-target-b:eu", "plain", "~odd/name"]
    for state_id in [*other, "dev:gone-to-nowhere"]:
        states.update(completed(state_of(5), state_id))
    states.clear("dev:gone-to-nowhere")
    assert sorted(states.get_state_ids()) == sorted([*other, STATE_ID])
    assert list(states.get_state_ids("prod:*")) == ["prod:tap-a-to-target-b:eu"]
    assert [state.state_id for state in states.get_all("pl*n")] == ["plain"]
    assert lake.storage().exists(Layout("prod.tap-a-to-target-b.eu").state)
    # The name that the mapped id would have is another pipeline's own.
    states.update(completed(state_of(6), NAMED_BY_IT))
    assert NAMED_BY_IT in states.get_state_ids()
    assert value_of(states, NAMED_BY_IT) == state_of(6) != value_of(states, STATE_ID)


@given(st.text(st.sampled_from("ab.-to:"), min_size=1))
def test_state_id_round_trips_to_pipeline(name: str) -> None:
    pipeline = name.replace(":", ".")
    assert pipeline_of(state_id_of(pipeline)) == pipeline


def test_state_location_is_exported_only_on_reading(
    lake: SmallLake,
) -> None:
    """The state's location is exported to child processes on reading, not on saving."""
    states = backend(
        lake, pipelines={STATE_ID: "p"}, storage_options={"secret": "a$HOME b", "nested": {"x": 1}}
    )
    states.update(partial(state_of(1)))
    assert handed_over(os.environ) is None
    states.get(STATE_ID)
    assert "$" not in os.environ[STATE_VARIABLE]
    assert handed_over(os.environ) == {
        "bucket": lake.url,
        "pipeline": "p",
        "state_backend": None,
        "storage_options": {"secret": "a$HOME b", "nested": {"x": 1}},
    }
    assert "a$HOME b" not in states.label


@pytest.mark.parametrize(
    ("store", "scheme"),
    [("s3", "s3"), ("google", "gs"), ("azure", "az"), ("azure", "abfss")],
    indirect=["store"],
)
@pytest.mark.usefixtures("lake")
def test_bucket_keeps_meltano_state_like_folder(store: Any, scheme: str) -> None:
    url = store.new_bucket()
    if scheme == "abfss":
        url = f"{url.replace('az://', 'abfss://')}@{store.name}.dfs.core.windows.net"
    bucket = SmallLake(url, store.storage_options)
    states = LakeStateStoreManager(
        uri=f"lake+{url}", storage_options=store.storage_options, pipelines={STATE_ID: PIPELINE}
    )
    assert url.startswith(f"{scheme}://")
    bound = bucket.sync()
    assert value_of(states) == state_of(bound)
    run = open_run(bucket.storage(), LAYOUT)
    with pytest.raises(LakeStateError, match=rf"LAKE-060 .*{PIPELINE}.* {os.getpid()}"):
        states.update(completed(state_of(1)))
    run.leave()
    states.update(completed(state_of(1)))
    assert list(states.get_state_ids()) == [STATE_ID]
    assert json.loads(bucket.storage().read(LAYOUT.state) or b"") == state_of(1)


def test_backend_is_registered_for_each_scheme() -> None:
    assert {f"lake+{scheme}" for scheme in SCHEMES} <= set(StateBackend.backends())
    assert StateBackend.get_manager_factory(scheme="lake+s3") is LakeStateBackend


def test_set_state_warns_about_dropped_checkpoint(
    lake: SmallLake, caplog: pytest.LogCaptureFixture
) -> None:
    """Setting a state logs a warning if it drops a checkpoint."""
    lake.sync()
    run = open_run(lake.storage(), LAYOUT, process=dead_process())
    run.write_checkpoint(state_of(9), {}, {"format_version": 1, "settings": "", "streams": {}})
    with caplog.at_level(logging.WARNING):
        numbers(lake).update(completed(state_of(2)))
    assert f"What dead run {run.run_id} had staged is dropped" in caplog.text
    assert not lake.storage().exists(LAYOUT.checkpoint)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_meltano_shares_a_state_kept_in_a_database(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """Each of the two, and the tap, finds what the others saved."""
    places = {
        "sqlite": lambda: f"sqlite:///{tmp_path}/states.db",
        "postgresql": lambda: request.getfixturevalue("postgresql").new_database().dsn,
    }
    kept = {"uri": places[kind](), "table_name": "states"}
    lake, columns = Lake(tmp_path / "lake"), {"id": {"type": "integer"}}
    lake.load(
        schema("a", columns),
        record("a", id=1),
        state(bookmarks={"a": {"v": 1}}),
        state_backend=kept,
    )
    uri, mapped = f"lake+file://{lake.folder}", {STATE_ID: "test"}
    states = LakeStateStoreManager(uri=uri, pipelines=mapped, state_backend=kept)
    assert value_of(states) == {"bookmarks": {"a": {"v": 1}}}
    states.update(partial({"bookmarks": {"b": {"v": 7}}}))
    assert value_of(states) == {"bookmarks": {"a": {"v": 1}, "b": {"v": 7}}}
    lake.load(
        schema("a", columns),
        record("a", id=2),
        state(bookmarks={"a": {"v": 2}}),
        state_backend=kept,
    )
    assert value_of(states) == {"bookmarks": {"a": {"v": 2}}}
    for_the_tap = source_of_target(
        {"bucket": str(lake.folder), "pipeline": "test", "state_backend": kept}
    ).saved
    assert for_the_tap is not None and for_the_tap.value == value_of(states)
    assert list(states.get_state_ids()) == [STATE_ID]
    assert lake.state() is None
    # Who does not say so gets no other state instead.
    with pytest.raises(
        LakeStateError,
        match=r"RUN-034 .*(states\.db|postgresql).*state_backend\.lake\.state_backend",
    ):
        LakeStateStoreManager(uri=uri, pipelines=mapped).get(STATE_ID)
    with pytest.raises(LakeStateError, match=r"RUN-036 .*table_name"):
        LakeStateStoreManager(uri=uri, state_backend={"uri": "./folder", "table_name": "t"})
