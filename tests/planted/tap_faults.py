"""What the tap may do wrong: of rows at boundaries, late ones, and large groups at the bookmark."""

from __future__ import annotations

from planted.fault import Fault

STREAM_SQL = "tap:plan/stream_sql.py"
SLICES = ("tests/tap/plan/test_slices.py", "tests/tap/dialects/unserved/test_dialects_sql.py")

TAP_FAULTS = (
    Fault(
        "ties at the bookmark are lost",
        STREAM_SQL,
        "{'>' if within.after else '>='}",
        ">",
        SLICES,
    ),
    Fault(
        "rows at the upper bound are lost",
        STREAM_SQL,
        "{'<=' if within.closed else '<'}",
        "<",
        SLICES,
    ),
    Fault(
        "rows without replication key are dropped",
        STREAM_SQL,
        'return f"({inside} OR {name} IS NULL)" if each.nulls else inside',
        "return inside",
        ("tests/tap/send/test_slices_and_state.py", "-k", "null_keys"),
    ),
    Fault(
        "a change in a large group at the bookmark is skipped",
        "tap:extract/fingerprints.py",
        "saved[number] != present.get(number, (0, 0, 0))[1] % 2**64",
        "False",
        ("tests/tap/send/test_slices_and_state.py", "-k", "tie_group"),
    ),
    Fault(
        "a row that commits late is skipped",
        "tap:plan/late_rows.py",
        "        condition = _within(writer, first, span)\n",
        '        condition = "1 = 0"\n',
        ("tests/tap/plan/test_late_rows.py",),
    ),
    Fault(
        "no window is read below a bookmark",
        "tap:extract/late_window.py",
        "        return min(upper.minus(width), base.minus(width))",
        "        return None",
        ("tests/tap/extract/test_late_window.py", "-k", "arrives_once"),
    ),
)
