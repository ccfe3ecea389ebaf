"""The command `target-spark-lake`: a singer-sdk Target around a `LoadRun`."""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar

import click
from singer_sdk import Target
from singer_sdk.helpers.capabilities import CapabilitiesEnum, PluginCapabilities, TargetCapabilities

import singer_spark.program.about  # noqa: F401  the text of --about
from singer_spark.core.config_file import FROM_ENVIRONMENT, expand, read_config, read_variables
from singer_spark.core.messages import AGAIN, RESTARTED, SKIPPED, STRANGERS, STREAMS
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from singer_spark.program.logs import LEVELS, set_up_logs
from singer_spark.program.progress import Progress
from singer_spark.program.singer_sdk_hooks import HookedTarget
from singer_spark.state.backend import open_state_store
from singer_spark.store.storage import Storage
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.commit.saved_state import (
    location_of_another,
    parent_arguments,
    pipeline_under_meltano,
    refreshes_under_meltano,
    saving_under_meltano,
)
from target_spark_lake.config.settings import CONFIG_JSONSCHEMA, PROPERTIES, TargetSettings
from target_spark_lake.intake.singer_lines import LineReader
from target_spark_lake.intake.stream_mapping import StreamMapping, wants_mapping
from target_spark_lake.layout import Layout
from target_spark_lake.load.batches import RecordBeforeSchemaError
from target_spark_lake.load.load_run import LoadRun
from target_spark_lake.stage.stager import start_session

if TYPE_CHECKING:
    from target_spark_lake.intake.singer_lines import RecordLines

JSON = dict[str, Any]
PROGRAM = "target-spark-lake"


@dataclass(frozen=True)
class GivenConfig:
    """The contents of the config files, and whether the environment counts as well."""

    config: JSON
    from_environment: bool


