"""The standard tap tests of singer-sdk, on a SQLite database.

Collecting them starts a JVM: see `test_standard_tap.py`.

No column is a timestamp without zone: the SDK's format check wants one on each, and ours stay as
the source has them.
"""

import sqlite3
import tempfile
from pathlib import Path

import pytest
from singer_sdk.testing import SuiteConfig, get_tap_test_class

from tap_spark_jdbc.tap import TapSparkJdbc

FOLDER = tempfile.TemporaryDirectory(prefix="standard-tap-")
DATABASE = Path(FOLDER.name) / "shop.db"
SCRIPT = """
    create table orders (
      id integer primary key, customer text not null, total decimal(12, 2), weight double,
        paid boolean,
      day date, version integer not null, picture blob
    );
    create index orders_version on orders (version);
    create table tags (name text, number integer);
    insert into orders values
      (1, 'Ada', 12.5, 0.25, 1, '2025-01-20', 7, x'00ff'),
      (2, 'Bob', 99.99, 1.5, 0, '2025-01-21', 8, null),
      (3, 'Eve', null, null, null, null, 8, x'');
    insert into tags values ('a', 1), ('a', 1), (null, null);
"""
CONFIG = {
    "jdbc_url": f"jdbc:sqlite:{DATABASE}",
    "incremental_tables": ["orders:version:integer"],
    "spark": {"master": "local[2]"},
}


def make_database():
    """Made when the suite is collected: its tests are named after the streams."""
    connection = sqlite3.connect(DATABASE)
    connection.executescript(SCRIPT)
    connection.close()


make_database()
StandardTests = get_tap_test_class(
    TapSparkJdbc,
    config=CONFIG,
    suite_config=SuiteConfig(max_records_limit=10),
    parse_env_config=False,
)


class TestStandard(StandardTests):
    """What every tap of the SDK must pass."""

    def test_all_rows_arrived(self, runner):
        """The standard tests assert little: these are the rows."""
        assert sorted(record["id"] for record in runner.records["orders"]) == [1, 2, 3]
        assert [record["name"] for record in runner.records["tags"]] == ["a", "a", None]


@pytest.fixture(scope="module", autouse=True)
def _database_is_removed():
    yield
    FOLDER.cleanup()
