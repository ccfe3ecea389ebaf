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
        self._opened: dict[str, Any] = {}

    def opened(self, connection: str) -> Any:
        """ADBC's database of this libpq connection string; an ImportError or ADBC's Error where there is none."""
        from adbc_driver_postgresql import connect

        with self._opening:
            if connection not in self._opened:
                # Another one only where a login has changed; the last may still be read by.
                self._opened[connection] = connect(connection)
            return self._opened[connection]

    def close(self) -> None:
        """Nobody asks any more; where a thread still reads, its connection ends with the process."""
        with self._opening:
            opened, self._opened = [*self._opened.values()], {}
        if not opened:
            return
        from adbc_driver_manager import Error

        for each in opened:
            # A RuntimeError: it has open connections.
            with suppress(Error, RuntimeError):
                each.close()
