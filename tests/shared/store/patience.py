"""How long a client waits, for tests that can't: set before a storage is made."""

from __future__ import annotations

import pytest

from singer_spark.store import google_bucket, object_files, obstore_bucket


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
