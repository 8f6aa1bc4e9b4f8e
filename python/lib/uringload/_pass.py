"""One pass of a loader over an epoch."""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Any, final

from ._output import Raw
from .errors import Error, StarvedError, TooManyFailuresError, refused

if TYPE_CHECKING:
    from . import _accelerate
    from . import _uringload as native
    from ._loader import DataLoader

_process = os.getpid


@final
class Pass:
    """One pass over an epoch. Threads may share it: each batch goes to exactly one of them."""

    __slots__ = ("_loader", "_epoch", "_token", "_ended", "_pending", "last_position", "in_pass", "__weakref__")

    def __init__(self, loader: DataLoader, epoch: int, token: object) -> None:
        self._loader = loader
        self._epoch = epoch
        self._token = token
        self._ended = False
        # Batches that are being transformed, each with the state after it.
        self._pending: deque[tuple[Any, str | None]] = deque()
        #: The position in the epoch of the last batch, once it is read.
        self.last_position: int | None = None
        #: What Accelerate knows of it.
        self.in_pass: _accelerate.InPass | None = None

    @property
    def has_given_all(self) -> bool:
        """Whether the last batch was handed out."""
        return self._ended and not self._pending

    def _over(self) -> StopIteration:
        self.in_pass = None
        return StopIteration()

    def __iter__(self) -> Pass:
        return self

    def __next__(self) -> Any:
        loader = self._loader
        if loader._process != _process():
            loader._check()
        with loader._lock:
            if loader._pass is not self._token:
                self._refuse()
            if loader._pool is not None:
                return self._transformed(loader, loader._pool)
            raw = self._take(loader, wait=True)
            if raw is None:
                raise self._over()
            return self._finished(loader, raw)

    def poll(self) -> tuple[bool, Any]:
        """True and the next batch, if it is there; else False, and what to wait for: the work on it (a future or None),
        or the native loader (or None) to read another. Raises StopIteration at the end.
        """
        loader = self._loader
        if loader._process != _process():
            loader._check()
        with loader._lock:
            if loader._pass is not self._token:
                self._refuse()
            native_loader, pool = loader._native, loader._pool
            if native_loader is None:
                raise closed_meanwhile()
            if pool is None:
                raw = self._take(loader, wait=False)
                if raw is not None:
                    return True, self._finished(loader, raw)
            else:
                is_starved = self._fill(loader, pool, wait=False)
                if self._pending and self._pending[0][0].done():
                    return True, self._transformed(loader, pool)
                native_loader.asked()
                if self._pending:
                    has_room = not is_starved and self._has_room(pool, native_loader)
                    return False, (self._pending[0][0], native_loader if has_room else None)
            if self._ended or native_loader.is_over():
                self._ended = True
                raise self._over()
            return False, (None, native_loader)

    def _take(self, loader: DataLoader, wait: bool) -> Raw | None:
        if self._ended:
            return None
        raw = loader._pull(self._epoch, wait)
        # None after a wait, or None because the next epoch's batch came early, means that the epoch is over.
        self._ended = (raw is None and (wait or loader._early is not None)) or (raw is not None and raw[1].is_last)
        if raw is not None and self._ended:
            self.last_position = raw[1].position
        return raw

    @staticmethod
    def _finished(loader: DataLoader, raw: Raw) -> Any:
        loader._last = raw[1]
        return loader._finish(raw)

    def _transformed(self, loader: DataLoader, pool: Any) -> Any:
        native_loader, pending = loader._native, self._pending
        is_batch, is_ready = False, bool(pending) and pending[0][0].done()
        # Also where it is ready: a thread that holds Python's lock meanwhile keeps the user waiting.
        if native_loader is not None and not native_loader.asked():
            is_ready = False
        try:
            made = self._next_made(loader, pool)
            is_batch = True
            return made
        except BaseException as error:
            from ._blame import trimmed

            raise trimmed(error)
        finally:
            if native_loader is not None:
                native_loader.got(is_batch, is_ready)

    def _next_made(self, loader: DataLoader, pool: Any) -> Any:
        self._fill(loader, pool, wait=True)
        if not self._pending:
            raise self._over()
        future, _ = self._pending[0]
        try:
            self._keep_busy(loader, pool, future)
            made = future.result()
        except BaseException as error:
            # If only the wait was interrupted (Ctrl-C), the batch stays pending.
            if future.done() and not future.cancelled() and future.exception() is error:
                self._pending.popleft()
            raise
        return self._settle(loader, made)

    def _keep_busy(self, loader: DataLoader, pool: Any, future: Any) -> None:
        """Waits until a batch is done, or enough others are put to work: each is as soon as it has been read."""
        native_loader = loader._native
        if native_loader is None or not self._has_room(pool, native_loader):
            return
        future.add_done_callback(lambda _: native_loader.nudge())
        is_starved = False
        while not (future.done() or is_starved) and self._has_room(pool, native_loader):
            native_loader.wait_or_nudge()
            is_starved = self._fill(loader, pool, wait=False)

    def _has_room(self, pool: Any, native_loader: native.Loader) -> bool:
        """Whether another batch may come that the pool has a thread for."""
        return len(self._pending) < pool.depth and not self._ended and not native_loader.is_over()

    def _fill(self, loader: DataLoader, pool: Any, wait: bool) -> bool:
        """Puts batches to work until enough are; waits for one if none is and `wait` says so. Returns whether those at
        work hold the memory for the next.
        """
        from ._transform import failed

        pending = self._pending
        if loader._state is None and loader._native is not None:
            loader._state = loader._native.state()
        while not self._ended and len(pending) < pool.depth:
            before = loader._state
            try:
                raw = self._take(loader, wait=wait and not pending)
            except StarvedError:
                # It takes no batch's place. The pending batches below hold the memory, and finishing one frees it.
                if not pending:
                    raise
                return True
            except Error as error:
                pending.append((failed(error), loader._state))
                continue
            finally:
                # Reading ahead does not move the user's position.
                loader._state = before
            native_loader = loader._native
            if raw is None or native_loader is None:
                break
            pending.append((pool.submit(raw, native_loader), native_loader.state()))
        return False

    def _settle(self, loader: DataLoader, made: Any) -> Any:
        """Hands out the oldest batch, which is done, with what its failed samples entail."""
        from ._transform import failed, settled

        # An error leaves the state before the batch, so that a resume tries the batch again.
        _, state = self._pending.popleft()
        try:
            value, error, beside, facts = settled(made, loader._native, loader._options["on_error"])
        except TooManyFailuresError:
            # As where the reactor counts them: nothing comes after it, and the next pass begins anew.
            self._ended, loader._stands_at = True, None
            self._pending.clear()
            raise
        if beside is not None:
            self._pending.appendleft((failed(beside), state))
        if error is not None:
            raise error
        loader._state, loader._last = state, facts
        return value

    def _refuse(self) -> None:
        if self._ended and not self._pending:
            raise StopIteration
        loader = self._loader
        loader._check()
        raise refused("this pass over the DataLoader has ended, because another one began or a state was loaded",
                      "go on with the latest iterator, or make a second DataLoader")

    def __len__(self) -> int:
        return len(self._loader)


def closed_meanwhile() -> Error:
    return refused("the DataLoader was closed while it was iterated over", "close it afterwards")
