"""The cases, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sources.source import Source
from works import (
    Work,
    bare_session,
    connectorx,
    copy_to_nothing,
    dlt,
    our_batches,
    our_batches_by_jdbc,
    our_pipe,
    spark_increment,
    spark_jdbc,
    tap_postgres,
)


@dataclass(frozen=True)
class Case:
    """A line of the table.

    Attributes:
        name: For `--only`.
        title: For people.
        build: Makes the pipe for a source, in an empty folder (or in that of the case named by
            `after`).
        codec: What the output is compressed with.
        shape: Of the source's table.
        share: The source has this many times fewer rows; seconds are scaled by it for the ratio.
        against: The case whose seconds count as 1.
        after: The case whose output this one starts from.
        grown: The source has got 1 % more rows since.
        whole: The ratio is of seconds, not of seconds a row.
        connect: Runs attached to a Spark Connect server that is there and warm; it is not measured.
    """

    name: str
    title: str
    build: Callable[..., Work]
    codec: str
    shape: str = "orders"
    share: int = 1
    against: str = "spark"
    after: str | None = None
    grown: bool = False
    whole: bool = False
    connect: bool = False

    def work(self, source: Source, folder: Path, remote: str | None) -> Work:
        """The pipe for this source; `remote` is the Connect server's address, if the case has
        one.
        """
        return (partial(self.build, remote=remote) if self.connect else self.build)(source, folder)


def of_shape(shape: str, share: int, text: str) -> list[Case]:
    """The table again with another shape of rows."""
    against = f"{shape}-spark"
    ways = [
        ("spark", "plain Spark JDBC → Parquet", spark_jdbc),
        ("pipe", "**ours, records**", our_pipe),
        ("batches", "**ours, batches by reference**", our_batches),
        ("dlt-connectorx", "dlt, connectorx → Parquet", dlt("connectorx")),
    ]
    return [
        Case(f"{shape}-{name}", f"{text}: {title}", build, "zstd", shape, share, against)
        for name, title, build in ways
    ]


CASES = [
    Case("copy", "COPY to nothing (psql → wc)", copy_to_nothing, "none"),
    Case("spark", "plain Spark JDBC → Parquet", spark_jdbc, "zstd"),
    Case("batches", "**ours, batches by reference**", our_batches, "zstd"),
    Case("batches-jdbc", "ours, batches by reference, reader jdbc", our_batches_by_jdbc, "zstd"),
    Case("pipe", "**ours, records**", our_pipe, "zstd"),
    Case("dlt-connectorx", "dlt, connectorx → Parquet", dlt("connectorx"), "zstd"),
    Case("connectorx", "ConnectorX alone → Parquet", connectorx, "zstd"),
    Case("dlt-pyarrow", "dlt, pyarrow → Parquet", dlt("pyarrow"), "zstd"),
    Case("tap-postgres", "MeltanoLabs tap-postgres → target-jsonl", tap_postgres, "none", share=10),
    Case(
        "session",
        "bare PySpark session, counts a table",
        bare_session,
        "",
        share=1000,
        against="session",
        whole=True,
    ),
    Case(
        "idle",
        "**ours, nothing new**",
        our_pipe,
        "zstd",
        against="session",
        after="pipe",
        whole=True,
    ),
    Case(
        "idle-connect",
        "**ours, nothing new, warm Spark Connect server**",
        our_pipe,
        "zstd",
        against="session",
        after="pipe",
        whole=True,
        connect=True,
    ),
    Case(
        "spark-increment",
        "plain Spark, 1 % new rows by their key",
        spark_increment,
        "zstd",
        against="spark-increment",
        after="spark",
        grown=True,
        whole=True,
    ),
    Case(
        "increment",
        "**ours, 1 % new rows**",
        our_pipe,
        "zstd",
        against="spark-increment",
        after="pipe",
        grown=True,
        whole=True,
    ),
    Case(
        "increment-batches",
        "**ours, 1 % new rows, batches**",
        our_batches,
        "zstd",
        against="spark-increment",
        after="batches",
        grown=True,
        whole=True,
    ),
    *of_shape("wide", 20, "200 columns"),
    *of_shape("long", 20, "texts of 4,000 characters"),
]
