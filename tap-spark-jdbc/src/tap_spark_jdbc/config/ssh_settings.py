"""The setting `ssh_tunnel`, with the same names as in MeltanoLabs' taps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from singer_spark.core.settings import COUNT, NOT_EMPTY, setting
from singer_spark.engine.cluster import is_local


@dataclass(frozen=True, kw_only=True)
class SshSettings:
    """The SSH host through which the database is reached.

    Keys and host keys are given as text or as a path.

    Attributes:
        enable: False: as if the setting were missing.
        bind_address: This machine's address at which a cluster's executors find the tunnel.
    """

    enable: bool = setting({"type": "boolean"}, "`false`: as if there were no tunnel", default=True)
    host: str = setting(NOT_EMPTY, "SSH host through which the database is reached", required=True)
    port: int = setting(COUNT, "Of its SSH server", default=22)
    username: str = setting(NOT_EMPTY, "Login there", required=True)
    private_key: str | None = setting(NOT_EMPTY, "Key of the login, as text", secret=True)
    private_key_path: str | None = setting(NOT_EMPTY, "The same as a file")
    private_key_password: str | None = setting(NOT_EMPTY, "Passphrase of the key", secret=True)
    password: str | None = setting(
        NOT_EMPTY, "Password of the login, if there is no key", secret=True
    )
    host_key: str | None = setting(
        NOT_EMPTY, "Public key of that machine, as `ssh-keyscan` prints it; several, a line each"
    )
    known_hosts_path: str | None = setting(
        NOT_EMPTY, "File of known host keys; `~/.ssh/known_hosts` where none is given"
    )
    bind_address: str | None = setting(
        NOT_EMPTY, "Address of this machine at which executors of a cluster find the tunnel"
    )


def ssh_problems(url: object, ssh: Mapping[str, Any], spark: Mapping[str, Any]) -> list[str]:
    """Problems of a tunnel to this database."""
    if not ssh or ssh.get("enable") is False:
        return []
    problems = []
    if not any(ssh.get(name) for name in ("private_key", "private_key_path", "password")):
        problems.append("ssh_tunnel: needs private_key, private_key_path or password")
    for one, other in (("private_key", "private_key_path"), ("host_key", "known_hosts_path")):
        if ssh.get(one) and ssh.get(other):
            problems.append(f"ssh_tunnel: {one} and {other} say the same thing; give one of them")
    elsewhere = spark.get("remote") or not is_local(spark.get("master"))
    if elsewhere and not ssh.get("bind_address"):
        problems.append(
            "ssh_tunnel.bind_address: executors elsewhere reach the database through this machine; "
            "give its address, as they know it"
        )
    if isinstance(url, str) and url.startswith(("jdbc:sqlite:", "jdbc:duckdb:")):
        problems.append("ssh_tunnel: the database of jdbc_url is a file of this machine")
    return problems
