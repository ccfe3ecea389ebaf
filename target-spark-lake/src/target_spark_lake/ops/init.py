"""`spark-lake init`: asks on a terminal for what its flags leave open, writes what a new pipeline
needs, and shows how to run it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from json import dumps, loads
from pathlib import Path
from shlex import quote
from typing import Any

import click

from singer_spark.core.config_file import read_variables
from singer_spark.core.scratch import write_whole
from singer_spark.core.signals import too_late_to_stop
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.layout import CODECS
from target_spark_lake.ops.check import lines_of
from target_spark_lake.ops.command import (
    DEFAULT_CONFIG,
    PROGRAM,
    TAP,
    TARGET,
    file_option,
    installed,
    json_option,
    log_level_option,
    subcommand,
)
from target_spark_lake.ops.meltano_yml import MeltanoEntry
from target_spark_lake.ops.new_pipeline import REFERENCE, NewPipeline, text_of
from target_spark_lake.ops.questions import SEVERAL, ask
from target_spark_lake.table.table_record import FORMATS, LOAD_METHODS

PROJECT = "meltano.yml"
JSON = dict[str, Any]
NEEDED = ("jdbc_url", "bucket", "pipeline")


@dataclass(frozen=True)
class InitReport:
    """What was written, and how to run it.

    Every command is for a shell in `directory`, where the files are.
    """

    pipeline: str
    directory: str
    files: list[str]
    variables: list[str]
    dry_run: str
    run: str
    pipe: str
    meltano: str
    crontab: str | None
    notes: list[str]
    check: dict[str, Any] | None = None


def init(
    new: NewPipeline,
    directory: Path,
    *,
    tap_config: str = "tap.json",
    config: str = "target.json",
    force: bool = False,
) -> InitReport:
    """Write the tap's and the target's config and the entry in `meltano.yml`; nothing is written if
    anything is wrong.

    With `force`, overwrite existing files and this pipeline's existing entry.

    Raises:
        ConfigurationError: a value is bad, or something exists already.
    """
    new.check()
    placed = new.in_folder(directory)
    files = {
        directory / tap_config: text_of(placed.tap_file),
        directory / config: text_of(placed.target_config),
    }
    if len(files) < 2 or directory / PROJECT in files:
        raise ConfigurationError(
            RunCode.BAD_FLAG,
            "nothing was written: the two configs and meltano.yml must be different files",
        )
    there = [str(path) for path in files if path.exists()]
    if there and not force:
        raise ConfigurationError(
            LakeCode.ALREADY_THERE,
            f"nothing was written: {' and '.join(there)} {'is' if len(there) == 1 else 'are'} "
            "there already; name other files (--tap-config, --config), another --directory, or "
            "--force to write over them",
        )
    programs = {program: _executable(program, directory) for program in (TAP, TARGET)}
    entry = MeltanoEntry(new.pipeline, new.tap_config, new.target_config, programs, new.cron)
    project = directory / PROJECT
    files[project], said = entry.added_to(_read(project), replace=force, origin=str(project))
    too_late_to_stop()
    for path, text in files.items():
        _write(path, text)
    pipe = f"{TAP} --config {quote(tap_config)} --state-from {quote(config)}"
    return InitReport(
        pipeline=new.pipeline,
        directory=str(directory),
        files=[tap_config, config, PROJECT],
        variables=list(new.variables),
        dry_run=f"{pipe} --dry-run",
        run=_run_command(tap_config, config),
        pipe=f"set -o pipefail; {pipe} | {TARGET} --config {quote(config)}",
        meltano=f"meltano run {entry.name}",
        crontab=_crontab(new, directory, tap_config, config, log=f"{entry.name}.log")
        if new.cron
        else None,
        notes=said,
    )


def _run_command(tap_config: str, config: str, *, program: str = PROGRAM) -> str:
    flags = [("--tap-config", tap_config, "tap.json"), ("--config", config, DEFAULT_CONFIG)]
    named = [f"{flag} {quote(name)}" for flag, name, usual in flags if name != usual]
    return " ".join([f"{program} run", *named])


def _crontab(new: NewPipeline, directory: Path, tap_config: str, config: str, *, log: str) -> str:
    """The line for `crontab -e`.

    cron starts in another folder with hardly any variables set; a run reads `.env`.
    """
    run = _run_command(tap_config, config, program=quote(installed(PROGRAM) or PROGRAM))
    line = f"cd {quote(str(directory.resolve()))} && {run} >>{quote(log)} 2>&1"
    # cron takes a percent sign as the end of the line.
    return f"{new.cron} {line}".replace("%", "\\%")


def _executable(program: str, directory: Path) -> str:
    """How `meltano.yml` names a program: relative to the project's folder if it is below."""
    path, root = Path(installed(program) or program), directory.absolute()
    return f"./{path.relative_to(root).as_posix()}" if path.is_relative_to(root) else program


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            LakeCode.FILE_UNWRITABLE, f"nothing was written: can't read {path}: {error}"
        ) from error


