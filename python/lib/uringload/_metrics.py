"""What loaders measure, for other programs: one dictionary of numbers, and the text format of Prometheus."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from typing import Any, final

from . import _arguments as arguments
from ._loader import DataLoader, open_loaders
from ._report import waited
from .errors import Error, refused

#: Name, type, what it means, and the statistic: of all loaders, for Prometheus.
_NUMBERS = (
    ("batches", "counter", "Batches that were handed out.", "batches"),
    ("batches_ready", "counter", "Batches that lay ready when they were asked for.", "batches_ready"),
    ("samples", "counter", "Samples that were handed out.", "samples"),
    ("samples_failed", "counter", "Samples that could not be read, in the place of which an error was raised.",
     "samples_failed"),
    ("samples_skipped", "counter", "Samples that could not be read and were left out.", "samples_skipped"),
    ("samples_replaced", "counter", "Samples that could not be read and were replaced.", "samples_replaced"),
    ("delivered_bytes", "counter", "Bytes of samples that were handed out.", "bytes_delivered"),
    ("read_bytes", "counter", "Bytes that were read.", "bytes_read"),
    ("reads_in_flight", "gauge", "Reads in flight.", "reads_in_flight"),
)
_TIMES = (
    ("batch_wait_seconds", "Time that the program waited for a batch.", "batch_wait"),
    ("read_seconds", "Time that a read took.", "read_latency"),
)
_QUANTILES = (("0.5", "p50_s"), ("0.9", "p90_s"), ("0.99", "p99_s"), ("1", "max_s"))
_CONTENT = "text/plain; version=0.0.4; charset=utf-8"

#: Seconds that a client may take to ask.
_PATIENCE = 10.0


def numbers(loader: DataLoader) -> dict[str, float]:
    """What a loader measures as one dictionary of numbers, for loggers; empty before its first batch."""
    stats = loader.stats()
    if not stats:
        return {}
    found = {f"loader/{name}": float(stats[key]) for name, _, _, key in _NUMBERS}
    wait = waited(stats)
    found |= {
        "loader/samples_per_s": float(stats["samples_per_s"]),
        "loader/bytes_per_s": float(stats["bytes_per_s"]),
        "loader/waited_s": wait,
        "loader/waited_share": wait / stats["elapsed_s"] if stats["elapsed_s"] else 0.0,
    }
    return found


def _sum(times: Mapping[str, Any]) -> float:
    return (times["mean_s"] or 0.0) * float(times["count"])


def text(loaders: Iterable[DataLoader]) -> str:
    """The measurements of loaders in the text format of Prometheus. Counters begin anew where reading does."""
    shown = [(_labels(number, loader), loader.stats(), loader.verdict()) for number, loader in enumerate(loaders)]
    shown = [each for each in shown if each[1]]
    lines: list[str] = []

    def family(name: str, kind: str, about: str, samples: Iterable[tuple[str, str, float | None]]) -> None:
        # A counter's name in its HELP and TYPE is that of its samples.
        full = f"uringload_{name}" + ("_total" if kind == "counter" else "")
        lines.extend((f"# HELP {full} {about}", f"# TYPE {full} {kind}"))
        known = [(suffix, labels, value) for suffix, labels, value in samples if value is not None]
        lines.extend(f"{full}{suffix}{{{labels}}} {value:.15g}" for suffix, labels, value in known)

    family("loaders", "gauge", "Loaders that have read.", [("", 'process="%d"' % os.getpid(), len(shown))])
    for name, kind, about, key in _NUMBERS:
        family(name, kind, about, [("", labels, stats[key]) for labels, stats, _ in shown])
    for name, about, key in _TIMES:
        family(name, "summary", about,
               [sample for labels, stats, _ in shown for sample in _summary(labels, stats[key])])
    family("thread_seconds", "counter", "What the loader's threads, and the one that asks for batches, did.",
           [("", f'{labels},thread="{thread}",activity="{_escaped(activity)}"', seconds)
            for labels, stats, _ in shown for (thread, activity), seconds in _activities(stats).items()])
    family("waiting_for_storage", "gauge", "1 while storage that is away is waited for.",
           [("", labels, float(stats["outage"] is not None)) for labels, stats, _ in shown])
    family("bottleneck", "gauge", "The verdict: the bottleneck, and the share of time that it was busy or waited for.",
           [("", f'{labels},bottleneck="{verdict.bottleneck}"', verdict.share) for labels, _, verdict in shown])
    return "\n".join(lines) + "\n"


def _summary(labels: str, times: Mapping[str, Any]) -> list[tuple[str, str, float | None]]:
    quantiles: list[tuple[str, str, float | None]] = [
        ("", f'{labels},quantile="{quantile}"', times[key]) for quantile, key in _QUANTILES
    ]
    return [*quantiles, ("_sum", labels, _sum(times)), ("_count", labels, times["count"])]


def _activities(stats: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Seconds by kind of thread and activity: threads of a kind are added up."""
    sums: dict[tuple[str, str], float] = {}
    for thread, activities in stats["threads"]:
        for activity, seconds in activities.items():
            sums[thread, activity] = sums.get((thread, activity), 0.0) + seconds
    return sums


