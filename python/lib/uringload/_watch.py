"""`watch`: a line a minute while a program trains, and a report at the end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO, final

from . import _arguments as arguments
from ._loader import DataLoader
from ._report import _bytes, _time, waited
from .errors import mistyped, refused


def watch(
    loader: Any,
    every: float = 60.0,
    *,
    file: TextIO | None = None,
    log: Callable[[dict[str, float], int], Any] | None = None,
) -> Watch:
    """Prints a line a minute about a loader, and a report when the ``with`` block ends.

        with uringload.watch(loader):
            for batch in loader:
                train(batch)

    Args:
        loader: a `DataLoader`, or a `uringload.torch.IterableDataset`.
        every: seconds between two lines.
        file: where to print; None: stderr.
        log: what gets `DataLoader.metrics`, and the batches that were taken since the block began, with each line and
            at the end: `uringload.tensorboard.Metrics`, `uringload.wandb.Metrics`, or a function of your own. It is
            called in a thread of its own; where it fails, that is said and it is called no more.
    """
    loader = loader if isinstance(loader, DataLoader) else getattr(loader, "loader", loader)
    if not isinstance(loader, DataLoader):
        raise mistyped(f"loader is a {type(loader).__name__}", "give the uringload.DataLoader that reads")
    seconds = arguments.number("every", every)
    if not 0.0 < seconds < threading.TIMEOUT_MAX:
        raise refused(f"every={every!r} is no time between two lines", "give seconds, such as 60")
    if log is not None and not callable(log):
        raise mistyped(f"log is a {type(log).__name__}", "give a function of a dictionary and a step")
    return Watch(loader, seconds, file, log)


@final
class Watch:
    """A ``with`` block that is watched."""

    def __init__(self, loader: DataLoader, every: float, file: TextIO | None, log: Any = None) -> None:
        self._loader = loader
        self._every = every
        self._file = file
        self._log = log
        # Batches since the block began, and what the loader counted then.
        self._step, self._batches = 0, 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        # Time, samples, bytes and seconds waited, when the last line was printed.
        self._last = (0.0, 0, 0, 0.0)

    def __enter__(self) -> DataLoader:
        if self._thread is not None:
            raise refused("this watch is in use already", "call watch() for each block")
        self._last = (time.monotonic(), *self._counts())
        self._step, self._batches = 0, self._loader.stats().get("batches", 0)
        self._over.clear()
        self._thread = threading.Thread(target=self._run, name="uringload-watch", daemon=True)
        self._thread.start()
        return self._loader

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        self._tell()
        try:
            self._print(self._loader.report())
        except OSError as error:
            # The block is over and went well: a log that is full is no reason to fail now.
            self._complain(error)

    def _run(self) -> None:
        while not self._over.wait(self._every):
            try:
                self._tell()
                self._print(self.line())
            except (OSError, ValueError) as error:
                # A full disk, or a file that was closed: training goes on.
                self._complain(error)
                return

    def line(self) -> str:
        """What happened since the last line."""
        now, then = time.monotonic(), self._last
        self._last = (now, *self._counts())
        samples, delivered, wait = (after - before for after, before in zip(self._last[1:], then[1:], strict=True))
        if samples < 0 or wait < 0:
            # Reading began anew, and so did the counters.
            samples, delivered, wait = self._last[1:]
        seconds = max(now - then[0], 1e-9)
        verdict = self._loader.verdict()
        stats = self._loader.stats()
        words = [
            f"epoch {max(self._loader.epoch - 1, 0)}",
            f"{samples / seconds:,.0f} samples/s",
            f"{_bytes(delivered / seconds)}/s",
            f"waited {_time(wait)} of {_time(seconds)} for batches",
            f"bottleneck: {verdict.bottleneck} ({verdict.share * 100:.0f} %)",
        ]
        failed = sum(stats[f"samples_{how}"] for how in ("failed", "skipped", "replaced")) if stats else 0
        if failed:
            words.append(f"{failed:,} samples failed")
        if stats and stats["outage"]:
            words.append(str(stats["outage"]))
        return f"uringload: {', '.join(words)}"

    def _counts(self) -> tuple[int, int, float]:
        stats = self._loader.stats()
        if not stats:
            return 0, 0, 0.0
        return stats["samples"], stats["bytes_delivered"], waited(stats)

    def _tell(self) -> None:
        """Calls who logs."""
        metrics = self._loader.metrics() if self._log is not None else {}
        if self._log is None or not metrics:
            return
        batches = int(metrics["loader/batches"])
        # Where reading began anew, so did the count.
        self._step += batches - self._batches if batches >= self._batches else batches
        self._batches = batches
        try:
            if hasattr(self._log, "log"):
                self._log.log(self._loader, self._step)
            else:
                self._log(metrics, self._step)
        except Exception as error:
            # A server that is away, a disk that is full: training goes on.
            from . import _log

            _log.warning("watch() logs no more: %s: %s", type(error).__name__, error)
            self._log = None

    def _print(self, text: str) -> None:
        print(text, file=sys.stderr if self._file is None else self._file, flush=True)

    def _complain(self, error: Exception) -> None:
        from . import _log

        _log.warning("watch() cannot write any more: %s", error)
