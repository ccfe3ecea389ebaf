"""What a run finished before it died: `checkpoint.json` beside `state.json`, written by the target,
read by both.

It covers slices that are completely staged. It can be continued only while the run that wrote it
and the next one begin at the same place: the same last commit, and the same state. Whatever changes
either of them makes it void.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from singer_spark.error_codes import RunCode
from singer_spark.errors import DamagedError
from singer_spark.state.run_log import LAKE_FOLDER, RunEntry, decode, encode, folder_name
from singer_spark.state.store import same_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from singer_spark.store.storage import Storage

JSON = dict[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """The progress of a dead run that can be continued.

    Attributes:
        run_id: The run that wrote it.
        after: The last committed run before that one; None: there was none.
        began_from: The saved state that it began from; None: there was none.
        state: The value of the STATE up to which files are staged.
        resume: What the tap put beside that STATE, opaque to the target.
        target: What the target has staged, opaque to the tap.
    """

    run_id: str
    after: str | None
    began_from: JSON | None
    state: JSON
    resume: JSON
    target: JSON

    def fits(self, saved: Mapping[str, Any] | None, last: RunEntry | None) -> bool:
        """Whether a run that begins now begins at the same place as the dead one."""
        return self.after == (last.run_id if last else None) and same_state(self.began_from, saved)

    def to_bytes(self) -> bytes:
        """The checkpoint as it is written."""
        return encode(asdict(self))

    @staticmethod
    def from_bytes(data: bytes, path: str) -> Checkpoint:
        """Parse the result of `to_bytes`.

        Raises:
            DamagedError: it is not as it was written.
            StorageError: a newer version of the programs wrote it.
        """
        body = decode(data, path)
        try:
            found = Checkpoint(**{field.name: body[field.name] for field in fields(Checkpoint)})
        except KeyError as error:
            raise DamagedError(
                RunCode.LAKE_FILE_DAMAGED,
                f"{path} lacks {error}; remove it, and the next run starts over",
            ) from error
        wrong = [
            name
            for name in ("state", "resume", "target")
            if not isinstance(getattr(found, name), dict)
        ]
        if wrong:
            raise DamagedError(
                RunCode.LAKE_FILE_DAMAGED,
                f"{path}: {', '.join(wrong)} is not an object; remove it, and the next run starts "
                "over",
            )
        return found


def checkpoint_path(pipeline: str) -> str:
    """The path of a pipeline's checkpoint in its bucket."""
    return f"{LAKE_FOLDER}/state/{folder_name(pipeline)}/checkpoint.json"


def read_checkpoint(storage: Storage, path: str) -> Checkpoint | None:
    """The checkpoint at a path, None if there is none; raises what `Checkpoint.from_bytes` does."""
    data = storage.read(path)
    return None if data is None else Checkpoint.from_bytes(data, path)
