"""The codes of the target's own errors, also those of `spark-lake`."""

from __future__ import annotations

from singer_spark.error_codes import ErrorCode


class LakeCode(ErrorCode):
    """Errors of the target and of `spark-lake`."""

    INPUT_MALFORMED = (
        "LAKE-001",
        "A line of the input is not a Singer message.",
        "Check what writes to the pipe: only the tap may write to its standard output.",
    )
    SCHEMA_MESSAGE = (
        "LAKE-002",
        "A SCHEMA message is malformed, or contradicts an earlier one of its stream.",
        "Correct the tap or its catalog.",
    )
    RECORD_BEFORE_SCHEMA = (
        "LAKE-003",
        "A RECORD or BATCH came before the SCHEMA of its stream.",
        "Correct the tap: it must send the SCHEMA first.",
    )
    INPUT_OUT_OF_ORDER = (
        "LAKE-004",
        "Messages came in an order that no single run of a tap sends.",
        "Give the target the output of one run of one tap.",
    )
    TAP_DIED = (
        "LAKE-005",
        "The input ended before the tap's last STATE: the tap died.",
        "Look at the tap's own message, then run again.",
    )
    INPUT_EMPTY = (
        "LAKE-006",
        "The input held no message: the tap did not start.",
        "Look at the tap's own message, then run again.",
    )
    TAP_FAILED = (
        "LAKE-007",
        "The tap ended with an error, which the message repeats.",
        "Look up the tap's own code.",
    )
    OUTPUT_CLOSED = (
        "LAKE-008",
        "The run is committed and its state saved, but the state could not be printed.",
        "Nothing for the lake. Look at the program that reads the target's output.",
    )
    BATCH_MESSAGE = (
        "LAKE-010",
        "A BATCH message is malformed, or has an unknown format or compression.",
        "Set `batch_config` of the tap to a format that the message names.",
    )
    BATCH_FILE_DAMAGED = (
        "LAKE-011",
        "A batch file is incomplete, not of its format, or not as its tap wrote it.",
        "Run the tap again.",
    )
    BATCH_FILE_MISSING = (
        "LAKE-012",
        "A batch file is missing, can't be reached, or was named twice.",
        "Run the tap again; give tap and target the same `storage_options`.",
    )
    BATCH_FILE_REFUSED = (
        "LAKE-013",
        "A batch file is in a place that the target does not read.",
        "Let tap and target name one bucket, or add the folder to `batch_roots`.",
    )
    BATCH_FILE_TOO_LARGE = (
        "LAKE-014",
        "A batch file expands to more than `batch_max_expanded_mb`.",
        "Set `batch_max_expanded_mb` if that is right.",
    )
    BATCH_COLUMNS = (
        "LAKE-015",
        "A batch file has none of the columns of its SCHEMA.",
        "Correct the tap.",
    )
    INVALID_RECORD = (
        "LAKE-020",
        "A record breaks the JSON Schema of its stream.",
        "Correct the record or the schema, or set [`on_invalid_record: quarantine`]"
        "(types.md#quarantine).",
    )
    KEY_VALUE_MISSING = (
        "LAKE-021",
        "A record has no value in its primary key.",
        "Correct it at the source, or choose other `key_properties`.",
    )
    TOO_MANY_INVALID = (
        "LAKE-022",
        "More records are invalid than `max_invalid_records` allows.",
        "Correct the records, or raise the limit.",
    )
    VALUE_FOR_NOT_NULL = (
        "LAKE-023",
        "A column of the table is NOT NULL, and rows of the run have no value there.",
        "Give them values in the tap, or allow NULL in the table.",
    )
    SHRUNK_TABLE = (
        "LAKE-024",
        "A stream was sent in full with far fewer rows than its table has.",
        "If that is right, [accept it once](load-methods.md#a-table-that-shrinks).",
    )
    TOO_MANY_DELETES = (
        "LAKE-025",
        "More rows are gone from the source than `max_deletes_percent` allows.",
        "Check the source. If they are gone, run once with a greater `max_deletes_percent`.",
    )
    PARTITION_VALUE = (
        "LAKE-026",
        "A value can't be the name of a partition's folder, or its partition can't be computed.",
        "Take the column out of `partition_by`, or correct the value.",
    )
    SCHEMA_UNUSABLE = (
        "LAKE-030",
        "The JSON Schema of a stream is malformed.",
        "Correct it in the tap or its catalog.",
    )
    SCHEMA_FROZEN = (
        "LAKE-031",
        "The schema of a stream changed, and `schema_evolution` is `freeze`.",
        "Set `schema_evolution` to `evolve` or `discard`, or revert the change.",
    )
    TYPE_CONFLICT = (
        "LAKE-032",
        "A column's new type can't be kept in its table.",
        "Load the table once with `load_method` `overwrite`, or into another `path`.",
    )
    COLUMN_NAME = (
        "LAKE-033",
        "A column's name can't be kept in this table or format.",
        "Rename the column, or use another `format`.",
    )
    COLUMN_NESTED = (
        "LAKE-034",
        "A column is nested too deeply, or has members that the program can't check.",
        "Load the stream into another table, or change the column as the message says.",
    )
    NO_KEY = (
        "LAKE-040",
        "The load method, or the command, needs a primary key, and the stream has none.",
        "Give `key_properties` in `stream_options`, or use `append-only` or `overwrite`.",
    )
    BAD_KEY = (
        "LAKE-041",
        "A primary key or cursor names a column that is missing or reserved.",
        "Correct `key_properties` or `cursor` in `stream_options`.",
    )
    BAD_LOAD_METHOD = (
        "LAKE-042",
        "The load method is unknown, or can't take what the tap sends.",
        "Use another `load_method`, or a flag that the message names.",
    )
    DELETES_UNSUITABLE = (
        "LAKE-043",
        "`detect_deletes` of the tap does not fit the stream's keys or load method.",
        "Give tap and target the same `key_properties`, or take `detect_deletes` out.",
    )
    BAD_PARTITIONS = (
        "LAKE-044",
        "`partition_by` is malformed, makes too many folders, or differs from the table's.",
        "Correct it in `stream_options`, or load the table once with `overwrite`.",
    )
    APPENDED_TWICE = (
        "LAKE-045",
        "A full run would append rows that an append-only table has already.",
        "Give `--replace` or `--append-again`.",
    )
    TABLE_TAKEN = (
        "LAKE-050",
        "A table, or a folder around it, belongs to another stream or pipeline.",
        "Give one of the two another `path`.",
    )
    OTHER_FORMAT = (
        "LAKE-051",
        "The table is of another format than `format` says, or its folder holds foreign files.",
        "Set `format` back, convert the table (`spark-lake convert`), or use another `path`.",
    )
    TABLE_MOVED = (
        "LAKE-052",
        "The rows that a stream has loaded so far are in another table.",
        "Set `path` back, or run `spark-lake state reset --stream …` first.",
    )
    TABLE_NAME = (
        "LAKE-053",
        "A folder's name is malformed or too long, or differs from another only by case.",
        "Give the stream another name or `path`, or the pipeline another name.",
    )
    TABLE_MISSING = (
        "LAKE-054",
        "The pipeline has no such table or stream.",
        "Correct the name, or load the stream first.",
    )
    PIPELINE_UNKNOWN = (
        "LAKE-055",
        "The pipeline, or the run that is named, is not in this bucket.",
        "Correct the name: `spark-lake runs` shows the runs.",
    )
    LOCKED = (
        "LAKE-060",
        "Another run holds the pipeline.",
        "Let it finish. If its machine is gone, run `spark-lake unlock`.",
    )
    LOCK_LOST = (
        "LAKE-061",
        "The lock of this run expired and another process took over, or the lock was removed.",
        "Run again. Raise `lock_ttl_seconds` if the machine was merely slow.",
    )
    CHANGED_BESIDE = (
        "LAKE-062",
        "Something else wrote to the state, the records or the tables during the run.",
        "Run again; find out which other program writes there.",
    )
    STATE_MOVED_ON = (
        "LAKE-063",
        "The tap started from another state than the saved one.",
        "Run tap and target again. Give both `--state-from` if two schedules run one pipeline.",
    )
    RESUMPTION_LOST = (
        "LAKE-064",
        "The run continues a dead run, whose staged rows can't be used.",
        "Run tap and target again: they start from the saved state.",
    )
    NOT_PUBLISHED_YET = (
        "LAKE-065",
        "The run is committed, but not all of it is published yet.",
        "The next run finishes it, or `spark-lake recover`.",
    )
    FILES_GONE = (
        "LAKE-066",
        "Files of a committed run are gone, so it can't be published.",
        "Bring the files back, then run `spark-lake recover`: [A run that can't be published]"
        "(#a-run-that-cant-be-published).",
    )
    CANNOT_ABANDON = (
        "LAKE-067",
        "The run does not exist, was never committed, or is already published, so it can't be "
        "abandoned.",
        "Run `spark-lake runs` to see each run and its outcome.",
    )
    UNDECIDED = (
        "LAKE-068",
        "The store does not say whether the run is committed.",
        "Run `spark-lake recover`, or the next run, once the store answers.",
    )
    STAGED_INCOMPLETE = (
        "LAKE-070",
        "Staged files do not hold what was written to them.",
        "Run again. If the error persists, check the store.",
    )
    SPARK_TASK_FAILED = (
        "LAKE-071",
        "A task of Spark failed to read or write files of the lake.",
        "The message has the cause; the executors need access to the bucket.",
    )
    EXECUTORS_UNSUITABLE = (
        "LAKE-072",
        "The executors or the Spark Connect server lack a package or access to the bucket.",
        "Install the package or give access there, or set `engine` to `local`.",
    )
    FOREIGN_FILE = (
        "LAKE-073",
        "A table's folder holds a file that the program can't read as part of the table.",
        "Take the file out of the folder.",
    )
    TABLE_UNREADABLE = (
        "LAKE-074",
        "Files of a table can't be read, or changed meanwhile.",
        "Run the command again.",
    )
    TABLE_LOG_GONE = (
        "LAKE-080",
        "The log of a Delta or Iceberg table is gone, or can't be read.",
        "Restore it, or register the table again.",
    )
    TABLE_CHANGED = (
        "LAKE-081",
        "Someone else gave a Delta or Iceberg table what this program can't keep.",
        "Revert the change as the message says, or load the stream into another table.",
    )
    TABLE_BUSY = (
        "LAKE-082",
        "Other programs keep writing to a table.",
        "Run again at a quieter time.",
    )
    CATALOG_FAILED = (
        "LAKE-083",
        "The Iceberg catalog refused a request, or can't be reached.",
        "Check `catalog`, then run again.",
    )
    CATALOG_MISMATCH = (
        "LAKE-084",
        "The Iceberg catalog, or its entry for a table, is not the lake's.",
        "Run with the target's config, or give the stream another `path` or `namespace`.",
    )
    CHANGED_BEFORE_PUBLISHED = (
        "LAKE-085",
        "Someone else changed the table of a committed run before it was published.",
        "Revert that change as the message says, then run `spark-lake recover`: [A run that can't "
        "be published](#a-run-that-cant-be-published).",
    )
    LOG_FORGOTTEN = (
        "LAKE-086",
        "A table's log no longer shows whether it holds a committed run.",
        "Restore the log, then run `spark-lake recover`.",
    )
    CANNOT_BE_TAKEN_BACK = (
        "LAKE-087",
        "What a run published can't be reverted: its table was changed since.",
        "Restore the table as the message says: [A run that can't be published]"
        "(#a-run-that-cant-be-published).",
    )
    ALREADY_THERE = (
        "LAKE-090",
        "`spark-lake init` would overwrite a file or a pipeline.",
        "Name others, or use `--force`.",
    )
    BAD_ANSWER = (
        "LAKE-091",
        "An answer to `spark-lake init` is missing or can't be used.",
        "Answer as the message says, or give the flags.",
    )
    PASSWORD_SHOWN = (
        "LAKE-092",
        "A password was given on the command line, where others can read it.",
        "Use `--password-variable`.",
    )
    BAD_MELTANO_YML = (
        "LAKE-093",
        "`meltano.yml` is not a Meltano project, or is malformed.",
        "Correct the file at the place that the message names.",
    )
    PROGRAM_MISSING = (
        "LAKE-094",
        "`tap-spark-jdbc` or another program is not installed beside the target.",
        "Install it into the same environment.",
    )
    TAP_REFUSED = (
        "LAKE-095",
        "The tap failed when it was asked for its tables or for what there is to read.",
        "The message is the tap's; look up its own code.",
    )
    FILE_UNWRITABLE = (
        "LAKE-096",
        "A file can't be written or read.",
        "Let this user write there, or name another path.",
    )
    NO_BOOKMARK = (
        "LAKE-100",
        "The stream or the run has no bookmark or state that could be changed.",
        "`spark-lake state show` and `state history` show what there is.",
    )
    BAD_BOOKMARK = (
        "LAKE-101",
        "The new bookmark can't be used, or its type is unknown.",
        "Give a value of the key's type, or `--type`.",
    )
    NOT_REPAIRABLE = (
        "LAKE-102",
        "`verify --repair` can't replace single rows of this table.",
        "Load it again with the tap's `--full`.",
    )
    NOT_COMPARABLE = (
        "LAKE-103",
        "Source and lake can't be compared: mapped records, or another table.",
        "Compare without `stream_maps` and flattening, or correct the stream.",
    )
    NOT_CONVERTIBLE = (
        "LAKE-104",
        "A table's files can't be converted to another format as they are.",
        "Load the stream once with `overwrite`, then convert the table.",
    )
    VIEW_IMPOSSIBLE = (
        "LAKE-105",
        "No view of the latest rows can be made for this table or engine.",
        "Use another `--engine`, or set a key or a cursor.",
    )
    STREAMS_SKIPPED = (
        "LAKE-110",
        "Some streams did not arrive; the others are committed.",
        "Each stream's own code is in the message: [One bad table among many]"
        "(#one-bad-table-among-many).",
    )
    KNOWN_STREAM_SKIPPED = (
        "LAKE-111",
        "The tap can't read a stream that was loaded before, so nothing was published.",
        "Look at the tap's own message, or set its `on_stream_error` to `skip`.",
    )
