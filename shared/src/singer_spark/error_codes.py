"""Codes of errors: one for each cause that a user would look up.

A number is permanent: it is never given to another cause, also after its cause is gone.
`docs/generate_errors.py` writes the codes into docs/troubleshooting.md.
"""

from __future__ import annotations

from enum import Enum


class ErrorCode(Enum):
    """A code, what happened, and what to do.

    Attributes:
        number: What the user sees and looks up, such as `RUN-001`.
        cause: What happened, in one sentence.
        remedy: What to do, in one sentence or two.
    """

    def __init__(self, number: str, cause: str, remedy: str) -> None:
        self.number = number
        self.cause = cause
        self.remedy = remedy

    def __str__(self) -> str:
        return self.number

    __repr__ = __str__


def code_numbered(number: str) -> ErrorCode:
    """The code with a number, as another process names it."""
    return next(
        code for family in ErrorCode.__subclasses__() for code in family if code.number == number
    )


class RunCode(ErrorCode):
    """Errors of either program."""

    FILE_UNREADABLE = (
        "RUN-001",
        "A file that a flag or a setting names does not exist, or can't be read.",
        "Correct the path, or let this user read the file.",
    )
    FILE_MALFORMED = (
        "RUN-002",
        "A config, catalog or other file is not UTF-8, not JSON or YAML, or not an object.",
        "Correct the file at the line and column of the message.",
    )
    TWO_FILES = (
        "RUN-003",
        "Two files with a default name exist, and no flag chooses one.",
        "Name the file by the flag of the message.",
    )
    BAD_SETTING = (
        "RUN-004",
        "A setting is missing, unknown or malformed, or contradicts another.",
        "Correct the settings that the message names; [Settings](settings.md) lists all.",
    )
    SECRET_UNREADABLE = (
        "RUN-005",
        "A `${…}` in the config can't be replaced: its variable, file or secret can't be read.",
        "Set the variable, or grant the secret. Write `$${` for a plain `${`.",
    )
    PACKAGE_MISSING = (
        "RUN-006",
        "A Python package that a setting needs is not installed.",
        "Install the extra that the message names; [Install](install.md) lists them.",
    )
    BAD_FLAG = (
        "RUN-007",
        "A flag has a malformed value, or contradicts another.",
        "Correct the command line; `--help` shows the flags.",
    )
    JAVA_MISSING = (
        "RUN-010",
        "No Java of a version that Spark supports was found.",
        "Install Java 17 or 21, or set `JAVA_HOME`.",
    )
    SPARK_NOT_STARTED = (
        "RUN-011",
        "Spark or its JVM did not start.",
        "The message has the cause. Check `spark` in the config.",
    )
    JVM_ENDED = (
        "RUN-012",
        "Spark's JVM was killed, or crashed, during the run.",
        "Run again. If it was killed for its memory, run fewer programs at once, or lower "
        "`spark.driver.memory`.",
    )
    OUT_OF_MEMORY = (
        "RUN-013",
        "The memory of Spark's JVM, or of this machine, is used up.",
        "[Memory, disk and limits](#memory-disk-and-limits).",
    )
    LIMIT_REACHED = (
        "RUN-014",
        "A limit of this machine is reached: threads, open files or address space.",
        "Raise the limit: [Memory, disk and limits](#memory-disk-and-limits).",
    )
    DISK_FULL = (
        "RUN-015",
        "A disk is full, or no folder for temporary files can be made.",
        "Free some space, or set `TMPDIR` to another place.",
    )
    OUTPUT_CLOSED = (
        "RUN-016",
        "The program that reads standard output has ended.",
        "Check that program's own message.",
    )
    CONNECT_FAILED = (
        "RUN-020",
        "There is no session on the Spark Connect server.",
        "Check `spark.remote`, and that the server runs.",
    )
    CONNECT_UNSUITABLE = (
        "RUN-021",
        "The Spark Connect server can't be used as it is set up.",
        "Change what the message names where the server is started.",
    )
    JAR_UNAVAILABLE = (
        "RUN-022",
        "A jar of a driver or of Spark is not in the cache, and can't be fetched or kept.",
        "Allow the download once, or put the jar there yourself: [Install](install.md).",
    )
    JAR_CHANGED = (
        "RUN-023",
        "A jar's checksum differs from the pinned one.",
        "Remove the cached file. If the repository serves a jar with that checksum, do not trust "
        "the repository.",
    )
    STATE_MALFORMED = (
        "RUN-030",
        "A state is not JSON, or not of the form of a state.",
        "Correct it, restore an earlier one (`spark-lake state restore`), or run with `--full`.",
    )
    OTHER_REPLICATION_KEY = (
        "RUN-031",
        "The saved bookmark belongs to another replication key than the run uses.",
        "Set the key back, run with `--full`, or "
        "[set the bookmark](stores.md#change-the-bookmark).",
    )
    BOOKMARK_UNUSABLE = (
        "RUN-032",
        "The saved bookmark is not a value of the key's type; the type may have changed.",
        "Run with `--full`, or [set the bookmark](stores.md#change-the-bookmark).",
    )
    STATE_IN_TWO_LOCATIONS = (
        "RUN-033",
        "The state should move to another backend, but that backend already holds a state.",
        "Remove the wrong state, or set `state_backend` back.",
    )
    STATE_ELSEWHERE = (
        "RUN-034",
        "The pipeline keeps its state in another location than this config names.",
        "Give the target's config, with its `state_backend`.",
    )
    STATE_OF_OTHER_LAKE = (
        "RUN-035",
        "The state was saved by a run of another lake.",
        "Give one of the two lakes another `pipeline` or `table_name`.",
    )
    BAD_STATE_BACKEND = (
        "RUN-036",
        "The URL or the setting of a state backend is malformed.",
        "Correct it as the message says; [Stores](stores.md) has the forms.",
    )
    STATE_DATABASE_FAILED = (
        "RUN-037",
        "The database that holds the state refused a request, or can't be reached.",
        "Check its URL, its grants, and that it runs; then run again.",
    )
    LAKE_FILE_DAMAGED = (
        "RUN-040",
        "A file in the lake's own folder is damaged.",
        "Restore it from a backup, or remove it where the message says so.",
    )
    NEWER_FORMAT = (
        "RUN-041",
        "A file was written by a newer version of these programs.",
        "Upgrade the program that reports this.",
    )
    BAD_BUCKET = (
        "RUN-050",
        "A bucket's URL is empty, or lacks its bucket, container or account.",
        "Correct the URL; [Stores](stores.md) has the forms.",
    )
    BAD_STORAGE_OPTIONS = (
        "RUN-051",
        "`storage_options` has an option that this store does not know or can't use.",
        "Correct the option that the message names; [Stores](stores.md) lists them.",
    )
    STORAGE_FAILED = (
        "RUN-052",
        "The storage refused a request, or can't be reached.",
        "Check the bucket, the keys in `storage_options`, the network, and the clock; then run "
        "again.",
    )
    STORE_OVERWRITES = (
        "RUN-053",
        "The store ignores conditional puts, so two runs could both win.",
        "Use a store that honours them: [Stores](stores.md).",
    )
    PARQUET_DAMAGED = (
        "RUN-054",
        "A Parquet file can't be read, or is incomplete.",
        "Run again. If the error persists, restore the file.",
    )
    NO_COLUMNS = (
        "RUN-060",
        "The schema of a stream has no columns.",
        "Deselect the stream, or select a column of it.",
    )
    COLUMNS_DIFFER_BY_CASE = (
        "RUN-061",
        "Two columns of a table have names that differ only by case.",
        "Deselect or rename one of them.",
    )
    UNEXPECTED = (
        "RUN-099",
        "An error that the program does not expect: most likely a bug.",
        "Report it with the output of `--log-level debug`.",
    )
