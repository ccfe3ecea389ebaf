"""Source, tap, target and Parquet in one process and one Spark session.

What is read back never saw Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from end_to_end.here import load_here
from singer_spark.state.run_log import folder_name
from singer_spark.state.source import open_state_source
from singer_spark.state.store import state_path
from tap.in_process import send, tap_of
from tap_spark_jdbc.extract.run_state import OpeningState

PIPELINE = "test"


@dataclass
class RoundTrip:
    """One pipeline whose lake lies in a folder."""

    folder: Path
    config: dict[str, Any]

    @property
    def state_path(self) -> Path:
        return self.folder / state_path(PIPELINE)

    def tap_lines(self, *, with_state: bool = False, full: bool = False) -> bytes:
        """What the tap sends."""
        opening = OpeningState.of(
            open_state_source(str(self.state_path)) if with_state or full else None, full=full
        )
        sent = send(tap_of(self.config, opening))
        if sent.error is not None:
            raise sent.error
        return sent.output

    def run(self, *, with_state: bool = False, full: bool = False, **target: Any) -> bytes:
        """Takes the rows to the lake, and gives the lines that passed."""
        lines = self.tap_lines(with_state=with_state, full=full)
        self.load(lines, **target)
        return lines

    def load(self, lines: bytes, **target: Any) -> None:
        """Gives the target these lines."""
        config = {
            "bucket": str(self.folder),
            "pipeline": PIPELINE,
            "add_record_metadata": False,
            **target,
        }
        load_here(config, lines)

    def table(self, stream: str) -> pa.Table:
        """A stream's table as Arrow reads its files."""
        return pq.read_table(self.folder / "raw" / folder_name(stream))
