"""Partitions that were attached or went since a bookmark: the log has no word of rows that come or go with them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from singer_spark.errors import SourceError
from tap_spark_jdbc.log.position import lost

if TYPE_CHECKING:
    from tap_spark_jdbc.log.position import LogBookmark
    from tap_spark_jdbc.log.published_tables import LogTable
    from tap_spark_jdbc.source.database import Database

logger = logging.getLogger("tap-spark-jdbc")
# Its own transaction's rows, too: those that came before the partition did are not in the log.
_OLDER = "SELECT CASE WHEN EXISTS (SELECT FROM {table} WHERE {older}) THEN '1' ELSE '0' END"


def check_partitions(database: Database, table: LogTable, bookmark: LogBookmark) -> None:
    """StateError: a partition came with rows. One that went is a warning, as the lake may keep its rows on purpose."""
    if bookmark.partitions is None or table.partitions is None:
        return
    for oid in table.partitions - bookmark.partitions:
        name, transactions = table.attached.get(oid, ("", ()))
        if transactions and _had_rows(database, name, transactions):
            raise lost(table.stream, f"partition {name} was attached with rows, which the log doesn't have")
    if gone := len(bookmark.partitions - table.partitions):
        logger.warning(
            "stream %s: %d partition(s) were detached or dropped since the last run, which the log does not say: their "
            "rows stay in the lake; run with --full if they are to go",
            *(table.stream, gone),
        )


def _had_rows(database: Database, table: str, attached: tuple[str, ...]) -> bool:
    older = " OR ".join(f"age(xmin) >= age(CAST('{each}' AS xid))" for each in attached)
    try:
        ((found,),) = database.connection.rows(_OLDER.replace("{table}", table).replace("{older}", older))
    except SourceError as error:
        logger.debug("partition %s could not be asked for its rows: %s", table, error)
        return True
    return found == "1"
