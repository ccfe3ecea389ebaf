"""Stages batches in the background while the input is read: a few at a time, with few waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from singer_spark.store.storage import Storage
    from target_spark_lake.table.changes import StagedBatch

WORKERS = 2
# Together with running jobs they bound the disk space of the spool.
WAITING_BATCHES = 2
CHECK_SECONDS = 0.5


class StagingJob(Protocol):
    """A job that stages some rows."""

    @property
    def folder(self) -> str:
        """The folder it stages to, relative to the bucket; everything below belongs to the job."""

    def stage(self, session: Callable[[], SparkSession], storage: Storage) -> StagedBatch:
        """Stage every row; the session starts when it is first requested."""


class StagingPool:
    """Runs the jobs; one Spark session for all, started when a batch needs it."""

    def __init__(self, storage: Storage, start_session: Callable[[], SparkSession]) -> None:
        """Start nothing yet; `start_session` is called once, in another thread."""
        self._storage = storage
        self._start_session = start_session
        self._threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="staging")
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="session")
        self._starting = threading.Lock()
        self._session: Future[SparkSession] | None = None
        self._places = threading.Semaphore(WORKERS + WAITING_BATCHES)
        self._pending: set[Future[StagedBatch]] = set()
        self._abandoned = threading.Event()

    def start(self) -> None:
        """Start the session in the background, unless it was started."""
        with self._starting:
            if self._session is None:
                self._session = self._starter.submit(self._start_session)

    def submit(self, job: StagingJob) -> Future[StagedBatch]:
        """Submit a batch; block while too many are waiting."""
        while not self._places.acquire(timeout=CHECK_SECONDS):
            self.check()
        future = self._threads.submit(self._stage, job)
        future.add_done_callback(lambda _: self._places.release())
        self._pending.add(future)
        return future

    def unfinished(self) -> list[Future[StagedBatch]]:
        """The batches still waiting or running."""
        return [future for future in self._pending if not future.done()]

    def check(self) -> None:
        """Raise the error of a batch that failed, if any."""
        done = {future for future in self._pending if future.done()}
        self._pending -= done
        for future in done:
            future.result()
        if self._session is not None and self._session.done():
            self._session.result()

    def finish(self) -> None:
        """Wait for all batches; the session stays available."""
        while self._pending:
            wait(self._pending, timeout=CHECK_SECONDS, return_when=FIRST_EXCEPTION)
            self.check()
        self._threads.shutdown()

    def close(self) -> None:
        """Stop offering the session; wait for one that is just starting."""
        self._starter.shutdown()

    def abandon(self) -> None:
        """Start nothing more; running jobs may finish in the background, and remove what they
        staged.
        """
        self._abandoned.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._starter.shutdown(wait=False, cancel_futures=True)

    def _stage(self, job: StagingJob) -> StagedBatch:
        try:
            batch = job.stage(self.session, self._storage)
            # In the background: what a checkpoint names must survive a power cut, and the commit
            # then waits less.
            self._storage.flush(
                file.path for file in (*batch.files, batch.rejected) if file is not None
            )
        finally:
            if self._abandoned.is_set():
                self._storage.delete_all(job.folder)
        return batch

    def session(self) -> SparkSession:
        """The session, started now if needed."""
        self.start()
        assert self._session is not None
        return self._session.result()
