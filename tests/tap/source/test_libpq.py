"""JDBC URLs of PostgreSQL in libpq's words, as pgjdbc reads them; what only the JDBC driver knows
is refused.
"""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from tap.opened import source_of
from tap_spark_jdbc.source.libpq import conninfo

LIMITS = {"keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"}
ALWAYS = {"application_name": "tap-spark-jdbc", "connect_timeout": "30", "client_encoding": "UTF8"}
PLACES: dict[str, dict[str, Any]] = {
    "//db.example.com/shop": {"host": "db.example.com", "port": "5432", "dbname": "shop"},
    "//db:6000/a%20b%2Fc": {"host": "db", "port": "6000", "dbname": "a b/c"},
    "//one:1,two/shop": {"host": "one,two", "port": "1,5432", "dbname": "shop"},
    "//[::1]:6000/shop": {"host": "::1", "port": "6000", "dbname": "shop"},
    "//db/": {"host": "db", "port": "5432", "dbname": "u"},
    "shop": {"host": "localhost", "dbname": "shop"},
    "//db/shop?user=other&password=p%27%5C+%26": {"user": "other", "password": "p'\\ &"},
    "//db/shop?sslmode=require&sslrootcert=/ca.pem": {
        "sslmode": "require",
        "sslrootcert": "/ca.pem",
    },
    "//db/shop?ssl=true": {"sslmode": "verify-full"},
    "//db/shop?ssl=false": {},
    "//db/shop?ApplicationName=nightly&connectTimeout=5": {
        "application_name": "nightly",
        "connect_timeout": "5",
    },
    "//db/shop?currentSchema=a b,c&prepareThreshold=5": {"options": "-c search_path=a\\ b,c"},
    "//db/shop?targetServerType=preferSecondary": {"target_session_attrs": "prefer-standby"},
}


def source(place: str, **settings: Any) -> Any:
    config = {
        "jdbc_url": f"jdbc:postgresql:{place}",
        "user": "u",
        "password": "it's \\ me",
        **settings,
    }
    return source_of(config)


@pytest.mark.parametrize("place", PLACES)
def test_libpq_gets_same_parameters_as_jdbc_driver(place: str) -> None:
    reported = conninfo_to_dict(conninfo(source(place)))
    expected = {**ALWAYS, "user": "u", "password": "it's \\ me", **PLACES[place]}
    assert {name: reported.get(name) for name in expected} == expected
    assert set(reported) <= {*expected, *LIMITS, "host", "port", "dbname"}


@pytest.mark.parametrize(
    "parameter", ["sslkey=/k.pk8", "socketTimeout=5", "gssEncMode=require", "targetServerType=x"]
)
def test_jdbc_only_parameter_is_named(parameter: str) -> None:
    with pytest.raises(ValueError, match=parameter.partition("=")[0]):
        conninfo(source(f"//db/shop?{parameter}"))


def test_another_driver_s_database_is_left_to_it() -> None:
    with pytest.raises(ValueError, match=r"org\.example\.Driver"):
        conninfo(source("//db/shop", driver="org.example.Driver", driver_jars=[__file__]))
