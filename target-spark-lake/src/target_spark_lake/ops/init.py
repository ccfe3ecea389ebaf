"""`spark-lake init`: its flags; on a terminal it asks for what they leave open."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from singer_spark.core.config_file import read_variables
from singer_spark.errors import ConfigurationError
from singer_spark.program.logs import LEVELS
from target_spark_lake.error_codes import LakeCode
from target_spark_lake.layout import CODECS
from target_spark_lake.ops.check import lines_of
from target_spark_lake.ops.command import PROGRAM, Command, installed
from target_spark_lake.ops.init_pipeline import InitReport, init
from target_spark_lake.ops.meltano_yml import TAP
from target_spark_lake.ops.new_pipeline import REFERENCE, NewPipeline
from target_spark_lake.ops.questions import SEVERAL, ask
from target_spark_lake.table.table_record import FORMATS, LOAD_METHODS

JSON = dict[str, Any]
NEEDED = ("jdbc_url", "bucket", "pipeline")


def _flags(parser: argparse.ArgumentParser) -> None:
    # `--password` must not be taken as an abbreviation of `--password-variable`.
    parser.allow_abbrev = False
    parser.add_argument("--jdbc-url", metavar="URL", help="the database")
    parser.add_argument("--user", help="user name; the password comes from the environment")
    parser.add_argument("--password", help=argparse.SUPPRESS)
    parser.add_argument(
        "--password-variable",
        metavar="NAME",
        help="the password's variable; <PIPELINE>_PASSWORD if not given",
    )
    parser.add_argument(
        "--tables", nargs="+", action="extend", metavar="TABLE", help="globs; all if not given"
    )
    parser.add_argument(
        "--incremental-table",
        dest="incremental_tables",
        action="append",
        metavar="SPEC",
        help="schema.table:column:type[:i|e][@start][!append|upsert], may be repeated",
    )
    parser.add_argument(
        "--log-based",
        action="append",
        metavar="STREAM",
        help="read its changes and deletes from the database's log; a name or glob, may be "
        "repeated",
    )
    parser.add_argument("--bucket", help="the lake, a folder or URL")
    parser.add_argument("--path", help="data root in the bucket; raw if not given")
    parser.add_argument("--compression", choices=CODECS, help="Parquet codec; zstd if not given")
    parser.add_argument("--pipeline", metavar="NAME", help="name of the pipeline")
    parser.add_argument("--format", choices=FORMATS, help="table format; parquet if not given")
    parser.add_argument(
        "--load-method", choices=LOAD_METHODS, help="depends on the stream if not given"
    )
    parser.add_argument("--endpoint-url", metavar="URL", help="URL of an S3-compatible store")
    parser.add_argument(
        "--storage-keys",
        action="store_true",
        help="the store's keys come from <PIPELINE>_STORAGE_KEY and <PIPELINE>_STORAGE_SECRET",
    )
    parser.add_argument(
        "--records", action="store_true", help="rows go through the pipe one by one, not as files"
    )
    parser.add_argument(
        "--cron", metavar="WHEN", help="when it runs: five fields of cron's, or @daily"
    )
    parser.add_argument(
        "--directory", default=".", metavar="FOLDER", help="where the files go; here if not given"
    )
    parser.add_argument(
        "--tap-config", default="tap.json", metavar="FILE", help="name of the tap's config"
    )
    parser.add_argument(
        "--config", default="target.json", metavar="FILE", help="name of the target's config"
    )
    parser.add_argument("--force", action="store_true", help="write over what is there")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.add_argument(
        "--log-level", default="info", choices=LEVELS, help="debug shows the trace of an error"
    )


def _run(chosen: argparse.Namespace) -> None:
    if chosen.password is not None:
        raise ConfigurationError(
            LakeCode.PASSWORD_SHOWN,
            "nothing was written: a password on the command line can be read by everybody; "
            "--password-variable NAME names the environment variable that holds it",
        )
    known: JSON = {name: getattr(chosen, name) for name in NewPipeline.__dataclass_fields__}
    asks = sys.stdin.isatty() and not all(known[name] for name in NEEDED)
    if asks:
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
    directory = Path(chosen.directory).expanduser()
    read_variables(directory)
    new.check()
    files = {"tap_config": chosen.tap_config, "config": chosen.config}
    report = init(new, directory, **files, force=chosen.force)
    found, notes = _checked(new, directory, files)
    report = replace(report, check=found, notes=[*notes, *report.notes])
    print(
        json.dumps(asdict(report), indent=2, ensure_ascii=False) if chosen.json else _text(report)
    )


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
    command = [
        sys.executable,
        "-c",
        "from target_spark_lake.ops.spark_lake import main; main()",
        *words,
    ]
    # From the folder in which it will run, because a file named by the URL may be relative to that.
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout), []
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
        [*lines, "", "What a run would meet:", *lines_of(report.check)] if report.check else lines
    )


INIT = Command(
    "init",
    "write the two configs and the meltano.yml entry of a new pipeline; on a terminal it asks for "
    "what is left open",
    (
        "init",
        "init --jdbc-url jdbc:postgresql://db/shop --user reader --tables public.orders --bucket "
        "lake --pipeline shop",
    ),
    _run,
    _flags,
    of_lake=False,
    if_stopped="nothing was written",
)
