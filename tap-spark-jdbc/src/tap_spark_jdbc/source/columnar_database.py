"""The database as its columnar driver opens it: once a run, as it asks for all types then.

Every table is a type to PostgreSQL: with some hundred tables that takes a tenth of a second, each time.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from typing import Any


class ColumnarDatabase:
    """Opened when it is first asked for, for connections of any thread."""

    def __init__(self) -> None:
        """Opens nothing yet."""
        self._opening = Lock()
        self._opened: Any = None

    def opened(self, connection: str) -> Any:
        """ADBC's database of this libpq connection string; an ImportError or ADBC's Error where there is none."""
        from adbc_driver_postgresql import connect

        with self._opening:
            if self._opened is None:
                self._opened = connect(connection)
            return self._opened

    def close(self) -> None:
        """Nobody asks any more; where a thread still reads, its connection ends with the process."""
        with self._opening:
            opened, self._opened = self._opened, None
        if opened is None:
            return
        from adbc_driver_manager import Error

        # A RuntimeError: it has open connections.
        with suppress(Error, RuntimeError):
            opened.close()
