"""A tap that dies and is run again, in this process; what a target keeps of it is written here by
hand.
"""

from __future__ import annotations

import io
import json
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from singer_spark.state.source import open_state_source
from singer_spark.state.store import Checkpoint, checkpoint_path, state_path
from tap_spark_jdbc.extract.run_state import OpeningState
from tap_spark_jdbc.tap import TapSparkJdbc

PIPELINE = "shop"
JSON = dict[str, Any]


# A run that continues inside a tie can't vouch for the boundary's checksum, and reads in a snapshot
# of its own, whose numbers the server's own transactions advance (autovacuum).
OF_ONE_RUN = ("checksum", "xmin", "xmax", "seen")


def unsealed(value: Any) -> Any:
    """Of states: without what is another run's even where it sends the same rows."""
    return json.loads(json.dumps(value), object_hook=_without_own)


def _without_own(each: JSON) -> JSON:
    return {name: value for name, value in each.items() if name not in OF_ONE_RUN}


@dataclass(frozen=True)
class Sent:
    """The messages of a run, or of its part before its death."""

    messages: list[JSON]

    @property
    def rows(self) -> Counter[str]:
        """Each record, with its stream, and how often it was sent."""
        return Counter(
            json.dumps([each["stream"], each["record"]])
            for each in self.messages
            if each["type"] == "RECORD"
        )

    def values(self, stream: str, column: str) -> Counter[Any]:
        return Counter(
            each["record"][column]
            for each in self.messages
            if each["type"] == "RECORD" and each["stream"] == stream
        )

    def ids(self, stream: str) -> Counter[Any]:
        return self.values(stream, "id")

    @property
    def extents(self) -> dict[str, str]:
        schemas = [each for each in self.messages if each["type"] == "SCHEMA"]
        return {each["stream"]: each["schema"]["x-extent"] for each in schemas}

    @property
    def states(self) -> list[JSON]:
        return [each for each in self.messages if each["type"] == "STATE"]

    @property
    def start(self) -> str:
        assert self.states[0]["final"] is False
        return self.states[0]["start"]

    @property
    def final(self) -> JSON:
        last = self.messages[-1]
        assert last["final"] is True
        return last["value"]

    @property
    def restarted(self) -> set[str]:
        """The streams that a run sends from their start, although the run that it continues had
        sent some.
        """
        return {stream for each in self.states for stream in each.get("restarted", ())}

    def followed_by(self, rest: Sent) -> Counter[str]:
        """The records that arrive if this part of a run is followed by the run that continues
        it.
        """
        kept = [each for each in self.messages if each.get("stream") not in rest.restarted]
        return Sent(kept).rows + rest.rows

    def until(self, number: int) -> Sent:
        """The messages up to this STATE, counted from 0, the opening."""
        places = [place for place, each in enumerate(self.messages) if each["type"] == "STATE"]
        return Sent(self.messages[: places[number] + 1])

    def deaths(self, one_of: int = 1) -> Iterator[tuple[int, Sent]]:
        """The run as it is after each of its STATEs, or after one of so many."""
        for number in range(0, len(self.states), one_of):
            yield number, self.until(number)


@dataclass
class Pipe:
    """A tap, and the lake whose state it is given."""

    folder: Path
    config: JSON
    saved: JSON | None = None
    catalog: JSON | None = None
    output: Callable[[], io.BytesIO] = io.BytesIO
    killed_run: str = field(default="20261121T040000.000000Z-0badcafe", init=False)

    @property
    def state_url(self) -> str:
        return str(self.folder / state_path(PIPELINE))

    @property
    def checkpoint(self) -> Path:
        return self.folder / checkpoint_path(PIPELINE)

    def tap(self, *only: str, **flags: bool) -> TapSparkJdbc:
        opening = OpeningState.of(open_state_source(self.state_url), is_part=bool(only), **flags)
        return TapSparkJdbc(
            config=dict(self.config),
            catalog=self.catalog,
            opening=opening,
            only=only,
            parse_env_config=False,
            setup_mapper=False,
        )

    def run(self, *only: str, **flags: bool) -> Sent:
        """A whole run, or one of `only` these streams."""
        tap, output = self.tap(*only, **flags), io.TextIOWrapper(self.output(), encoding="utf-8")
        with warnings.catch_warnings(), redirect_stdout(output):
            # PySpark leaves the socket of a `collect` to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            try:
                tap.setup_mapper()
                tap.run()
            finally:
                tap.progress.stop()
                tap.database.close()
        return Sent([json.loads(line) for line in output.buffer.getvalue().splitlines()])

    def save(self, state: JSON) -> None:
        """A run was committed: its state is the saved one, and no checkpoint stays."""
        self.saved = state
        path = Path(self.state_url)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(state))
        self.checkpoint.unlink(missing_ok=True)

    def forget(self) -> None:
        """No run was ever committed."""
        self.saved = None
        Path(self.state_url).unlink(missing_ok=True)
        self.checkpoint.unlink(missing_ok=True)

    def die(self, sent: Sent, **changed: Any) -> None:
        """The run died: what precedes its last STATE is staged, and the checkpoint says so."""
        state = sent.states[-1]
        facts = {"after": None, "began_from": self.saved, "target": {}, **changed}
        checkpoint = Checkpoint(
            self.killed_run, state=state["value"], resume=state["resume"], **facts
        )
        self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        self.checkpoint.write_bytes(checkpoint.to_bytes())

    def dies(
        self,
        take: Callable[[list[JSON]], None],
        chance: random.Random,
        write: Callable[[int], None],
    ) -> None:
        """A run that dies at any STATE.

        Others write, then it is resumed and committed, or the next run begins again. `take` gets
        the messages of runs that are committed.
        """
        resumes = chance.random() < 0.5
        dead = self.run()
        dead = dead.until(chance.randrange(len(dead.states)))
        write(chance.randrange(4))
        if resumes:
            rest = self.resumed(dead)
            take(dead.messages)
            take(rest.messages)
            self.save(rest.final)

    def resumed(self, sent: Sent) -> Sent:
        """The run that continues after this death; it says that it does, and from where."""
        self.die(sent)
        rest = self.run()
        died_at = sent.states[-1]
        opening = rest.states[0]
        assert opening == {
            **opening,
            "value": died_at["value"],
            "resume": died_at["resume"],
            "start": "resume",
        }
        return rest
