"""What became of a slice that was written to a batch file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tap_spark_jdbc.extraction.fingerprints import Found
    from tap_spark_jdbc.reading.batch_place import BatchFile


@dataclass(frozen=True)
class Written:
    """What became of a slice; a file may be empty.

    Attributes:
        found: What was read of it.
        file: The rows of it that are sent.
        width: Bytes of a row as it was read, about; None where that was not measured.
    """

    found: Found
    file: BatchFile
    width: float | None = None
