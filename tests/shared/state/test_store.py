"""The saved state as the tap finds it: strict, and the committed one."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from faults.faulty import DIE_AFTER, Died, Faulty
from faults.small_lake import LAYOUT, STEP, SmallLake, bound_of, dead_process
from servers.s3 import S3
from singer_spark.errors import StateError, StorageError
from singer_spark.state.run_log import (
    ABORTED,
    COMMITTED,
    PUBLISHED,
    encode,
    folder_name,
    last_committed,
    runs_folder,
)
from singer_spark.state.source import open_state_source
from singer_spark.state.store import (
    BucketState,
    published_state,
    read_state,
    same_state,
    state_path,
)
from singer_spark.store.storage import Storage


def test_missing_state_is_none(tmp_path: Path) -> None:
    assert open_state_source(f"{tmp_path}/state.json").saved is None
    assert open_state_source(f"{tmp_path}/lake/.dataspoc/state/p/state.json").saved is None


def test_state_is_read_unchanged(tmp_path: Path) -> None:
    state = {"bookmarks": {"público": {"replication_key_value": "2025-01-20"}}, "big": 2**70}
    for encoding in ("utf-8", "utf-8-sig"):
        (tmp_path / "state.json").write_text(json.dumps(state), encoding=encoding)
        saved = open_state_source(f"{tmp_path}/state.json").saved
        assert saved is not None
        assert saved.value == state
        assert saved.origin == f"{tmp_path}/state.json"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"", "line 1, column 1"),
        (b'{"bookmarks": {}', "line 1, column 17"),
        (b'{\n "bookmarks": nope}', "line 2, column 15"),
        (b'{"bookmarks": {}} more', "line 1, column 19"),
        (b'{\n"a": "\xff"}', "line 2, column 7"),
        (b"[1]", "line 1, column 1"),
        (b'"text"', "line 1, column 1"),
        (b'{"a": NaN}', "line 1, column 1"),
        (b"[" * 100_000, "line 1, column 1"),
        (
            b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}",
            "line 1, column 1: it has more than 300 levels",
        ),
    ],
)
def test_malformed_state_names_line_and_column(text: bytes, place: str) -> None:
    with pytest.raises(StateError, match=rf"RUN-030 .*lake/state\.json.*{place}"):
        read_state(text, "/lake/state.json")


def test_written_state_is_read_back_and_readable(tmp_path: Path) -> None:
    """What is written is read back and stays readable for people."""
    storage = Storage(str(tmp_path))
    store = BucketState(storage, "state.json")
    state = {
        "bookmarks": {"заказы": {"lone": "\ud800", "big": 2**70, "float": 1e300, "none": None}}
    }
    assert store.write(state, None)
    text = (tmp_path / "state.json").read_text()
    assert "заказы" in text
    assert text.endswith("}\n")
    saved = published_state(store)
    assert saved is not None
    assert same_state(saved.value, state)


def test_states_compare_by_type_not_key_order() -> None:
    """States are the same in any order of their keys, but not with other types."""
    assert same_state({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1})
    assert not same_state({"a": 1}, {"a": True})
    assert not same_state({"a": [1, 2]}, {"a": [2, 1]})
    assert not same_state({}, None)


def check_the_tap_gets_the_committed_state(lake: SmallLake) -> None:
    lake.sync()
    with suppress(Died):
        only = frozenset({"create"})
        lake.sync(
            lake.faulty_files(lambda files: Faulty(files, 2, DIE_AFTER, only)), dead_process()
        )
    assert lake.published_bound() == STEP
    saved = open_state_source(f"{lake.url}/{LAYOUT.state}", lake.options).saved
    assert saved is not None
    assert bound_of(saved.value) == 2 * STEP
    assert "journal of run" in saved.origin


def test_tap_gets_state_committed_before_death(tmp_path: Path) -> None:
    """If a run committed and died, the tap gets the committed state."""
    check_the_tap_gets_the_committed_state(SmallLake(str(tmp_path), {}))


def test_tap_gets_committed_state_on_s3(s3: S3) -> None:
    check_the_tap_gets_the_committed_state(SmallLake(s3.new_bucket(), s3.storage_options))


def test_edited_state_counts_after_publishing(tmp_path: Path) -> None:
    lake = SmallLake(str(tmp_path), {})
    lake.sync()
    edited = {"bookmarks": {"grows": {"replication_key": "id", "replication_key_value": 1}}}
    (tmp_path / LAYOUT.state).write_text(json.dumps(edited))
    saved = open_state_source(f"{tmp_path}/{LAYOUT.state}").saved
    assert saved is not None
    assert saved.value == edited


def test_two_reads_find_the_last_commit(tmp_path: Path) -> None:
    """After any number of failed runs, two reads find the last commit."""
    storage = Storage(str(tmp_path))
    common = {"state": {}, "last_committed": "1"}
    storage.replace(
        "runs/1.json", encode({"phase": PUBLISHED, "last_committed": None, "state": {"a": 1}})
    )
    for run_id in ("2", "3", "4"):
        storage.replace(f"runs/{run_id}.json", encode({"phase": ABORTED, **common}))
    storage.delete("runs/3.json")
    entry = last_committed(storage, "runs")
    assert entry is not None
    assert (entry.run_id, entry.state) == ("1", {"a": 1})


def test_newer_or_damaged_entry_is_refused(tmp_path: Path) -> None:
    """The error names the damaged object."""
    storage = Storage(str(tmp_path))
    for content, words in (
        (b'{"format_version": 2}', "format version 2, this program knows 1: upgrade"),
        (b'{"format_version', "damaged"),
        (b"[]", "damaged"),
        (b'{"format_version": 1}', "lacks 'phase'"),
    ):
        storage.replace("runs/1.json", content)
        with pytest.raises(StorageError, match=f"runs/1.json .*{words}"):
            last_committed(storage, "runs")


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("public-orders", "public-orders"),
        ("a b/c", "a%20b%2Fc"),
        (".hidden", "%2Ehidden"),
        ("_private", "%5Fprivate"),
        ("..", "%2E."),
        ("a~b%", "a%7Eb%25"),
        ("ü", "%C3%BC"),
        ("V1.2_x", "V1.2_x"),
    ],
)
def test_folder_name_encodes_special_characters(name: str, folder: str) -> None:
    """A folder is the name with all but plain characters encoded."""
    assert folder_name(name) == folder


@pytest.mark.parametrize("name", ["public-orders", ".a b/c~%", "100%25", "ü"])
def test_state_path_gives_committed_state(name: str, tmp_path: Path) -> None:
    """A state given by its path is the pipeline's committed one, whatever its name."""
    entry = {"phase": COMMITTED, "last_committed": None, "state": {"bookmarks": {"s": 1}}}
    Storage(str(tmp_path)).replace(
        f"{runs_folder(name)}/20250101T000000000000Z-00000001.json", encode(entry)
    )
    saved = open_state_source(f"{tmp_path}/{state_path(name)}").saved
    assert saved is not None and saved.value == {"bookmarks": {"s": 1}}
