"""A stream of the SDK whose records do not pass through Python: whole files are handed on, or named in messages."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
from singer_sdk import Stream
from singer_sdk.mapper import SameRecordTransform

from singer_spark import messages, stdout
from tap_spark_jdbc.boundary import Frame
from tap_spark_jdbc.edges import Edges
from tap_spark_jdbc.extraction import Extraction
from tap_spark_jdbc.lost_connection import again
from tap_spark_jdbc.present_keys import PresentKeys
from tap_spark_jdbc.slices import Slice
from tap_spark_jdbc.spool import SliceSize, Spool, SpoolFile, spool_folder

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping
    from pathlib import Path

    from tap_spark_jdbc.stream_plan import StreamPlan
    from tap_spark_jdbc.stream_sql import Point
    from tap_spark_jdbc.tap import TapSparkJdbc


class JdbcStream(Stream):
    """One table. State is the tap's `RunState`; the SDK's own bookkeeping of it is left idle."""

    def __init__(self, tap: TapSparkJdbc, plan: StreamPlan) -> None:
        super().__init__(tap, schema=plan.schema, name=plan.stream)
        self.plan = plan
        self.source = tap
        self.primary_keys = list(plan.key_properties)
        self.replication_key = plan.replication_key.column.name if plan.replication_key else None
        self.forced_replication_method = plan.replication_method
        self._tap_state = {}
        self._extraction: Extraction | None = None
        self._states_between = True

    @property
    def extraction(self) -> Extraction:
        """The bounds of this run, fixed when they are first asked for."""
        if self._extraction is None:
            state, plan = self.source.run_state, self.plan
            lag = self.source.settings.safety_lag_seconds
            connection, dialect = self.source.database.connection, self.source.database.source.dialect
            # A stream that failed may have left its own, by which nothing new is seen.
            self.source.snapshots.end()
            began = Extraction.begin(connection, dialect, plan, state.bookmark(plan), lag, state.progress(plan))
            self._extraction = self.source.snapshots.begin(began)
        return self._extraction

    @property
    def hands_on_lines(self) -> bool:
        """Whether records leave as they are rendered; stream maps and flattening need them one by one."""
        maps = self.stream_maps
        return len(maps) == 1 and type(maps[0]) is SameRecordTransform and not maps[0].flattening_enabled

    def log(self, message: str, *args: Any, level: int = logging.INFO, **kwargs: Any) -> None:
        """Logs what the SDK says, but for errors: the command line tells those, once."""
        if level < logging.ERROR:
            super().log(message, *args, level=level, **kwargs)

    def take_back(self) -> None:
        """It failed half-way, and the others go on: what was sent of it counts for nothing."""
        self.source.progress.forget(self.name)
        self.source.run_state.skip(self.name, [each.stream_alias for each in self.stream_maps])
        self.source.run_state.write()

    def get_records(self, context: Mapping[str, Any] | None) -> Iterable[dict[str, Any]]:
        """The records one by one, for stream maps and flattening."""
        frame = self._frame()
        for file, _ in self._sent_files(frame):
            with file.path.open("rb") as lines:
                for line in lines:
                    yield orjson.loads(line)["record"]

    def _sync_records(
        self, context: Mapping[str, Any] | None = None, *, write_messages: bool = True
    ) -> Generator[dict[str, Any], Any, Any]:
        self._states_between = write_messages
        if not (self.hands_on_lines and write_messages):
            yield from super()._sync_records(context, write_messages=write_messages)
            self.source.snapshots.end()
            return
        keys = self._keys()
        if keys is not None:
            keys.announce()
        for file, rows in self._sent_files(self._frame()):
            size = file.path.stat().st_size
            stdout.send_file(file.path)
            self.source.progress.advance(self.name, rows, size)
        if keys is not None:
            keys.send()
        self.source.snapshots.end()

    def get_batch_config(self, config: Mapping[str, Any]) -> Any:
        """As configured; none in a test of the connection, which sends one record."""
        return super().get_batch_config(config) if self.ABORT_AT_RECORD_COUNT is None else None

    def _sync_batches(self, batch_config: Any, context: Mapping[str, Any] | None = None) -> None:
        from tap_spark_jdbc.stream_batches import StreamBatches

        keys, state = self._keys(), self.source.run_state
        if keys is not None:
            keys.announce()
        batches = StreamBatches(self.source, self.extraction)
        for batch, rows in batches.sent():
            if batch.files:
                stdout.write(batches.message(batch))
                self.source.progress.advance(self.name, rows, sum(file.size for file in batch.files))
            if moved := batches.edges.after(batch.slice):
                state.advance(self.plan, *moved)
                state.write()
        self._conclude(batches.edges)
        state.write()
        if keys is not None:
            keys.send()
        self.source.snapshots.end()

    def _write_schema_message(self) -> None:
        if not self.hands_on_lines:
            super()._write_schema_message()
            return
        plan = self.plan
        stdout.write(
            messages.schema_message(
                self.name,
                plan.schema,
                list(plan.key_properties),
                [self.replication_key] if self.replication_key else [],
                replication_method=plan.replication_method,
                extent=self.extraction.progress.extent,
                load_method=plan.load_method,
            )
        )

    def _keys(self) -> PresentKeys | None:
        """What sends the keys of all rows; None where nobody wants them, or this is a test of the connection."""
        if not self.plan.detect_deletes or self.ABORT_AT_RECORD_COUNT is not None:
            return None
        return PresentKeys(self.plan, self.source.database, self.source.settings, self.source.snapshots.source)

    def _frame(self) -> Frame:
        return Frame(messages.record_prefix(self.name), messages.record_suffix(datetime.now(UTC)))

    def _sent_files(self, frame: Frame) -> Iterator[tuple[SpoolFile, int]]:
        """The files to send, with their rows; when the next is asked for, STATE may say that the last is sent."""
        from tap_spark_jdbc.reader import SliceReader

        extraction, settings, database = self.extraction, self.source.settings, self.source.database
        state, edges = self.source.run_state, Edges(extraction, frame)
        reader = SliceReader(database.spark, self.source.snapshots.source, extraction.sql, frame)
        size = SliceSize(settings.slice_rows, settings.fetch_size)
        limit, changed = self.ABORT_AT_RECORD_COUNT, None
        if extraction.saved_buckets and extraction.sql.bookmark is not None:
            sums = again(partial(reader.bucket_sums, extraction.sql.bookmark, size.fetch_size()))
            changed = edges.changed_buckets(sums)
            extraction = extraction if changed else extraction.behind_bookmark()

        def render(each: Slice[Point], folder: Path) -> Path:
            fetch = size.fetch_size()
            return reader.render(each, folder, fetch_size=fetch, limit=limit, changed_buckets=changed)

        slices = extraction.slices(size.rows) if limit is None else iter([Slice()])
        n_jobs = settings.n_jobs or database.spark.sparkContext.defaultParallelism
        with spool_folder() as folder:
            for file in Spool(folder, slices, render, size, n_jobs).files():
                yield file, edges.treat(file)
                if limit is None and (moved := edges.after(file.slice)):
                    state.advance(self.plan, *moved)
                    if self._states_between:
                        state.write()
        if limit is None:
            self._conclude(edges)
        if self._states_between:
            state.write()

    def _conclude(self, edges: Edges) -> None:
        """Moves the bookmark to the upper bound, and says what the user should know."""
        state = self.source.run_state
        state.advance(self.plan, *edges.final())
        if self.plan.replication_key is None:
            state.drop(self.plan)
        if edges.nulls:
            self.logger.info(
                "stream %s: %d rows whose replication key %r is NULL were sent, as they are on every run",
                self.name, edges.nulls, self.replication_key,
            )  # fmt: skip

    # State is kept by the tap's `RunState`: what the SDK would note of it per record is not needed.

    def get_replication_key_signpost(self, context: Mapping[str, Any] | None = None) -> None:
        """None: the upper bound of the run takes its place."""

    def _write_starting_replication_value(self, context: Mapping[str, Any] | None) -> None: ...

    def _increment_stream_state(
        self, latest_record: Mapping[str, Any], *, context: Mapping[str, Any] | None = None
    ) -> None: ...

    def _finalize_state(self, state: dict[str, Any] | None = None) -> None: ...

    def _write_state_message(self) -> None: ...

    def finalize_state_progress_markers(self, state: dict[str, Any] | None = None) -> None:
        """Nothing: there are no markers."""
