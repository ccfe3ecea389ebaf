"""A pipe in the process of a test: where it matters what arrives, and not which process does it."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

from end_to_end.pipe import Pipe, with_engine
from singer_spark.state.source import open_state_source
from tap.in_process import Sent, send, tap_of
from tap_spark_jdbc.extract.run_state import OpeningState
from target_spark_lake.target import TargetSparkLake


def run_here(pipe: Pipe, *, resume: bool = True) -> Sent:
    """Runs the pipe from the saved state; what it logs is the test's log."""
    opening = OpeningState.of(open_state_source(str(pipe.state_path)), resume=resume)
    sent = send(tap_of(with_engine(pipe.tap), opening)).succeeded()
    load_here(pipe, sent.output)
    return sent


def load_here(pipe: Pipe, lines: bytes) -> None:
    """Gives the target these lines."""
    with redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")):
        TargetSparkLake(config=with_engine(pipe.target)).listen(io.BytesIO(lines))
