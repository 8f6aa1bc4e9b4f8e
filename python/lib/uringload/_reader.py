"""Bytes in the user's own order: for loaders, caches and services that decide themselves what is read when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, final

from . import _arguments as arguments
from . import _settings
from . import _uringload as native
from ._dataset import Dataset, Paths
from ._report import Route
from ._uringload import Tensor
from .errors import Error, mistyped, refused

#: File, offset and length in bytes.
Span = tuple[int, int, int]


@final
class Reader:
    """Reads bytes in an order of your own, as a `DataLoader` reads: io_uring past the page cache where that pays,
    within one memory limit, with deadlines, and with the same care about faults.

        with uringload.Reader(["a.bin", "b.bin"]) as reader:
            reader.submit(0, (0, 0, 4096))                     # a request: file 0, offset 0, 4096 bytes
            reader.submit(1, [(1, 512, 100), (0, 8192, 100)])  # several pieces, end to end
            for request, data in reader:                       # as soon as they are there, in any order
                ...

    An answer is a `Tensor` of bytes (``numpy.asarray``, ``torch.from_dlpack``, ``tobytes``), or the exception that
    reading ended with: it is not raised, so that no answer is lost. `submit` never waits; any number may be in flight.
    Threads may share a reader. A forked child can only `read`.

    Args:
        source: a `Dataset`, whose files are meant, or a path or a list of paths of files. Files are numbered from 0.
        engine: "auto", "uring" or "threads".
        io: "auto" (the page cache if the files are in it when the reader is made), "direct" or "buffered".
        queue_depth: reads in flight at most. None: chosen by what is measured.
        io_threads: threads of the engine "threads".
        memory_limit: bytes for what is being read and for answers that are held ("512MiB"). None: at most 256 MiB.
        timeout: seconds that a read may take before its request fails with `ReadTimeoutError`. None: no limit.
        outage_timeout: seconds that nothing may come of a folder before what is asked of it fails.
        starved_after: seconds that a request waits for memory that answers hold before it fails with `StarvedError`.
    """

    __slots__ = ("_native", "_closed", "__weakref__")

    def __init__(
        self,
        source: Dataset | Paths,
        *,
        engine: str = "auto",
        io: str = "auto",
        queue_depth: int | None = None,
        io_threads: int | None = None,
        memory_limit: int | str | None = None,
        timeout: float | None = None,
        outage_timeout: float | None = 300.0,
        starved_after: float = 10.0,
    ) -> None:
        options = options_of(
            engine, io, queue_depth, io_threads, memory_limit, timeout, outage_timeout, starved_after
        )
        self._closed = False
        files = source._native if isinstance(source, Dataset) else arguments.paths("source", source)
        self._native = native.Reader(files, options)

    def submit(self, request: int, spans: Span | Iterable[Span]) -> None:
        """Asks for bytes under a number of yours, which is free again once it was answered or cancelled.

        Args:
            request: any whole number from 0 on.
            spans: (file, offset, length in bytes), or several of them, which come end to end.
        """
        if self._closed:
            raise refused("the reader is closed", "make another one")
        self._native.submit(arguments.integer("request", request), _spans(spans))

    def cancel(self, request: int) -> bool:
        """Takes a request back: no answer comes for it. Whether it was in flight."""
        return self._native.cancel(arguments.integer("request", request))

    def read(self, spans: Span | Iterable[Span]) -> Tensor:
        """The bytes, read in this thread through the page cache: for a request now and then. Raises what goes wrong."""
        return self._native.read(_spans(spans))

    def next(self, timeout: float | None = None) -> tuple[int, Tensor | Error] | None:
        """The next answer, waited for, at most for `timeout` seconds. None: none came, or nothing is in flight."""
        return self._native.next(None if timeout is None else arguments.number("timeout", timeout))

    def try_next(self) -> tuple[int, Tensor | Error] | None:
        """An answer if one is there; never waits."""
        return self._native.try_next()

    async def next_async(self) -> tuple[int, Tensor | Error] | None:
        """The next answer, awaited. None: nothing is in flight. One task at a time."""
        # asyncio takes longer to import than all of the package.
        from ._async import readable

        while (answer := self._native.try_next()) is None:
            descriptor = self._native.ready_fd() if self._native.in_flight else None
            if descriptor is None:
                return None
            await readable(descriptor)
        return answer

    @property
    def in_flight(self) -> int:
        """Requests that were not answered or cancelled."""
        return self._native.in_flight

    def size(self, file: int) -> int:
        """Bytes of a file when the reader was made."""
        found = self._native.size(arguments.integer("file", file))
        if found is None:
            raise refused(f"there is no file {file}", "count files from 0")
        return found

    @property
    def route(self) -> Route:
        """How bytes are read, with every step down from the fastest way."""
        return Route(self._native.route() or {})

    def close(self) -> None:
        """Ends what is in flight. Answers that were handed out stay."""
        self._closed = True
        self._native.close()

    def __iter__(self) -> Iterator[tuple[int, Tensor | Error]]:
        while (answer := self._native.next()) is not None:
            yield answer

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<uringload.Reader: {'closed' if self._closed else f'{self.in_flight} in flight'}>"


def options_of(
    engine: str,
    io: str,
    queue_depth: int | None,
    io_threads: int | None,
    memory_limit: int | str | None,
    timeout: float | None,
    outage_timeout: float | None,
    starved_after: float = 10.0,
) -> dict[str, Any]:
    """A reader's options, checked."""
    return _settings.settings(locals())


def _spans(spans: Any) -> list[Span]:
    pieces = [spans] if isinstance(spans, tuple) and len(spans) == 3 and not isinstance(spans[0], tuple) else spans
    try:
        found = [tuple(piece) for piece in pieces]
    except TypeError:
        found = [()]
    if any(len(piece) != 3 for piece in found):
        raise mistyped("spans are not (file, offset, length)", "give one such tuple, or a list of them")
    names = ("file", "offset", "length")
    checked = [tuple(arguments.integer(name, value) for name, value in zip(names, piece)) for piece in found]
    # A file's number has 32 bits; no table has more files.
    return [(min(file, 0xFFFFFFFF), offset, length) for file, offset, length in checked]
