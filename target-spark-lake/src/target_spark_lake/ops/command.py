"""What the commands of `spark-lake` share: declaration, the lake they act on, display."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from singer_spark.core.config_file import FROM_ENVIRONMENT, read_variables, usual_config
from singer_spark.core.config_file import read_config as read_config_file
from singer_spark.core.exact_json import to_json
from singer_spark.errors import redact
from singer_spark.program.logs import LEVELS
from singer_spark.state.backend import open_state_store
from singer_spark.store.storage import Storage
from target_spark_lake.commit.run_reports import check_has_run
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.layout import Layout

if TYPE_CHECKING:
    from rich.console import RenderableType

    from singer_spark.state.store import StateStore
    from target_spark_lake.commit.pipeline_run import PipelineRun

JSON = dict[str, Any]
PROGRAM = "spark-lake"
DEFAULT_CONFIG = "target.json"
# The programs' names.
TAP, TARGET = "tap-spark-jdbc", "target-spark-lake"
_TAP_PACKAGE = "tap_spark_jdbc"
# Output to a file or a mail has no margin to wrap at.
FILE_WIDTH = 200

# A file that can't be read is an error of its reader, not of the command line.
file_option = partial(click.option, type=click.Path(readable=False), metavar="FILE")
files_option = partial(file_option, multiple=True)
tap_config_option = files_option(
    "--tap-config", help="tap.json (or .yml) if not given; repeatable, or ENV"
)
json_option = click.option("--json", is_flag=True, help="print JSON, for programs")
log_level_option = click.option(
    "--log-level",
    default="info",
    type=click.Choice(LEVELS),
    help="debug shows the trace of an error",
)
_OF_LAKE = (
    files_option(
        "--config",
        default=lambda: [usual_config("target")],
        help=f"config of the target; {DEFAULT_CONFIG} if not given",
    ),
    click.option("--pipeline", help="a pipeline other than the config's"),
    json_option,
    log_level_option,
)


@dataclass(frozen=True)
class Chosen:
    """The flags of all commands that act on a lake."""

    config: tuple[str, ...]
    pipeline: str | None
    json: bool
    log_level: str


class Group(click.Group):
    """Commands, listed in their order."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return list(self.commands)


def subcommand(
    name: str, *examples: str, of_lake: bool = True, cls: type[click.Command] = click.Command
) -> Callable[[Callable[..., int | None]], click.Command]:
    """Make a function a command of `spark-lake`; its docstring is the help.

    The function returns the exit code, or None for 0. Click only parses: the command returns what
    is to be run, so that no error or signal of the run is taken for one of a command line.

    Args:
        name: The last of its words.
        examples: Example arguments for `spark-lake`.
        of_lake: Whether the first argument is a `Chosen`.
        cls: What click makes of it.
    """

    def made(run: Callable[..., int | None]) -> click.Command:
        @wraps(run)
        def parsed(**flags: Any) -> Callable[[], int | None]:
            if not of_lake:
                return partial(run, **flags)
            shared = {name: flags.pop(name) for name in Chosen.__dataclass_fields__}
            return partial(run, Chosen(**shared), **flags)

        if of_lake:
            for option in reversed(_OF_LAKE):
                option(parsed)
        # Click would cut it where commands are listed.
        summary = cleandoc(run.__doc__ or "").partition("\n\n")[0]
        epilog = "\n".join(["\b", "examples:", *(f"  {PROGRAM} {each}" for each in examples)])
        return click.command(name, cls, short_help=summary, epilog=epilog)(parsed)

    return made


