"""Runs the user's own Python on batches or samples, in threads after the fast path."""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from . import _blame, _log
from . import _uringload as native
from ._collate import Stack
from ._order import BY_NUMBER
from ._output import Batch, Facts, Raw, as_tuple, told
from ._random import Keyed, keyed
from ._tail import OfSamples, Tail
from .errors import Error, InternalError

#: Most threads by default. They share one interpreter, so more would help only code that releases its lock.
THREADS_MAX = 8

#: Replacements that are tried for one sample before its batch fails; the library's number, too.
ATTEMPTS = 16


class Lost(NamedTuple):
    """A sample that the transform could not use, why, and the sample in its place."""

    id: int
    error: Exception
    replaced_by: int | None


class Made:
    """The result of a batch: the user's value, or the error in its place; and the samples that failed.

    It is handed over once. The frames of an exception hold the frames that called them, and those hold this object: if
    it kept the exception, the circle would keep the memory of the batch until the garbage collector comes.
    """

    __slots__ = ("_value", "_error", "_lost", "_facts", "meta")

    def __init__(
        self, value: Any, error: Exception | None, lost: list[Lost], meta: native.Meta, facts: Any = None
    ) -> None:
        self._value = value
        self._error = error
        self._lost = lost
        self._facts = meta if facts is None else facts
        self.meta = meta

    def take(self) -> tuple[Any, Exception | None, list[Lost], native.Meta | Facts]:
        """Value, error, failed samples, and what is known of the others, which are then no longer here."""
        value, error, lost, facts = self._value, self._error, self._lost.copy(), self._facts
        self._value = self._error = None
        self._lost.clear()
        self._facts = self.meta
        return value, error, lost, facts


class Samples(NamedTuple):
    """What the work needs to know of the samples' dataset, and what happens where one fails."""

    dataset: native.Dataset
    #: Reads samples, by number, in an epoch: to replace others. Its last argument takes those that fail.
    read: Callable[[list[int], int, str], dict[int, list[dict[str, Any]]]]
    on_error: str
    seed: int


def threads_of(asked: int | None) -> int:
    """How many threads there are where so many were asked for."""
    return min(os.cpu_count() or 1, THREADS_MAX) if asked is None else asked


