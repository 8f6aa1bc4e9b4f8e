"""A user's own Python on batches or samples, in threads behind the fast path."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ._output import Batch, Raw

#: Threads where the user has no wish. They share one interpreter, so more is of use only to what leaves its lock.
THREADS_MAX = 8


class Work:
    """What is done to a batch: conversion, then the transform of its samples and their collation, then its own."""

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
        """Whether nothing of the user's is to be called."""
        return self._transform is None and self._collate is None and self._batch_transform is None

    def __call__(self, raw: Raw) -> Any:
        batch: Any = self._convert(raw)
        if self._transform is not None or self._collate is not None:
            samples: list[Any] = list(batch.samples())
            if self._transform is not None:
                samples = [self._transform(sample) for sample in samples]
            # Without a collate function a list of samples is what there is: their form is the user's.
            batch = samples if self._collate is None else self._collate(samples)
        return batch if self._batch_transform is None else self._batch_transform(batch)


class Pool:
    """Threads for the work, made when the first batch comes; with none, the work is done by who asks for it.

    `scopes` gives a context for the work where it is to be done, seen from the thread that asks for it: a thread of the
    pool has streams of its own, and what it put into those would not be waited for.
    """

    def __init__(
        self, work: Callable[[Raw], Any], threads: int | None, scopes: Callable[[], Any] | None = None
    ) -> None:
        self._work = work
        self._scopes = scopes
        self.threads = min(os.cpu_count() or 1, THREADS_MAX) if threads is None else threads
        self._executor: ThreadPoolExecutor | None = None

    @property
    def depth(self) -> int:
        """Batches that are worked on at once: each holds its memory meanwhile, which the memory limit counts."""
        return self.threads + 1

    def submit(self, raw: Raw) -> Future[Any]:
        """Begins the work on a batch."""
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
        """Lets go of the threads. What they are at is finished; what waits for them is not begun."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None


def failed(error: Exception) -> Future[Any]:
    """What stands in the place of a batch that could not be had."""
    future: Future[Any] = Future()
    future.set_exception(error)
    return future
