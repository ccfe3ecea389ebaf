"""What a look at a pipeline's surroundings found (`spark-lake check`), in the same form for source
and lake.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OK: Literal["ok"] = "ok"
NOTE: Literal["note"] = "note"
PROBLEM: Literal["problem"] = "problem"


@dataclass(frozen=True)
class Finding:
    """One fact, for users.

    Attributes:
        about: What was examined, in a word.
        text: What was found, and what to do about it.
        outcome: Whether it is as it should be, worth knowing, or an obstacle to a run.
    """

    about: str
    text: str
    outcome: Literal["ok", "note", "problem"] = OK
