"""Logins that people have, each against the endpoint that gives it: what signs the requests."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from servers.azure import AzureStore
from servers.logins import KEY, ROLE, SECRET, TOKEN, Logins, running
from singer_spark.store.google_login import GoogleLogin
from singer_spark.store.storage import Storage

OTHERS = ("AWS_", "AZURE_", "GOOGLE_", "GCE_", "IDENTITY_", "MSI_", "CLOUDSDK_", "STORAGE_")


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No login of the machine's that runs the tests."""
    for name in [each for each in os.environ if each.startswith(OTHERS)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def logins() -> Iterator[Logins]:
    with running() as logins:
        yield logins


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Not even the lines for developers hold a secret."""
    with caplog.at_level(logging.DEBUG, "singer_spark"), caplog.at_level(logging.INFO):
        yield
    assert not [secret for secret in (SECRET, TOKEN, "own-secret") if secret in caplog.text]


def s3(logins: Logins, **options: Any) -> None:
    """Asks the store once."""
    storage = Storage("s3://lake", {"endpoint_url": logins.endpoint, **options})
    assert storage.read("x") is None


def signed_by(logins: Logins) -> tuple[str, str]:
    """The access key and the token of the last request."""
    authorization, token = logins.signatures()[-1]
    return authorization.partition("Credential=")[2].partition("/")[0], token


def write_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = AKIADEFAULT\naws_secret_access_key = own-secret\n"
        "[night]\naws_access_key_id = AKIANIGHT\naws_secret_access_key = own-secret\n"
    )
    (tmp_path / "config").write_text(
        "[profile writer]\nrole_arn = arn:aws:iam::123456789012:role/writer\nsource_profile = "
        "night\n"
        "region = eu-west-1\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


def test_keys_from_options_and_environment(logins: Logins, monkeypatch: pytest.MonkeyPatch) -> None:
    s3(logins, key="AKIAOPTION", secret="own-secret", token="own-token")
    assert signed_by(logins) == ("AKIAOPTION", "own-token")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own-secret")
    s3(logins)
    assert signed_by(logins) == ("AKIAENV", "")


def test_profiles_from_options_and_environment(
    logins: Logins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role of a profile is assumed."""
    write_profiles(tmp_path, monkeypatch)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", logins.endpoint)
    s3(logins)
    assert signed_by(logins) == ("AKIADEFAULT", "")
    s3(logins, profile="night")
    assert signed_by(logins) == ("AKIANIGHT", "")
    monkeypatch.setenv("AWS_PROFILE", "writer")
    s3(logins)
    assert signed_by(logins) == (KEY, TOKEN)
    assert [each[3] for each in logins.asked if "Action=AssumeRole&" in each[3]]


def test_web_identity_assumes_its_role(
    logins: Logins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("own-secret-of-the-pod")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/writer")
    # obstore never sends such a token without TLS.
    with running(tmp_path / "certificate") as amazon:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", amazon.endpoint)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "certificate"))
        s3(logins)
        assert "Action=AssumeRoleWithWebIdentity" in amazon.asked[0][1] + amazon.asked[0][3]
    assert signed_by(logins) == (KEY, TOKEN)


@pytest.mark.parametrize("token_in", ["file", "variable"])
def test_container_credentials_are_used(
    logins: Logins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token_in: str
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{logins.endpoint}/container")
    if token_in == "file":
        (tmp_path / "token").write_text("of-the-pod")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    else:
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "of-the-pod")
    s3(logins)
    assert signed_by(logins) == (KEY, TOKEN)
    assert [each[2]["authorization"] for each in logins.asked if each[1] == "/container"] == [
        "of-the-pod"
    ]


def test_ec2_machine_uses_its_instance_role(
    logins: Logins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", logins.endpoint)
    s3(logins)
    assert signed_by(logins) == (KEY, TOKEN)
    assert [each[1] for each in logins.asked if each[1].endswith(ROLE)]


def service_account(logins: Logins) -> dict[str, str]:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = rsa.generate_private_key(65537, 2048).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    login = {
        "type": "service_account",
        "client_email": "writer@x",
        "private_key_id": "1",
        "project_id": "p",
    }
    return {**login, "private_key": key.decode(), "token_uri": f"{logins.endpoint}/token"}


def test_service_account_key_as_option_or_file(logins: Logins, tmp_path: Path) -> None:
    key = service_account(logins)
    (tmp_path / "key.json").write_text(json.dumps(key))
    for token in (key, str(tmp_path / "key.json")):
        storage = Storage("gs://lake", {"token": token, "endpoint_url": logins.endpoint})
        assert storage.read("x") is None
        assert logins.asked[-1][2]["authorization"] == f"Bearer {TOKEN}"


def test_application_default_credentials_of_google(
    logins: Logins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / ".config/gcloud/application_default_credentials.json"
    place.parent.mkdir(parents=True)
    (tmp_path / "pod").write_text("of-the-pod")
    federated = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/locations/global/workforcePools/p/providers/q",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{logins.endpoint}/token",
        "credential_source": {"file": str(tmp_path / "pod")},
    }
    for login in (service_account(logins), federated):
        place.write_text(json.dumps(login))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(place))
        assert GoogleLogin({}, emulated=False).header() == {"Authorization": f"Bearer {TOKEN}"}
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    place.unlink()
    machine = logins.endpoint.removeprefix("http://")
    monkeypatch.setenv("GCE_METADATA_IP", machine)
    monkeypatch.setattr(
        "google.auth.compute_engine._metadata._GCE_METADATA_HOST", machine
    )  # as GCE_METADATA_HOST
    assert GoogleLogin({}, emulated=False).header() == {"Authorization": f"Bearer {TOKEN}"}


def ask_azure(logins: Logins) -> None:
    storage = Storage(
        "az://lake", {"account_name": "acc", "endpoint_url": f"{logins.endpoint}/acc"}
    )
    assert storage.read("x") is None
    assert logins.asked[-1][2]["authorization"] == f"Bearer {TOKEN}"
    assert storage.delta_options().get("azure_storage_token", TOKEN) == TOKEN


def test_azure_managed_identity_is_used(logins: Logins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{logins.endpoint}/managed")
    monkeypatch.setenv("IDENTITY_HEADER", "of-the-machine")
    ask_azure(logins)
    asked = next(each for each in logins.asked if each[1].startswith("/managed"))
    assert asked[2]["x-identity-header"] == "of-the-machine"


def test_azure_workload_and_service_principal(
    logins: Logins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workload identity and the service principal come from the environment."""
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", logins.endpoint)
    monkeypatch.setenv("AZURE_TENANT_ID", "tenant")
    monkeypatch.setenv("AZURE_CLIENT_ID", "client")
    (tmp_path / "token").write_text("of-the-pod")
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(tmp_path / "token"))
    ask_azure(logins)
    monkeypatch.delenv("AZURE_FEDERATED_TOKEN_FILE")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "own-secret")
    ask_azure(logins)


def test_server_accepts_shared_access_signature(azure: AzureStore) -> None:
    bucket = azure.new_bucket()
    signature = azure.shared_access(datetime.now(UTC) + timedelta(hours=1))
    place = {"account_name": azure.name, "endpoint_url": f"{azure.endpoint}/{azure.name}"}
    storage = Storage(bucket, {**place, "sas_token": f"?{signature}"})
    assert storage.create("x", b"1")
    assert storage.read("x") == b"1"
