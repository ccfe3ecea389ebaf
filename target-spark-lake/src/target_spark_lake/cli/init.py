"""`spark-lake init`: writes what a new pipeline needs, and says how it is run."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from singer_spark.errors import ConfigurationError
from target_spark_lake.cli.meltano_yml import TAP, TARGET, MeltanoEntry
from target_spark_lake.cli.new_pipeline import NewPipeline, text_of

PROJECT = "meltano.yml"


@dataclass(frozen=True)
class InitReport:
    """What was written, and how it is run; every command is for a shell in `directory`.

    Attributes:
        files: Written, relative to the directory.
        variables: Environment variables that must be set, or stand in `.env`.
        dry_run: Shows what would be read.
        pipe: The first run, and every later one.
        meltano: The same by Meltano.
        crontab: A line for `crontab -e`; None where no time was chosen.
        notes: What the user should know.
    """

    pipeline: str
    directory: str
    files: list[str]
    variables: list[str]
    dry_run: str
    pipe: str
    meltano: str
    crontab: str | None
    notes: list[str]


def init(
    new: NewPipeline, directory: Path, *, tap_config: str = "tap.json", config: str = "target.json", force: bool = False
) -> InitReport:
    """Writes the tap's and the target's config and the entry in `meltano.yml`; nothing where anything is wrong.

    Args:
        new: What the user chose.
        directory: Where the files go; made when missing.
        tap_config: Name of the tap's config in it.
        config: Name of the target's.
        force: Writes over files, and over this pipeline's entry, that are there.

    Raises:
        ConfigurationError: a value is bad, or something is there already.
    """
    checked = new.check()
    files = {directory / tap_config: text_of(new.tap_config), directory / config: text_of(new.target_config)}
    if len(files) < 2 or directory / PROJECT in files:
        raise ConfigurationError("nothing was written: the two configs and meltano.yml must be different files")
    there = [str(path) for path in files if path.exists()]
    if there and not force:
        raise ConfigurationError(
            f"nothing was written: {' and '.join(there)} {'is' if len(there) == 1 else 'are'} there already; "
            "name other files (--tap-config, --config), another --directory, or --force to write over them"
        )
    programs = {program: _executable(program, directory) for program in (TAP, TARGET)}
    entry = MeltanoEntry(new.pipeline, new.tap_config, new.target_config, programs, new.cron)
    project = directory / PROJECT
    files[project], notes = entry.added_to(_read(project), replace=force, origin=str(project))
    if not checked:
        notes.append(f"{TAP} is not installed beside this program: what {tap_config} says was not checked")
    for path, text in files.items():
        _write(path, text)
    pipe = f"{TAP} --config {_word(tap_config)} --state-from {_word(config)}"
    return InitReport(
        pipeline=new.pipeline,
        directory=str(directory),
        files=[str(path.relative_to(directory)) for path in files],
        variables=list(new.variables),
        dry_run=f"{pipe} --dry-run",
        pipe=f"set -o pipefail; {pipe} | {TARGET} --config {_word(config)}",
        meltano=f"meltano run {entry.name}",
        crontab=_crontab(new, directory, tap_config, config, log=f"{entry.name}.log") if new.cron else None,
        notes=notes,
    )


def _crontab(new: NewPipeline, directory: Path, tap_config: str, config: str, *, log: str) -> str:
    """The line for `crontab -e`: cron runs it from elsewhere, by a shell of its own, with hardly a variable set."""
    tap, target = (_word(_installed(program) or program) for program in (TAP, TARGET))
    pipe = f"{tap} --config {_word(tap_config)} --state-from {_word(config)} | {target} --config {_word(config)}"
    variables = "set -a; [ ! -f .env ] || . ./.env; set +a; "
    line = f"cd {_word(str(directory.resolve()))} && bash -o pipefail -c {_word(variables + pipe)} >>{_word(log)} 2>&1"
    # cron takes a percent sign for the end of the line.
    return f"{new.cron} {line}".replace("%", "\\%")


def _word(text: str) -> str:
    return shlex.quote(text)


def _installed(program: str) -> str | None:
    """Absolute path of a program: beside this one, else where the shell finds it."""
    beside = Path(sys.executable).with_name(program)
    return str(beside) if beside.is_file() else shutil.which(program)


def _executable(program: str, directory: Path) -> str:
    """How `meltano.yml` names a program: from the project's folder where it lies below it."""
    found = _installed(program)
    if found is None:
        return program
    path, root = Path(found), directory.absolute()
    return f"./{path.relative_to(root).as_posix()}" if path.is_relative_to(root) else found


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"nothing was written: can't read {path}: {error}") from error


def _write(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        if path.exists():
            shutil.copymode(path, draft)
        draft.replace(path.resolve() if path.is_symlink() else path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ConfigurationError(f"can't write {path}: {error.strerror}") from error
