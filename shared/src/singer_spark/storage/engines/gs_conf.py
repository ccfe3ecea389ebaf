"""Settings of Google's Hadoop connector derived from gcsfs storage options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from singer_spark.errors import ConfigurationError
from singer_spark.storage.stores.google_bucket import endpoint_of
from singer_spark.storage.stores.google_login import GoogleLogin

_CONNECTOR = "com.google.cloud.hadoop.fs.gcs"


def gs_conf(options: Mapping[str, Any]) -> dict[str, str]:
    """Hadoop settings (`fs.gs.…`) for gcsfs options; they contain secrets."""
    endpoint = endpoint_of(options)
    conf = {
        "fs.gs.impl": f"{_CONNECTOR}.GoogleHadoopFileSystem",
        "fs.AbstractFileSystem.gs.impl": f"{_CONNECTOR}.GoogleHadoopFS",
        **_login(GoogleLogin(options, emulated=bool(endpoint))),
    }
    if endpoint:
        conf["fs.gs.storage.root.url"] = f"{endpoint}/"
    if options.get("project"):
        conf["fs.gs.project.id"] = str(options["project"])
    if payer := options.get("requester_pays"):
        conf["fs.gs.requester.pays.mode"] = "ENABLED"
        conf["fs.gs.requester.pays.project.id"] = str(options.get("project") if payer is True else payer)
    return conf


def _login(login: GoogleLogin) -> dict[str, str]:
    """The connector's login settings; without any it uses the machine's service account."""
    if login.anonymous:
        return {"fs.gs.auth.service.account.enable": "false", "fs.gs.auth.null.enable": "true"}
    key = login.key_file() or login.own_file()
    if key is not None and key.get("type") == "service_account":
        return {
            "fs.gs.auth.service.account.email": str(key["client_email"]),
            "fs.gs.auth.service.account.private.key.id": str(key["private_key_id"]),
            "fs.gs.auth.service.account.private.key": str(key["private_key"]),
        }
    if key is not None and key.get("type") == "authorized_user":
        return {
            "fs.gs.auth.service.account.enable": "false",
            "fs.gs.auth.client.id": str(key["client_id"]),
            "fs.gs.auth.client.secret": str(key["client_secret"]),
            "fs.gs.auth.refresh.token": str(key["refresh_token"]),
        }
    if key is not None or login.bearer():
        kind = f"a login of type {key.get('type')}" if key is not None else "a token as it is"
        raise ConfigurationError(
            f"Spark's connector for Google takes the key of a service account, a user's login or the machine's own "
            f"service account, and not {kind}: give `token` one of these, or leave the work to Python (the target's "
            "`staging`: local)"
        )
    return {}
