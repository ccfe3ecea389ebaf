"""Patterns and formats from outside never hold up a run: each ends, and threads and signals are
served meanwhile.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from end_to_end.marked import until
from servers.processes import children
from singer_spark.errors import RecordError, SchemaError
from target.loading import JSON, Lake, record, schema
from target_spark_lake.validate import patterns
from target_spark_lake.validate.draft7 import draft7, draft7_formats
from target_spark_lake.validate.patterns import (
    SlowPatternError,
    is_found,
    is_pattern,
    pattern_problem,
)

# Each takes `re` longer than the universe exists.
HOSTILE = "a" * 45 + "!"
LINEAR = "^(a+)+$"
ENDLESS = ["^(?=(a+)+$)a", "^(a+)+\\Z", "(a|a)*é$"]


@pytest.fixture(scope="module", autouse=True)
def short_limit() -> Iterator[None]:
    """A pattern may take a fifth of a second, so that the tests of slow ones are short."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patterns, "SECONDS", 0.2)
        patch.setattr(patterns, "_process", patterns._PatternProcess())
        yield
        patterns._process._end()


def test_re2_decides_equivalent_patterns() -> None:
    """RE2 decides in linear time where it means the same as Python."""
    assert not is_found(LINEAR, HOSTILE)
    assert is_found(LINEAR, HOSTILE[:-1])
    assert not is_found("(x+x+)+y", "x" * 100_000)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ENDLESS)
def test_endless_pattern_is_stopped(pattern: str) -> None:
    """The next pattern is matched as usual."""
    with pytest.raises(SlowPatternError, match="takes more CPU time than it may"):
        is_found(pattern, HOSTILE)
    assert is_found(pattern.replace("é", ""), "a")


PATTERNS = [
    "^a+$",
    "a|b$",
    "^[^@]*$",
    "\\d\\d",
    "^\\w+$",
    "^.$",
    "\\S",
    "(?i)A",
    "a(?!b)",
    "^(a)\\1",
    "\\bé",
    "[a-c]{2,3}",
]


@given(st.sampled_from(PATTERNS), st.text(max_size=6) | st.text("abA@1 \né٣", max_size=5))
def test_patterns_match_like_python(pattern: str, text: str) -> None:
    assert is_found(pattern, text) == (re.search(pattern, text) is not None)


@pytest.mark.parametrize("text", ["(", "a{99999999999}", "(?P<a", "(" * 5000, "(?<=a+)b"])
def test_invalid_pattern_is_recognized(text: str) -> None:
    """Any exception from Python's compiler means an invalid pattern."""
    assert not is_pattern(text)
    assert pattern_problem(text)