@dataclass(frozen=True)
class Lake:
    """The lake and the pipeline named by a command line."""

    config: JSON
    settings: TargetSettings
    storage: Storage
    layout: Layout

    @classmethod
    def of(
        cls, chosen: Chosen, *, default_pipeline: str | None = None, has_run: bool = False
    ) -> Lake:
        """Read the config.

        Raises:
            ConfigurationError: it can't be read, a setting is wrong, or the pipeline never ran,
                though named by `--pipeline` or required to have run (`has_run`).
        """
        config = read_config(chosen.config)
        settings = TargetSettings.from_config(
            config, default_pipeline=chosen.pipeline or default_pipeline
        )
        accepted = settings.accept_unconditional_storage
        storage = Storage(settings.bucket, settings.storage_options, accept_unconditional=accepted)
        layout = Layout(
            chosen.pipeline or settings.pipeline, settings.path, settings.iceberg_catalog
        )
        if has_run or chosen.pipeline:
            check_has_run(storage, layout.pipeline)
        return cls(config, settings, storage, layout)

    @property
    def location(self) -> str:
        """The bucket for display: without user and password in its URL."""
        return redact(re.sub(r"(?<=://)[^/@]*@", "", self.storage.url))

    @cached_property
    def store(self) -> StateStore:
        """The store of the pipeline's published state."""
        return self.store_of(self.layout.pipeline)

    def store_of(self, pipeline: str) -> StateStore:
        """The store of the published state of a pipeline of the bucket."""
        return open_state_store(self.settings.state_backend, self.storage, pipeline)

    def open_run(self, command: str) -> PipelineRun:
        """Take the pipeline for a command that changes something; see `open_run`."""
        from target_spark_lake.commit.pipeline_run import open_run

        ttl = self.settings.lock_ttl_seconds
        return open_run(
            self.storage, self.layout, lock_ttl_seconds=ttl, store=self.store, command=command
        )


def installed(program: str) -> str | None:
    """Absolute path of a program: beside this one, or else in the shell's search path."""
    beside = Path(sys.executable).with_name(program)
    return str(beside) if beside.is_file() else shutil.which(program)


def tap_module(name: str) -> Any:
    """A module of tap-spark-jdbc; None if that is not installed. No package imports the other."""
    try:
        return importlib.import_module(f"{_TAP_PACKAGE}.{name}")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(_TAP_PACKAGE):
            raise
        return None


def read_config(files: Sequence[str], option: str = "--config") -> JSON:
    """The settings of several files; later ones win."""
    merged: JSON = {}
    for file in files:
        way_out = f"name it by {option}, or let `{PROGRAM} init` write one"
        merged |= read_config_file(file, option, way_out=way_out)
    return merged


def tap_files(named: Sequence[str]) -> Sequence[str]:
    """The files of the tap's config, or `ENV`; if none is named, the file of this folder."""
    return named or [usual_config("tap")]


def read_tap_config(named: Sequence[str]) -> tuple[JSON, bool]:
    """The tap's config, and whether it is completed from environment variables."""
    named = tap_files(named)
    from_environment = FROM_ENVIRONMENT in named
    if from_environment:
        read_variables(Path())
    files = [file for file in named if file != FROM_ENVIRONMENT]
    return read_config(files, "--tap-config"), from_environment


def show(chosen: Chosen, value: Any, for_people: Callable[[Any], RenderableType]) -> None:
    """Print a result: as JSON for programs, else as a table or a text."""
    if chosen.json:
        print(to_json(value, 2, ascii_only=True))
        return
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, FILE_WIDTH)
    console.print(for_people(value))


def report_problems(problems: Sequence[str]) -> int:
    """Write problems to standard error, one per line, and return the exit code."""
    for problem in problems:
        sys.stderr.write(f"{PROGRAM}: {redact(problem)}\n")
    return 1 if problems else 0


def table_of(
    rows: Iterable[Sequence[object]],
    columns: Sequence[str],
    lines: Iterable[str] = (),
    right: Collection[str] = (),
) -> RenderableType:
    """A plain table with lines below it; `right` names the columns to align right."""
    from rich.box import SIMPLE
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, pad_edge=False)
    for column in columns:
        # A run's id is for copying, so it is never cut.
        justify: Literal["left", "right"] = "right" if column in right else "left"
        table.add_column(column, no_wrap=column == "run", overflow="fold", justify=justify)
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    return Group(table, *map(Text, lines))


def moment(text: str) -> str:
    """A timestamp to the second, for display."""
    return text[:19] + "Z"
