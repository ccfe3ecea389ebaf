"""What the tap is given to say how far the lake is behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from singer_spark.core.scratch import scratch_folder
from singer_spark.errors import SourceError
from target_spark_lake.ops.status import to_read


def test_target_config_is_passed_without_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No temporary file holds the secrets of the target's config."""
    tap = tmp_path / "tap-spark-jdbc"
    tap.write_text(
        f"#!/bin/sh\ncat > {tmp_path}/got\ngrep -r planted {scratch_folder()} > "
        f"{tmp_path}/lies\nexit 0\n"
    )
    tap.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    config = {
        "bucket": "lake",
        "pipeline": "p",
        "state_backend": {"uri": "postgresql://u:planted@h/d"},
    }
    assert to_read(["tap.json"], config) == {}
    assert json.loads((tmp_path / "got").read_text()) == config
    assert (tmp_path / "lies").read_text() == ""


def test_missing_tap_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(SourceError, match=rf"LAKE-094 tap-spark-jdbc .*{tmp_path}"):
        to_read(["tap.json"], {"bucket": "lake", "pipeline": "p"})
