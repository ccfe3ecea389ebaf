"""What the commands of `spark-lake` share: their declaration, the lake they act on, and the display
of results.
"""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from singer_spark.core.config_file import FROM_ENVIRONMENT, read_variables
from singer_spark.core.config_file import read_config as read_config_file
from singer_spark.core.exact_json import to_json
from singer_spark.errors import redact
from singer_spark.state.backend import open_state_store
from singer_spark.store.storage import Storage
from target_spark_lake.commit.run_reports import check_has_run
from target_spark_lake.config.settings import TargetSettings
from target_spark_lake.layout import Layout

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Collection, Iterable, Sequence

    from rich.console import RenderableType

    from singer_spark.state.store import StateStore
    from target_spark_lake.commit.pipeline_run import PipelineRun

JSON = dict[str, Any]
PROGRAM = "spark-lake"
CONFIG = "--config target.json"
DEFAULT_CONFIG = "target.json"
# Output to a file or a mail has no margin to wrap at.
FILE_WIDTH = 200


@dataclass(frozen=True)
class Command:
    """A command of `spark-lake`.

    Attributes:
        name: Its words, such as `state show`.
        help: What it does, in one line.
        examples: Example arguments for `spark-lake`.
        run: Runs it; returns the exit code, or None for 0.
        flags: Adds its own flags.
        of_lake: Whether it has the flags that `Lake.of` reads.
        if_stopped: What the user should know when a signal stops it.
    """

    name: str
    help: str
    examples: tuple[str, ...]
    run: Callable[[Namespace], int | None]
    flags: Callable[[ArgumentParser], object] = lambda parser: None
    of_lake: bool = True
    if_stopped: str = "the next start finishes what was begun"


@dataclass(frozen=True)
class Lake:
    """The lake and the pipeline named by a command line."""

    config: JSON
    settings: TargetSettings
    storage: Storage
    layout: Layout

    @classmethod
    def of(
        cls, chosen: Namespace, *, default_pipeline: str | None = None, has_run: bool = False
    ) -> Lake:
        """Read the config.

        Raises:
            ConfigurationError: it can't be read, a setting is wrong, or the pipeline never ran,
                though named by
                `--pipeline` or required to have run (`has_run`).
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


def read_config(files: Sequence[str], option: str = "--config") -> JSON:
    """The settings of several files; later ones win."""
    merged: JSON = {}
    for file in files:
        way_out = f"name it by {option}, or let `{PROGRAM} init` write one"
        merged |= read_config_file(file, option, way_out=way_out)
    return merged


def add_tap_config(parser: ArgumentParser) -> None:
    """Add the flag that `tap_config` reads."""
    what = "config of the tap, or ENV"
    parser.add_argument("--tap-config", action="append", required=True, metavar="FILE", help=what)


def tap_config(chosen: Namespace) -> tuple[JSON, bool]:
    """The tap's config, and whether it is completed from environment variables."""
    from_environment = FROM_ENVIRONMENT in chosen.tap_config
    if from_environment:
        read_variables(Path())
    files = [file for file in chosen.tap_config if file != FROM_ENVIRONMENT]
    return read_config(files, "--tap-config"), from_environment


def show(chosen: Namespace, value: Any, for_people: Callable[[Any], RenderableType]) -> None:
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
