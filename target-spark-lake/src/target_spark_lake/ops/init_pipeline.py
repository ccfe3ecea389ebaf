"""`spark-lake init`: writes what a new pipeline needs, and shows how to run it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from singer_spark.core.scratch import write_whole
from singer_spark.core.signals import too_late_to_stop
from singer_spark.error_codes import RunCode
from singer_spark.errors import ConfigurationError
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.ops.command import DEFAULT_CONFIG, PROGRAM, installed
from target_spark_lake.ops.meltano_yml import TAP, TARGET, MeltanoEntry
from target_spark_lake.ops.new_pipeline import NewPipeline, text_of

PROJECT = "meltano.yml"


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
        run=_run(tap_config, config),
        pipe=f"set -o pipefail; {pipe} | {TARGET} --config {quote(config)}",
        meltano=f"meltano run {entry.name}",
        crontab=_crontab(new, directory, tap_config, config, log=f"{entry.name}.log")
        if new.cron
        else None,
        notes=said,
    )


def _run(tap_config: str, config: str, *, program: str = PROGRAM) -> str:
    flags = [("--tap-config", tap_config, "tap.json"), ("--config", config, DEFAULT_CONFIG)]
    return " ".join(
        [
            f"{program} run",
            *(f"{flag} {quote(name)}" for flag, name, usual in flags if name != usual),
        ]
    )


def _crontab(new: NewPipeline, directory: Path, tap_config: str, config: str, *, log: str) -> str:
    """The line for `crontab -e`.

    cron starts in another folder with hardly any variables set; a run reads `.env`.
    """
    run = _run(tap_config, config, program=quote(installed(PROGRAM) or PROGRAM))
    line = f"cd {quote(str(directory.resolve()))} && {run} >>{quote(log)} 2>&1"
    # cron takes a percent sign as the end of the line.
    return f"{new.cron} {line}".replace("%", "\\%")


def _executable(program: str, directory: Path) -> str:
    """How the shared `meltano.yml` names a program: relative to the project's folder if it is below
    that.
    """
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
