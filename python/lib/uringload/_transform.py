"""Runs the user's own Python on batches or samples, in threads behind the fast path."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ._output import Batch, Raw

#: Most threads by default. They share one interpreter, so more would help only code that releases its lock.
THREADS_MAX = 8


def threads_of(asked: int | None) -> int:
    """How many threads there are where so many were asked for."""
    return min(os.cpu_count() or 1, THREADS_MAX) if asked is None else asked


class Work:
    """The work on one batch: convert it, transform and collate its samples, then apply the batch transform."""

    def __init__(
        self,
        convert: Callable[[Raw], Batch],
        transform: Callable[[dict[str, Any]], Any] | None,
        collate: Callable[[list[Any]], Any] | None,
        batch_transform: Callable[[Any], Any] | None,
    ) -> None:
        self._convert = convert
        self._transform = transform
        self._collate = collate
        self._batch_transform = batch_transform

    @property
    def is_plain(self) -> bool:
        """Whether there is no function of the user's to call."""
        return self._transform is None and self._collate is None and self._batch_transform is None

    def __call__(self, raw: Raw) -> Any:
        batch: Any = self._convert(raw)
        if self._transform is not None or self._collate is not None:
            samples: list[Any] = list(batch.samples())
            if self._transform is not None:
                samples = [self._transform(sample) for sample in samples]
            # Without a collate function the batch is a list of samples, in whatever form the transform gave them.
            batch = samples if self._collate is None else self._collate(samples)
        return batch if self._batch_transform is None else self._batch_transform(batch)


class Pool:
    """Threads for the work, started with the first batch; with 0 threads, the caller does the work itself.

    `scopes`, called in the submitting thread, returns a context that the pool's thread enters for the work. It puts the
    work on the caller's streams: a pool thread has streams of its own, and nobody waits for those.
    """

    def __init__(
        self, work: Callable[[Raw], Any], threads: int | None, scopes: Callable[[], Any] | None = None
    ) -> None:
        self._work = work
        self._scopes = scopes
        self.threads = threads_of(threads)
        self._executor: ThreadPoolExecutor | None = None

    @property
    def depth(self) -> int:
        """Batches that are worked on at once. The memory that each holds meanwhile counts toward the memory limit."""
        return self.threads + 1

    def submit(self, raw: Raw) -> Future[Any]:
        """Starts the work on a batch."""
        if self.threads == 0:
            done: Future[Any] = Future()
            try:
                done.set_result(self._work(raw))
            except Exception as error:
                done.set_exception(error)
            return done
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self.threads, thread_name_prefix="uringload-transform")
        if self._scopes is not None:
            return self._executor.submit(self._within, self._scopes(), raw)
        return self._executor.submit(self._work, raw)

    def _within(self, scope: Any, raw: Raw) -> Any:
        with scope:
            return self._work(raw)

    def close(self) -> None:
        """Stops the threads. Work in progress finishes; queued work is cancelled."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None


def failed(error: Exception) -> Future[Any]:
    """A future that raises `error`, in the place of the batch that failed."""
    future: Future[Any] = Future()
    future.set_exception(error)
    return future
