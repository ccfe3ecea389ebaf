"""Where a JDBC URL leads to, and the URL that leads through a tunnel instead."""

from __future__ import annotations

import pytest

from singer_spark.errors import ConfigurationError
from tap_spark_jdbc.dialects import dialect_of
from tap_spark_jdbc.source.jdbc_source import through


@pytest.mark.parametrize(
    ("url", "servers", "tunnelled"),
    [
        (
            "jdbc:postgresql://db:5433/shop?ssl=true",
            [("db", 5433)],
            "jdbc:postgresql://127.0.0.1:1/shop?ssl=true",
        ),
        (
            "jdbc:postgresql://a,b:7/shop",
            [("a", 5432), ("b", 7)],
            "jdbc:postgresql://127.0.0.1:1,127.0.0.1:2/shop",
        ),
        ("jdbc:postgresql://[::1]:7/shop", [("::1", 7)], "jdbc:postgresql://127.0.0.1:1/shop"),
        ("jdbc:postgresql:shop", [("localhost", 5432)], "jdbc:postgresql://127.0.0.1:1/shop"),
        ("jdbc:postgresql:///shop", [("localhost", 5432)], "jdbc:postgresql://127.0.0.1:1/shop"),
        (
            "jdbc:mysql://db/shop?permitMysqlScheme",
            [("db", 3306)],
            "jdbc:mysql://127.0.0.1:1/shop?permitMysqlScheme",
        ),
        (
            "jdbc:mariadb:sequential://a,b/x",
            [("a", 3306), ("b", 3306)],
            "jdbc:mariadb:sequential://127.0.0.1:1,127.0.0.1:2/x",
        ),
        (
            "jdbc:sqlserver://db;user=a;x=//y",
            [("db", 1433)],
            "jdbc:sqlserver://127.0.0.1:1;user=a;x=//y",
        ),
        (
            "jdbc:oracle:thin:u/p@db:1522:ORCL",
            [("db", 1522)],
            "jdbc:oracle:thin:u/p@127.0.0.1:1:ORCL",
        ),
        (
            "jdbc:oracle:thin:@//db/service",
            [("db", 1521)],
            "jdbc:oracle:thin:@//127.0.0.1:1/service",
        ),
        ("jdbc:clickhouse://db:8123/x", [("db", 8123)], "jdbc:clickhouse://127.0.0.1:1/x"),
    ],
)
def test_each_server_of_url_is_replaced(
    url: str, servers: list[tuple[str, int]], tunnelled: str
) -> None:
    asked: list[tuple[str, int]] = []

    def local(host: str, port: int) -> tuple[str, int]:
        asked.append((host, port))
        return "127.0.0.1", len(asked)

    assert through(url, dialect_of(url).name, local) == tunnelled
    assert asked == servers


@pytest.mark.parametrize(
    "url",
    ["jdbc:sqlserver://host\\instance;x=y", "jdbc:sqlserver://;serverName=h",
     "jdbc:mysql://address=(host=a)(port=1)/x",
     "jdbc:clickhouse://db/x", "jdbc:h2:mem:x"],
)  # fmt: skip
def test_url_without_plain_server_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"TAP-006 .*jdbc_url"):
        through(url, dialect_of(url).name, lambda host, port: ("127.0.0.1", 1))
