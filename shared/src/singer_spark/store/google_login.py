"""The login to Google's store: gcsfs's option `token`, or the machine's default credentials."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from singer_spark.store.bucket import RefusedError

SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
# gcsfs's values for the machine's own login; `browser` would need someone to log in, and nobody is
# there.
_OWN = (None, "", "google_default", "cloud", "cache")
_UNUSABLE = ("browser",)


class GoogleLogin:
    """Makes the header that signs a request; its token is renewed before it expires."""

    def __init__(self, options: Mapping[str, Any], *, emulated: bool) -> None:
        """Nothing is requested yet.

        If the server is `emulated`, requests are not signed without a token.
        """
        self._token = options.get("token")
        own = emulated and self._token in _OWN
        self.anonymous = own or self._token == "anon" or options.get("access") == "anon"
        self._credentials: Any = None
        self._lock = threading.Lock()

    def header(self) -> dict[str, str]:
        """The header for a request.

        Raises:
            RefusedError: there is no login.
        """
        if self.anonymous:
            return {}
        with self._lock:
            if self._credentials is None:
                self._credentials = self._found()
            if not self._credentials.valid:
                self._refresh()
            return {"Authorization": f"Bearer {self._credentials.token}"}

    def key_file(self) -> dict[str, Any] | None:
        """The key of a service account, if the options contain one or name its file."""
        token = self._token
        if isinstance(token, str) and token.lstrip().startswith("{"):
            token = json.loads(token)
        if isinstance(token, str) and token not in _OWN and Path(token).expanduser().is_file():
            token = json.loads(Path(token).expanduser().read_text())
        return dict(token) if isinstance(token, dict) else None

    def bearer(self) -> str:
        """A bearer token in the options; empty if there is none."""
        if self.anonymous or self._token in _OWN or self.key_file() is not None:
            return ""
        return str(self._token)

    def _found(self) -> Any:
        try:
            import google.auth
            from google.auth.exceptions import DefaultCredentialsError
            from google.oauth2.credentials import Credentials
        except ImportError as error:
            raise ConfigurationError(
                RunCode.PACKAGE_MISSING,
                f"gs:// needs a package that is not installed: {error} (the extra gcs has it)",
            ) from error
        if self._token in _UNUSABLE:
            raise ConfigurationError(
                RunCode.BAD_STORAGE_OPTIONS,
                f"storage_options: token {self._token!r} needs someone to log in; give a key file, "
                "or no token",
            )
        try:
            if (key := self.key_file()) is not None:
                with warnings.catch_warnings():
                    # It warns about keys from others, which might name any server; this one is the
                    # user's own.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    load = google.auth.load_credentials_from_dict
                    found, _ = load(key, scopes=SCOPES)  # type: ignore[no-untyped-call]
                    return found
            if bearer := self.bearer():
                return Credentials(bearer)  # type: ignore[no-untyped-call]
            return google.auth.default(scopes=SCOPES)[0]
        except DefaultCredentialsError as error:
            raise RefusedError(str(error).splitlines()[0], "NoCredentials") from error

    def _refresh(self) -> None:
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.requests import Request

        try:
            self._credentials.refresh(Request())
        except GoogleAuthError as error:
            raise RefusedError(str(error).splitlines()[0], "NoCredentials") from error
