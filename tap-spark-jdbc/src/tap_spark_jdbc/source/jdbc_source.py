"""How the database is reached: URL, driver and its jars, login. No JVM is needed to know it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from singer_spark.errors import ConfigurationError, redact
from tap_spark_jdbc.access.tunnelled_url import through
from tap_spark_jdbc.config.settings import TapSettings
from tap_spark_jdbc.dialects import Dialect, dialect_of
from tap_spark_jdbc.source.drivers import cached_jars, local_jars

_LOGIN = re.compile(
    r"(?i)(?<=[?&;])(?:user|username|uid|password|pwd|sslpassword|token|secret)=[^&;]*"  # a parameter
    r"|(?<=//)[^/?;@]*@"  # before the host
    r"|(?<=:thin:)[^@]*(?=@)"  # Oracle's
)


@dataclass(frozen=True)
class JdbcSource:
    """How the database is reached; a reader's transaction begins with `transaction` and reads in `snapshot`.

    Where that is by a tunnel, `tunnelled` is the URL that it leads to.
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

    @classmethod
    def of(cls, settings: TapSettings) -> JdbcSource:
        """Finds dialect and driver of the settings' URL (the first time by fetching the driver); no JVM needed.

        Raises:
            ConfigurationError: no dialect, no driver, or it can't be had.
        """
        dialect = dialect_of(settings.jdbc_url)
        driver = settings.driver or dialect.driver
        package = settings.driver_package or dialect.driver_package
        if not driver:
            raise ConfigurationError(
                f"no driver is known for {plain_url(settings.jdbc_url)}; name its class in `driver`, "
                "and its Maven coordinates in `driver_package` or its jar in `driver_jars`"
            )
        jars: tuple[str, ...] = ()
        if settings.driver_jars:
            jars = local_jars(settings.driver_jars)
        elif package:
            jars = cached_jars(package, ivy_settings=settings.spark.conf.get("spark.jars.ivySettings"))
        url = dialect.driver_url(settings.jdbc_url) if driver == dialect.driver else settings.jdbc_url
        return cls(url, dialect, driver, jars, settings.user, settings.password)

    def through(self, local: Callable[[str, int], tuple[str, int]]) -> JdbcSource:
        """The same database, reached through what listens here for each of its servers."""
        return replace(self, url=through(self.url, self.dialect.name, local), tunnelled=self.url)

    @property
    def place(self) -> str:
        """The database's address for people."""
        return plain_url(self.url) if self.tunnelled is None else f"{plain_url(self.tunnelled)} through ssh_tunnel"

    @property
    def text_as_bytes(self) -> bool:
        """Whether texts are read as the bytes that they come as, which are UTF-8."""
        known = self.driver == self.dialect.driver and "allowEncodingChanges" not in self.url
        return self.dialect.text_as_bytes and known

    def connection_properties(self) -> dict[str, str]:
        """The dialect's properties, user and password; what stands in the URL wins over them."""
        login = {"user": self.user, "password": self.password}
        return {**self.dialect.properties, **{name: value for name, value in login.items() if value is not None}}

    def reader_options(self) -> dict[str, str]:
        """Options for `spark.read.format("jdbc")`: url, driver, the properties and what each session begins with."""
        options = {"url": self.url, "driver": self.driver, **self.connection_properties()}
        if statements := (*self.transaction, *self.dialect.session_statements):
            options["sessionInitStatement"] = "; ".join(statements)
        return options


def plain_url(url: str) -> str:
    """A JDBC URL without login and parameters, where passwords may stand."""
    return re.split(r"[?;]", url_without_login(redact(url)), maxsplit=1)[0]


def url_without_login(url: str) -> str:
    """A JDBC URL without user, password and the like: two URLs of one database are then the same."""
    return _LOGIN.sub("", url)
