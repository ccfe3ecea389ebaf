"""Streams that a run leaves out because something is wrong with them, while the others arrive."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from singer_spark.core.messages import ON_STREAM_ERROR, SKIP, STRANGERS, keys_stream
from singer_spark.errors import ConfigurationError, SchemaError, SkippedStreamsError, SourceError
from target_spark_lake.error_codes import LakeCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from target_spark_lake.commit.pipeline_run import PipelineRun
    from target_spark_lake.config.settings import TargetSettings

JSON = dict[str, Any]
logger = logging.getLogger("target-spark-lake")


class LeftOut:
    """The streams that this target can't load, and what the tap says about those that may be left
    out.

    Without `on_stream_error: skip`, only strangers may be: no setting of the tap names them, and
    they never arrived.
    """

    def __init__(self, settings: TargetSettings, run: PipelineRun) -> None:
        self.reasons: dict[str, str] = {}
        self._settings = settings
        self._run = run
        self._strangers: frozenset[str] = frozenset()
        self._skips_all = False

    def begin(self, opening: JSON) -> None:
        """Take what the tap's first STATE says."""
        strangers = opening.get(STRANGERS)
        self._strangers = (
            frozenset(each for each in strangers if isinstance(each, str))
            if strangers
            else frozenset()
        )
        self._skips_all = opening.get(ON_STREAM_ERROR) == SKIP

    def has(self, stream: object) -> bool:
        """Whether a stream, or one of its keys, is left out."""
        return any(stream in (name, keys_stream(name)) for name in self.reasons)

    @contextmanager
    def or_raise(self, stream: object) -> Iterator[None]:
        """Leave out a stream whose SCHEMA can't be loaded, if that is allowed; otherwise raise the
        error.
        """
        try:
            yield
        except (ConfigurationError, SchemaError) as error:
            if not isinstance(stream, str) or not (
                self._skips_all or self._is_new_stranger(stream)
            ):
                raise
            self.reasons[stream] = str(error)
            logger.error("%s; it is left out, the other streams continue (on_stream_error)", error)

    def check_skipped(self, streams: Iterable[str]) -> None:
        """Raise SourceError if the tap skipped a stream as one that never arrived, although it did
        arrive before.
        """
        arrived = (
            []
            if self._skips_all
            else [each for each in streams if each in self._strangers and self._arrived(each)]
        )
        if arrived:
            raise SourceError(
                LakeCode.KNOWN_STREAM_SKIPPED,
                f"{', '.join(f'stream {each}' for each in arrived)}: the tap can't read it, its "
                "own log says why, and it arrived before; nothing was published: fix that, or set "
                "the tap's on_stream_error to skip",
            )

    def without(self, value: JSON | None, saved: Mapping[str, Any] | None) -> JSON | None:
        """The run's last state, with the former bookmarks of the streams that were left out."""
        bookmarks = value.get("bookmarks") if value is not None else None
        if value is None or not isinstance(bookmarks, dict) or not self.reasons:
            return value
        before = (saved or {}).get("bookmarks")
        kept = {name: each for name, each in bookmarks.items() if name not in self.reasons}
        kept |= {
            name: before[name]
            for name in self.reasons
            if isinstance(before, dict) and name in before
        }
        return {**value, "bookmarks": kept}

    def finish(self) -> None:
        """After the commit: SkippedStreamsError if streams were left out."""
        if self.reasons:
            raise SkippedStreamsError(
                LakeCode.STREAMS_SKIPPED,
                f"{len(self.reasons)} stream(s) did not arrive, their tables and bookmarks stay, "
                f"the others are committed (on_stream_error): {'; '.join(self.reasons.values())}",
            )

    def _is_new_stranger(self, stream: str) -> bool:
        return stream in self._strangers and not self._arrived(stream)

    def _arrived(self, stream: str) -> bool:
        table = self._run.layout.table(stream, self._settings.options_of(stream).path)
        return self._run.table_record(stream, table) is not None