def _write(path: Path, text: str) -> None:
    """Write a file atomically; an existing one keeps its mode."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode if path.exists() else None
        write_whole(path.resolve(), text.encode())
        if mode is not None:
            path.chmod(mode)
    except OSError as error:
        raise ConfigurationError(
            LakeCode.FILE_UNWRITABLE, f"can't write {path}: {error.strerror}"
        ) from error


class _Init(click.Command):
    """Its `--tables` takes several values: `--tables a b` is read as `--tables a --tables b`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words, flag = [], ""
        for before, word in pairwise(["", *args]):
            flag = word if word.startswith("-") else flag
            if flag == "--tables" and flag not in (before, word):
                words.append(flag)
            words.append(word)
        return super().parse_args(ctx, words)


@subcommand(
    "init",
    "init",
    "init --jdbc-url jdbc:postgresql://db/shop --user reader --tables public.orders --bucket lake "
    "--pipeline shop",
    of_lake=False,
    cls=_Init,
)
@click.option("--jdbc-url", metavar="URL", help="the database")
@click.option("--user", help="user name; the password comes from the environment")
@click.option("--password", hidden=True)
@click.option(
    "--password-variable",
    metavar="NAME",
    help="the password's variable; <PIPELINE>_PASSWORD if not given",
)
@click.option("--tables", multiple=True, metavar="TABLE...", help="globs; all if not given")
@click.option(
    "--incremental-table",
    "incremental_tables",
    multiple=True,
    metavar="SPEC",
    help="schema.table:column:type[:i|e][@start][!append|upsert], may be repeated",
)
@click.option(
    "--log-based",
    multiple=True,
    metavar="STREAM",
    help="read its changes and deletes from the database's log; a name or glob, may be repeated",
)
@click.option("--bucket", help="the lake, a folder or URL")
@click.option("--path", help="data root in the bucket; raw if not given")
@click.option("--compression", type=click.Choice(CODECS), help="Parquet codec; zstd if not given")
@click.option("--pipeline", metavar="NAME", help="name of the pipeline")
@click.option("--format", type=click.Choice(FORMATS), help="table format; parquet if not given")
@click.option(
    "--load-method", type=click.Choice(LOAD_METHODS), help="depends on the stream if not given"
)
@click.option("--endpoint-url", metavar="URL", help="URL of an S3-compatible store")
@click.option(
    "--storage-keys",
    is_flag=True,
    help="the store's keys come from <PIPELINE>_STORAGE_KEY and <PIPELINE>_STORAGE_SECRET",
)
@click.option("--records", is_flag=True, help="rows go through the pipe one by one, not as files")
@click.option("--cron", metavar="WHEN", help="when it runs: five cron fields, or @daily")
@click.option(
    "--directory", default=".", metavar="FOLDER", help="where the files go; here if not given"
)
@file_option("--tap-config", default="tap.json", help="name of the tap's config")
@file_option("--config", default="target.json", help="name of the target's config")
@click.option("--force", is_flag=True, help="write over what is there")
@json_option
@log_level_option
def init_command(
    directory: str, password: str | None, log_level: str, *, force: bool, json: bool, **known: Any
) -> None:
    """Write the two configs and the meltano.yml entry of a new pipeline; on a terminal it asks for
    what is left open.
    """
    if password is not None:
        raise ConfigurationError(
            LakeCode.PASSWORD_SHOWN,
            "nothing was written: a password on the command line can be read by everybody; "
            "--password-variable NAME names the environment variable that holds it",
        )
    files = {name: known.pop(name) for name in ("tap_config", "config")}
    known |= {name: known[name] or None for name in SEVERAL}
    if sys.stdin.isatty() and not all(known[name] for name in NEEDED):
        known = ask(known)
    if lacking := [name for name in NEEDED if not known[name]]:
        flags = ", ".join("--" + name.replace("_", "-") for name in lacking)
        raise ConfigurationError(
            LakeCode.BAD_ANSWER,
            f"nothing was written: {flags} must be given (on a terminal init asks)",
        )
    values: JSON = {
        name: tuple(each) if name in SEVERAL else each
        for name, each in known.items()
        if each is not None
    }
    new = NewPipeline(**values)
    folder = Path(directory).expanduser()
    read_variables(folder)
    new.check()
    report = init(new, folder, **files, force=force)
    found, notes = _checked(new, folder, files)
    report = replace(report, check=found, notes=[*notes, *report.notes])
    print(dumps(asdict(report), indent=2, ensure_ascii=False) if json else _text(report))


