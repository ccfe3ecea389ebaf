"""Sessions on a Spark Connect server: the session's settings are set, the server's are checked."""

from __future__ import annotations

import atexit
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from singer_spark.engine.spark_versions import be_patient, set_at_once
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError, SingerSparkError, cut

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

# Names of UTC and zones equal to it.
_UTC = (
    "UTC",
    "Etc/UTC",
    "Z",
    "GMT",
    "Etc/GMT",
    "UCT",
    "Etc/UCT",
    "Zulu",
    "Universal",
    "Etc/Universal",
)
_ZONE = "reflect('java.time.ZoneId', 'systemDefault') AS zone"
# With pauses of up to five seconds, about fifteen seconds in all.
RETRIES = 6
LONGEST_PAUSE = 5_000
# Number of tasks that check, so that several executors are covered, if there are any.
ZONE_LOOKS = 8
_SERVER_WAY = "the server owns it: set it where the server is started"


def connect(url: str, conf: Mapping[str, str], jars: Sequence[str]) -> SparkSession:
    """A new session on the server at `sc://host:port/;…`, to which local jars are sent.

    Raises:
        ConfigurationError: a package is missing, the server can't be reached, or is not set up
            correctly.
    """
    try:
        from pyspark.sql import SparkSession

        # An application's name would cause a first request before the retries are set below.
        session: Any = SparkSession.builder.remote(url).create()
        be_patient(session, RETRIES, LONGEST_PAUSE)
        atexit.register(_leave, session)
        _set_all(session, conf)
        if jars:
            session.addArtifacts(*jars)
        check_zone(session)
    except SingerSparkError:
        raise
    except ImportError as error:
        lacking = cut(str(error), 200)
        raise ConfigurationError(
            RunCode.PACKAGE_MISSING,
            "spark.remote needs packages that are not installed: pip install "
            f"'singer-spark[connect]' ({lacking})",
        ) from error
    except Exception as error:
        cause = cut(str(error), 400) or type(error).__name__
        raise ConfigurationError(
            RunCode.CONNECT_FAILED,
            f"no session on the Spark Connect server: {cause}; look at spark.remote",
        ) from error
    return session  # type: ignore[no-any-return]


def _leave(session: Any) -> None:
    """Release the session on the server, without waiting for a server that is gone."""
    be_patient(session, 0, LONGEST_PAUSE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session.stop()


def _set_all(session: Any, conf: Mapping[str, str]) -> None:
    """Set everything in one request; if the server refuses, one by one, to name the setting."""
    with suppress(Exception):
        if set_at_once(session, conf):
            return
    for name, value in conf.items():
        _set(session, name, value)


def _set(session: SparkSession, name: str, value: str) -> None:
    try:
        session.conf.set(name, value)
    except Exception as error:
        # The value may be a secret, and so may the server's message about it.
        if "CANNOT_MODIFY" in str(error):
            raise ConfigurationError(
                RunCode.CONNECT_UNSUITABLE,
                f"spark.conf: {name} can't be set for one session, {_SERVER_WAY}",
            ) from None
        raise


def check_zone(session: SparkSession) -> None:
    """Check that the server's JVMs are in UTC: times without a zone pass through their zone."""
    zones = {
        row.zone for row in session.range(0, ZONE_LOOKS, 1, ZONE_LOOKS).selectExpr(_ZONE).collect()
    }
    wrong = sorted(zone for zone in zones if zone not in _UTC)
    if wrong:
        raise ConfigurationError(
            RunCode.CONNECT_UNSUITABLE,
            f"the Spark Connect server runs in the zone {', '.join(wrong)}, in which times "
            "without a zone may shift; start it with -Duser.timezone=UTC in "
            "spark.driver.extraJavaOptions and spark.executor.extraJavaOptions",
        )
