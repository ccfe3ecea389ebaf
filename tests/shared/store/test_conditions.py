"""Conditional writes: which stores can't be trusted with them, and what a user that takes the risk
gets.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from faults.faulty import Proxy as Wrapped
from servers.azure import AzureStore
from servers.proxy import NOT_IMPLEMENTED, Proxy, running
from servers.s3 import S3
from shared.store.patience import never_again
from shared.store.watched_store import WRITES
from singer_spark.errors import StorageError
from singer_spark.store.storage import Storage


def test_store_honouring_conditions_passes_check(storage: Storage) -> None:
    storage.create("lock", b"mine")
    storage.check_conditions("lock", b"another's")
    assert storage.read("lock") == b"mine"


class Forgetful(Wrapped):
    """A store that forgets the conditions of writes."""

    def around(self, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        return self.inner.write(*args[:2]) if name == "write" else call()


def test_store_ignoring_conditions_is_detected(storage: Storage) -> None:
    storage.create("lock", b"mine")
    storage.files.bucket = Forgetful(storage.files.bucket)
    with pytest.raises(StorageError, match=r"RUN-053 .*accept_unconditional_storage"):
        storage.check_conditions("lock", b"another's")


def test_permanent_refusal_is_one_clear_line(
    opened: Callable[[], Storage], proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_again(monkeypatch)
    storage = opened()
    proxy.fail(NOT_IMPLEMENTED, 1, WRITES)
    with pytest.raises(StorageError, match="RUN-052") as caught:
        storage.create("lock", b"mine")
    assert "accept_unconditional_storage" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("stripped", "reported"),
    [
        ({"if-none-match"}, "in spite of If-None-Match:"),
        ({"if-match"}, "in spite of If-Match:"),
        ({"if-none-match", "if-match"}, "in spite of If-None-Match and If-Match:"),
    ],
)
def test_s3_ignoring_any_condition_is_detected(moto: S3, stripped: set[str], reported: str) -> None:
    with running(moto.endpoint, frozenset(stripped)) as proxy:
        storage = Storage(moto.new_bucket(), moto.options_at(proxy.endpoint))
        storage.create("lock", b"mine")
        with pytest.raises(
            StorageError, match=rf"RUN-053 .*{reported}.* accept_unconditional_storage"
        ):
            storage.check_conditions("lock", b"another's")


def test_azure_ignoring_conditions_is_detected(azure: AzureStore) -> None:
    # Who asks by a signature of the URL does not sign the headers.
    signature = azure.shared_access(datetime.now(UTC) + timedelta(hours=1))
    with running(azure.endpoint, frozenset({"if-none-match", "if-match"})) as proxy:
        place = {"account_name": azure.name, "endpoint_url": f"{proxy.endpoint}/{azure.name}"}
        storage = Storage(azure.new_bucket(), {**place, "sas_token": signature})
        storage.create("lock", b"mine")
        with pytest.raises(
            StorageError,
            match=r"RUN-053 .*accept_unconditional_storage",
        ):
            storage.check_conditions("lock", b"another's")


def test_store_without_conditional_put_is_refused() -> None:
    """A kind of store without conditional puts is refused with a clear message."""
    with pytest.raises(StorageError, match=r"RUN-052 .*accept_unconditional_storage"):
        Storage("memory://refused").create("a", b"1")


def unconditional(kind: str, moto: S3, stripped: Proxy) -> Storage:
    if kind == "memory":
        return Storage("memory://accepted", accept_unconditional=True)
    return Storage(moto.new_bucket(), moto.options_at(stripped.endpoint), accept_unconditional=True)


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_accepted_risk_gets_check_then_write(
    moto: S3, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With the risk accepted, the store checks first and then writes."""
    with running(moto.endpoint, frozenset({"if-none-match", "if-match"})) as proxy:
        storage = unconditional(kind, moto, proxy)
        assert storage.create("lock", b"mine")
        assert not storage.create("lock", b"another's")
        storage.check_conditions("lock", b"another's")
        assert storage.read("lock") == b"mine"
        assert "never start two runs at once" in caplog.text
        assert storage.exchange("state", None, b"1")
        assert not storage.exchange("state", None, b"2")
        assert not storage.exchange("state", b"0", b"2")
        assert storage.exchange("state", b"1", b"2")
        assert storage.read("state") == b"2"
        storage.replace("folder/a", b"1")
        storage.move("folder/a", "folder/b")
        assert [file.path for file in storage.list("folder")] == ["folder/b"]
