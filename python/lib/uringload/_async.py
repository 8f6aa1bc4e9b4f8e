"""A pass for `async for`: waits for batches without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Future
from typing import Any, Protocol, final

from . import _uringload as native

#: Seconds after which a wait looks whether there is an outage to log.
_LOOK = 5.0


class Pass(Protocol):
    """What this module needs of a pass."""

    def poll(self) -> tuple[bool, Any]:
        """See `_pass.Pass.poll`."""


@final
class AsyncPass:
    """One pass over an epoch. Tasks may share it: each batch goes to exactly one of them.

    A task that is cancelled while it waits takes no batch along.
    """

    __slots__ = ("_batches",)

    def __init__(self, batches: Pass) -> None:
        self._batches = batches

    def __aiter__(self) -> AsyncPass:
        return self

    async def __anext__(self) -> Any:
        while True:
            try:
                is_there, found = self._batches.poll()
            except StopIteration:
                raise StopAsyncIteration from None
            if is_there:
                return found
            await _either(*found)


async def _either(work: Future[Any] | None, reading: native.Loader | None) -> None:
    """Waits until the work on a batch is done, however it ends, or until another batch may have been read."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: Future[Any]) -> None:
        try:
            loop.call_soon_threadsafe(ready.set)
        except RuntimeError:
            # The event loop was closed meanwhile, so no task waits.
            pass

    if work is not None:
        work.add_done_callback(tell)
    descriptor = None if reading is None else reading.ready_fd()
    if descriptor is not None and reading is not None:
        if not await readable(descriptor, ready):
            reading.tell()
    elif work is not None:
        await ready.wait()


async def readable(descriptor: int, ready: asyncio.Event | None = None) -> bool:
    """Waits a while until a descriptor is readable, or something else sets `ready`. Closes the descriptor: it is its
    waiter's own, because an event loop has one reader for each. Returns whether it was.
    """
    loop, ready = asyncio.get_running_loop(), ready or asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
        try:
            await asyncio.wait_for(ready.wait(), _LOOK)
        except (TimeoutError, asyncio.TimeoutError):
            return False
        finally:
            loop.remove_reader(descriptor)
    finally:
        os.close(descriptor)
    return True
