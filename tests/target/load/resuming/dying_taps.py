"""Taps that die before their last line, into a lake of two rows."""

from __future__ import annotations

from typing import Any

import pytest

from singer_spark.errors import ProtocolError
from target.increment import increment
from target.loading import Lake


def die(lake: Lake, lines: int, **settings: Any) -> None:
    """A run whose tap dies after this many lines."""
    with pytest.raises(ProtocolError, match="LAKE-005"):
        lake.load(*lake.announced(increment())[:lines], **settings)


AFTER_THE_SECOND_STATE = 9
AFTER_ALL_RECORDS = len(increment())
