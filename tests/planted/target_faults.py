"""What the target may do wrong: of commit, lock and recovery, of checkpoints and tables."""

from __future__ import annotations

from planted.fault import Fault

ANY_CALL = ("tests/faults/storage/test_storage_faults.py", "-k", "any_storage_fault_loses")
PIPELINE_RUN = (
    "tests/target/commit/test_pipeline_run.py",
    "tests/target/commit/test_table_claims.py",
    "tests/target/commit/test_kept_journals.py",
)
LOCK = ("tests/target/commit/test_lock.py",)
PUBLISH, JOURNAL, CHECKPOINT = (
    "target:commit/publish.py",
    "target:commit/journal.py",
    "target:commit/checkpoint_file.py",
)

TARGET_FAULTS = (
    Fault(
        "the state goes ahead of the rows",
        PUBLISH,
        "    _move(storage, layout, logs, entry, plan)\n    # Read first",
        "    if entry.state is not None:\n        store.write(entry.state, store.content(), "
        "entry.run_id)\n"
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
        "            PublishedFile(file.path, layout.rejected(run_id, stream), "
        "file.rows, file.bytes)\n",
        "            *()\n",
        (
            "tests/target/validate/test_quarantine.py",
            "tests/faults/storage/test_quarantine_faults.py",
        ),
    ),
    Fault(
        "nobody counts what is rejected",
        JOURNAL,
        "rejected=file.rows)",
        "rejected=0)",
        ("tests/target/validate/test_quarantine.py",),
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
            "tests/target/ops/test_state_commands.py",
            "tests/faults/abandoned_commits/test_abandoned_commits.py",
            "tests/faults/abandoned_commits/test_stale_restores.py",
            "-k",
            "state or missing_file",
        ),
    ),
    Fault(
        "a held lock is taken",
        "target:commit/lock.py",
        "if before.is_held() and not force:",
        "if False:",
        LOCK,
    ),
    Fault(
        "a run that lost its lock continues",
        "target:commit/lock.py",
        "if newest.run_id != self.entry.run_id:",
        "if False:",
        LOCK,
    ),
    Fault(
        "a silent holder on another machine lives for ever",
        "target:commit/lock.py",
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
        "a run that only slept commits after its lock was taken over",
        "target:commit/recovery.py",
        "    if not journal.decide(storage, layout, body):\n        return False\n",
        "",
        (
            "tests/faults/rivals/test_rivals.py",
            "tests/faults/rivals/test_late_contender.py",
            *PIPELINE_RUN,
        ),
    ),
    Fault(
        "a checkpoint of another state is taken",
        CHECKPOINT,
        "        if not found.fits(saved, last):\n            return None\n",
        "",
        ("tests/target/load/resuming/test_refused_checkpoints.py", "-k", "invalidates_checkpoint"),
    ),
    Fault(
        "a checkpoint whose files are gone is taken",
        CHECKPOINT,
        "staged.get(path) != size]",
        "False]",
        (
            "tests/faults/storage/test_resume_faults.py",
            "tests/faults/rivals/test_resume_rivals.py",
            "tests/target/load/resuming/test_refused_checkpoints.py",
        ),
    ),
    Fault(
        "another pipeline's table is written to",
        "target:table/table_record.py",
        "    if (record.pipeline, record.stream) == (pipeline, stream):\n",
        "    if True:\n",
        ("tests/target/table/test_table_record.py", *PIPELINE_RUN),
    ),
    Fault(
        "max_deletes_percent holds nothing back",
        "target:formats/stream_load.py",
        "if gone * 100 > living * self.max_deletes_percent:",
        "if False:",
        ("tests/target/formats/test_detected_deletes.py",),
    ),
    Fault(
        "late rows join the batch before them",
        "target:load/batches.py",
        "            self._close(sink)\n            sink.known.clear()\n",
        "            sink.known.clear()\n",
        ("tests/target/load/test_batch_runs.py", "tests/target/formats/merging/test_newest_row.py"),
    ),
    Fault(
        "a row that is sent again is kept twice",
        "target:formats/repeated_rows.py",
        "return seen < known or (",
        "return (",
        ("tests/target/formats/test_repeated_rows.py", "-k", "left_out"),
    ),
)
