"""A real `tap | target` killed again and again, on disk and S3: at chosen lines, at steps of the
commit, at random.
"""

from __future__ import annotations

import itertools
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from end_to_end.live_pipe import TAP, TAP_JAVA, TARGET, TARGET_JAVA, Victim
from end_to_end.pipe import Pipe
from faults.lake_reader import LakeReader
from faults.pipe_rounds import BOTH, Kill, Rounds, at, behind, by_batches, by_clock, step
from faults.shop import Shop, postgresql_shop, sqlite_shop

# Dozens of starts of a JVM: minutes on a busy machine.
pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow]
SEED = 4
# Small slices, so that there is much to stop in between; a JVM that starts quickly.
TAP_SETTINGS = {
    "slice_rows": 60,
    "n_jobs": 2,
    "spark": {
        "master": "local[2]",
        "conf": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"},
    },
}
TAP_9, TAP_TERM, JAVA_9 = Victim(TAP), Victim(TAP, signal.SIGTERM), Victim(TAP_JAVA)
TARGET_9, TARGET_TERM = Victim(TARGET), Victim(TARGET, signal.SIGTERM)
MakeRounds = Callable[..., Rounds]


@pytest.fixture
def chance() -> Iterator[random.Random]:
    print(f"seed {SEED}")  # shown with a failure
    return random.Random(SEED)


@pytest.fixture
def make_rounds(tmp_path: Path) -> MakeRounds:
    def make(
        shop: Shop,
        tap: dict[str, Any],
        bucket: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> Rounds:
        storage = {"storage_options": options} if options else {}
        bucket = bucket or str(tmp_path / "lake")
        pipe = Pipe(
            tmp_path / "run", {**tap, **TAP_SETTINGS, **storage}, {"bucket": bucket, **storage}
        )
        prefix = "public-" if "schemas" in tap else ""
        shop.move_on(150)
        shop.grow(50)
        return Rounds(shop, pipe, LakeReader(bucket, options or {}, "test", prefix))

    return make


def at_random(chance: random.Random) -> Iterator[Kill]:
    """Anyone, by any signal: by the clock, at a line of the tap, at a call of the target's to its
    storage.
    """
    while True:
        anyone = [(TAP_9,), (TARGET_9,), BOTH, (JAVA_9,), (TAP_TERM,), (TARGET_TERM,)]
        yield by_clock(chance.uniform(0.3, 1), *chance.choice(anyone))
        yield at(
            chance.random(),
            *chance.choice([(TAP_9,), BOTH, (TAP_TERM,)]),
            inside_line=chance.random() < 0.5,
        )
        yield step(f"{chance.choice(['before', 'after'])} any . {chance.randint(1, 40)}")


def test_kills_at_chosen_lines_lose_and_repeat_nothing(
    postgresql: Any, chance: random.Random, make_rounds: MakeRounds
) -> None:
    """Steps of the commit on disk are killed in `test_kills` and `test_binlog_kills`, and taps in
    `test_resume`.
    """
    rounds = make_rounds(*postgresql_shop(postgresql.new_database(), chance))
    rounds.chain([at(0.5, TARGET_TERM), at(0.9, TAP_TERM, inside_line=True)])
    assert rounds.kills == 2
    assert rounds.looks > 2


def test_kills_on_s3_with_batches_and_records(
    s3: Any, postgresql: Any, chance: random.Random, make_rounds: MakeRounds
) -> None:
    """After a BATCH and before its STATE, or after a STATE, when the next files are written or
    half-written.
    """
    shop, tap = postgresql_shop(postgresql.new_database(), chance)
    with_jvm = {**tap, "reader": "jdbc"}
    rounds = make_rounds(shop, with_jvm, f"{s3.new_bucket()}/lake", s3.storage_options)
    rounds.chain(map(by_batches, [behind(4, TAP_9), at(0.6, JAVA_9)]))
    shop.move_on(20)
    kills = [by_batches(step("before create /runs/")), step("after move orders/")]
    rounds.chain(kills, changes=True, by_batches=True)
    assert rounds.kills == 4


def test_kills_at_random_lose_and_repeat_nothing(
    tmp_path: Path, chance: random.Random, make_rounds: MakeRounds
) -> None:
    rounds = make_rounds(*sqlite_shop(tmp_path / "shop.db", chance))
    first, *others = itertools.islice(at_random(chance), 3)
    rounds.chain([first, *map(by_batches, others)], changes=True, by_batches=True)
    assert rounds.kills >= 2  # by the clock one may come too late


@pytest.mark.usefixtures("with_pandas")
def test_target_jvm_kills_lose_and_repeat_nothing(
    postgresql: Any, chance: random.Random, make_rounds: MakeRounds
) -> None:
    shop, tap = postgresql_shop(postgresql.new_database(), chance)
    rounds = make_rounds(shop, tap)
    rounds.pipe.target["staging"] = "spark"
    rounds.round(at(0.9, Victim(TARGET_JAVA)))
    # Whoever stages the rest: what was sent is there.
    rounds.pipe.target["staging"] = "local"
    rounds.round(Kill())
    assert rounds.kills == 1
