"""The columnar driver's database, opened once a run, because it queries all types on opening.

Every table is a type in PostgreSQL, so with a few hundred tables that takes a tenth of a second
each time.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from threading import Lock
from typing import Any

_OPTIONS = re.compile(r"(?:^| )options='((?:[^'\\]|\\.)*)'")
_PINNED = "-c search_path=pg_catalog -c quote_all_identifiers=off"
_REFUSED = "startup parameter"
# The JDBC driver also reads this one, a file with passwords.
_SHARED = "PGPASSFILE"


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
        """ADBC's database for this libpq connection string.

        Raises ImportError or ADBC's Error if there is none.
        """
        with self._opening:
            if connection not in self._opened:
                _forget_environment()
                # A new one only if the login has changed; the last one may still be in use.
                self._opened[connection] = _opened(connection)
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


def _opened(connection: str) -> Any:
    """ADBC's database; its own queries, about types and version, depend on no setting of a role."""
    from adbc_driver_manager import Error
    from adbc_driver_postgresql import connect

    options = _OPTIONS.search(connection)
    given = f"{options[1]} {_PINNED}" if options else _PINNED
    try:
        opened = connect(f"{connection} options='{given}'")
    except Error as error:
        # Poolers may not accept them.
        if _REFUSED not in str(error):
            raise
        return connect(connection)
    # For all connections to come: the session's own statements keep the user's path.
    opened.set_options(uri=connection)
    return opened


def _forget_environment() -> None:
    """Remove libpq's environment variables, in the tap as in a worker, because they would replace
    whatever no setting says.

    They could lead to another server (PGHOSTADDR, PGSERVICE), or change a session (PGOPTIONS, PGTZ,
    PGDATESTYLE).
    """
    for name in [each for each in os.environ if each.startswith("PG") and each != _SHARED]:
        del os.environ[name]
