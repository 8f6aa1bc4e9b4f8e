"""Worker processes for Python code that holds the interpreter lock. Results come in shared memory."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from .errors import refused, worker_died

#: Results below this many bytes of arrays go through the pipe: a mapping costs more.
_INLINE_BYTES = 32 << 10
_ALIGNMENT = 64
#: How long a process that was told to end may take.
_END_SECONDS = 2.0

Make = Callable[[list[int]], Any]


class Workers:
    """Processes that make batches of numbers. Each thread that calls drives one process at a time. One that takes
    longer for a batch than `timeout` seconds is ended.

    They are started when they are needed, by the start method "forkserver", so that they have no threads or locks of
    this process.
    """

    def __init__(self, make: Make, count: int, what: str, timeout: float | None = None) -> None:
        self._make, self._what, self._timeout = make, what, timeout
        self._closed = False
        self._all: list[_Worker] = []
        #: Idle workers; None is one that is still to be started.
        self._idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(max(count, 1)):
            self._idle.put(None)

    def __call__(self, ids: list[int]) -> Any:
        """What `make` returns for these samples. An error of `make` is raised here; so is the end of the process."""
        worker = self._idle.get()
        try:
            if self._closed:
                raise _closed()
            if worker is None:
                worker = _Worker(self._make, self._what)
                self._all.append(worker)
                if self._closed:
                    worker.end()
                    raise _closed()
            return worker.work(ids, self._timeout)
        finally:
            if worker is not None and not worker.is_alive:
                if worker in self._all:
                    self._all.remove(worker)
                worker = None
            self._idle.put(worker)

    def close(self) -> None:
        """Ends all processes; a thread that waits for one gets an error."""
        self._closed = True
        for worker in self._all[:]:
            worker.end()


class _Worker:
    def __init__(self, make: Make, what: str) -> None:
        import multiprocessing

        context = multiprocessing.get_context("forkserver")
        self._what = what
        self._connection, other = context.Pipe(duplex=True)
        self._process = context.Process(target=_serve, args=(other, make), name="uringload-worker", daemon=True)
        try:
            self._process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            self._connection.close()
            raise refused(f"{what} cannot be sent to a worker process: {error}",
                          'define classes and functions at the top of a module, or give workers="threads"') from error
        finally:
            other.close()
        self.is_alive, self._has_started = True, False

    def work(self, ids: list[int], timeout: float | None) -> Any:
        try:
            if not self._has_started:
                # What it imports first may take longer than any batch.
                self._answer(None)
                self._has_started = self._connection.recv()
            self._connection.send(ids)
            is_in_time = self._answer(timeout)
            if is_in_time:
                kind, payload, sizes = self._connection.recv()
                buffers = self._buffers(sizes) if kind == "mapped" else sizes
        except (EOFError, OSError, RuntimeError):
            raise self._died(ids) from None
        if not is_in_time:
            raise self._too_slow(ids, timeout)
        if kind == "failed":
            raise _remote(payload, sizes)
        return pickle.loads(payload, buffers=buffers)

    def _answer(self, timeout: float | None) -> bool:
        """Waits for its next message; False if none came in time."""
        there = wait([self._connection, self._process.sentinel], timeout)
        # What it sent before it died counts.
        if there and not self._connection.poll():
            raise EOFError
        return bool(there)

    def _too_slow(self, ids: list[int], timeout: float | None) -> Exception:
        self.end()
        self._connection.close()
        return worker_died(f"worker process {self._process.pid} was ended, because it took more than {timeout:g} s to "
                           f"make samples {_shown(ids)} of {self._what}",
                           "give a longer timeout, or look at what the dataset and the transform wait for")

    def _buffers(self, sizes: list[int]) -> list[memoryview]:
        import mmap
        from multiprocessing.reduction import recv_handle

        handle = recv_handle(self._connection)
        try:
            memory = memoryview(mmap.mmap(handle, sum(map(_rounded, sizes))))
        finally:
            os.close(handle)
        buffers, start = [], 0
        for size in sizes:
            buffers.append(memory[start : start + size])
            start += _rounded(size)
        return buffers

    def _died(self, ids: list[int]) -> Exception:
        self._process.join(_END_SECONDS)
        code, self.is_alive = self._process.exitcode, False
        self._connection.close()
        if code is None:
            self.end()
            how = "does not answer any more"
        elif code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}"
        remedy = "look at what it printed; a script that starts processes needs `if __name__ == \"__main__\":`"
        if code == -signal.SIGKILL:
            remedy = "the system may have run out of memory (see dmesg): give fewer num_workers or smaller batches"
        made = f"{_shown(ids)} of {self._what}"
        return worker_died(f"worker process {self._process.pid} {how} while it made samples {made}", remedy)

    def end(self) -> None:
        """Ends the process."""
        self.is_alive = False
        self._process.terminate()
        self._process.join(_END_SECONDS)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join(_END_SECONDS)


def _shown(ids: list[int]) -> str:
    return ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")


def _closed() -> Exception:
    return refused("the DataLoader was closed while a worker process made a batch", "close it afterwards")


def _rounded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class _Pickler(pickle.Pickler):
    """Leaves the memory of torch's tensors on the host out of the stream, as NumPy does for its arrays."""

    def reducer_override(self, obj: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or type(obj) is not torch.Tensor:
            return NotImplemented
        is_plain = obj.device.type == "cpu" and obj.layout == torch.strided and not obj.requires_grad
        if not is_plain or obj.is_quantized or obj.is_complex() or not obj.numel():
            return NotImplemented
        bare = obj.contiguous().reshape(-1).view(torch.uint8).numpy()
        return _tensor, (pickle.PickleBuffer(bare), str(obj.dtype).rpartition(".")[2], tuple(obj.shape))


def _tensor(buffer: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    import torch

    return torch.frombuffer(buffer, dtype=torch.uint8).view(getattr(torch, dtype)).reshape(shape)


# In the worker process.


def _serve(connection: Connection, make: Make) -> None:
    # Ctrl-C is for the parent, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()
    connection.send(True)
    while True:
        try:
            ids = connection.recv()
        except EOFError:
            return
        try:
            made = make(ids)
            _send(connection, made, parent)
        except Exception as error:
            import traceback

            text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            connection.send(("failed", _portable(error), f"in worker process {os.getpid()}:\n{text}"))


def _send(connection: Connection, made: Any, parent: int) -> None:
    import io

    buffers: list[Any] = []
    stream = io.BytesIO()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(made)
    raw = [buffer.raw() for buffer in buffers]
    sizes = [view.nbytes for view in raw]
    if sum(sizes) < _INLINE_BYTES:
        connection.send(("inline", stream.getvalue(), [bytearray(view) for view in raw]))
        return
    import mmap
    from multiprocessing.reduction import send_handle

    # Without a name: no file remains, whichever process dies.
    handle = os.memfd_create("uringload-batch")
    try:
        whole = sum(map(_rounded, sizes))
        os.ftruncate(handle, whole)
        with mmap.mmap(handle, whole) as memory:
            start = 0
            for view in raw:
                memory[start : start + view.nbytes] = view
                start += _rounded(view.nbytes)
        connection.send(("mapped", stream.getvalue(), sizes))
        send_handle(connection, handle, parent)
    finally:
        os.close(handle)


def _portable(error: Exception) -> bytes:
    try:
        sent = pickle.dumps(error)
        pickle.loads(sent)
        return sent
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))


def _remote(sent: bytes, note: str) -> Exception:
    """The error of a worker process, with where it was raised."""
    error: Exception = pickle.loads(sent)
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        error.__cause__ = RuntimeError(note)
    return error
