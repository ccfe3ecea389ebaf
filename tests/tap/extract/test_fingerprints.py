"""The boundary of a run: which rows at the bookmark were sent before (files and fingerprints, no
database).
"""

from collections import Counter
from types import SimpleNamespace

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from singer_spark.core.bookmark import MAX_BOUNDARY_HASHES, Boundary
from tap_spark_jdbc.dialects import dialect_of
from tap_spark_jdbc.dialects.tables import Key, Table
from tap_spark_jdbc.extract.extraction import split_key
from tap_spark_jdbc.extract.fingerprints import BoundaryBuilder, Look, fingerprint
from tap_spark_jdbc.extract.stream_progress import StreamProgress
from tap_spark_jdbc.plan.stream_plan import StreamPlan
from tap_spark_jdbc.plan.stream_sql import RowBoundary
from tap_spark_jdbc.supply.boundary_account import BoundaryAccount
from tap_spark_jdbc.supply.record_lines import BoundaryRows, fingerprints


def batch_of(records):
    """A batch with each record as a text."""
    return pa.RecordBatch.from_arrays(
        [pa.array([orjson.dumps(each).decode() for each in records])], ["record"]
    )


def hashes(records):
    return [each.hex() for each in fingerprints(batch_of(records))]


def account_after(sent):
    """The account of a run that begins where these rows were sent at the bookmark."""
    sql = SimpleNamespace(
        unseen=None,
        bookmark="b",
        upper="b",
        split=None,
        bookmark_since=None,
        upper_since=None,
        moves=False,
    )
    plan = SimpleNamespace(end_value=None, replication_key=None)
    whole = SimpleNamespace(lower="b", after=False)
    return BoundaryAccount(
        SimpleNamespace(
            bookmark=SimpleNamespace(boundary=Boundary.of(sent)),
            sql=sql,
            plan=plan,
            progress=StreamProgress("delta"),
            whole=whole,
            begins_below=False,
            bookmark_at=lambda _, boundary: boundary,
        )
    )


def left_of(rows, account, cut=30):
    """The records that are sent of rows that come in batches of `cut`."""
    boundary_rows = BoundaryRows(Look(bookmark=True, upper=False, nulls=False), account.sent)
    left = []
    for start in range(0, len(rows), cut):
        boundary = pa.array([int(each) for _, each in rows[start : start + cut]], pa.int32())
        batch = batch_of(record for record, _ in rows[start : start + cut])
        left += boundary_rows.unsent(batch, boundary).column(0).to_pylist()
    account.record(boundary_rows.found(len(rows), 0))
    return [orjson.loads(each) for each in left]


def test_unchanged_sent_rows_are_left_out():
    account = account_after(hashes([{"id": 1, "v": "old"}, {"id": 2, "v": "old"}]))
    rows = [
        ({"id": 1, "v": "old"}, RowBoundary.BOOKMARK),
        ({"id": 2, "v": "new"}, RowBoundary.BOOKMARK),
        ({"id": 3}, RowBoundary.NONE),
    ]

    assert left_of(rows, account) == [{"id": 2, "v": "new"}, {"id": 3}]
    assert account.final()[0] == Boundary.of(hashes([{"id": 1, "v": "old"}, {"id": 2, "v": "new"}]))


def test_identical_twins_are_counted():
    twin = {"v": "same"}

    assert left_of([(twin, RowBoundary.BOOKMARK)] * 3, account_after(hashes([twin, twin]))) == [
        twin
    ]


rows = st.lists(
    st.tuples(
        st.fixed_dictionaries({"v": st.text(max_size=8) | st.integers(0, 3)}),
        st.sampled_from(RowBoundary),
    ),
    max_size=30,
)


@given(rows=rows, sent=st.lists(st.integers(0, 30), max_size=15), cut=st.integers(1, 30))
def test_result_is_read_rows_minus_sent_rows(rows, sent, cut):
    at_bookmark = [
        record for record, boundary in rows if boundary in (RowBoundary.BOOKMARK, RowBoundary.BOTH)
    ]
    before = Counter(hashes(at_bookmark[number] for number in sent if number < len(at_bookmark)))

    left = Counter(hashes(left_of(rows, account_after(before.elements()), cut)))

    assert left == Counter(hashes(record for record, _ in rows)) - (
        before & Counter(hashes(at_bookmark))
    )


def at_once(fingerprints: list[bytes]) -> Boundary:
    if len(fingerprints) <= MAX_BOUNDARY_HASHES:
        return Boundary.of(each.hex() for each in fingerprints)
    numbers = {
        bucket: [int.from_bytes(each) for each in fingerprints if each[0] == bucket]
        for bucket in range(256)
    }
    return Boundary.of_buckets(len(fingerprints), map(sum, numbers.values()))


@pytest.mark.parametrize(
    "count", [0, 1, MAX_BOUNDARY_HASHES, MAX_BOUNDARY_HASHES + 1, 3 * MAX_BOUNDARY_HASHES]
)
def test_bulk_and_row_boundaries_are_equal(count):
    """A boundary is the same whether built at once or row by row."""
    fingerprints = [fingerprint(b"%d" % number) for number in range(count)]
    builder = BoundaryBuilder()
    for each in fingerprints:
        builder.add(each)

    assert builder.build(MAX_BOUNDARY_HASHES) == at_once(fingerprints)


def test_large_boundary_detects_one_changed_row():
    """The buckets of a large boundary do not depend on the order of its rows."""
    fingerprints = [fingerprint(b"%d" % number) for number in range(MAX_BOUNDARY_HASHES + 1)]
    boundary, other = at_once(fingerprints), at_once([*fingerprints[1:], fingerprint(b"other")])
    assert (other.rows, at_once(fingerprints[::-1])) == (boundary.rows, boundary)
    assert other.buckets != boundary.buckets


def test_whole_buckets_and_single_rows_add_up():
    fingerprints = [fingerprint(b"%d" % number) for number in range(5000)]
    builder = BoundaryBuilder()
    for bucket in range(100):
        known = [each for each in fingerprints if each[0] == bucket]
        builder.add_bucket(bucket, len(known), sum(int.from_bytes(each, "big") for each in known))
    for each in fingerprints:
        if each[0] >= 100:
            builder.add(each)

    assert builder.build(MAX_BOUNDARY_HASHES) == at_once(fingerprints)


@pytest.mark.parametrize("primary_key", [(), ("id",)])
def test_rows_of_one_record_are_never_split(primary_key):
    """The split column must be in the record, or the record must have the whole key."""
    dialect = dialect_of("jdbc:sqlite:x")
    names = ("id", "part", "k")
    columns = tuple(dialect.column(name, "integer", nullable=False) for name in names)
    ident, part, key = columns
    table = Table(None, "t", columns, primary_key=primary_key)

    growing = Key.of(table, key)

    def split(*selected, replication_key=growing):
        by = Key.of(table, part)
        return split_key(
            StreamPlan(table, "t", selected, "INCREMENTAL", replication_key, partition_column=by),
            dialect,
        )

    assert split(ident, part, key) == Key.of(table, part)
    assert split(ident, key) == (Key.of(table, part) if primary_key else None)
    assert split(key) is None
    assert split(key, replication_key=None) == Key.of(table, part)
