"""The order in which streams are begun, of streams whose slices the test cuts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from singer_spark.errors import ConnectionLostError, SourceError
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.send.stream_order import MOST_PREFETCHED, StreamPrefetch
from tap_spark_jdbc.supply.slice_prefetch import ReadContext


@dataclass
class Contexts:
    """Stands for the connections, and keeps how many there were."""

    n_jobs: int
    streams_at_once: int | None = None
    made: int = 1

    def beside(self, _: object = None) -> Contexts:
        self.made += 1
        return self

    def end(self) -> None: ...

    def unwatch(self) -> None: ...

    def connect(self) -> None: ...

    def disconnect(self) -> None: ...


@dataclass
class Streams:
    """Streams of which the test says when they are cut, and which can't be begun."""

    names: list[str]
    lost: set[str] = field(default_factory=set)
    begun: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    cut: dict[str, Callable[[], None]] = field(default_factory=dict)
    troubled: dict[str, Callable[[], object]] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def ahead(self, n_jobs: int) -> tuple[StreamPrefetch, Contexts]:
        contexts = Contexts(n_jobs)
        context = ReadContext.of(cast("Any", contexts), cast("Any", contexts))
        # A plan is handed on unseen.
        return StreamPrefetch(cast("Any", self.names), cast("Any", self.make), context), contexts

    def make(self, name: str, context: ReadContext) -> Any:
        reading = Reading(name, self, context)
        self.cut[name], self.troubled[name] = reading.all_cut, context.on_trouble
        return reading

    def wait_for(self, *names: str) -> None:
        """Until these were begun."""
        with self.changed:
            assert self.changed.wait_for(lambda: set(names) <= set(self.begun), 60), self.begun


@dataclass
class Reading:
    plan: str
    streams: Streams
    context: ReadContext
    cut: bool = False

    def all_cut(self) -> None:
        self.cut = True
        self.context.on_cut()

    def begin(self) -> None:
        with self.streams.changed:
            self.streams.begun.append(self.plan)
            self.streams.changed.notify_all()
        if self.plan in self.streams.lost:
            self.streams.lost.remove(self.plan)
            raise ConnectionLostError(TapCode.CONNECTION_LOST, f"no connection for {self.plan}")

    def start(self, most: int) -> None: ...

    def cancel(self) -> None:
        self.streams.cancelled.append(self.plan)


def test_streams_begin_in_order_and_a_few_ahead() -> None:
    """A stream begins once the one before is fully sliced, and only a few begin ahead."""
    streams = Streams(["s0", "s1", "s2", "s3", "s4", "s5", "s6"])
    ahead, contexts = streams.ahead(n_jobs=16)
    with ahead:
        with ahead.turn():
            assert streams.begun == ["s0"]
            for name in ("s0", "s1", "s2"):
                streams.cut[name]()
            streams.wait_for("s1", "s2", "s3")
            streams.cut["s3"]()
            assert len(streams.begun) == len(streams.cut) == 1 + MOST_PREFETCHED
        with ahead.turn():
            streams.wait_for("s4")
            assert len(streams.cut) == 2 + MOST_PREFETCHED
        assert contexts.made == 1 + 2 * MOST_PREFETCHED


def test_one_job_begins_no_stream_before_its_turn() -> None:
    streams = Streams(["a", "b"])
    ahead, contexts = streams.ahead(n_jobs=1)
    with ahead:
        with ahead.turn():
            streams.cut["a"]()
            assert list(streams.cut) == ["a"]
        with ahead.turn():
            assert streams.begun == ["a", "b"]
    assert contexts.made == 1


def test_connection_lost_before_its_turn_is_retried() -> None:
    """A stream whose connection is lost before its turn is begun again alone."""
    streams = Streams(["a", "b", "c"], lost={"b"})
    ahead, _ = streams.ahead(n_jobs=4)
    with ahead:
        with ahead.turn():
            streams.cut["a"]()
            streams.wait_for("b")
            streams.cut["b"]()
            streams.wait_for("c")
        with ahead.turn():
            assert streams.begun == ["a", "b", "c", "b"]
            assert "c" in streams.cancelled
        with ahead.turn():
            assert streams.begun == ["a", "b", "c", "b", "c"]


def test_connection_lost_at_its_turn_is_an_error() -> None:
    """A connection lost at a stream's turn is that stream's error."""
    streams = Streams(["a"], lost={"a"})
    ahead, _ = streams.ahead(n_jobs=4)
    with pytest.raises(ConnectionLostError, match="TAP-002"), ahead, ahead.turn():
        raise AssertionError("it was begun")


def test_broken_connection_withdraws_streams_ahead() -> None:
    """A broken connection anywhere withdraws all but the stream that is being sent."""
    streams = Streams(["a", "b", "c"])
    ahead, _ = streams.ahead(n_jobs=4)
    with ahead:
        with ahead.turn():
            streams.cut["a"]()
            streams.wait_for("b")
            streams.troubled["a"]()
            assert streams.cancelled == ["b"]
            streams.cut["b"]()
        for name in ("b", "c"):
            with ahead.turn():
                streams.cut[name]()
    assert streams.begun == ["a", "b", "b", "c"]


def test_error_while_sending_leaves_nothing_begun() -> None:
    """An error while a stream is sent leaves nothing begun after it."""
    streams = Streams(["a", "b", "c", "d"])
    ahead, _ = streams.ahead(n_jobs=4)
    with pytest.raises(SourceError, match="TAP-004"), ahead, ahead.turn():
        streams.cut["a"]()
        streams.wait_for("b")
        raise SourceError(TapCode.READING_FAILED, "in the middle")
    streams.cut["b"]()
    assert streams.begun == ["a", "b"]
    assert set(streams.cancelled) == {"a", "b"}
