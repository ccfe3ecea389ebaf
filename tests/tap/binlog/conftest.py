"""Each test runs on both servers."""

from __future__ import annotations

import pytest

from servers.mariadb import MariaDB


@pytest.fixture(params=["mariadb", "mysql"])
def server(request: pytest.FixtureRequest) -> MariaDB:
    """Either server."""
    found: MariaDB = request.getfixturevalue(request.param)
    return found
