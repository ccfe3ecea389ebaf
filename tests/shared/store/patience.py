"""How long a client waits, for tests that can't: set before a storage is made."""

from __future__ import annotations

from datetime import timedelta

import pytest

from singer_spark.store import (
    azure_bucket,
    google_bucket,
    object_files,
    obstore_bucket,
    s3_bucket,
)


def never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked for twice."""
    monkeypatch.setattr(obstore_bucket, "RETRIES", 0)
    for module in (google_bucket, obstore_bucket):
        monkeypatch.setattr(module, "BUSY_SECONDS", 0.0)
    monkeypatch.setattr(google_bucket, "TRIES", 1)
    monkeypatch.setattr(object_files, "TRIES", 1)


def short_of_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer must come within half a second."""
    monkeypatch.setattr(obstore_bucket, "READ_SECONDS", 0.5)
    monkeypatch.setattr(google_bucket, "READ_SECONDS", 0.5)


def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow each other at once."""
    for module in (google_bucket, obstore_bucket):
        monkeypatch.setattr(module, "LONGEST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(obstore_bucket, "FIRST_PAUSE_SECONDS", 0.01)
    config, pause = obstore_bucket.retry_config, timedelta(milliseconds=10)
    short = {"backoff": {"init_backoff": pause, "max_backoff": pause, "base": 2}}
    for module in (azure_bucket, s3_bucket):
        monkeypatch.setattr(module, "retry_config", lambda *given: config(*given) | short)
