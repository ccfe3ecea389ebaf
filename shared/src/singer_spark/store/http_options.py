"""obstore's HTTP options: timeouts, proxy, certificates and retries."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

CONNECT_SECONDS, READ_SECONDS, WHOLE_SECONDS = 20.0, 60.0, 1200.0
RETRIES = 8


def client_options(
    endpoint: str,
    *,
    connect: float | None = None,
    read: float | None = None,
    verify: bool | str | None = None,
    proxy: str = "",
) -> Any:
    """Options of an HTTP client; `verify` as in requests: False, or the path of certificates."""
    options: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=connect or CONNECT_SECONDS),
        "read_timeout": timedelta(seconds=read or READ_SECONDS),
        "timeout": timedelta(seconds=WHOLE_SECONDS),
    }
    if endpoint.startswith("http://"):
        options["allow_http"] = True
    certificates = verify if isinstance(verify, str) else os.environ.get("AWS_CA_BUNDLE")
    if verify is False:
        options["allow_invalid_certificates"] = True
    elif certificates:
        options["root_certificate"] = Path(certificates).read_bytes()
    if proxy:
        options["proxy_url"] = proxy
    return options


def retry_config(retries: int | None = None) -> Any:
    """How often, and after which pauses, a request is retried that a busy store refused."""
    pauses = {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=5),
        "base": 2,
    }
    return {
        "max_retries": RETRIES if retries is None else retries,
        "retry_timeout": timedelta(minutes=3),
        "backoff": pauses,
    }