class TargetSparkLake(HookedTarget):
    """Loads Singer streams into a lake of Parquet files on disk or S3, exactly once."""

    name = PROGRAM
    package_name = PROGRAM
    config_jsonschema: ClassVar[JSON] = copy.deepcopy(CONFIG_JSONSCHEMA)
    capabilities: ClassVar[list[CapabilitiesEnum]] = [
        PluginCapabilities.ABOUT,
        PluginCapabilities.ACTIVATE_VERSION,
        PluginCapabilities.BATCH,
        PluginCapabilities.STREAM_MAPS,
        PluginCapabilities.FLATTENING,
        PluginCapabilities.STRUCTURED_LOGGING,
        TargetCapabilities.HARD_DELETE,
        TargetCapabilities.SOFT_DELETE,
        TargetCapabilities.VALIDATE_RECORDS,
    ]

    settings: TargetSettings

    def __init__(self, *, accept_shrink: bool = False, **kwargs: Any) -> None:
        """Check the config; nothing is locked or started before the first message arrives.

        With `accept_shrink` the setting `max_shrink_percent` does not count.
        """
        self._accept_shrink = accept_shrink
        self._load: LoadRun | None = None
        self._progress = Progress("loaded")
        self._began = datetime.now(UTC)
        kwargs.setdefault("message_reader", LineReader(self._check, self._fail))
        super().__init__(**kwargs)
        self._mapping = StreamMapping(self.mapper) if wants_mapping(self.config) else None
        self._progress.phase("connecting", logged=False)

    @classmethod
    def append_builtin_config(cls, config_jsonschema: JSON) -> None:
        """Add the SDK's settings for stream maps and flattening; its others have no effect here."""
        super(Target, cls).append_builtin_config(config_jsonschema)

    def accepted_config(self, config: JSON) -> JSON:
        """The config with the environment's values."""
        default = pipeline_under_meltano(os.environ, parent_arguments())
        settings = TargetSettings.from_config(config, default_pipeline=default)
        self.settings = (
            replace(settings, max_shrink_percent=None) if self._accept_shrink else settings
        )
        expanded = expand(config, PROPERTIES)
        self.append_builtin_config(self.config_jsonschema)
        idle = sorted(set(expanded) - set(self.config_jsonschema["properties"]))
        if idle:
            self.logger.warning(
                "SDK settings that have no effect here are ignored: %s", ", ".join(idle)
            )
        return expanded

    @property
    def load(self) -> LoadRun:
        """The target's run; first access opens it and locks the pipeline."""
        if self._load is None:
            settings = self.settings
            accepted = settings.accept_unconditional_storage
            storage = Storage(
                settings.bucket, settings.storage_options, accept_unconditional=accepted
            )
            layout = Layout(settings.pipeline, settings.path, settings.iceberg_catalog)
            if other := location_of_another(os.environ, storage.url, settings.pipeline):
                self.logger.warning(
                    "Meltano keeps the state as %s, this target as pipeline %s in %s: Meltano does "
                        "not see what a pipe does there; let state_backend.uri and "
                        ".lake.pipelines name the target's bucket and pipeline",
                    other, settings.pipeline, storage.url,
                )  # fmt: skip
            store = open_state_store(settings.state_backend, storage, settings.pipeline)
            run = open_run(storage, layout, lock_ttl_seconds=settings.lock_ttl_seconds, store=store)
            own = set(self.config_jsonschema["properties"]) - set(PROPERTIES)
            mapping = {name: value for name, value in self.config.items() if name in own}
            meltano = os.environ, parent_arguments()
            self._load = LoadRun(
                settings,
                run,
                lambda: start_session(settings, storage),
                mapping,
                saving_under_meltano(*meltano),
                self._progress,
                refreshes=refreshes_under_meltano(*meltano),
                began=self._began,
            )
            self._load.begin()
        return self._load

    def take_schema(self, message: JSON) -> None:
        """Take a SCHEMA, of each stream that it is mapped to."""
        for each in self._mapping.schema(message) if self._mapping else (message,):
            self.load.schema(each)

    def take_records(self, lines: RecordLines) -> None:
        """Take lines of a stream's RECORDs."""
        if self._mapping and not self._mapping.knows(lines.stream):
            raise RecordBeforeSchemaError(f"input line {lines.first_line}: a RECORD", lines.stream)
        for each in self._mapping.records(lines) if self._mapping else (lines,):
            self.load.records(each)

    def take_state(self, message: JSON) -> None:
        """Take a STATE, which names the source's streams."""
        if mapping := self._mapping:
            for member in (SKIPPED, RESTARTED, STRANGERS):
                if isinstance(streams := message.get(member), list):
                    aliases = [name for each in streams for name in mapping.aliases(each) or [each]]
                    message = {**message, member: aliases}
            again = message.get(AGAIN)
            if isinstance(again, dict) and isinstance(streams := again.get(STREAMS), dict):
                named = {mapping.alias_to_come(each): of for each, of in streams.items()}
                message = {**message, AGAIN: {**again, STREAMS: named}}
        self.load.state(message)

    def take_version(self, message: JSON) -> None:
        """Take an ACTIVATE_VERSION, of each stream that it is mapped to."""
        for each in self._mapping.activations(message) if self._mapping else (message,):
            self.load.activate_version(each)

    def take_batch(self, message: JSON) -> None:
        """Take a BATCH; a stream that is mapped takes its lines."""
        if not self._mapping:
            self.load.batch(message)
            return
        if isinstance(stream := message.get("stream"), str) and not self._mapping.knows(stream):
            raise RecordBeforeSchemaError("a BATCH", stream)
        for lines in self.load.batch_lines(message):
            self.take_records(lines)

    def process_endofpipe(self) -> None:
        """Commit the run."""
        try:
            self.load.finish()
        except BaseException as error:
            self._fail(error)
            raise
        self.load.left_out.finish()

    def _check(self) -> None:
        self.load.check()

    def _fail(self, error: BaseException) -> None:
        self._progress.stop()
        if self._load is not None:
            self._load.fail(error)

    @classmethod
    def cb_config(  # type: ignore[override]
        cls, ctx: click.Context, param: click.Option, value: tuple[str, ...]
    ) -> GivenConfig:
        """Read the config files; raises ConfigurationError if one is missing or malformed."""
        config: JSON = {}
        for file in value:
            if file == FROM_ENVIRONMENT:
                read_variables(Path())
            else:
                config |= read_config(file, "--config", way_out="`spark-lake init` writes one")
        return GivenConfig(config, FROM_ENVIRONMENT in value)

    @classmethod
    def invoke(  # type: ignore[override]
        cls,
        *,
        about: bool = False,
        about_format: str | None = None,
        config: GivenConfig | None = None,
        file_input: IO[str] | None = None,
        accept_shrink: bool = False,
    ) -> None:
        """Run the target, or print about it, as the SDK does."""
        super(Target, cls).invoke(about=about, about_format=about_format)
        cls.print_version(print_fn=cls.logger.info)
        given = config or GivenConfig({}, from_environment=False)
        cls(
            config=given.config,
            parse_env_config=given.from_environment,
            accept_shrink=accept_shrink,
        ).listen(file_input)

    @classmethod
    def get_singer_command(cls) -> click.Command:
        """The SDK's command, with its input read as bytes."""
        command = super().get_singer_command()
        for param in command.params:
            if param.name == "file_input":
                param.type = click.File("rb")
        level = click.Option(
            ["--log-level"],
            type=click.Choice(LEVELS, case_sensitive=False),
            is_eager=True,
            expose_value=False,
            callback=lambda _, __, value: set_up_logs(PROGRAM, value),
            help="How much is logged; debug shows the trace of an error.",
        )
        shrink = click.Option(
            ["--accept-shrink"],
            is_flag=True,
            help="Accept tables with far fewer rows, regardless of max_shrink_percent.",
        )
        command.params += [level, shrink]
        command.help = "Loads Singer messages from standard input into a lake, exactly once."
        command.epilog = (
            "Example: tap-spark-jdbc --config tap.json --state-from target.json | "
            f"{PROGRAM} --config target.json"
        )
        return command


def run() -> int:
    """Run the command; raises SingerSparkError if it failed."""
    try:
        return int(TargetSparkLake.get_singer_command().main(standalone_mode=False) or 0)
    except click.ClickException as error:
        raise ConfigurationError(RunCode.BAD_SETTING, error.format_message()) from error
    except click.Abort as error:
        raise KeyboardInterrupt from error
