"""The SDK stream whose records bypass Python: whole files are forwarded, or named in messages.

Records that pass through stream maps and flattening are parsed: maps compute with floats,
everything else is exact.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from singer_sdk.mapper import SameRecordTransform

from singer_spark.core import messages, stdout
from singer_spark.core.exact_json import Number, Spelled, state_from_json
from singer_spark.program.singer_sdk_hooks import HookedStream
from tap_spark_jdbc.extract.fingerprints import sealed
from tap_spark_jdbc.extract.late_window import LateWindow
from tap_spark_jdbc.extract.run_state import bookmark_of
from tap_spark_jdbc.send.stream_output import BatchReading, KeyReading, LineReading, keys_plan
from tap_spark_jdbc.supply.boundary_account import BoundaryAccount
from tap_spark_jdbc.supply.slice_prefetch import ReadContext

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from singer_sdk import Tap
    from singer_sdk.singerlib import Catalog, RecordMessage, SchemaMessage

    from singer_spark.program.progress import Progress
    from tap_spark_jdbc.config.settings import TapSettings
    from tap_spark_jdbc.extract.extraction import Extraction
    from tap_spark_jdbc.extract.run_state import RunState
    from tap_spark_jdbc.extract.stream_progress import RunBudget
    from tap_spark_jdbc.extract.stream_snapshot import StreamSnapshots
    from tap_spark_jdbc.plan.slices import Slice
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.plan.stream_sql import Point
    from tap_spark_jdbc.send.stream_reading import StreamReading
    from tap_spark_jdbc.source.database import Database
    from tap_spark_jdbc.supply.batch_location import BatchLocation
    from tap_spark_jdbc.supply.slice_prefetch import SpoolFile
    from tap_spark_jdbc.wal.change_log import LogBegin


@dataclass(frozen=True)
class TapRun:
    """What all streams of a run share."""

    settings: TapSettings
    database: Database
    snapshots: StreamSnapshots
    state: RunState
    progress: Progress
    batches: BatchLocation | None
    budget: RunBudget

    def reading(
        self, plan: StreamPlan, context: ReadContext, *, lines: bool = False
    ) -> StreamReading[Any]:
        """The reading of a stream over a context: as batches if they are configured, unless `lines`
        are wanted.
        """
        reading: StreamReading[Any]
        if lines or self.batches is None:
            reading = LineReading(plan, context, self.state, self.settings)
        else:
            reading = BatchReading(plan, context, self.state, self.settings, self.batches)
        reading.budget = self.budget
        if plan.detect_deletes:
            reading.keys = KeyReading(keys_plan(plan), context, self.state, self.settings)
        return reading


class JdbcStream(HookedStream):
    """One table.

    Its state is kept by the run's `RunState`; the SDK's own bookkeeping is not used.
    """

    def __init__(self, tap: Tap, run: TapRun, plan: StreamPlan) -> None:
        super().__init__(tap, schema=plan.schema, name=plan.stream)
        self.plan = plan
        self._run = run
        self.primary_keys = list(plan.sent_keys)
        self.replication_key = plan.sent_replication_key
        self.forced_replication_method = plan.replication_method
        self.log_start: LogBegin | None = None
        self._reading: StreamReading[Any] | None = None
        self._unchanged: Extraction | None = None
        self._in_run = False
        self._states_between = True

    @property
    def reading(self) -> StreamReading[Any]:
        """The stream's reading; outside a run, one for lines is begun on first use."""
        if self._reading is None:
            context = ReadContext.of(self._run.database, self._run.snapshots)
            reading = self._reading = self._run.reading(self.plan, context, lines=True)
            if self.ABORT_AT_RECORD_COUNT is not None and isinstance(reading, LineReading):
                reading.limit(self.ABORT_AT_RECORD_COUNT)
            reading.begin()
        return self._reading

    @property
    def keys(self) -> KeyReading | None:
        """The reading of all rows' keys, if they are sent after the records."""
        keys = self.reading.keys
        return keys if isinstance(keys, KeyReading) else None

    def send(self, reading: StreamReading[Any]) -> None:
        """Send what `reading` reads, as part of a run."""
        self._reading, self._in_run = reading, True
        if self.extraction.dropped is not None:
            self._begin_again(self.extraction.dropped)
        if self.log_start is not None:
            self.log_start.begin(reading.moment)
        try:
            self.sync()
            self._run.progress.done(self.name)
        finally:
            self._reading, self._in_run = None, False
            self._run.budget.end_stream()

    def send_unchanged(self, extraction: Extraction) -> None:
        """Send only the SCHEMA, as part of a run, because no row has changed; STATE is left to the
        caller.
        """
        self._unchanged = extraction
        self.write_schema()
        self._run.state.advance(self.plan, *BoundaryAccount(extraction).final())
        self._run.progress.done(self.name)

    @property
    def extraction(self) -> Extraction:
        """The bounds of this run, fixed on first use."""
        return self.reading.extraction if self._unchanged is None else self._unchanged

    @property
    def hands_on_lines(self) -> bool:
        """Whether records are sent as rendered; stream maps and flattening need them one by one."""
        maps = self.stream_maps
        is_plain = len(maps) == 1 and type(maps[0]) is SameRecordTransform
        return is_plain and not maps[0].flattening_enabled

    def log(self, message: str, *args: Any, level: int = logging.INFO, **kwargs: Any) -> None:
        """Log the SDK's messages except errors, which the command line reports once."""
        if level < logging.ERROR:
            super().log(message, *args, level=level, **kwargs)

    def take_back(self) -> None:
        """Void what was sent of this stream, which failed half-way; the others continue."""
        self._run.progress.forget(self.name)
        self._run.state.skip(self.name, self.sent_as)
        self._run.state.write()

    def _begin_again(self, why: str) -> None:
        """Void what a dead run had sent of this stream, which is sent from its start."""
        state = self._run.state
        self.logger.info(
            "stream %s: what run %s had sent of it is dropped, and the table is read from its "
                "start: %s",
            self.name, state.continued_run, why,
        )  # fmt: skip
        state.restart(self.name, self.sent_as)

    @property
    def sent_as(self) -> list[str]:
        """The names of the streams that it is mapped to."""
        return [each.stream_alias for each in self.stream_maps]

    def get_records(self, context: Mapping[str, Any] | None) -> Iterable[dict[str, Any]]:
        """The records one by one, for stream maps and flattening.

        Values that these do not change keep all digits.
        """
        parse = state_from_json if _has_decimals(self.plan) else orjson.loads
        for file in self._sent_files():
            with file.path.open("rb") as lines:
                for line in lines:
                    yield _for_maps(parse(line)["record"])

    def complete_record(self, message: RecordMessage) -> None:
        """Write its numbers as they were."""
        message.record = _as_written(message.record)

    def send_records(
        self, context: Mapping[str, Any] | None, *, write_messages: bool
    ) -> Generator[dict[str, Any], Any, Any]:
        """Send the records as whole files; one by one for stream maps and flattening."""
        self._states_between = write_messages
        if self.hands_on_lines and write_messages:
            with self._keys_around():
                for file in self._sent_files():
                    size = file.path.stat().st_size
                    with self._announced(file.slice, file.rows):
                        stdout.send_file(file.path)
                    self._run.progress.advance(self.name, file.rows, size)
        else:
            yield from super().send_records(context, write_messages=write_messages)
        if not self._in_run:
            self.reading.cancel()
            self.reading.context.snapshots.end()
            self._reading = None

    def apply_catalog(self, catalog: Catalog) -> None:
        """Do nothing: the plan holds what a catalog sets, which uses the source's names."""

    def get_batch_config(self, config: Mapping[str, Any]) -> Any:
        """The configured one; none in a connection test, which sends one record."""
        return super().get_batch_config(config) if self.ABORT_AT_RECORD_COUNT is None else None

    def send_batches(self) -> None:
        """Send all records as files, each named in a message."""
        reading = self.reading
        assert isinstance(reading, BatchReading)
        with self._keys_around():
            for batch in reading.sent():
                if (file := batch.file) is not None:
                    with self._announced(batch.slice, file.rows):
                        stdout.write(reading.message(file))
                    self._run.progress.advance(self.name, file.rows, file.size)
                    self._run.budget.sent(file.rows)
                self._advance(batch.slice)
            self._conclude()

    @contextmanager
    def _keys_around(self) -> Iterator[None]:
        """Wrap the sending of all records: if the keys of all rows are sent, announce them before
        and send them after.
        """
        keys = self.keys
        if keys is not None:
            keys.announce(self.name)
        yield
        if keys is not None:
            keys.send(self.name)

    @contextmanager
    def _announced(self, sent: Slice[Point], rows: int) -> Iterator[None]:
        """Wrap the sending of a slice's records; late ones get a SCHEMA of their own."""
        # In a whole table, they are rows like the others.
        is_keyed = rows > 0 and self.plan.replication_key is not None
        late = (sent.late or self.reading.account.sends_late) and is_keyed
        if late:
            self._write_own_schema(late_rows=True)
        yield
        if late:
            self._write_own_schema()
        if sent.late and is_keyed:
            why = (
                "were sent again, because this server is not the last run's: an append-only "
                "table now holds twice those that it already had"
                if self.extraction.moved
                else "that were written or committed since the last run were sent; after a dump "
                "and restore they had been sent before, and an append-only table holds them "
                "twice"
            )
            self.logger.info("stream %s: %d rows at or below the bookmark %s", self.name, rows, why)

    def complete_schema(self, message: SchemaMessage) -> None:
        """Say which order bookmarks have."""
        if self.plan.source_order:
            message.schema = {**message.schema, messages.CURSOR_ORDER: messages.SOURCE_ORDER}

    def write_schema(self) -> None:
        """Send the SCHEMA with all that the target needs, unless the SDK maps the stream."""
        if self.hands_on_lines:
            self._write_own_schema()
        else:
            super().write_schema()

    def _write_own_schema(self, *, late_rows: bool = False) -> None:
        plan, estimate = self.plan, self._row_estimate()
        self._run.progress.expect(self.name, estimate)
        stdout.write(
            messages.schema_message(
                self.name,
                plan.sent_schema(),
                list(plan.sent_keys),
                [self.replication_key] if self.replication_key else [],
                replication_method=plan.replication_method,
                extent=self.extraction.progress.extent,
                load_method=plan.load_method,
                late_rows=late_rows,
                sent_since=self._sent_since,
                source_order=plan.source_order,
                row_estimate=estimate,
            )
        )

    @property
    def _sent_since(self) -> int | str | None:
        """The replication key from which rows that an earlier run has sent may be sent again; None:
        none are.
        """
        state, extraction = self._run.state, self.extraction
        if extraction.bookmark is None:
            return None
        window = LateWindow.of(self.plan, self._run.settings, extraction.sql.dialect)
        # A dead run that is continued may have sent some of them.
        before = bookmark_of({"bookmarks": state.committed_entries()}, self.plan)
        known = (each for each in (extraction.bookmark, before) if each is not None)
        doubtful = map(window.doubtful_since, known)
        since = min((each for each in doubtful if each is not None), default=None)
        return None if since is None else since.json_value()

    def _row_estimate(self) -> int | None:
        """The database's estimate, if the table is read whole."""
        if self.extraction.is_delta or self.extraction.progress.rows > 0:
            return None
        return self.plan.table.row_estimate if self.plan.where is None else None

    def _sent_files(self) -> Iterator[SpoolFile]:
        """The files to send; once the next is requested, STATE may count the last one as sent."""
        reading = self.reading
        assert isinstance(reading, LineReading)
        for file in reading.sent():
            yield file
            self._run.budget.sent(file.rows)
            self._advance(file.slice)
        self._conclude()

    def _advance(self, sent: Slice[Point]) -> None:
        """Advance the state past a slice from where a run could continue (not in a test)."""
        if self.ABORT_AT_RECORD_COUNT is None and (moved := self.reading.account.after(sent)):
            self._run.state.advance(self.plan, *moved)
            if self.log_start is not None:
                self._run.state.note(self.name, self.log_start.bookmark.to_json())
            self._write_state()

    def _conclude(self) -> None:
        """Move the bookmark to the upper bound, and log what the user should know."""
        state, reading, account = self._run.state, self.reading, self.reading.account
        if reading.stopped_at is not None:
            # STATE already holds where the next run continues.
            self.logger.info(
                "stream %s: the run ends at %s %s (%s); the next one continues there",
                self.name, self.replication_key, reading.stopped_at.value.text,
                reading.budget.spent,
            )  # fmt: skip
        elif self.ABORT_AT_RECORD_COUNT is None:
            bookmark, progress = account.final()
            bookmark = sealed(bookmark, reading.extraction, reading.context.snapshots)
            state.advance(self.plan, bookmark, progress)
            if self.log_start is not None:
                state.note(self.name, self.log_start.bookmark.read().to_json())
            elif self.plan.replication_key is None:
                state.note(self.name, None)
        self._write_state()
        if account.nulls:
            self.logger.info(
                "stream %s: %d rows whose replication key %r is NULL were sent, as they are on "
                    "every run",
                self.name, account.nulls, self.replication_key,
            )  # fmt: skip

    def _write_state(self) -> None:
        if self._states_between:
            self._run.state.write()

    def get_replication_key_signpost(self, context: Mapping[str, Any] | None = None) -> None:
        """None: the run's upper bound replaces it."""


def _has_decimals(plan: StreamPlan) -> bool:
    """Whether records hold numbers with more digits than a float has."""
    types = (column.sql_type.element or column.sql_type for column in plan.columns)
    return any(each.name == "DECIMAL" for each in types)


def _for_maps(record: dict[str, Any]) -> dict[str, Any]:
    """A parsed record, prepared for maps.

    Flattening prints arrays, and only prints decimals exactly.
    """
    lists = {name: _as_written(value) for name, value in record.items() if isinstance(value, list)}
    return record | lists


def _as_written(value: Any) -> Any:
    """The value with numbers that the SDK prints as they were read."""
    if isinstance(value, Number):
        return Spelled(value.text)
    if isinstance(value, dict):
        return {name: _as_written(each) for name, each in value.items()}
    return [_as_written(each) for each in value] if isinstance(value, list) else value
