"""A tap run in this process: its bytes, and the error that it ends with."""

from __future__ import annotations

import io
import json
import warnings
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

from singer_spark.errors import SingerSparkError
from tap_spark_jdbc.extract.run_state import OpeningState
from tap_spark_jdbc.tap import TapSparkJdbc

JSON = dict[str, Any]


@dataclass(frozen=True)
class Sent:
    """What a run wrote, and what it ended with; None: success."""

    output: bytes
    error: SingerSparkError | None

    @property
    def messages(self) -> list[JSON]:
        return [json.loads(line) for line in self.output.splitlines()]

    def values(self, stream: str, column: str) -> Counter[Any]:
        records = [
            each for each in self.messages if each["type"] == "RECORD" and each["stream"] == stream
        ]
        return Counter(each["record"][column] for each in records)

    @property
    def start(self) -> str:
        """What the run started from."""
        return str(self.messages[0]["start"])

    @property
    def records(self) -> int:
        """How many it sent one by one."""
        return sum(each["type"] == "RECORD" for each in self.messages)

    @property
    def final(self) -> JSON:
        last = self.messages[-1]
        assert last["final"] is True, self.error
        return last

    def succeeded(self) -> Sent:
        assert self.error is None
        return self

    def failed(self) -> str:
        """The line that says why."""
        assert self.error is not None
        assert all(message.get("final") is not True for message in self.messages)
        return str(self.error)


def tap_of(
    config: JSON, opening: OpeningState | None = None, catalog: JSON | None = None
) -> TapSparkJdbc:
    config = {"spark": {"master": "local[2]"}, **config}
    return TapSparkJdbc(
        config=config, opening=opening, catalog=catalog, parse_env_config=False, setup_mapper=False
    )


def run_tap(config: JSON, state: JSON | None = None, *, catalog: JSON | None = None) -> Sent:
    """A whole run from a saved state, or from none."""
    return send(
        tap_of(
            config, OpeningState(state, "saved") if state else OpeningState({}, "first"), catalog
        )
    )


def send(tap: TapSparkJdbc) -> Sent:
    """What the command does with a tap, the frame of the program aside."""
    output, error = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), None
    with warnings.catch_warnings(), redirect_stdout(output):
        # PySpark leaves the socket of a `collect` to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            tap.streams  # noqa: B018
            tap.setup_mapper()
            tap.run()
        except SingerSparkError as raised:
            error = raised
        finally:
            tap.progress.stop()
            tap.database.close()
    return Sent(output.buffer.getvalue(), error)
