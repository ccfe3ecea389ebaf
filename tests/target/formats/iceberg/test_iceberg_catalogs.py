"""Iceberg tables in catalogs of others: SQL on PostgreSQL, REST, Glue; and in a bucket on S3."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from meltano.core.state_store import MeltanoState
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from servers.catalogs.iceberg_reference import reference_catalog
from servers.catalogs.iceberg_rest import rest_catalog
from servers.postgresql import PostgreSQL
from servers.s3 import S3
from singer_spark.errors import ConfigurationError, StorageError
from singer_spark.store.storage import Storage
from target.iceberg_lake import IcebergLake
from target.loading import record, schema
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.iceberg_log.lake_catalog import io_properties
from target_spark_lake.meltano.lake_backend import LakeStateError, LakeStateStoreManager

pytestmark = pytest.mark.usefixtures("without_jvm")

PROPERTIES = {"id": {"type": "integer"}, "name": {"type": ["string", "null"]}}
ITEMS = schema("s", PROPERTIES, ("id",))
WAITS = {"lock_timeout_seconds": 10}
OVERWRITE = {"x-load-method": "overwrite", "x-extent": "full"}


class CataloguedLake(IcebergLake):
    """With the catalog of the settings."""

    def __init__(self, folder: Path, catalog: dict[str, Any], **settings: Any) -> None:
        super().__init__(folder)
        self.settings = {"catalog": catalog, **settings}

    def listen(self, source: Any, **settings: Any) -> None:
        super().listen(source, **{**self.settings, **settings})

    def table(self, stream: str) -> Table:
        given = dict(self.settings["catalog"])
        space = self.settings.get("namespace", "raw")
        options = io_properties(
            Storage(
                self.settings.get("bucket", str(self.folder)), self.settings.get("storage_options")
            )
        )
        catalog = load_catalog(given.pop("name", "lake"), **options, **given)
        try:
            return catalog.load_table((space, stream))
        finally:
            catalog.close()

    def check_two_runs(self) -> None:
        self.load(ITEMS, record("s", id=1, name="a"))
        self.load(
            schema("s", {**PROPERTIES, "new": {"type": "integer"}}, ("id",)),
            record("s", id=2, new=5),
        )
        assert self.rows("s", "id, name, new") == [(1, "a", None), (2, None, 5)]
        assert len(self.runs("s")) == 2


def test_postgresql_catalog_takes_name_and_namespace(
    tmp_path: Path, postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = postgresql.new_database()
    uri = database.dsn.replace("postgresql://", "postgresql+psycopg://")
    monkeypatch.setenv("CATALOG_URI", uri)
    lake = CataloguedLake(
        tmp_path / "lake", {"name": "shop", "type": "sql", "uri": uri}, namespace="sales"
    )
    lake.load(
        ITEMS, record("s", id=0), catalog={"name": "shop", "type": "sql", "uri": "${CATALOG_URI}"}
    )
    lake.load(ITEMS, record("s", id=1))
    assert lake.rows("s", "id") == [(0,), (1,)]
    assert lake.table("s").location() == f"file://{lake.folder}/raw/s"


def test_rest_catalog_commits_once_if_answer_is_lost(tmp_path: Path) -> None:
    """A REST catalog commits each run once, even where its answer is lost."""
    with rest_catalog(tmp_path) as server:
        lake = CataloguedLake(
            tmp_path / "lake", {"type": "rest", "uri": server.uri, "token": server.token}
        )
        lake.check_two_runs()
        server.lose_answers = 1
        lake.load(ITEMS, record("s", id=3))
        assert lake.rows("s", "id") == [(1,), (2,), (3,)]
        assert len(lake.runs("s")) == 3
        server.lose_answers = 1
        lake.load(schema("t", PROPERTIES, ("id",)), record("t", id=4))
        assert lake.rows("t", "id") == [(4,)]
        assert len(lake.runs("t")) == 1


@pytest.mark.slow
def test_reference_rest_server_commits_each_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg's own REST server commits each run once, even after a concurrent commit."""
    with reference_catalog(tmp_path) as uri:
        lake = CataloguedLake(tmp_path / "lake", {"type": "rest", "uri": uri})
        lake.check_two_runs()
        commits = RestCatalog.commit_table

        def late(*arguments: Any) -> Any:
            monkeypatch.setattr(RestCatalog, "commit_table", commits)
            lake.table("s").append(pa.table({"id": pa.array([50], pa.int64())}))
            return commits(*arguments)

        monkeypatch.setattr(RestCatalog, "commit_table", late)
        lake.load(
            schema("s", PROPERTIES, ("id",), **OVERWRITE), record("s", id=3), record("s", id=4)
        )
        assert lake.rows("s", "id") == [(3,), (4,), (50,)]
        lake.load(schema("s", PROPERTIES, ("id",), **OVERWRITE), record("s", id=5))
        assert lake.rows("s", "id") == [(5,)]
        made = [
            each.summary.additional_properties
            for each in lake.table("s").metadata.snapshots
            if each.summary
        ]
        assert len({each["dataspoc.run-id"] for each in made if "dataspoc.run-id" in each}) == 4
        assert len(made) == 5


