"""The SDK's tap: settings, catalog, streams, and the order of a run."""

from __future__ import annotations

import copy
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from singer_sdk.helpers.capabilities import PluginCapabilities, TapCapabilities

import singer_spark.program.about  # noqa: F401  the text of --about
from singer_spark.core.config_file import expand
from singer_spark.core.messages import HOW, STREAMS
from singer_spark.errors import ConfigurationError
from singer_spark.program.progress import Progress
from singer_spark.program.singer_sdk_hooks import HookedTap
from tap_spark_jdbc.config.batch_settings import with_staging
from tap_spark_jdbc.config.settings import CONFIG_JSONSCHEMA, TapSettings
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.extract.late_window import LateWindow
from tap_spark_jdbc.extract.run_state import OpeningState, RunState
from tap_spark_jdbc.extract.stream_progress import RunBudget
from tap_spark_jdbc.extract.stream_snapshot import StreamSnapshots
from tap_spark_jdbc.extract.unchanged_streams import UnchangedStreams
from tap_spark_jdbc.send.jdbc_stream import JdbcStream, TapRun
from tap_spark_jdbc.send.stream_order import begin_log, send_changes
from tap_spark_jdbc.source.database import Database
from tap_spark_jdbc.supply.batch_location import BatchLocation
from tap_spark_jdbc.supply.slice_prefetch import ReadContext
from tap_spark_jdbc.supply.stream_errors import StreamErrors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tap_spark_jdbc.dialects.tables import Table
    from tap_spark_jdbc.plan.stream_plan import StreamPlan
    from tap_spark_jdbc.wal.change_log import ChangeLog

logger = logging.getLogger("tap-spark-jdbc")
STREAMS_NAMED = 10


