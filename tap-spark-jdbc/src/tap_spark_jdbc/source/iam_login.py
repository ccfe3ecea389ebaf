"""An AWS login instead of a password (`auth: aws-iam`): a token for RDS and Aurora, renewed before
it expires.
"""

from __future__ import annotations

import re
import time
from threading import Lock

from singer_spark.errors import ConfigurationError, register_secret

# A token opens connections for fifteen minutes.
FRESH_SECONDS = 600.0
_REGION = re.compile(r"\.([a-z]{2}(?:-[a-z]+)+-\d)\.rds\.amazonaws\.com(?:\.cn)?$")


class IamLogin:
    """The login of one user at one server."""

    def __init__(self, host: str, port: int, user: str) -> None:
        """No token is made yet."""
        self._place = host, port, user
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
                self._token = _token(*self._place)
                self._made = time.monotonic()
                register_secret(self._token)
            return self._token


def _token(host: str, port: int, user: str) -> str:
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise ConfigurationError(
            "auth: aws-iam needs boto3, which is not installed: pip install "
            "'tap-spark-jdbc[aws-secrets]'"
        ) from error
    # The server may have a custom host name; then the region is the login's.
    found = _REGION.search(host)
    try:
        # A new session: the shared one keeps the first login that it found.
        client = boto3.Session().client("rds", region_name=found[1] if found else None)
        return str(client.generate_db_auth_token(DBHostname=host, Port=port, DBUsername=user))
    except BotoCoreError as error:
        raise ConfigurationError(
            f"auth: aws-iam can't make a token for {user} at {host}: {error}"
        ) from error
