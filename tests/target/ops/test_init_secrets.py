"""`spark-lake init` writes no secret: it refuses one in plain, and writes where it is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from target.ops.init_command import spark_lake
from target_spark_lake.ops.init import init
from target_spark_lake.ops.new_pipeline import NewPipeline


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        ["--password", "hunter2"],
        ["--jdbc-url", "jdbc:postgresql://h/db?user=a&password=hunter2"],
        ["--jdbc-url", "jdbc:sqlserver://h;databaseName=d;password=hunter2;encrypt=true"],
        ["--jdbc-url", "jdbc:oracle:thin:scott/hunter2@//h:1521/db"],
        ["--jdbc-url", "jdbc:mysql://root:hunter2@h/db"],
        ["--bucket", "s3://key:hunter2@bucket/lake"],
    ],
)
def test_password_is_never_written_or_shown(flags: list[str], tmp_path: Path) -> None:
    usual = {"--jdbc-url": "jdbc:sqlite:shop.db", "--bucket": "./lake", "--pipeline": "shop"}
    usual[flags[0]] = flags[1]
    done = spark_lake(*(word for pair in usual.items() for word in pair), folder=tmp_path)
    assert done.returncode == 1
    code = "LAKE-092" if "--password" in flags else "RUN-004"
    assert done.stderr.startswith(f"spark-lake: {code} ")
    assert "hunter2" not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_secrets_are_references_to_environment(tmp_path: Path) -> None:
    new = NewPipeline(
        "9 lives", "jdbc:postgresql://h/db?password=${DB}", "s3://b", user="me", storage_keys=True
    )
    report = init(new, tmp_path)
    assert json.loads((tmp_path / "tap.json").read_text())["password"] == "${LAKE_9_LIVES_PASSWORD}"
    keys = {"key": "${LAKE_9_LIVES_STORAGE_KEY}", "secret": "${LAKE_9_LIVES_STORAGE_SECRET}"}
    assert json.loads((tmp_path / "target.json").read_text())["storage_options"] == keys
    assert report.variables == [
        "DB",
        "LAKE_9_LIVES_PASSWORD",
        *(value.strip("${}") for value in keys.values()),
    ]


def test_secrets_are_references_to_files(tmp_path: Path) -> None:
    url = "jdbc:postgresql://h/db?user=u&password=${file:/run/secrets/db}&ssl=true"
    for number, new in enumerate(
        (
            NewPipeline("shop", url, "${file:/run/secrets/bucket}"),
            NewPipeline("shop", "jdbc:mysql://root:${file:/run/secrets/db}@h/db", "s3://b"),
            NewPipeline("shop", "${file:/run/secrets/jdbc_url}", "s3://b"),
        )
    ):
        folder = tmp_path / str(number)
        report = init(new.in_folder(folder), folder)
        assert json.loads((folder / "tap.json").read_text())["jdbc_url"] == new.jdbc_url
        assert json.loads((folder / "target.json").read_text())["bucket"] == new.bucket
        assert report.variables == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("jdbc:x://h/d?private_key_base64=", ""),
        ("jdbc:x://h/d?access_key=", "&x=1"),
        ("jdbc:sqlite:file:a.db?cipher=c&key=", ""),
        ("jdbc:mysql://address=(host=h)(password=", ")(user=u)/d"),
        ("jdbc:mysql://(host=h,password=", ",user=u)/d"),
    ],
)
def test_plain_secret_in_url_is_refused(before: str, after: str) -> None:
    """A plain secret in a URL is refused, and a reference to one is accepted."""

    def problems(secret: str) -> list[str]:
        return [
            each
            for each in NewPipeline("p", before + secret + after, "./lake").problems()
            if "in plain" in each
        ]

    assert len(problems("hunter2")) == 1
    assert problems("${SHOP_KEY}") == problems("${file:/run/key}") == []


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("jdbc:mysql://root:hunter/2@h/db", True),
        ("jdbc:postgresql://root:hunter?2@h:5432/db", True),
        ("jdbc:oracle:thin:scott/hunter/2@h:1521:db", True),
        ("jdbc:postgresql://root:7@h/db", True),
        ("jdbc:mysql://root:${DB}@h/db?user=a@b", False),
        ("jdbc:mysql://h:3306,g:3306/db?user=a@b", False),
        ("jdbc:postgresql://[::1]:5432/db?user=a@b", False),
        ("jdbc:postgresql://${HOST}:${PORT}/db?user=a@b", False),
        ("jdbc:oracle:thin:scott/${DB}@//h:1521/db", False),
    ],
)
def test_odd_password_in_url_is_detected(url: str, is_refused: bool) -> None:
    """A reference such as ${DB} is no password."""
    found = any("holds a password" in each for each in NewPipeline("p", url, "./lake").problems())
    assert found == is_refused
