"""Faults planted one by one into a copy of the sources, each of which some test must catch; not a part of the suite.

`python tests/planted_faults.py [NAME …]` plants all of them, or those named; it ends with 1 where no test noticed.
Each names the few tests that guard what it breaks, mostly without a JVM: all of them take some minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = ("shared", "tap-spark-jdbc", "target-spark-lake", "tests", "docs", "demo", "pyproject.toml", "meltano.yml")
SOURCES = {
    "shared": "shared/src/singer_spark",
    "tap": "tap-spark-jdbc/src/tap_spark_jdbc",
    "target": "target-spark-lake/src/target_spark_lake",
}
TIMEOUT_SECONDS = 900


@dataclass(frozen=True)
class Fault:
    """A change of one file.

    Attributes:
        name: What is wrong then.
        file: Package and module.
        right: A text that stands there once.
        wrong: What takes its place.
        tests: Arguments of pytest: what must notice.
    """

    name: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]

    @property
    def path(self) -> str:
        package, _, module = self.file.partition(":")
        return f"{SOURCES[package]}/{module}"


ANY_CALL = ("tests/faults/storage/test_storage_faults.py", "-k", "any_storage_call_loses")
PIPELINE_RUN = ("tests/target/commit/test_pipeline_run.py",)
LOCK = ("tests/target/commit/test_lock.py",)
PUBLISH, JOURNAL, CHECKPOINT = (
    "target:commit/publish.py",
    "target:commit/journal.py",
    "target:commit/checkpoint_file.py",
)
STREAM_SQL = "tap:plan/stream_sql.py"
SLICES = ("tests/tap/plan/test_slices.py", "tests/tap/dialects/unserved/test_dialects_sql.py")

FAULTS = (
    Fault(
        "the state goes ahead of the rows",
        PUBLISH,
        "    _move(storage, layout, logs, entry, plan)\n    # Read first",
        "    if entry.state is not None:\n        store.write(entry.state, store.content(), entry.run_id)\n"
        "    _move(storage, layout, logs, entry, plan)\n    # Read first",
        ANY_CALL,
    ),
    Fault(
        "old files go before the new ones are there",
        PUBLISH,
        "    _move(storage, layout, logs, entry, plan)\n    # Read first",
        "    each(storage, storage.delete, plan.retire)\n"
        "    _move(storage, layout, logs, entry, plan)\n    # Read first",
        ANY_CALL,
    ),
    Fault(
        "old files stay beside those that replace them",
        PUBLISH,
        "        each(storage, storage.delete, paths)\n",
        "        pass\n",
        ANY_CALL,
    ),
    Fault(
        "files that are not whole are published",
        PUBLISH,
        "        if size != file.bytes:",
        "        if False:",
        PIPELINE_RUN,
    ),
    Fault(
        "the state is never published",
        PUBLISH,
        "        written = store.write(entry.state, state, entry.run_id)\n",
        "        pass\n",
        ANY_CALL,
    ),
    Fault(
        "a decided run's journal is written over",
        JOURNAL,
        '    return storage.create(layout.journal(body["run_id"]), encode(body))',
        '    storage.replace(layout.journal(body["run_id"]), encode(body))\n    return True',
        (
            "tests/faults/kills/test_kills.py",
            "tests/faults/rivals/test_rivals.py",
            "tests/faults/rivals/test_late_contender.py",
        ),
    ),
    Fault(
        "rejected records of a run are dropped",
        JOURNAL,
        "        publish.append(PublishedFile(file.path, layout.rejected(run_id, stream), file.rows, file.bytes))\n",
        "        pass\n",
        ("tests/target/validation/test_quarantine.py", "tests/faults/storage/test_quarantine_faults.py"),
    ),
    Fault(
        "nobody counts what is rejected",
        JOURNAL,
        "rejected=file.rows)",
        "rejected=0)",
        ("tests/target/validation/test_quarantine.py",),
    ),
    Fault(
        "two files of a run have one name",
        JOURNAL,
        "enumerate(change.published, start=1)",
        "((1, file) for file in change.published)",
        ANY_CALL,
    ),
    Fault(
        "the history lacks the state before",
        JOURNAL,
        '        "previous_state": previous_state,',
        '        "previous_state": None,',
        (
            "tests/target/cli/test_state_commands.py",
            "tests/faults/giving_up/test_giving_up.py",
            "tests/faults/giving_up/test_giving_up_asleep.py",
            "-k",
            "state or comes_again_once",
        ),
    ),
    Fault("a held lock is taken", "target:commit/lock.py", "if before.is_held() and not force:", "if False:", LOCK),
    Fault(
        "a run that lost its lock goes on",
        "target:commit/lock.py",
        "if newest is None or newest.run_id != self.entry.run_id:",
        "if False:",
        LOCK,
    ),
    Fault(
        "a silent holder on another machine lives for ever",
        "target:commit/lock_entry.py",
        "silence <= timedelta(seconds=self.ttl_seconds)",
        "True",
        LOCK,
    ),
    Fault(
        "a run by a clock behind sorts before the last one",
        "target:commit/lock.py",
        "now = max(now, time_of(before) + timedelta(microseconds=1))",
        "pass",
        (*LOCK, *PIPELINE_RUN),
    ),
    Fault(
        "a run that only slept commits after it was taken for dead",
        "target:commit/recovery.py",
        "    if not decide(storage, layout, body):\n        return False\n",
        "",
        ("tests/faults/rivals/test_rivals.py", "tests/faults/rivals/test_late_contender.py", *PIPELINE_RUN),
    ),
    Fault(
        "a checkpoint of another state is taken",
        CHECKPOINT,
        "        if not found.fits(saved, last):\n            return None\n",
        "",
        ("tests/target/load/test_resume.py", "-k", "is_void"),
    ),
    Fault(
        "a checkpoint whose files are gone is taken",
        CHECKPOINT,
        "staged.get(path) != size]",
        "False]",
        (
            "tests/faults/storage/test_resume_faults.py",
            "tests/faults/rivals/test_resume_rivals.py",
            "tests/target/load/test_resume.py",
        ),
    ),
    Fault(
        "another pipeline's table is written to",
        "target:tables/table_record.py",
        "    if (record.pipeline, record.stream) == (pipeline, stream):\n",
        "    if True:\n",
        ("tests/target/tables/test_table_record.py", *PIPELINE_RUN),
    ),
    Fault(
        "max_deletes_percent holds nothing back",
        "target:formats/stream_load.py",
        "if gone * 100 > living * self.max_deletes_percent:",
        "if False:",
        ("tests/target/formats/test_detected_deletes.py",),
    ),
    Fault(
        "a second SCHEMA drops the records before it",
        "target:load/batches.py",
        "        if sink.schema != schema:\n            self._close(sink)\n",
        "        if sink.schema != schema:\n            self._open.pop(schema.stream, None)\n",
        (
            "tests/target/load/test_batch_runs.py",
            "tests/target/load/test_schema_changes.py",
            "tests/target/test_target.py",
        ),
    ),
    Fault(
        "somebody else's state is written over",
        "shared:state/store.py",
        "return self.storage.exchange(self.path, seen, state_text(value, mark).encode())",
        "return self.storage.replace(self.path, state_text(value, mark).encode()) or True",
        ("tests/faults/rivals/test_rivals.py",),
    ),
    Fault(
        "secrets stand in logs",
        "shared:errors.py",
        "        text = text.replace(secret, MASK)\n",
        "        pass\n",
        ("tests/shared/program/test_errors_and_output.py",),
    ),
    Fault(
        "what the JVM prints goes to standard output",
        "shared:process/stdout.py",
        "    os.dup2(2, 1)\n",
        "",
        ("tests/shared/program",),
    ),
    Fault(
        "a signal is taken note of and the run goes on to success",
        "shared:process/signals.py",
        "            if not self.too_late:\n                raise Stopped(number)\n            self._say",
        "            self._say",
        ("tests/shared/process/test_signals.py", "tests/shared/program/test_frame.py"),
    ),
    Fault(
        "ties at the bookmark are lost",
        STREAM_SQL,
        "{'>' if within.after else '>='}",
        ">",
        SLICES,
    ),
    Fault(
        "rows at the upper bound are lost",
        STREAM_SQL,
        "{'<=' if within.closed else '<'}",
        "<",
        SLICES,
    ),
    Fault(
        "rows without replication key are dropped",
        STREAM_SQL,
        'return f"({inside} OR {name} IS NULL)" if each.nulls else inside',
        "return inside",
        ("tests/tap/streams/test_slices_and_state.py", "-k", "without_key"),
    ),
    Fault(
        "a change in a large group at the bookmark is skipped",
        "tap:extraction/fingerprints.py",
        "saved[number] != present.get(number, (0, 0))[1] % 2**64",
        "False",
        ("tests/tap/streams/test_slices_and_state.py", "-k", "tie_group"),
    ),
    Fault(
        "a row that commits late is skipped",
        "tap:plan/late_rows.py",
        "        condition = _within(writer, first, span)\n",
        '        condition = "1 = 0"\n',
        ("tests/tap/plan/test_late_rows.py",),
    ),
    Fault(
        "numbers of a state become floats",
        "shared:singer/exact_json.py",
        "        return self.text\n",
        "        return super().__repr__()\n",
        ("tests/tap/extraction/test_exact_states.py", "tests/shared/state/test_exact_states.py"),
    ),
    Fault(
        "a moment's zone is dropped",
        "shared:singer/key_value.py",
        "        moment = _to_utc(moment, zone)\n",
        "        pass\n",
        ("tests/shared/singer/test_key_value.py",),
    ),
)


def planted(fault: Fault, copy: Path) -> tuple[bool, str]:
    """Whether a test noticed the fault, and the first that did."""
    path = copy / fault.path
    before = path.read_text()
    assert before.count(fault.right) == 1, f"{fault.name}: {fault.path} has changed, so must this fault"
    path.write_text(before.replace(fault.right, fault.wrong))
    try:
        sources = os.pathsep.join(str((copy / source).parent) for source in SOURCES.values())
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", *fault.tests],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": sources},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    finally:
        path.write_text(before)
    first = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    # Tests that can't begin, or of which there are none, notice nothing.
    return done.returncode == 1 and bool(first), first[0][7:] if first else done.stdout[-2000:] + done.stderr[-2000:]


def main() -> int:
    chosen = [fault for fault in FAULTS if not sys.argv[1:] or fault.name in sys.argv[1:]]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder, "copy")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns(".venv"))
            else:
                shutil.copy(ROOT / name, copy / name)
        for fault in chosen:
            began = time.monotonic()
            noticed, by = planted(fault, copy)
            missed += not noticed
            print(
                f"{'caught' if noticed else 'MISSED'}  {fault.name} ({time.monotonic() - began:.0f} s): {by}",
                flush=True,
            )
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