def _checked(
    new: NewPipeline, directory: Path, files: Mapping[str, str]
) -> tuple[JSON | None, list[str]]:
    """What `spark-lake check` says about the new files in their folder, or why it was not run."""
    if installed(TAP) is None:
        return None, [f"{TAP} is not installed beside this program: its settings were not checked"]
    if lacking := [
        name for name in REFERENCE.findall(repr(new.tap_config)) if name not in os.environ
    ]:
        later = f"set {' and '.join(lacking)}, then run `{PROGRAM} check`"
        return None, [f"the connection was not tried: {later}"]
    words = ["check", "--json", "--tap-config", files["tap_config"], "--config", files["config"]]
    program = "from target_spark_lake.ops.spark_lake import main; main()"
    command = [sys.executable, "-c", program, *words]
    # From the folder in which it will run, because a file named by the URL may be relative to that.
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    try:
        return loads(done.stdout), []
    except ValueError:
        return None, [f"`{PROGRAM} check` failed: {done.stderr.strip()}"]


def _text(report: InitReport) -> str:
    here = report.directory == "."
    lines = [
        f"Pipeline {report.pipeline}: wrote "
        f"{', '.join(report.files)}{'' if here else f' in {report.directory}'}"
    ]
    if report.variables:
        lines += [
            "",
            "Secrets are not in them. Set these, or put them into a .env beside them, for your "
            "eyes only:",
        ]
        lines += [f"  {name}=..." for name in report.variables]
    lines += [
        "",
        f"{'To' if here else f'In {report.directory}, to'} see what a run would read, and to run "
        "it:",
    ]
    lines += [f"  {report.dry_run}", f"  {report.run}", "or as a pipe, or by Meltano:"]
    lines += [f"  {report.pipe}", f"  {report.meltano}"]
    if report.crontab:
        lines += ["To schedule it, a line for `crontab -e`:", f"  {report.crontab}"]
    lines += [f"Note: {note}" for note in report.notes]
    return "\n".join(
        [*lines, "", "What `spark-lake check` found:", *lines_of(report.check)]
        if report.check
        else lines
    )
