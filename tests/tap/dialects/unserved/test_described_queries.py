"""Queries that SQL Server can't take as a table are reported at once; those that it takes are
not.
"""

from __future__ import annotations

import pytest

from singer_spark.errors import ConfigurationError
from tap.dialects.unserved.named_dialects import URLS
from tap_spark_jdbc.config.settings import TapSettings


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("WITH a AS (SELECT 1 AS n) SELECT n FROM a", "begins with WITH; make a view of it"),
        (
            " -- mine\n/* too */ ;with a as (select 1 n) select * from a;",
            "begins with WITH; make a view of it",
        ),
        (
            "SELECT id FROM t ORDER BY id",
            "ends in ORDER BY without TOP or OFFSET; leave ORDER BY out",
        ),
        (
            "select id from t order /* by */ by id desc, offset; -- offset 0 rows",
            "leave ORDER BY out",
        ),
        (
            "SELECT (SELECT TOP 1 a FROM u ORDER BY a) AS top_a FROM t ORDER BY 1",
            "leave ORDER BY out",
        ),
        ("SELECT [top], 'TOP' AS \"top\" FROM t ORDER BY id", "leave ORDER BY out"),
    ],
)
def test_sql_server_names_unusable_queries(sql: str, why: str) -> None:
    """All of them at once, before anything is started; other databases take them."""
    config = {
        "jdbc_url": URLS["sqlserver"],
        "queries": [{"name": name, "sql": sql} for name in ("q", "r")],
    }
    reported = rf"2 settings are wrong: queries: 'q': .*{why}.*queries: 'r': .*{why}"
    with pytest.raises(ConfigurationError, match=reported):
        TapSettings.from_config(config)
    TapSettings.from_config({**config, "jdbc_url": URLS["oracle"]})


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT TOP 5 id FROM t ORDER BY id",
        "SELECT TOP (100) PERCENT id FROM t ORDER BY id;",
        "SELECT id FROM t ORDER BY id OFFSET 10 ROWS FETCH NEXT 5 ROWS ONLY",
        "SELECT id FROM t ORDER BY id FOR XML AUTO",
        "SELECT id, ROW_NUMBER() OVER (PARTITION BY a ORDER BY id) AS n FROM t",
        "SELECT STRING_AGG(a, ',') WITHIN GROUP (ORDER BY a) AS a FROM t -- ORDER BY a",
        "SELECT [order by], 'order by' AS a, \"order by\" FROM t /* order by a */",
        "SELECT id FROM (SELECT TOP 5 id FROM t ORDER BY id) q",
        "SELECT id FROM t WITH (NOLOCK) WHERE id IN (SELECT id FROM u)",
    ],
)
def test_sql_server_accepts_usable_queries(sql: str) -> None:
    TapSettings.from_config({"jdbc_url": URLS["sqlserver"], "queries": [{"name": "q", "sql": sql}]})