def test_run_is_published_only_to_its_own_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meltano's state backend knows the bucket alone, where the catalog would be a file."""
    catalog = {"name": "shop", "type": "sql", "uri": f"sqlite:///{tmp_path}/elsewhere.db"}
    lake = CataloguedLake(tmp_path / "lake", catalog, namespace="sales")

    def lose(*_: Any) -> None:
        raise OSError("lost")

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", lose)
        with pytest.raises(StorageError, match="LAKE-083"):
            lake.load(ITEMS, record("s", id=1))
    edited = MeltanoState(
        "dev:a-to-b", completed_state={"singer_state": {"bookmarks": {"s": {}}}}, partial_state={}
    )
    backend = LakeStateStoreManager(
        uri=f"lake+file://{lake.folder}", pipelines={"dev:a-to-b": "test"}, **WAITS
    )
    with mock.patch.dict(os.environ), pytest.raises(LakeStateError) as refused:
        backend.set(edited)
    there = f"sales.s in catalog shop of type sql (sqlite:///{tmp_path}/elsewhere.db)"
    mismatch = f"table as {there}, but the settings here make it raw.s in catalog lake;"
    assert mismatch in str(refused.value)
    assert not (lake.folder / ".dataspoc/catalog.db").exists()
    lake.load(ITEMS, record("s", id=2))
    assert lake.rows("s", "id") == [(1,), (2,)]
    with mock.patch.dict(os.environ):
        backend.set(edited)


def test_catalog_refusal_is_one_line_without_secrets(tmp_path: Path) -> None:
    with rest_catalog(tmp_path) as server:
        lake = CataloguedLake(
            tmp_path / "lake", {"type": "rest", "uri": server.uri, "token": "a-wrong-secret"}
        )
        with pytest.raises(StorageError, match=r"LAKE-083 .*raw/s") as refused:
            lake.load(ITEMS, record("s", id=1))
        assert "a-wrong-secret" not in str(refused.value)
        assert "\n" not in str(refused.value)


def test_glue_catalog_works_with_s3_bucket(
    tmp_path: Path, moto: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = moto.storage_options
    endpoint = options.get("endpoint_url") or options["client_kwargs"]["endpoint_url"]
    glue = {
        "type": "glue",
        "glue.endpoint": endpoint,
        "glue.region": "us-east-1",
        "glue.access-key-id": options["key"],
        "glue.secret-access-key": options["secret"],
    }
    place = {"bucket": moto.new_bucket(), "storage_options": options}
    CataloguedLake(tmp_path / "lake", glue, namespace="sales", **place).check_two_runs()


def test_missing_catalog_settings_are_reported_first() -> None:
    said = [
        (
            {"bucket": "s3://b"},
            "catalog: is required for format iceberg where the bucket is not a directory",
        ),
        (
            {"bucket": "./b", "catalog": {"type": "sql"}},
            r"catalog\.uri: is required for a catalog of type sql",
        ),
        (
            {"bucket": "./b", "catalog": {"type": "nessie"}},
            r"catalog\.type: is 'nessie', use sql, rest, glue, hive",
        ),
        ({"bucket": "./b", "namespace": "a..b"}, r"namespace: 'a\.\.b' has a level without a name"),
    ]
    for given, problem in said:
        with pytest.raises(ConfigurationError, match=problem):
            TargetSettings.from_config({"pipeline": "p", "format": "iceberg", **given})
    settings = TargetSettings.from_config(
        {
            "bucket": "./b",
            "pipeline": "p",
            "format": "iceberg",
            "catalog": {"type": "hive", "uri": "thrift://h:9083"},
        }
    )
    assert settings.iceberg_catalog.identifier("raw/eu/s") == ("raw", "eu", "s")
    assert "thrift" not in repr(settings)
