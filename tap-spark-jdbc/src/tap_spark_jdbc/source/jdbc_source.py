"""Access to the database: URL, driver and its jars, login. No JVM is needed here."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, redact, register_secret
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.dialects import Dialect, dialect_of
from tap_spark_jdbc.error_codes import TapCode
from tap_spark_jdbc.source.drivers import cached_jars, local_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# By the names of dialects.
PORTS = {
    "postgresql": 5432,
    "mariadb": 3306,
    "sqlserver": 1433,
    "oracle": 1521,
    "db2": 50000,
    "derby": 1527,
}
_URL = re.compile(
    r"(?P<before>jdbc:oracle:thin:[^@]*@(?://)?|jdbc:[\w:+.-]*?://(?:[^/?;@]*@)?)"
    r"(?P<servers>[^/?;@]*)(?P<after>.*)",
    re.DOTALL,
)
# The short URL of a database on this machine, as PostgreSQL's driver accepts it.
_SHORT = re.compile(r"jdbc:postgresql:(?P<database>[^/].*)?", re.DOTALL)
_SERVER = re.compile(r"(?:\[(?P<six>[^]]+)\]|(?P<name>[\w.-]*))(?::(?P<port>\d+))?(?P<rest>:.+)?")


def through(url: str, dialect: str, local: Callable[[str, int], tuple[str, int]]) -> str:
    """The URL with each server replaced by `local(host, port)`.

    Raises:
        ConfigurationError: it names its servers in an unsupported way.
    """
    if short := _SHORT.fullmatch(url):
        url = f"jdbc:postgresql://localhost/{short['database'] or ''}"
    found = _URL.fullmatch(url)
    if found is None:
        raise ConfigurationError(
            TapCode.URL_WITHOUT_SERVER,
            "jdbc_url names no server as //host:port, which ssh_tunnel and auth: aws-iam must know",
        )
    servers = [_local(server, dialect, local) for server in found["servers"].split(",")]
    return f"{found['before']}{','.join(servers)}{found['after']}"


def _local(server: str, dialect: str, local: Callable[[str, int], tuple[str, int]]) -> str:
    # Oracle's `host:port:SID` is the only one with something after the port.
    match = _SERVER.fullmatch(server)
    port = None if match is None else match["port"] or PORTS.get(dialect)
    if match is None or port is None or (not server and dialect != "postgresql"):
        raise ConfigurationError(
            TapCode.URL_WITHOUT_SERVER,
            "jdbc_url must name each server as host:port for ssh_tunnel and auth: aws-iam, not as "
            f"{server!r}",
        )
    host, bound = local(match["six"] or match["name"] or "localhost", int(port))
    return f"{f'[{host}]' if ':' in host else host}:{bound}{match['rest'] or ''}"


def first_server(url: str, dialect: str) -> tuple[str, int]:
    """Host and port of the first server; raises ConfigurationError like `through`."""
    found: list[tuple[str, int]] = []

    def local(host: str, port: int) -> tuple[str, int]:
        found.append((host, port))
        return host, port

    through(url, dialect, local)
    return found[0]


# A token opens connections for fifteen minutes.
FRESH_SECONDS = 600.0
_REGION = re.compile(r"\.([a-z]{2}(?:-[a-z]+)+-\d)\.rds\.amazonaws\.com(?:\.cn)?$")


class IamLogin:
    """The login of one user at one server."""

    def __init__(self, host: str, port: int, user: str) -> None:
        """No token is made yet."""
        self._location = host, port, user
        self._making = Lock()
        self._token = ""
        self._made: float | None = None

    def token(self) -> str:
        """A token to use as password, valid for at least some minutes.

        Raises:
            ConfigurationError: boto3 is not installed, or finds no login or no region.
        """
        with self._making:
            if self._made is None or time.monotonic() - self._made > FRESH_SECONDS:
                self._token = _token(*self._location)
                self._made = time.monotonic()
                register_secret(self._token)
            return self._token


def _token(host: str, port: int, user: str) -> str:
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise ConfigurationError(
            RunCode.PACKAGE_MISSING,
            "auth: aws-iam needs boto3, which is not installed: pip install "
            "'tap-spark-jdbc[aws-secrets]'",
        ) from error
    # The server may have a custom host name; then the region is the login's.
    found = _REGION.search(host)
    try:
        # A new session: the shared one keeps the first login that it found.
        client = boto3.Session().client("rds", region_name=found[1] if found else None)
        return str(client.generate_db_auth_token(DBHostname=host, Port=port, DBUsername=user))
    except BotoCoreError as error:
        raise ConfigurationError(
            TapCode.IAM_TOKEN, f"auth: aws-iam can't make a token for {user} at {host}: {error}"
        ) from error


_LOGIN = re.compile(
    # a parameter
    r"(?i)(?<=[?&;])(?:user|username|uid|password|pwd|sslpassword|token|secret)=[^&;]*"
    r"|(?<=//)[^/?;@]*@"  # before the host
    r"|(?<=:thin:)[^@]*(?=@)"  # Oracle's
)

_TLS = {
    "postgresql": {"sslmode": "require"},
    "mariadb": {"sslMode": "verify-full"},
    "com.mysql.cj.jdbc.Driver": {"sslMode": "VERIFY_IDENTITY"},
}


@dataclass(frozen=True)
class JdbcSource:
    """Access to the database.

    A reader's transaction begins with `transaction` and reads in `snapshot`.

    `given` is the user's own URL. If it leads through a tunnel, `tunnelled` is the driver's
    original URL. With `hides_values`, because some stream has masks, the server's messages that may
    quote a value are not shown.
    """

    url: str = field(repr=False)
    dialect: Dialect
    driver: str
    jars: tuple[str, ...] = ()
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    transaction: tuple[str, ...] = ()
    snapshot: str | None = None
    tunnelled: str | None = field(default=None, repr=False)
    given: str | None = field(default=None, repr=False)
    iam: IamLogin | None = None
    statement_timeout: float | None = None
    hides_values: bool = False

    @classmethod
    def of(cls, settings: TapSettings) -> JdbcSource:
        """Find dialect and driver for the settings' URL (fetching the driver the first time).

        Needs no JVM.

        Raises:
            ConfigurationError: the driver is unavailable.
        """
        known = dialect_of(settings.jdbc_url)
        dialect = known.with_driver(settings.driver, settings.driver_package)
        driver = settings.driver or dialect.driver
        package = settings.driver_package or dialect.driver_package
        jars: tuple[str, ...] = ()
        if settings.driver_jars:
            jars = local_jars(settings.driver_jars)
        elif package:
            ivy_settings = settings.spark.conf.get("spark.jars.ivySettings")
            jars = cached_jars(package, ivy_settings=ivy_settings)
        url, iam = settings.jdbc_url, None
        if driver == dialect.driver:
            url = dialect.driver_url(url)
        if settings.auth == "aws-iam":
            iam = IamLogin(*first_server(url, dialect.name), settings.user or "")
        return cls(
            url,
            dialect,
            driver,
            jars,
            settings.user,
            settings.password,
            given=settings.jdbc_url,
            iam=iam,
            statement_timeout=settings.statement_timeout,
            hides_values=any(each.mask for each in settings.stream_options.values()),
        )

    def through(self, local: Callable[[str, int], tuple[str, int]]) -> JdbcSource:
        """The same database, through the local address of each of its servers."""
        return replace(self, url=through(self.url, self.dialect.name, local), tunnelled=self.url)

    def bounded(self, fetch_bytes: int | None) -> JdbcSource:
        """The same database, with round trips that fail if they bring more than this many bytes, if
        the driver can limit that.
        """
        if fetch_bytes is None:
            return self
        return replace(self, url=self.dialect.bounded_url(self.url, fetch_bytes))

    def limited(self) -> JdbcSource:
        """The same database, to be asked whether it is still there over connections that do not
        wait long.
        """
        alive = self.dialect.alive
        properties = {**self.dialect.properties, **(alive.properties if alive else {})}
        return replace(self, dialect=replace(self.dialect, properties=properties), transaction=())

    @property
    def session_statements(self) -> tuple[str, ...]:
        """Statements that begin each session."""
        statements, template = self.dialect.session_statements, self.dialect.statement_timeout
        if template is None or self.statement_timeout is None:
            return statements
        seconds = self.statement_timeout
        limit = template.replace("{milliseconds}", str(max(1, round(seconds * 1000))))
        limit = limit.replace("{seconds}", f"{seconds:f}")
        if "{session}" in limit:
            return (*statements[:-1], limit.replace("{session}", statements[-1]))
        return (*statements, limit)

    @property
    def location(self) -> str:
        """The database's address, as text for users."""
        shown = plain_url(self.given or self.tunnelled or self.url)
        return shown if self.tunnelled is None else f"{shown} through ssh_tunnel"

    @property
    def text_as_bytes(self) -> bool:
        """Whether texts are read as their original bytes, which are UTF-8."""
        known = self.driver == self.dialect.driver and "allowEncodingChanges" not in self.url
        return self.dialect.text_as_bytes and known

    def connection_properties(self) -> dict[str, str]:
        """The dialect's properties, user and password; parameters in the URL override them."""
        properties, password = {**self.dialect.properties}, self.password
        if self.iam is not None:
            password = self.iam.token()
            # A token is never sent unencrypted.
            properties |= _TLS.get(self.driver) or _TLS.get(self.dialect.name, {})
        login = {"user": self.user, "password": password}
        return properties | {name: value for name, value in login.items() if value is not None}

    def reader_options(self) -> dict[str, str]:
        """Options of Spark's JDBC reader: url, driver, properties, a session's statements."""
        options = {"url": self.url, "driver": self.driver, **self.connection_properties()}
        if statement := self.beginning:
            options["sessionInitStatement"] = statement
        return options

    def relation(
        self, session: SparkSession, select: str, schema: str, fetch_size: int
    ) -> DataFrame:
        """The rows of a subselect in Spark, with the types of `schema`; one task reads them."""
        # `DataFrameReader.jdbc`, which takes predicates, writes the names of connection properties
        # in lower case, and drivers recognise most of them only in their own spelling.
        options = {**self.reader_options(), "customSchema": schema}
        reader = session.read.format("jdbc").options(**options).option("fetchsize", fetch_size)
        return reader.option("dbtable", select).load()

    @property
    def beginning(self) -> str:
        """The statements that begin a reader's session and transaction; may be empty."""
        return "; ".join((*self.transaction, *self.session_statements))


def plain_url(url: str) -> str:
    """A JDBC URL without login and parameters, which may contain passwords."""
    return re.split(r"[?;(]", url_without_login(redact(url)), maxsplit=1)[0]


def url_without_login(url: str) -> str:
    """A JDBC URL without login, so that two URLs of one database are equal."""
    return _LOGIN.sub("", url)
