"""S3's answer 409 to a conditional put: another write of that object is under way, and nobody has
won yet.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.faulty import Interrupted, Proxy
from faults.small_lake import LAYOUT, SmallLake, dead_process
from servers.s3 import S3
from singer_spark.errors import LockedError, StorageError
from singer_spark.store import object_files
from singer_spark.store.bucket import UndecidedError


class ConflictError(UndecidedError):
    """What the store says."""

    def __init__(self) -> None:
        super().__init__("ConditionalRequestConflict")


class Conflicts(Proxy):
    """The first puts below a folder are answered by 409.

    The very first may land later all the same.
    """

    def __init__(self, inner: Any, folder: str, times: int) -> None:
        super().__init__(inner)
        self.folder = folder
        self.times = times
        self.landing: Callable[[], Any] | None = None

    def around(self, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        if name == "write" and self.folder in args[0] and self.times:
            self.landing = self.landing or call
            self.times -= 1
            raise ConflictError
        return call()


@pytest.fixture
def lake(s3: S3, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    monkeypatch.setattr(object_files, "FIRST_PAUSE_SECONDS", 0)
    return SmallLake(s3.new_bucket(), s3.storage_options)


@pytest.mark.parametrize("folder", [LAYOUT.runs, LAYOUT.state])
def test_put_conflicting_with_another_is_retried(lake: SmallLake, folder: str) -> None:
    """A put that conflicts with another one in progress is retried."""
    lake.sync()
    lake.check_exact(
        lake.sync(lake.faulty_requests(lambda requests: Conflicts(requests, folder, 3)))
    )


def test_late_commit_after_conflicts_keeps_its_files(lake: SmallLake) -> None:
    """Taken for another's verdict, the run would remove the files that its own commit publishes."""
    lake.sync()
    slow: list[Conflicts] = []
    with pytest.raises(StorageError, match="RUN-052"):
        lake.sync(
            lake.faulty_requests(
                lambda requests: slow.append(Conflicts(requests, LAYOUT.runs, 999)) or slow[0]
            ),
            dead_process(),
        )
    assert slow[0].landing is not None
    slow[0].landing()
    lake.check_exact(lake.sync())


def test_conditional_replace_works_at_any_size(lake: SmallLake) -> None:
    """An upload in parts has no condition."""
    storage = lake.storage()
    large = b" " * (100 << 20)
    storage.replace("state", b"seen")

    def meanwhile() -> None:
        lake.storage().replace("state", b"a later one's")

    slow = lake.faulty_requests(
        lambda inner: Interrupted(inner, lambda name, _: name == "write", meanwhile)
    )
    assert not slow.exchange("state", b"seen", large)
    assert storage.read("state") == b"a later one's"


class Refusing(Proxy):
    """The puts of journals are refused although nothing is there yet; the first one lands later."""

    landing: Callable[[], Any] | None = None

    def around(self, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        if name == "create" and args[0].startswith(LAYOUT.runs):
            self.landing = self.landing or call
            raise FileExistsError(args[0])
        return call()


def test_landed_but_refused_commit_keeps_its_files(tmp_path: Path) -> None:
    """The outcome is unknown, so the staged files stay for the next start."""
    lake = SmallLake(str(tmp_path), {})
    lake.sync()
    slow: list[Refusing] = []
    with pytest.raises(LockedError):
        lake.sync(
            lake.faulty_files(lambda files: slow.append(Refusing(files)) or slow[0]), dead_process()
        )
    assert slow[0].landing is not None
    slow[0].landing()
    lake.check_exact(lake.sync())
