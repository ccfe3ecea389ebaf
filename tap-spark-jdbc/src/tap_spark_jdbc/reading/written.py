"""The result of writing a slice to a batch file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tap_spark_jdbc.extraction.fingerprints import Found
    from tap_spark_jdbc.reading.batch_place import BatchFile


@dataclass(frozen=True)
class Written:
    """The result of writing a slice; the file may be empty.

    Attributes:
        found: What was read of the slice.
        file: The file with the rows to send.
        width: Approximate bytes of a row as it was read; None if not measured.
    """

    found: Found
    file: BatchFile
    width: float | None = None
