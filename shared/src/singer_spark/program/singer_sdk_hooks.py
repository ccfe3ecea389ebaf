"""The classes of singer-sdk that the plugins derive from: what these need of its private members
has public names here.

No other module uses private members of the SDK. They were read in 0.54.9, and a test looks at each
of `PRIVATE` in the installed version.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

from singer_sdk import Stream, Tap, Target
from singer_sdk.configuration._dict_config import parse_environment_config
from singer_sdk.helpers._state import StateWriter
from singer_sdk.plugin_base import PluginBase

if TYPE_CHECKING:
    from singer_sdk.singerlib import Catalog, RecordMessage, SchemaMessage

JSON = dict[str, Any]

# By module, or module and class.
PRIVATE = {
    "singer_sdk.configuration._dict_config": ("parse_environment_config",),
    "singer_sdk.plugin_base:PluginBase": (
        *("_config", "_env_var_config", "_env_var_prefix"),
        *("_setup_signal_handlers", "_validate_config"),
    ),
    "singer_sdk.tap_base:Tap": ("_singer_catalog", "_state_writer"),
    "singer_sdk.helpers._state:StateWriter": ("write_state",),
    "singer_sdk.streams.core:Stream": (
        *("_finalize_state", "_generate_record_messages", "_generate_schema_messages"),
        *("_increment_stream_state", "_sync_batches", "_sync_records", "_tap_state"),
        *("_write_schema_message", "_write_starting_replication_value"),
    ),
    "singer_sdk.target_base:Target": (
        *("_process_activate_version_message", "_process_batch_message"),
        *("_process_record_message", "_process_schema_message", "_process_state_message"),
    ),
}


class _Plugin(PluginBase):
    """What both plugins do in another way than the SDK."""

    @abstractmethod
    def accepted_config(self, config: JSON) -> JSON:
        """The config to continue with.

        Raises:
            ConfigurationError: it can't be used.
        """

    def _validate_config(self, *, raise_errors: bool = True) -> list[str]:
        self._config = self.accepted_config(self._config)
        return []

    @property
    def _env_var_config(self) -> JSON:
        """The settings in environment variables, without a `.env`.

        The SDK looks for one above its own folder, and lets it override the environment.
        """
        known = self.config_jsonschema
        self.append_builtin_config(known)
        return parse_environment_config(known, self._env_var_prefix, dotenv_path=os.devnull)

    def _setup_signal_handlers(self) -> None:
        """Leave signals to the program.

        The SDK's handlers would send a last STATE, acknowledge uncommitted data, and report
        success.
        """


class _SilentStateWriter(StateWriter):
    def write_state(self, state: Any) -> None:
        """Do nothing."""


class HookedTap(_Plugin, Tap):
    """A tap that writes its STATE itself."""

    def __init__(self, **options: Any) -> None:
        """As the SDK's."""
        super().__init__(**options)
        self._state_writer = _SilentStateWriter(self.message_writer)

    @property
    def catalog(self) -> Catalog:
        """The streams as they are sent, for stream maps.

        A catalog that is passed in speaks of the source's names.
        """
        return self._singer_catalog


class HookedStream(Stream):
    """A stream whose state is kept elsewhere: the SDK's bookkeeping for each record is left out."""

    def __init__(self, tap: Tap, schema: JSON, name: str) -> None:
        """As the SDK's."""
        super().__init__(tap, schema=schema, name=name)
        self._tap_state = {}

    def write_schema(self) -> None:
        """Send a SCHEMA for each stream that this one is mapped to."""
        super()._write_schema_message()

    def complete_schema(self, message: SchemaMessage) -> None:
        """Change a SCHEMA before it is sent."""

    def complete_record(self, message: RecordMessage) -> None:
        """Change a RECORD before it is sent."""

    def send_records(
        self, context: Mapping[str, Any] | None, *, write_messages: bool
    ) -> Generator[JSON, Any, Any]:
        """Send all records, or only yield them, one by one."""
        yield from super()._sync_records(context, write_messages=write_messages)

    @abstractmethod
    def send_batches(self) -> None:
        """Send all batches."""

    def _write_schema_message(self) -> None:
        self.write_schema()

    def _generate_schema_messages(self) -> Generator[SchemaMessage, None, None]:
        for message in super()._generate_schema_messages():
            self.complete_schema(message)
            yield message

    def _generate_record_messages(self, record: JSON) -> Generator[RecordMessage, None, None]:
        for message in super()._generate_record_messages(record):
            self.complete_record(message)
            yield message

    def _sync_records(
        self, context: Mapping[str, Any] | None = None, *, write_messages: bool = True
    ) -> Generator[JSON, Any, Any]:
        return self.send_records(context, write_messages=write_messages)

    def _sync_batches(self, batch_config: Any, context: Mapping[str, Any] | None = None) -> None:
        self.send_batches()

    def _write_starting_replication_value(self, context: Mapping[str, Any] | None) -> None: ...

    def _increment_stream_state(
        self, latest_record: Mapping[str, Any], *, context: Mapping[str, Any] | None = None
    ) -> None: ...

    def _finalize_state(self, state: JSON | None = None) -> None: ...


class HookedTarget(_Plugin, Target):
    """A target that takes each kind of message by a method of its own."""

    @abstractmethod
    def take_schema(self, message: JSON) -> None:
        """Take a SCHEMA."""

    @abstractmethod
    def take_records(self, lines: Any) -> None:
        """Take what the reader made of lines of a stream's RECORDs."""

    @abstractmethod
    def take_state(self, message: JSON) -> None:
        """Take a STATE."""

    @abstractmethod
    def take_version(self, message: JSON) -> None:
        """Take an ACTIVATE_VERSION."""

    @abstractmethod
    def take_batch(self, message: JSON) -> None:
        """Take a BATCH."""

    def _process_schema_message(self, message_dict: JSON) -> None:
        self.take_schema(message_dict)

    def _process_record_message(self, message_dict: JSON) -> None:
        self.take_records(message_dict)

    def _process_state_message(self, message_dict: JSON) -> None:
        self.take_state(message_dict)

    def _process_activate_version_message(self, message_dict: JSON) -> None:
        self.take_version(message_dict)

    def _process_batch_message(self, message_dict: JSON) -> None:
        self.take_batch(message_dict)
