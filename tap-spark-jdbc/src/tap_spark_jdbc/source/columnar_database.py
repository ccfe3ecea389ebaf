"""The columnar driver's database, opened once a run, as it queries all types on opening.

Every table is a type in PostgreSQL: with some hundred tables that takes a tenth of a second, each time.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from typing import Any


class ColumnarDatabase:
    """A database opened on first use, for connections of any thread.

    Attributes:
        is_out_of_reach: Whether the driver failed to reach it; it is not tried again in this run.
    """

    def __init__(self) -> None:
        self.is_out_of_reach = False
        self._opening = Lock()
        self._opened: dict[str, Any] = {}

    def opened(self, connection: str) -> Any:
        """ADBC's database for this libpq connection string; raises ImportError or ADBC's Error if there is none."""
        from adbc_driver_postgresql import connect

        with self._opening:
            if connection not in self._opened:
                # A new one only if the login has changed; the last one may still be in use.
                self._opened[connection] = connect(connection)
            return self._opened[connection]

    def close(self) -> None:
        """Close it; if a thread is still reading, its connection ends with the process."""
        with self._opening:
            opened, self._opened = [*self._opened.values()], {}
        if not opened:
            return
        from adbc_driver_manager import Error

        for each in opened:
            # A RuntimeError: it has open connections.
            with suppress(Error, RuntimeError):
                each.close()
