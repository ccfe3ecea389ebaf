"""The words of `spark-lake init`: its flags, and the questions it asks on a terminal for what they leave open."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from singer_spark.errors import ConfigurationError
from target_spark_lake.cli.init import InitReport, init
from target_spark_lake.cli.new_pipeline import NewPipeline
from target_spark_lake.config_schema import CODECS, DELTA, LOAD_METHODS, PARQUET

NEEDED = ("jdbc_url", "bucket", "pipeline")
# Asked in this order; what follows a name is shown as the answer that Enter gives.
QUESTIONS = {
    "jdbc_url": ("JDBC URL of the database, as in jdbc:postgresql://localhost:5432/shop", None),
    "user": ("User (Enter: none)", ""),
    "tables": ("Tables, as in public.orders public.c* (Enter: all)", ""),
    "incremental_table": ("Incremental ones, as in public.orders:updated_at:timestamp (Enter: none)", ""),
    "bucket": ("Where the lake is, a folder or s3://...", "./lake"),
    "path": ("Folder of the tables in it", "raw"),
    "compression": (f"Compression, one of {', '.join(CODECS)}", "zstd"),
    "pipeline": ("Name of the pipeline", "main"),
    "cron": ("When it runs, as in 0 5 * * * or @daily (Enter: when you say so)", ""),
}
SEVERAL = ("tables", "incremental_table")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `init`."""
    # `--password` must not be taken for a shorter way to write `--password-variable`.
    parser.allow_abbrev = False
    parser.add_argument("--jdbc-url", metavar="URL", help="the database")
    parser.add_argument("--user", help="user name; the password comes from the environment")
    parser.add_argument("--password", help=argparse.SUPPRESS)
    parser.add_argument("--password-variable", metavar="NAME", help="its variable; <PIPELINE>_PASSWORD if not given")
    parser.add_argument("--tables", nargs="+", action="extend", metavar="TABLE", help="globs; all if not given")
    parser.add_argument(
        "--incremental-table",
        action="append",
        metavar="SPEC",
        help="schema.table:column:type[:i|e][@start][!append|upsert], may be repeated",
    )
    parser.add_argument("--bucket", help="the lake, a folder or URL")
    parser.add_argument("--path", help="data root in the bucket; raw if not given")
    parser.add_argument("--compression", choices=CODECS, help="of Parquet; zstd if not given")
    parser.add_argument("--pipeline", metavar="NAME", help="name of the pipeline")
    parser.add_argument("--format", choices=[PARQUET, DELTA], help="of the tables; parquet if not given")
    parser.add_argument("--load-method", choices=LOAD_METHODS, help="by the stream if not given")
    parser.add_argument("--endpoint-url", metavar="URL", help="of a store that speaks S3's language")
    parser.add_argument(
        "--storage-keys",
        action="store_true",
        help="the store's keys come from <PIPELINE>_STORAGE_KEY and <PIPELINE>_STORAGE_SECRET",
    )
    parser.add_argument("--cron", metavar="WHEN", help="when it runs: five fields of cron's, or @daily")
    parser.add_argument("--directory", default=".", metavar="FOLDER", help="where the files go; here if not given")
    parser.add_argument("--tap-config", default="tap.json", metavar="FILE", help="name of the tap's config")
    parser.add_argument("--config", default="target.json", metavar="FILE", help="name of the target's config")
    parser.add_argument("--force", action="store_true", help="write over what is there")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--log-level", default="info", help="debug shows the trace of an error")


def run_init(chosen: argparse.Namespace) -> None:
    """Sets up the pipeline that the flags and the answers describe, and tells how it is run.

    Raises:
        ConfigurationError: a value lacks or is bad, or something is there already.
    """
    if chosen.password is not None:
        raise ConfigurationError(
            "nothing was written: a password on the command line can be read by everybody; "
            "--password-variable NAME names the environment variable that holds it"
        )
    lacking = [name for name in NEEDED if not getattr(chosen, name)]
    if lacking and sys.stdin.isatty():
        _ask(chosen)
        lacking = [name for name in NEEDED if not getattr(chosen, name)]
    if lacking:
        flags = ", ".join("--" + name.replace("_", "-") for name in lacking)
        raise ConfigurationError(f"nothing was written: {flags} must be given (on a terminal init asks)")
    new = NewPipeline(
        pipeline=chosen.pipeline,
        jdbc_url=chosen.jdbc_url,
        bucket=chosen.bucket,
        user=chosen.user or None,
        password_variable=chosen.password_variable,
        tables=tuple(chosen.tables or ()),
        incremental_tables=tuple(chosen.incremental_table or ()),
        path=chosen.path,
        compression=chosen.compression,
        format=chosen.format,
        load_method=chosen.load_method,
        endpoint_url=chosen.endpoint_url,
        storage_keys=chosen.storage_keys,
        cron=chosen.cron or None,
    )
    directory = Path(chosen.directory).expanduser()
    report = init(new, directory, tap_config=chosen.tap_config, config=chosen.config, force=chosen.force)
    print(json.dumps(asdict(report), indent=2, ensure_ascii=False) if chosen.json else _text(report))


def _ask(chosen: argparse.Namespace) -> None:
    """Asks on standard error, so that standard output holds the answer alone."""
    for name, (question, usual) in QUESTIONS.items():
        if getattr(chosen, name) is not None:
            continue
        sys.stderr.write(f"{question}{f' [{usual}]' if usual else ''}: ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise ConfigurationError("nothing was written: not all questions were answered")
        answer = line.strip() or usual or ""
        setattr(chosen, name, answer.split() if name in SEVERAL else answer)


def _text(report: InitReport) -> str:
    lines = [f"Pipeline {report.pipeline}: wrote {', '.join(report.files)} in {report.directory}"]
    if report.variables:
        lines += ["", "Secrets are not in them. Set these, or put them into the file .env, for your eyes only:"]
        lines += [f"  {name}=..." for name in report.variables]
        lines += ["A shell takes them from there by: set -a; . ./.env; set +a"]
    lines += ["", f"In {report.directory}, to look first, and to run it:", f"  {report.dry_run}", f"  {report.pipe}"]
    lines += ["or by Meltano:", f"  {report.meltano}"]
    if report.crontab:
        lines += ["To schedule it, a line for `crontab -e`:", f"  {report.crontab}"]
    return "\n".join([*lines, *(f"Note: {note}" for note in report.notes)])
