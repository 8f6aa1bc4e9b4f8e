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
            await (_work(found) if isinstance(found, Future) else _reading(found))


async def _work(future: Future[Any]) -> None:
    """Waits until the work on a batch is done, however it ends."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: Future[Any]) -> None:
        try:
            loop.call_soon_threadsafe(done.set)
        except RuntimeError:
            # The event loop was closed meanwhile, so no task waits.
            pass

    future.add_done_callback(tell)
    await done.wait()


async def _reading(loader: native.Loader) -> None:
    """Waits until a batch may be ready."""
    descriptor = loader.ready_fd()
    if descriptor is not None and not await readable(descriptor):
        loader.tell()


async def readable(descriptor: int) -> bool:
    """Waits a while until a descriptor is readable, and closes it: it is its waiter's own, because an event loop has
    one reader for each. Returns whether it was.
    """
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
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