def _labels(number: int, loader: DataLoader) -> str:
    paths = loader._dataset._paths
    try:
        rank = str(loader.rank)
    except Error:
        rank = ""
    return f'loader="{number}",dataset="{_escaped(paths[0] if paths else loader._dataset.format)}",rank="{rank}"'


def _escaped(value: str) -> str:
    # A name of a file may have bytes that are no UTF-8.
    value = value.encode("utf-8", "replace").decode("utf-8")
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def write_metrics(path: str | os.PathLike[str], loaders: Iterable[DataLoader] | None = None) -> None:
    """Writes the measurements of loaders to a file for Prometheus's node exporter (``--collector.textfile``).

    The file appears as a whole, under its name at once: a reader never sees half of it.

    Args:
        path: the file; its name ends in ".prom".
        loaders: those to write of; None: all of this process that are open.
    """
    target = arguments.paths("path", path)[0]
    if os.path.splitext(target)[1] != ".prom":
        raise refused(f"the node exporter reads only files whose names end in .prom, and this one is {target!r}",
                      "give such a name")
    whole = text(open_loaders() if loaders is None else loaders)
    new = f"{target}.{os.getpid()}.{threading.get_ident()}"
    try:
        with open(new, "w", encoding="utf-8") as file:
            file.write(whole)
        os.replace(new, target)
    except BaseException:
        try:
            os.unlink(new)
        except OSError:
            pass
        raise


def serve_metrics(port: int = 9187, *, host: str = "127.0.0.1", loaders: Iterable[DataLoader] | None = None) -> Server:
    """Serves the measurements of loaders to Prometheus, at ``http://127.0.0.1:PORT/metrics``.

    A thread of this process answers, until the server is closed or the process ends. Counters begin anew where reading
    does, which Prometheus takes into account.

    Args:
        port: the port; 0 for a free one, which the server's ``port`` tells.
        host: the address to listen at. Only this machine can ask at the default; "0.0.0.0" lets everybody.
        loaders: those to tell of; None: all of this process that are open whenever somebody asks.
    """
    port = arguments.integer("port", port)
    if port > 65535:
        raise refused(f"port={port} is no port", "give one from 1 to 65535, or 0 for a free one")
    return Server(port, arguments.text("host", host), None if loaders is None else list(loaders))


@final
class Server:
    """Answers Prometheus. Closed by `close`, by the end of a ``with`` block, or with the process."""

    def __init__(self, port: int, host: str, loaders: list[DataLoader] | None) -> None:
        import http.server

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = _PATIENCE

            def do_GET(self) -> None:
                if self.path.split("?")[0] not in ("/metrics", "/"):
                    self.send_error(404, "metrics are at /metrics")
                    return
                body = text(open_loaders() if loaders is None else loaders).encode()
                self.send_response(200)
                self.send_header("Content-Type", _CONTENT)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *values: Any) -> None:
                """Nobody wants a line for each question."""

        class Listener(http.server.ThreadingHTTPServer):
            daemon_threads = True
            # A port that another process listens at is taken, whatever that process allows.
            allow_reuse_port = False

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that went away is no matter of the program's."""

        try:
            self._listener = Listener((host, port), Handler)
        except OSError as error:
            remedy = "give another port, or 0 for a free one" if port else "give an address of this machine as host"
            raise refused(f"metrics cannot be served at {host}:{port}: {error.strerror or error}", remedy) from error
        #: The address.
        self.host = host
        #: The port.
        self.port = int(self._listener.server_address[1])
        self._thread = threading.Thread(target=self._listener.serve_forever, name="uringload-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops answering."""
        if self._thread.is_alive():
            self._listener.shutdown()
            self._thread.join()
        self._listener.server_close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<uringload metrics at http://{self.host}:{self.port}/metrics>"
