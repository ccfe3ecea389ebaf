"""Settings of Hadoop's S3A derived from s3fs storage options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from singer_spark.storage.stores.s3_account import DEFAULT_REGION, endpoint_of, keys_of, region_of

_PROVIDERS = "org.apache.hadoop.fs.s3a."
# Environment, profile, web identity, container, instance: the same sources as on the Python side.
_DEFAULT_PROVIDER = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
_ENCRYPTIONS = {"aws:kms": "SSE-KMS", "aws:kms:dsse": "DSSE-KMS"}


def s3a_conf(options: Mapping[str, Any]) -> dict[str, str]:
    """Hadoop settings (`fs.s3a.…`) for s3fs options; they contain secrets."""
    config = options.get("config_kwargs") or {}
    conf = {**_account(options), **_place(options, config), **_proxy(config)}
    if options.get("requester_pays"):
        conf["requester.pays.enabled"] = "true"
    extra = options.get("s3_additional_kwargs") or {}
    if extra.get("ServerSideEncryption"):
        conf["encryption.algorithm"] = _ENCRYPTIONS.get(extra["ServerSideEncryption"], extra["ServerSideEncryption"])
    if extra.get("SSEKMSKeyId"):
        conf["encryption.key"] = str(extra["SSEKMSKeyId"])
    return {f"fs.s3a.{name}": value for name, value in conf.items()}


def _account(options: Mapping[str, Any]) -> dict[str, str]:
    """The credentials, and the Hadoop provider for them."""
    provider = "aws.credentials.provider"
    if options.get("anon"):
        return {provider: f"{_PROVIDERS}AnonymousAWSCredentialsProvider"}
    if keys := keys_of(options):
        names = ("access.key", "secret.key", "session.token")
        given = {name: key for name, key in zip(names, keys, strict=True) if key}
        kind = "Temporary" if "session.token" in given else "Simple"
        return {**given, provider: f"{_PROVIDERS}{kind}AWSCredentialsProvider"}
    if options.get("profile"):
        name = {"auth.profile.name": str(options["profile"])}
        return {**name, provider: f"{_PROVIDERS}auth.ProfileAWSCredentialsProvider"}
    return {provider: _DEFAULT_PROVIDER}


def _place(options: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, str]:
    """The server, its region, and the style of URLs."""
    endpoint, region = endpoint_of(options), region_of(options)
    style = (config.get("s3") or {}).get("addressing_style")
    conf = {}
    if endpoint:
        conf["endpoint"] = endpoint
    if region or endpoint:
        conf["endpoint.region"] = region or DEFAULT_REGION
    if style == "path" or (endpoint and style != "virtual"):
        conf["path.style.access"] = "true"
    if endpoint.startswith("http://") or (options.get("use_ssl") is False and not endpoint):
        conf["connection.ssl.enabled"] = "false"
    return conf


def _proxy(config: Mapping[str, Any]) -> dict[str, str]:
    proxies = config.get("proxies") or {}
    proxy = urlsplit(str(proxies.get("https") or proxies.get("http") or ""))
    if not proxy.hostname:
        return {}
    conf = {"proxy.host": proxy.hostname, "proxy.port": str(proxy.port or 80)}
    login = {"proxy.username": proxy.username, "proxy.password": proxy.password}
    return {**conf, **{name: value for name, value in login.items() if value}}
