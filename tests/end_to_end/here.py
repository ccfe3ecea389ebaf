"""A pipe in the process of a test: where it matters what arrives, and not which process does it."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import Any

from end_to_end.pipe import Pipe, with_engine
from singer_spark.state.source import open_state_source
from singer_spark.state.store import state_path
from tap.in_process import Sent, send, tap_of
from tap_spark_jdbc.extract.run_state import OpeningState
from target_spark_lake.target import TargetSparkLake


def run_here(pipe: Pipe, *, resume: bool = True) -> Sent:
    """Runs the pipe from the saved state; what it logs is the test's log."""
    sent = send_here(pipe, resume=resume)
    load_here(pipe.target, sent.output)
    return sent


def send_here(pipe: Pipe, *, resume: bool = True) -> Sent:
    """Runs the tap from the state that the target saved in its bucket."""
    url = f"{pipe.target['bucket']}/{state_path(pipe.target['pipeline'])}"
    source = open_state_source(url, pipe.target.get("storage_options"))
    opening = OpeningState.of(source, resume=resume)
    return send(tap_of(with_engine(pipe.tap), opening)).succeeded()


def load_here(config: dict[str, Any], lines: bytes) -> None:
    """Gives the target these lines."""
    with redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")):
        TargetSparkLake(config=with_engine(config)).listen(io.BytesIO(lines))
