"""The settings of the database: the SSH tunnel to it, named as in MeltanoLabs' taps, and which
settings don't fit it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from singer_spark.core.config_file import nearest
from singer_spark.core.settings import COUNT, NOT_EMPTY, setting
from singer_spark.engine.spark_settings import is_local
from tap_spark_jdbc.dialects import dialect_of, known_dialects

_IAM = ("postgresql", "mariadb")
# Files, or databases within a JVM; Derby, H2 and HSQLDB also have servers.
_OF_THIS_MACHINE = re.compile(
    r"jdbc:(sqlite:|duckdb:|derby:(?!//)|h2:(?!tcp:|ssl:)|hsqldb:(?!hsqls?:|https?:))"
)


@dataclass(frozen=True, kw_only=True)
class SshSettings:
    """The SSH host through which the database is reached.

    Keys and host keys are given as text or as a path.

    Attributes:
        enable: False: as if the setting were missing.
        bind_address: This machine's address at which a cluster's executors find the tunnel.
    """

    enable: bool = setting({"type": "boolean"}, "`false`: the tunnel is not used", default=True)
    host: str = setting(NOT_EMPTY, "SSH host through which the database is reached", required=True)
    port: int = setting(COUNT, "Port of the SSH server", default=22)
    username: str = setting(NOT_EMPTY, "Login on the SSH host", required=True)
    private_key: str | None = setting(NOT_EMPTY, "Private key of the login, as text", secret=True)
    private_key_path: str | None = setting(NOT_EMPTY, "Path of the private key of the login")
    private_key_password: str | None = setting(
        NOT_EMPTY, "Passphrase of the private key", secret=True
    )
    password: str | None = setting(
        NOT_EMPTY, "Password of the login, if there is no key", secret=True
    )
    host_key: str | None = setting(
        NOT_EMPTY,
        "Public key of the SSH host, as `ssh-keyscan` prints it; several keys, one on each line",
    )
    known_hosts_path: str | None = setting(
        NOT_EMPTY, "File of known host keys; by default `~/.ssh/known_hosts`"
    )
    bind_address: str | None = setting(
        NOT_EMPTY, "Address of this machine at which a cluster's executors reach the tunnel"
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


def database_problems(config: Mapping[str, Any]) -> list[str]:
    """Problems of a config that depend on its database."""
    url = config.get("jdbc_url")
    if not isinstance(url, str) or not url.startswith("jdbc:"):
        return []
    dialect, problems = dialect_of(url), _scheme_problems(url, config)
    if config.get("auth") == "aws-iam":
        if dialect.name not in _IAM:
            problems.append(
                f"auth: aws-iam is a login of PostgreSQL, MariaDB and MySQL, not of {dialect.name}"
            )
        if not config.get("user"):
            problems.append("auth: aws-iam needs user")
        if config.get("password"):
            problems.append("auth: aws-iam takes the place of password; leave one of them out")
    connections, fewest = config.get("max_connections"), dialect.own_connections + 1
    if isinstance(connections, int) and connections < fewest:
        problems.append(
            f"max_connections: must be at least {fewest} for {dialect.name}: "
            f"{dialect.own_connections} for questions, and one that reads rows"
        )
    if config.get("statement_timeout") and dialect.statement_timeout is None:
        problems.append(
            f"statement_timeout: is not supported for {dialect.name}; set a limit for the "
            "database's user"
        )
    return problems


def _scheme_problems(url: str, config: Mapping[str, Any]) -> list[str]:
    """A URL that no known driver understands, unless the user names one."""
    if dialect_of(url).driver or config.get("driver"):
        return []
    known = [
        prefix.split(":")[1]
        for dialect in known_dialects().values()
        for prefix in dialect.url_prefixes
    ]
    scheme = url.split(":")[1]
    if near := nearest(scheme, known):
        return [f"jdbc_url: no driver is known for jdbc:{scheme}:{near}"]
    return [
        f"jdbc_url: no driver is known for jdbc:{scheme}: (known are {', '.join(known)}); name its "
        "class in `driver`, "
        "and its Maven coordinates in `driver_package` or its jar in `driver_jars`"
    ]


def reach_problems(jdbc_url: object, spark: Mapping[str, Any]) -> list[str]:
    """Problems with the database for the executors configured in `spark`."""
    remote, master = spark.get("remote"), spark.get("master")
    url = str(jdbc_url)
    if not _OF_THIS_MACHINE.match(url) or not (remote or not is_local(master)):
        return []
    shown = re.split(r"[?;]", url, maxsplit=1)[0]
    where = "spark.remote" if remote else "spark.master"
    return [
        f"{where}: {shown} is a database on this machine, which executors elsewhere can't reach; "
        "use local[*]"
    ]
