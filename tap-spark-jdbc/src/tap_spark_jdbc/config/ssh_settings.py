"""The setting `ssh_tunnel`, with the same names as in MeltanoLabs' taps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from singer_spark.engine.cluster import is_local


@dataclass(frozen=True)
class SshSettings:
    """The SSH host through which the database is reached.

    Keys and host keys are given as text or as a path.

    Attributes:
        enable: False: as if the setting were missing.
        bind_address: This machine's address at which a cluster's executors find the tunnel.
    """

    host: str
    username: str
    port: int = 22
    enable: bool = True
    private_key: str | None = field(default=None, repr=False)
    private_key_path: str | None = None
    private_key_password: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    host_key: str | None = None
    known_hosts_path: str | None = None
    bind_address: str | None = None


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
