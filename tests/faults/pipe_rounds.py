"""Rounds of a real `tap | target` in which something is killed, and what must hold after each of
them.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from end_to_end.live_pipe import TAP, TARGET, Ended, LivePipe, Victim
from end_to_end.pipe import Pipe
from end_to_end.relay import Moment
from faults import killed_target
from faults.lake_reader import LakeReader, Look, watched
from faults.shop import KEYS, Shop

BATCHES = "staging/batches"
BOTH = (Victim(TAP), Victim(TARGET))


@dataclass(frozen=True)
class Kill:
    """What is killed in a round, and when.

    Attributes:
        victims: Who is killed; at a step it is the target, by itself.
        records: After this part of the records that the run has to send.
        inside_line: And in the middle of a line.
        clock: After this part of the time that a run takes.
        step: At this change of the bucket, in the words of `killed_target`.
        states: After so many STATE lines, the opening one among them.
        by_batches: And the run sends its records by batches.
    """

    victims: tuple[Victim, ...] = ()
    records: float | None = None
    inside_line: bool = False
    clock: float | None = None
    step: str | None = None
    states: int = 0
    by_batches: bool = False

    @property
    def is_of_target(self) -> bool:
        """Whether the target dies by itself or is killed."""
        return self.step is not None or any(victim.who == TARGET for victim in self.victims)


def at(records: float, *victims: Victim, inside_line: bool = False) -> Kill:
    """Kills at a part of the records."""
    return Kill(victims, records=records, inside_line=inside_line)


def behind(states: int, *victims: Victim) -> Kill:
    """Kills behind a STATE line."""
    return Kill(victims, states=states)


def by_clock(part: float, *victims: Victim) -> Kill:
    """Kills at a part of the usual time."""
    return Kill(victims, clock=part)


def step(words: str) -> Kill:
    """Kills the target at a change of the bucket, as in `before create /runs/`."""
    return Kill(step=words)


def by_batches(kill: Kill) -> Kill:
    """Kills a run that sends its records by batches."""
    return replace(kill, by_batches=True)


@dataclass
class Rounds:
    """One pipeline through many rounds.

    Attributes:
        shop: The source.
        pipe: The pipeline.
        reader: Looks at its lake.
        kills: How many rounds had somebody killed.
        looks: How often the readers found the lake changed.
    """

    shop: Shop
    pipe: Pipe
    reader: LakeReader
    kills: int = 0
    looks: int = 0
    _usual_seconds: float = 10
    _untaken: set[str] = field(default_factory=set)
    _published: dict[str, Counter[Any]] = field(
        default_factory=lambda: {table: Counter() for table in KEYS}
    )

    def chain(
        self, kills: Iterable[Kill], *, changes: bool = False, by_batches: bool = False
    ) -> None:
        """Rounds one after the other, then a good one; optionally, rows come and change in between.

        Args:
            kills: The rounds.
            changes: Whether rows come and change.
            by_batches: Whether the good one sends its records by batches.
        """
        for kill in kills:
            self.round(kill)
            if changes:
                self.shop.grow(5)
                self.shop.change_orders(3)
        self.round(Kill(by_batches=by_batches))

    def round(self, kill: Kill) -> None:
        """One run, watched by readers; what must hold after it does."""
        self.reader.check(self.shop.known)
        state, files, committed = (
            self.reader.state_bytes(),
            self.reader.data_paths(),
            self.reader.committed_runs(),
        )
        staged = self.reader.staged_files() if self.reader.checkpoint() else None
        with watched(self.reader, self.shop.known) as looks:
            ended = self._run(kill)
        self.looks += len(looks)
        reported = (
            f"{kill}: {ended.codes}, {ended.start}, {ended.sent.total()} sent in "
            f"{ended.seconds:.1f} s"
        )
        print(
            reported, "" if staged is None else f"; {sum(staged.values())} were there"
        )  # seen with a failure
        new_commits = self.reader.committed_runs().keys() - committed.keys()
        killed = ended.struck or (kill.step is not None and ended.codes[1] == -signal.SIGKILL)
        self.kills += killed
        assert not ended.start or (ended.start == "resume") == (staged is not None), reported
        if ended.codes == (0, 0):
            self._check_good(ended, staged)
            return
        assert killed, f"failed by itself: {reported}\n{ended.outcome}"
        # Of a tap that died before its first word the target knows nothing.
        assert ended.codes[1] != 0 or new_commits or not ended.states, (
            f"nothing was committed, and it says so: {reported}"
        )
        if not new_commits and all(body["phase"] == "published" for body in committed.values()):
            assert (self.reader.state_bytes(), self.reader.data_paths()) == (state, files), reported
        self._keep(self.reader.check(self.shop.known))
        if ended.codes[1] > 0:
            self._check_tidy(stopped=ended.codes[1] > 128)
        # What a tap wrote that died, or that nobody took: it goes after a day.
        self._untaken.update(self._batch_files())

    @property
    def _scratch(self) -> Path:
        return self.pipe.folder / "scratch"

    def _run(self, kill: Kill) -> Ended:
        self.pipe.tap.pop("batch_config", None)
        if kill.by_batches:
            root = f"{self.reader.bucket}/.dataspoc/{BATCHES}"
            self.pipe.tap["batch_config"] = {
                "encoding": {"format": "parquet"},
                "storage": {"root": root},
            }
        self._scratch.mkdir(exist_ok=True)
        modules = os.pathsep.join(
            [str(killed_target.TESTS), os.environ.get("PYTHONPATH", "")]
        ).rstrip(os.pathsep)
        environment = {"TMPDIR": str(self._scratch), "PYTHONPATH": modules}
        if kill.step is not None:
            environment[killed_target.KILLED_AT] = kill.step
        moment = Moment(states=kill.states) if kill.states else None
        if kill.records is not None:
            moment = Moment(
                records=1 + int(kill.records * self._expected()), inside_line=kill.inside_line
            )
        with LivePipe(
            self.pipe,
            *("--state", f"{self.reader.bucket}/.dataspoc/state/{self.reader.pipeline}/state.json"),
            moment=moment,
            victims=kill.victims,
            target=killed_target.command(self.pipe.target_command()[1:])
            if kill.is_of_target
            else None,
            environment=environment,
        ) as live:
            if kill.clock is not None:
                live.strike_after(kill.clock * self._usual_seconds)
            return live.wait()

    def _expected(self) -> int:
        """Records that a run which starts now has to send, about."""
        now = self.shop.known.now
        fresh = sum((Counter(now[table]) - self._published[table]).total() for table in KEYS)
        return max(len(now["customers"]) + fresh - sum(self.reader.staged_files().values()) - 1, 0)

    def _check_good(self, ended: Ended, staged: dict[str, int] | None) -> None:
        look = self.reader.check_good(self.shop.known, self._published, self._untaken)
        assert ended.outcome.states == [look.state]
        # What killed processes left on the local disk is gone with the next start.
        assert list(self._scratch.iterdir()) == []
        run = max(self.reader.committed_runs().items())[1]
        staged = staged or {}
        if "schemas" not in self.pipe.tap and ended.sent["customers"]:
            # SQLite can't show that a full table is still the same, so it is sent from its start.
            staged = {path: rows for path, rows in staged.items() if "/customers/" not in path}
        assert sum(file["rows"] for file in run["publish"]) == ended.sent.total() + sum(
            staged.values()
        )
        self._keep(look)
        self._usual_seconds = ended.seconds
        self.shop.resolve()

    def _keep(self, look: Look) -> None:
        """What was published once stays."""
        for table in KEYS:
            rows = look.rows(table)
            assert self._published[table] <= rows, (
                f"{table} lost {list(self._published[table] - rows)}"
            )
            self._published[table] = rows

    def _check_tidy(self, *, stopped: bool) -> None:
        """A target that ended by itself gave the lock up, and left staged only what can be
        continued.
        """
        *_, lock = self.reader.locks()
        assert lock["released"] is True
        staged = set(self.reader.paths(".dataspoc/staging")) - self._batch_files()
        kept = set(self.reader.staged_files())
        # A stopped one waits for no thread that is just staging; the next start removes what that
        # wrote.
        assert kept <= staged if stopped else kept == staged, staged ^ kept

    def _batch_files(self) -> set[str]:
        return set(self.reader.paths(f".dataspoc/{BATCHES}"))