class TapSparkJdbc(HookedTap):
    """Singer tap for any JDBC database: read by Spark, incremental by replication key, nothing lost
    or repeated.
    """

    name = "tap-spark-jdbc"
    package_name = "tap-spark-jdbc"
    # A copy: the SDK writes its own settings into it.
    config_jsonschema: ClassVar[dict[str, Any]] = copy.deepcopy(CONFIG_JSONSCHEMA)
    dynamic_catalog = True
    capabilities = [  # noqa: RUF012
        TapCapabilities.CATALOG,
        TapCapabilities.STATE,
        TapCapabilities.DISCOVER,
        PluginCapabilities.ABOUT,
        PluginCapabilities.STREAM_MAPS,
        PluginCapabilities.FLATTENING,
        PluginCapabilities.BATCH,
        PluginCapabilities.STRUCTURED_LOGGING,
    ]

    def __init__(
        self,
        *,
        config: dict[str, Any] | None = None,
        catalog: dict[str, Any] | None = None,
        state: dict[str, Any] | None = None,
        opening: OpeningState | None = None,
        only: Sequence[str] = (),
        target: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Prepare a run from `opening`.

        `state`, a Singer STATE value, is for callers without an opening state.

        `only` are globs of the streams to send; empty: all. `target` is the target's config, which
        completes the tap's.
        """
        self._only = tuple(only)
        self._target = target
        self._raw_catalog = catalog
        self._tables: Sequence[Table] | None = None
        self._unknown: Sequence[str] = ()
        self._opening = opening or OpeningState(state or {}, "saved" if state else "full")
        self.run_state = RunState(self._opening)
        self.progress = Progress("sent")
        super().__init__(config=config, catalog=catalog, state=state, **options)

    def accepted_config(self, config: dict[str, Any]) -> dict[str, Any]:
        """The config with the folder of batch files and with the environment's values."""
        staged = with_staging(config, self._target)
        self.settings = TapSettings.from_config(staged)
        self.database = Database(self.settings, moved_at=self.progress.moved_at)
        self.snapshots = StreamSnapshots(self.database)
        self.stream_errors = StreamErrors(self.settings.on_stream_error)
        batches, storage = self.settings.batch_config, self.database.batch_storage
        self.batches: BatchLocation | None = None
        if batches is not None and storage is not None:
            metadata = self.settings.add_record_metadata
            self.batches = BatchLocation(batches, storage, metadata=metadata)
        self.budget = RunBudget(self.settings.max_run_minutes, self.settings.max_run_rows)
        self._run = TapRun(
            self.settings,
            self.database,
            self.snapshots,
            self.run_state,
            self.progress,
            self.batches,
            self.budget,
        )
        return expand(staged, CONFIG_JSONSCHEMA["properties"])

    def discover_streams(self) -> Sequence[JdbcStream]:
        """One stream per selected table."""
        return [JdbcStream(self, self._run, plan) for plan in self.plans()]

    def plans(self) -> list[StreamPlan]:
        """The plan of each stream in this run."""
        from tap_spark_jdbc.plan.stream_choice import is_named
        from tap_spark_jdbc.plan.stream_plan import plan_streams, refusal

        dialect = self.database.source.dialect
        tables, errors = self.tables(), self.stream_errors
        unnamed = {each.stream for each in tables if not is_named(each, self.settings)}
        known = {*self._only, *self.run_state.committed_entries()}
        errors.strangers = frozenset(unnamed - known)
        refused: dict[str, str] = {}
        plans = plan_streams(
            tables,
            self.settings,
            self._raw_catalog,
            text_moments=dialect.text_moments,
            refused=refused,
            may_refuse=errors.skips,
            unknown=self._unknown,
            only=self._only,
            hides_tables=dialect.hides_tables,
        )
        if not plans and not errors.skips_all:
            raise refusal([*refused.values()])
        errors.others = len(plans) > 1
        for stream, reason in refused.items():
            errors.skip(stream, reason)
            self.run_state.skip(stream, [stream])
        return plans

    def readable(self, refused: dict[str, str]) -> list[StreamPlan]:
        """The plan of each stream that can be read.

        `refused` gets what is wrong with each of the others.
        """
        from tap_spark_jdbc.plan.stream_plan import plan_streams

        return plan_streams(
            self.tables(),
            self.settings,
            text_moments=self.database.source.dialect.text_moments,
            refused=refused,
            unknown=self._unknown,
        )

    def tables(self, *, defaults: bool = False) -> Sequence[Table]:
        """Tables within the settings' bounds, and queries; with a catalog, only those it selects.

        With `defaults`, each with the SQL that fills its columns.
        """
        from tap_spark_jdbc.plan.catalog import named_tables
        from tap_spark_jdbc.plan.queries import described_queries, with_computed_key
        from tap_spark_jdbc.source.discovery import discover_tables
        from tap_spark_jdbc.source.discovery_bounds import Bounds, unknown_names

        if self._tables is None:
            only = None if self._raw_catalog is None else named_tables(self._raw_catalog)
            queries = self.settings.queries
            if only is not None:
                queries = tuple(each for each in queries if (None, each.name) in only)
                own = {(None, each.name) for each in queries}
                only = [name for name in only if name not in own]
            bounds = Bounds(self.settings.schemas, self.settings.tables, only)
            connection, dialect = self.database.connection, self.database.source.dialect
            tables = discover_tables(connection, dialect, bounds, defaults=defaults)
            if only is None:
                self._unknown = unknown_names(
                    tables,
                    self.settings,
                    lambda schemas: discover_tables(connection, dialect, Bounds(schemas)),
                    bounds.left_out,
                    hides_tables=dialect.hides_tables,
                )
            tables += described_queries(
                connection, dialect, queries, [table.stream for table in tables]
            )
            self._tables = [
                with_computed_key(connection, dialect, each, self.settings) for each in tables
            ]
        return self._tables

    @property
    def pipeline(self) -> str:
        """Pipeline whose state the run starts from; empty if unknown."""
        return self._opening.pipeline

    @property
    def catalog_dict(self) -> dict[str, Any]:
        """The catalog of everything discovery finds."""
        from tap_spark_jdbc.plan.catalog import catalog_of

        return catalog_of(self.tables(defaults=True), self.settings, self._unknown)

    def check_staging(self) -> None:
        """Check that a run knows where its batch files go; ConfigurationError: nothing says
        where.
        """
        if self.settings.batch_config is not None and self.settings.batch_config.root is None:
            raise ConfigurationError(
                TapCode.BATCH_LOCATION,
                "batch_config.storage.root: is missing: start with --state-from target.json to "
                "put the files into the bucket of that config, or name a folder",
            )

    def begin_session(self) -> None:
        """Start Spark in the background if rows are sure to be read.

        Meanwhile discovery continues without it.

        After a run that succeeded there may be nothing new, and a database that is asked about many
        streams together can report that without Spark. A columnar driver may not need Spark at all.
        """
        if self.database.may_be_columnar or not self.database.by_spark:
            if self._opening.start != "saved":
                self.database.begin_reader()
            return
        if self._opening.start != "saved" or not self.database.source.dialect.together:
            self.database.begin_session()

    def begin(self) -> None:
        """Decide where the run starts: where a dead run stopped, if it can be continued, otherwise
        at the given state.
        """
        from tap_spark_jdbc.extract.resumption import continued, fingerprint

        plans = [stream.plan for stream in self.jdbc_streams()]
        dialect, state = self.database.source.dialect, self.run_state
        checkpoint = self._opening.checkpoint
        wanted = fingerprint(plans, self.settings, dict(self.config), dialect)
        # Without it, no run continues this one, because that run would read the streams of others,
        # or append what replaces a table.
        state.fingerprint = None if self._opening.full and self._opening.is_part else wanted
        streams = continued(checkpoint, plans, wanted, dialect)
        if checkpoint is not None and streams is not None:
            state.go_on(checkpoint, streams)
        state.forget(plans)
        for plan in plans:
            skip = partial(state.skip, plan.stream, [plan.stream])
            with self.stream_errors.of(plan.stream, skip):
                state.bookmark(plan)

    def run(self) -> None:
        """Send everything: first STATE, all streams, last STATE.

        Raises at the end if streams were skipped.
        """
        self._refuse_mapping()
        self.begin()
        every = self.jdbc_streams()
        log = begin_log(every, self._run, self.pipeline, self.stream_errors)
        left_out, strangers = self.stream_errors.reasons, self.stream_errors.strangers
        unnamed = [name for each in every if each.name in strangers for name in each.sent_as]
        streams = self._in_turn(
            each for each in every if each.selected and each.name not in left_out
        )
        count = sum(len(each.sent_as) for each in streams)
        self.progress.expect_streams(count)
        self.run_state.write_opening(
            strangers=sorted({*unnamed, *(strangers & left_out.keys())}),
            skips_all=self.stream_errors.skips_all,
            again=self._sent_again(),
            stream_count=count,
        )
        self._log_start([stream.plan for stream in streams], log)
        self.progress.phase("reading")
        if log is not None:
            send_changes(log, streams, self._run, self.stream_errors)
        self._send([stream for stream in streams if log is None or not log.reads(stream.name)])
        if self.batches is not None:
            self.batches.finish()
        if log is not None:
            log.finish()
        self.stream_errors.check(self._arrived)
        self.run_state.write_final()
        self.progress.finish()
        self.finish_streams()

    def _sent_again(self) -> dict[str, Any] | None:
        """What becomes of append-only tables whose streams are otherwise read by increments; None:
        none is sent whole.
        """
        if self._opening.start != "full" and not self._opening.full:
            return None
        streams = {
            name: {
                "x-replication-method": each.plan.replication_method,
                "x-load-method": each.plan.load_method,
            }
            for each in self.jdbc_streams()
            if each.selected
            and each.plan.replication_method != "FULL_TABLE"
            and each.plan.end_value is None
            for name in each.sent_as
        }
        return {HOW: self._opening.again, STREAMS: streams} if streams else None

    def _log_start(self, plans: Sequence[StreamPlan], log: ChangeLog[Any] | None) -> None:
        """Log in one line where each stream starts, to be found later in the run's log."""
        starts, dialect = [], self.database.source.dialect
        late = self.snapshots.searches.described(plans)
        for plan in plans:
            key, bookmark = plan.replication_key, self.run_state.bookmark(plan)
            if log is not None and log.reads(plan.stream):
                starts.append(f"{plan.stream} from the log at {log.position(plan.stream)}")
            elif key is None:
                starts.append(f"{plan.stream} (whole)")
            elif bookmark is None:
                starts.append(f"{plan.stream} from its first {key.column.name}")
            else:
                starts.append(f"{plan.stream} from {key.column.name} {bookmark.value.text}")
            if key is not None and not dialect.shares_snapshots:
                late[plan.stream] = LateWindow.of(plan, self.settings, dialect).text
            if how := late.get(plan.stream):
                starts[-1] += f" (late rows: {how})"
        logger.info("reading %s; engine %s", _named(starts), self.settings.engine_and_why)
        if hidden := [plan.stream for plan in plans if plan.table.filtered]:
            logger.warning(
                "row-level security applies to this user in %s: rows that its policies hide do not "
                "arrive; a user with BYPASSRLS sees all",
                _named(hidden),
            )

    def _send(self, streams: Sequence[JdbcStream]) -> None:
        """Send the unchanged streams, then the others in order, while the next ones are being
        read.
        """
        from tap_spark_jdbc.send.stream_order import StreamPrefetch

        streams = self._send_unchanged(streams)
        if streams:
            self.database.begin_reader()
        plans, budget, next_first = [each.plan for each in streams], self.budget, None
        context = ReadContext.of(self.database, self.snapshots)
        reading_of, alone = self._run.reading, budget.counts_rows
        with StreamPrefetch(plans, reading_of, context, alone=alone) as prefetch:
            for index, stream in enumerate(streams):
                if index > 0 and (spent := budget.spent):
                    next_first = stream.name
                    left = [each.name for each in streams[index:]]
                    logger.info("%s: not begun in this run: %s", spent, _named(left))
                    break
                with (
                    self.stream_errors.of(stream.name, stream.take_back),
                    prefetch.turn() as reading,
                ):
                    stream.send(reading)
                    if reading.stopped_at is not None:
                        next_first = streams[0].name
        self.run_state.begin_next_with(next_first)

    def _send_unchanged(self, streams: Sequence[JdbcStream]) -> list[JdbcStream]:
        """Send the streams in which nothing has changed; returns the others."""
        state = self.run_state
        if state.start not in ("saved", "resume"):
            return [*streams]
        asked = UnchangedStreams(
            self.database, self.snapshots, may_end_early=self.settings.has_budget
        )
        plans = [each.plan for each in streams if state.progress(each.plan) is None]
        found = asked.among([(plan, state.bookmark(plan)) for plan in plans])
        for stream in streams:
            if (extraction := found.get(stream.name)) is not None:
                stream.send_unchanged(extraction)
        if found:
            state.write()
        return [each for each in streams if each.name not in found]

    def _in_turn(self, streams: Iterable[JdbcStream]) -> list[JdbcStream]:
        """The streams in order, rotated to begin with the one the last run did not get to."""
        ordered, first = list(streams), self.run_state.first_stream
        index = next((index for index, each in enumerate(ordered) if each.name == first), 0)
        return ordered[index:] + ordered[:index]

    def finish_streams(self) -> None:
        """Raise `SkippedStreamsError` if streams were left out."""
        self.stream_errors.finish(self._arrived)

    @property
    def _arrived(self) -> int:
        return sum(name not in self.stream_errors.reasons for name in self.streams)

    def jdbc_streams(self) -> list[JdbcStream]:
        """The run's streams; the SDK's own type of them says less."""
        return [stream for stream in self.streams.values() if isinstance(stream, JdbcStream)]

    def _refuse_mapping(self) -> None:
        """Refuse maps for streams that Spark writes or compares, because these can't be changed
        record by record.
        """
        for stream in self.jdbc_streams():
            if stream.hands_on_lines:
                continue
            if stream.plan.is_log_based:
                why = (
                    "changes from the database's log are sent as they are, and stream_maps or "
                    "flattening change records in Python; put these into the target's config"
                )
            elif stream.plan.detect_deletes:
                why = (
                    "detect_deletes compares keys, which stream_maps or flattening may change; put "
                    "these into the target's config"
                )
            elif self.batches is not None:
                why = (
                    "batches (batch_config) are written by Spark, and stream_maps or flattening "
                    "change records in Python; use rename, exclude_columns or mask in "
                    "stream_options, put these into the target's config, or take batch_config out"
                )
            else:
                continue
            raise ConfigurationError(TapCode.MAPPED_IN_PYTHON, f"stream {stream.name}: {why}")


def _named(streams: Sequence[str]) -> str:
    more = f" and {len(streams) - STREAMS_NAMED} more" if len(streams) > STREAMS_NAMED else ""
    return ", ".join(streams[:STREAMS_NAMED]) + more