class Work:
    """The work on one batch: convert it, transform and collate its samples, then apply the batch transform.

    `collate` makes a batch of transformed samples and of what is known of them.
    """

    def __init__(
        self,
        convert: Callable[[Raw], Batch],
        transform: Keyed | None,
        collate: Stack | Callable[[list[Any], Any], Any] | None,
        batch_transform: Callable[[Any], Any] | None,
        samples: Samples,
        many: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        self._convert = convert
        self._many = many
        self._transform = transform
        self._collate = collate
        self._batch_transform = batch_transform
        self._samples = samples
        self._local = threading.local()
        #: Whether the result is not wanted any more: the sample in work is the last.
        self.is_over = False

    def __call__(self, raw: Raw, loader: native.Loader) -> Made:
        clock, meta, lost = self._clock(loader), raw[1], []  # type: native.Clock, native.Meta, list[Lost]
        cpu = time.thread_time_ns()
        clock.transform()
        try:
            value, facts = self._made(raw, lost, clock)
            return Made(value, None, lost, meta, facts)
        except Exception as error:
            return Made(None, _blame.trimmed(error), lost, meta)
        finally:
            clock.wait(len(meta), time.thread_time_ns() - cpu)

    def _clock(self, loader: native.Loader) -> native.Clock:
        """This thread's clock in the statistics of `loader`."""
        known = getattr(self._local, "clock", None)
        if known is None or known[0] is not loader:
            self._local.clock = known = (loader, loader.clock())
        clock: native.Clock = known[1]
        return clock

    def _made(self, raw: Raw, lost: list[Lost], clock: native.Clock) -> tuple[Any, Any]:
        meta = raw[1]
        batch: Any = self._convert(raw)
        facts: Any = meta
        if self._transform is not None or self._collate is not None:
            samples: Any = list(batch.samples())
            if self._many is not None:
                samples = self._asked(self._many, samples, meta)
            collate = self._collate
            if isinstance(collate, Stack):
                collate = collate.of_batch(len(meta))
            # What is no list is a batch already.
            if self._transform is not None and type(samples) is list:
                put = collate.put if isinstance(collate, Stack) else _left
                samples, facts = self._transformed(self._transform, samples, meta, lost, put)
            clock.collate()
            batch = self._collated(collate, samples, facts, meta)
            clock.transform()
        if self._batch_transform is not None:
            try:
                batch = self._batch_transform(batch)
            except Exception as error:
                raise _blame.of_batch(error, "batch_transform", meta)
        return told(batch, facts), facts

    @staticmethod
    def _asked(many: Callable[[list[Any]], Any], samples: list[Any], meta: native.Meta) -> Any:
        try:
            return many(samples)
        except Exception as error:
            raise _blame.of_batch(error, "__getitems__", meta)

    @staticmethod
    def _collated(collate: Callable[[list[Any], Any], Any] | None, samples: Any, facts: Any, meta: native.Meta) -> Any:
        if type(samples) is list and not samples:
            # Every sample failed. The other ranks have this batch, so this one has it too.
            return Batch((), facts)
        if collate is None:
            return samples
        try:
            return collate(samples, facts)
        except Exception as error:
            raise _blame.of_batch(error, "collate", meta)

    def _transformed(
        self,
        transform: Keyed,
        samples: list[Any],
        meta: native.Meta,
        lost: list[Lost],
        put: Callable[[int, Any], Any],
    ) -> tuple[list[Any], Any]:
        """The samples as the transform returns them, without those that failed, and what is known of them. `put` may
        move what is in them as soon as it is there.
        """
        epoch = meta.epoch
        done: list[tuple[int, int, Any]] = []
        failures: list[tuple[int, int, Exception]] = []
        for index, number in enumerate(meta.ids):
            if self.is_over:
                raise InternalError("the loader was closed")
            try:
                # No variable may hold what was made: its memory is for the next sample.
                done.append((index, number, put(index, transform(samples[index], epoch, number))))
            except MemoryError as no_memory:
                # The machine's trouble and no fault of the sample's.
                raise _blame.of_sample(no_memory, self._samples.dataset, epoch, number)
            except Exception as failure:
                # No local variable may hold the error for longer: see `Made`.
                failures.append((index, number, self._blamed(_blame.trimmed(failure), epoch, number, lost)))
        try:
            self._settle(transform, failures, epoch, lost, done)
        finally:
            failures.clear()
        made = [sample for _, _, sample in done]
        if not lost:
            return made, meta
        padding = meta.padding
        kept = None if padding is None else [padding[index] for index, _, _ in done]
        return made, Facts([number for _, number, _ in done], kept, meta.failed, epoch, meta.position)

    def _blamed(self, error: Exception, epoch: int, number: int, lost: list[Lost]) -> Exception:
        """The error of a sample, which is raised if it takes the place of the batch."""
        error = _blame.of_sample(error, self._samples.dataset, epoch, number)
        if self._samples.on_error == "raise":
            lost.append(Lost(number, error, None))
            raise error
        return error

    def _settle(
        self,
        transform: Keyed,
        failures: list[tuple[int, int, Exception]],
        epoch: int,
        lost: list[Lost],
        done: list[tuple[int, int, Any]],
    ) -> None:
        """Puts other samples in the places of those that failed, or leaves these out."""
        if self._samples.on_error != "replace":
            lost.extend(Lost(number, error, None) for _, number, error in failures)
            return
        seed, count = self._samples.seed, len(self._samples.dataset)
        found: dict[int, tuple[int, Any]] = {}
        tried: dict[int, str] = {}
        for attempt in range(ATTEMPTS):
            left = [(index, number) for index, number, _ in failures if index not in found]
            others = {index: native.replacement(seed, number, attempt, count) for index, number in left}
            # At once, because a reader takes milliseconds.
            ahead = self._samples.read([other for other in others.values() if other is not None], epoch, "skip")
            for index, other in others.items():
                if other is None:
                    continue
                try:
                    read = ahead.get(other) or self._samples.read([other], epoch, "raise")[other]
                    found[index] = (other, transform(read.pop(), epoch, other))
                except MemoryError:
                    raise
                except Exception as last:
                    tried[index] = f"{attempt + 1} failed, the last of them sample {other} ({_blame.text(last)})"
            if all(other is None for other in others.values()):
                break
        for index, number, error in failures:
            if index not in found:
                why = tried.get(index, "the dataset has no other")
                _blame.note(error, f"no other sample could take its place: {why}")
                lost.append(Lost(number, error, None))
                raise error
            lost.append(Lost(number, error, found[index][0]))
            done.append((index, *found[index]))
        done.sort(key=lambda one: one[0])


def _left(index: int, sample: Any) -> Any:
    """The sample as it is."""
    return sample


class Own(NamedTuple):
    """The user's own functions, and how samples become batches after them."""

    transform: Callable[..., Any] | None
    #: The form of batches: "list" for samples as they are, "tuple" for columns by position.
    form: Any
    collate: Callable[[list[Any]], Any] | None
    batch_transform: Callable[[Any], Any] | None
    #: What Python does to columns of images before that.
    tails: list[tuple[str, Tail]]
    #: What asks an object of Python for a whole batch.
    many: Callable[[list[Any]], Any] | None = None

    def work(self, convert: Callable[[Raw], Batch], output: str, samples: Samples) -> Work:
        """The work on a batch whose arrays are of the kind `output`."""
        transform = None if self.transform is None else keyed(self.transform, samples.seed)
        if self.tails:
            transform = OfSamples(self.tails, samples.seed, transform)
        collate: Stack | Callable[[list[Any], Any], Any] | None = None
        made: Callable[[Raw], Any] = convert
        if self.collate is not None:
            by_user = self.collate

            def collate(each: list[Any], facts: Any) -> Any:
                return by_user(each)
        elif transform is not None and self.form != "list":
            collate = Stack(output, is_tuple=self.form == "tuple")
        elif transform is None and self.form == "tuple":
            made = as_tuple(convert)
        return Work(made, transform, collate, self.batch_transform, samples, self.many)


def reader(
    dataset: native.Dataset,
    options: dict[str, Any],
    text: list[str],
    binary: list[str],
    convert: Callable[[Raw], Batch],
) -> Callable[[list[int], int, str], dict[int, list[dict[str, Any]]]]:
    """A function that reads samples by their numbers, as they come in an epoch.

    It sets up a reader each time, which takes some milliseconds: it is for the few that replace others.
    """
    alone = {"rank": 0, "world_size": 1, "drop_last": False, "packing": None, "buckets": None, "pin": None,
             "cache": None, "cache_disk": None, "cache_images": None, "cache_images_dir": None, "share_stats": None,
             "max_failures": None, "quarantine": None}

    def read(numbers: list[int], epoch: int, on_error: str) -> dict[int, list[dict[str, Any]]]:
        found: dict[int, list[dict[str, Any]]] = {}
        if not numbers:
            return found
        wanted = {**options, **alone, "batch_size": len(numbers), "on_error": on_error}
        loader = native.Loader(dataset, wanted, start=(epoch, 0), epochs=1, order=(numbers, BY_NUMBER), text=text,
                               binary=binary)
        try:
            raw = loader.next()
        finally:
            loader.close()
        if raw is None:
            raise InternalError("no batch came: this is a bug of uringload (please report it)")
        for number, sample in zip(raw[1].ids, convert(raw).samples()):
            found.setdefault(number, []).append(sample)
        return found

    return read


def settled(
    made: Made, loader: native.Loader | None, on_error: str
) -> tuple[Any, Exception | None, Exception | None, native.Meta | Facts]:
    """The value of a batch that is handed out, the error in its place, an error in addition to the batches (the
    list cannot be written), and what is known of the samples. Counts and lists the failed samples. Raises
    `TooManyFailuresError`.
    """
    value, error, lost, facts = made.take()
    beside: Exception | None = None
    if not lost or loader is None:
        return value, error, beside, facts
    entries = []
    for id, failure, replaced_by in lost:
        try:
            entry, unwritten = loader.fail(made.meta, (id, _blame.text(failure)), replaced_by, error is not None)
        except Error as ended:
            raise ended from failure
        entry[2].__cause__ = failure
        if error is None:
            # Its frames hold the sample. Lines stay.
            traceback.clear_frames(failure.__traceback__)
        entries.append(entry)
        beside = beside or unwritten
        if on_error == "warn" and error is None:
            _log.warning("%s", entry[2].headline)
    if isinstance(facts, Facts):
        facts.failed = [*facts.failed, *entries]
    return value, error, beside, facts


class Pool:
    """Threads for the work, started with the first batch; with 0 threads, the caller does the work itself.

    `scopes`, called in the submitting thread, returns a context that the pool's thread enters for the work. It puts the
    work on the caller's streams: a pool thread has streams of its own, which are not waited for. `init` is called in
    each thread before its first batch, with the thread's number.
    """

    def __init__(
        self,
        work: Work,
        threads: int | None,
        scopes: Callable[[], Any] | None = None,
        init: Callable[[int], Any] | None = None,
    ) -> None:
        #: What is done to a batch.
        self.work = work
        self._scopes = scopes
        self._init = init
        self._numbers = itertools.count()
        self._local = threading.local()
        self.threads = threads_of(threads)
        self._executor: ThreadPoolExecutor | None = None
        _pools.add(self)

    @property
    def depth(self) -> int:
        """Batches that are worked on at once. The memory that each holds meanwhile counts toward the memory limit."""
        return self.threads + 1

    def submit(self, raw: Raw, loader: native.Loader) -> Future[Made]:
        """Starts the work on a batch of `loader`."""
        if self.threads == 0:
            done: Future[Made] = Future()
            done.set_result(self.work(raw, loader))
            return done
        if self._executor is None:
            self.work.is_over = False
            self._executor = ThreadPoolExecutor(self.threads, thread_name_prefix="uringload-transform")
        scope = None if self._scopes is None else self._scopes()
        return self._executor.submit(self._within, scope, raw, loader)

    def _within(self, scope: Any, raw: Raw, loader: native.Loader) -> Made:
        if self._init is not None:
            try:
                self._begin(self._init)
            except Exception as error:
                return Made(None, _blame.of_batch(error, "worker_init_fn", raw[1]), [], raw[1])
        if scope is None:
            return self.work(raw, loader)
        with scope:
            return self.work(raw, loader)

    def _begin(self, init: Callable[[int], Any]) -> None:
        local = self._local
        if not hasattr(local, "number"):
            local.number, local.has_begun = next(self._numbers), False
        if not local.has_begun:
            # One that raises is called again for the next batch, which must not run without it.
            init(local.number)
            local.has_begun = True

    def close(self) -> None:
        """Stops the threads: the sample in work finishes; all else is cancelled."""
        if self._executor is not None:
            self.work.is_over = True
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _end() -> None:
    for pool in list(_pools):
        pool.close()


# concurrent.futures waits for all that is queued when the interpreter ends, after Ctrl-C too. What was registered last
# is called first. (`atexit` comes after that, where Python does not have this.)
getattr(threading, "_register_atexit", atexit.register)(_end)


def failed(error: Exception) -> Future[Made]:
    """A future that raises `error`, in the place of the batch that failed."""
    future: Future[Made] = Future()
    future.set_exception(error)
    return future
