"""Many slices: the STATE after each only covers rows that were sent, and a run may continue from
any of them.
"""

from collections import Counter

import pytest

from singer_spark.core.bookmark import MAX_BOUNDARY_HASHES

pytestmark = pytest.mark.usefixtures("spark")
ROWS = 60


def numbered(condition="1=1"):
    """60 rows; keys 0, 1, 2, ... in groups of 1 to 12 equal ones."""
    keys = [group for group in range(20) for _ in range(1 + (group * 5) % 12)][:ROWS]
    values = ", ".join(f"({number}, {key}, 'row {number}')" for number, key in enumerate(keys))
    return (
        "create table t (id integer primary key, k integer, v text); insert into t values "
        f"{values};",
        keys,
    )


def messages_between_states(run):
    """(rows sent so far, state) for each STATE behind the first one."""
    sent = Counter()
    for message in run.messages[1:]:
        if message["type"] == "RECORD":
            sent[message["record"]["id"]] += 1
        elif message["type"] == "STATE":
            yield Counter(sent), message["value"]


def test_run_continues_from_any_state(sqlite):
    script, keys = numbered()
    tap, _ = sqlite(
        script + "create index t_k on t (k);", incremental_tables=["t:k:integer"], slice_rows=5
    )

    run = tap.run_here().succeeded()

    seen = list(messages_between_states(run))
    assert len(seen) > 8
    assert seen[-1][0] == Counter(range(ROWS))
    # The first one behind the opening says that the rows without key are sent, of which there is
    # none.
    assert seen[0] == (Counter(), {"bookmarks": {}})
    whole_groups = []
    for sent, state in seen[1:-2]:
        value = state["bookmarks"]["t"]["replication_key_value"]
        below = Counter(number for number, key in enumerate(keys) if key < value)
        # Inside a large group, the bookmark is at the group, and the progress beside it says how
        # far.
        assert {keys[number] for number in sent - below} <= {value}
        assert sent & below == below
        whole_groups += [(sent, state)] if sent == below else []
    sent, state = whole_groups[len(whole_groups) // 2]
    rest = tap.run_here(state=state).succeeded()
    assert sent + rest.values("t", "id") == Counter(range(ROWS))
    assert rest.final_state == run.final_state


def test_unindexed_key_has_no_bookmark_before_end(sqlite):
    script, _ = numbered()
    tap, _ = sqlite(script, incremental_tables=["t:k:integer"], slice_rows=5)

    run = tap.run_here().succeeded()

    assert run.values("t", "id") == Counter(range(ROWS))
    states = list(messages_between_states(run))
    assert len(states) > 8
    for sent, state in states:
        assert ("t" in state["bookmarks"]) == (sent == Counter(range(ROWS)))


def test_large_tie_group_is_not_repeated(sqlite):
    """A group of ties larger than its fingerprints is not repeated."""
    count = 3 * MAX_BOUNDARY_HASHES
    values = ", ".join(f"({number}, 7, 'row {number}')" for number in range(count))
    tap, database = sqlite(
        "create table t (id integer primary key, k integer, v text); insert into t values "
        f"{values};create index t_k on t (k);",
        incremental_tables=["t:k:integer"],
        slice_rows=MAX_BOUNDARY_HASHES,
    )
    first = tap.run_here().succeeded()
    assert first.values("t", "id") == Counter(range(count))
    assert len(str(first.final_state)) < 5_000

    idle = tap.run_here(state=first.final_state).succeeded()
    assert idle.records("t") == []
    assert idle.final_state == first.final_state

    database.execute("update t set v = 'changed' where id = 5")
    database.execute(f"insert into t values ({count}, 7, 'tie'), ({count + 1}, 8, 'next')")
    changed = tap.run_here(state=idle.final_state).succeeded()
    ids = set(changed.values("t", "id"))
    # Which rows changed is known by bucket: their neighbours there come again, all others do not.
    assert {5, count, count + 1} <= ids
    assert len(ids) < count / 50
    assert changed.final_state["bookmarks"]["t"]["replication_key_value"] == 8

    idle = tap.run_here(state=changed.final_state).succeeded()
    assert idle.records("t") == []


def test_start_end_lag_and_full(sqlite):
    script, keys = numbered()
    tap, _ = sqlite(script + "create index t_k on t (k);", incremental_tables=["t:k:integer@4"])

    first = tap.run_here().succeeded()
    assert first.values("t", "id") == Counter(number for number, key in enumerate(keys) if key >= 4)
    assert first.schema("t")["schema"]["x-extent"] == "delta"

    tap.config["safety_lag_seconds"] = 2
    lagging = tap.run_here(state=first.final_state).succeeded()
    last = max(keys)
    assert lagging.values("t", "id") == Counter(
        n for n, key in enumerate(keys) if last - 2 <= key < last
    )
    assert "safety_lag_seconds" in lagging.errors
    assert lagging.final_state == first.final_state
    del tap.config["safety_lag_seconds"]

    other = {
        "bookmarks": {**first.final_state["bookmarks"], "elsewhere": {"replication_key_value": 3}}
    }
    full = tap.run_here("--full", state=other).succeeded()
    assert full.start == "full"
    assert full.values("t", "id") == first.values("t", "id")
    assert full.final_state == other

    tap.config["stream_options"] = {"t": {"start_value": 2, "end_value": 5}}
    backfill = tap.run_here(state=first.final_state).succeeded()
    assert backfill.values("t", "id") == Counter(
        number for number, key in enumerate(keys) if 2 <= key < 5
    )
    assert backfill.final_state == first.final_state


def test_null_keys_are_sent_excluded_or_refused(sqlite):
    script = """
        create table indexed (id integer primary key, k integer);
        create index indexed_k on indexed (k);
        create table unindexed (id integer primary key, k integer);
        insert into indexed values (1, 10), (2, null), (3, 11);
        insert into unindexed values (1, 10), (2, null), (3, 11);
    """
    tap, _ = sqlite(script, incremental_tables=["indexed:k:integer", "unindexed:k:integer"])

    run = tap.run_here().succeeded()
    for stream in ("indexed", "unindexed"):
        assert run.values(stream, "id") == Counter([1, 2, 3])
        assert f"stream {stream}: 1 rows whose replication key 'k' is NULL were sent" in run.errors
        assert run.final_state["bookmarks"][stream]["replication_key_value"] == 11

    tap.config["null_replication_key"] = "exclude"
    run = tap.run_here().succeeded()
    assert run.values("indexed", "id") == run.values("unindexed", "id") == Counter([1, 3])
    assert "left out" in run.errors

    tap.config["null_replication_key"] = "error"
    assert "TAP-025 " in tap.run_here().failed()


def test_key_value_unfit_for_bookmark_is_refused(sqlite):
    tap, _ = sqlite(
        "create table t (id integer primary key, k text); insert into t values (1, 'soon')",
        incremental_tables=["t:k:date"],
    )
    assert "TAP-026 stream t: " in tap.run_here().failed()