def test_crashed_pattern_match_has_no_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not even that it matches nothing: under `not` that would be a valid record."""
    monkeypatch.setattr(patterns._process, "ask", lambda *_: "MemoryError")
    with pytest.raises(SlowPatternError, match="can't be matched: MemoryError"):
        is_found("\\Sé", "é")
    monkeypatch.undo()
    assert is_found("\\Sé", "éé")
    assert patterns._process._process is not None
    patterns._process._process.kill()
    with pytest.raises(SlowPatternError, match=r"ended the process that matches it \(-9\)"):
        is_found("\\Sé", "éé")
    assert is_found("\\Sé", "éé")


def test_long_string_gets_enough_time() -> None:
    assert is_found("^(?=.)\\S+é$", "a" * 30_000_000 + "é")


@pytest.mark.slow
def test_other_threads_run_during_match() -> None:
    done, reported = threading.Event(), []

    def match() -> None:
        try:
            is_found(ENDLESS[0], HOSTILE)
        except SlowPatternError as error:
            reported.append(error)
        done.set()

    threading.Thread(target=match).start()
    beats = 0
    while not done.wait(0.01):
        beats += 1
    assert reported
    assert beats > 10


PLACES: dict[str, tuple[JSON, Any]] = {
    "pattern": ({"type": "string", "pattern": ENDLESS[0]}, HOSTILE),
    "not": ({"not": {"pattern": ENDLESS[0]}}, HOSTILE),
    "patternProperties": ({"type": "object", "patternProperties": {ENDLESS[0]: {}}}, {HOSTILE: 1}),
    "additionalProperties": (
        {"type": "object", "patternProperties": {ENDLESS[0]: {}}, "additionalProperties": False},
        {HOSTILE: 1},
    ),
    "propertyNames": ({"type": "object", "propertyNames": {"pattern": ENDLESS[0]}}, {HOSTILE: 1}),
    "regex": ({"type": "string", "format": "regex"}, "(?i)" + "[\0-\U0010ffff]" * 10_000),
}


@pytest.mark.slow
@pytest.mark.usefixtures("without_jvm")
@pytest.mark.parametrize("place", PLACES)
def test_slow_record_is_invalid_and_others_arrive(tmp_path: Path, place: str) -> None:
    """A record that takes too long is invalid, and the others arrive."""
    lake, (v, hostile) = Lake(tmp_path / "lake"), PLACES[place]
    good = {} if isinstance(hostile, dict) else "b" if place == "not" else "a"
    lines = [
        schema("s", {"id": {"type": "integer"}, "v": v}),
        record("s", id=1, v=hostile),
        record("s", id=2, v=good),
    ]
    if place == "pattern":
        with pytest.raises(RecordError, match=r"LAKE-020 .*CPU"):
            lake.load(*lines)
    lake.load(*lines, on_invalid_record="quarantine")
    assert lake.rows("s", "id") == [(2,)]
    (rejected,) = (lake.folder / ".dataspoc/rejected/test").glob("*/s.jsonl")
    assert "CPU time" in json.loads(rejected.read_text())["error"]


@pytest.mark.usefixtures("without_jvm")
def test_slow_schema_pattern_is_malformed(tmp_path: Path) -> None:
    v = {"type": "string", "pattern": PLACES["regex"][1]}
    with pytest.raises(SchemaError, match=r"LAKE-030 .*CPU"):
        Lake(tmp_path / "lake").load(schema("s", {"v": v}), record("s", v="a"))


SEEDS = [
    *(
        "a",
        "1",
        ".",
        "-",
        "%",
        "%41",
        "{",
        "{a",
        "{a,",
        "}",
        "/",
        "~",
        "~0",
        "@",
        ":",
        "[",
        "(",
        "\\",
        "a.",
        "xn--a.",
    ),
    *("é", "א.", "::", "[a", "(a*)*", "\u3002", "?", "#", "\n", "1e", "a|", "{v:1", " "),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(draft7_formats().checkers))
def test_hostile_text_does_not_slow_any_format(name: str) -> None:
    """Some took minutes for a text of this length, others days.

    Here the suite's time limit would end them.
    """
    validator = draft7({"format": name})
    # A regular expression may take all of its CPU time each time.
    seeds, heads = (SEEDS, ("", "http://", "a@"))
    if name == "regex":
        seeds, heads = ["(a*)*", "(", "a|"], ("",)
    for seed in seeds:
        for head in heads:
            for tail in ("", "!", "\0"):
                text = head + seed * (100_000 // len(seed)) + tail
                assert isinstance(
                    validator.is_valid(text) if name != "regex" else is_pattern_in_time(text), bool
                )


def is_pattern_in_time(text: str) -> bool:
    try:
        return is_pattern(text)
    except SlowPatternError:
        return False


@pytest.mark.slow
def test_many_different_objects_are_found_unique() -> None:
    """Each is compared with none of the others."""
    validator = draft7({"uniqueItems": True})
    many: list[Any] = [{"n": n} for n in range(50_000)]
    assert validator.is_valid(many)
    assert not validator.is_valid([*many, {"n": Decimal("7.0")}])
    assert validator.is_valid([1, True, "1", [1], [True], {"a": 1}, {"a": True}, None, 0, False])


@pytest.mark.slow
def test_sigterm_ends_run_matching_hostile_values(tmp_path: Path) -> None:
    config = tmp_path / "target.json"
    settings = {
        "bucket": str(tmp_path / "lake"),
        "pipeline": "test",
        "on_invalid_record": "quarantine",
    }
    config.write_text(json.dumps(settings))
    lines = [
        schema("s", {"v": {"type": "string", "pattern": ENDLESS[0]}}),
        *[record("s", v=HOSTILE)] * 5000,
    ]
    data = b"".join(json.dumps(each).encode() + b"\n" for each in lines)
    command = [sys.executable, "-m", "target_spark_lake", "--config", str(config)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stdin is not None
        run.stdin.write(data)
        run.stdin.close()
        (matching,) = until(
            lambda: children(run.pid, "pattern_process"), "a process that matches", run
        )
        run.send_signal(signal.SIGTERM)
        # Of its own it would run for more than an hour.
        assert run.wait(timeout=120) == 143
    assert psutil.wait_procs([matching], timeout=60)[1] == []
    assert not list((tmp_path / "lake").rglob("*.parquet"))
