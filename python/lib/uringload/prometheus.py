"""Prometheus: a collector for `prometheus_client`, which serves, pushes or writes what loaders measure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from . import _arguments as arguments
from . import _ranks
from . import _uringload as native
from ._loader import DataLoader
from ._opened import open_loaders
from ._report import COUNTS, Stats, waited
from .errors import Error, mistyped, refused, unavailable

try:
    import prometheus_client
    from prometheus_client import core
except ImportError as error:
    raise refused("prometheus_client is not installed", "pip install prometheus_client") from error

__all__ = ["Collector", "serve"]


class _Metric(NamedTuple):
    """A family of metrics, as docs/metrics.md lists it."""

    name: str
    kind: type[Any]
    unit: str
    about: str
    #: Labels besides those of the loader.
    labels: tuple[str, ...] = ()


_COUNTER, _GAUGE = core.CounterMetricFamily, core.GaugeMetricFamily
_INFO, _HISTOGRAM = core.InfoMetricFamily, core.HistogramMetricFamily

#: What each loader has. The names begin with "uringload_".
_OF_LOADERS = [
    _Metric("batches", _COUNTER, "batches", "Batches that were handed out."),
    _Metric("batches_ready", _COUNTER, "batches", "Batches that lay ready when they were asked for."),
    _Metric("samples", _COUNTER, "samples", "Samples that were handed out."),
    _Metric("samples_failed", _COUNTER, "samples",
            "Samples that could not be read, in the place of which an error was raised."),
    _Metric("samples_skipped", _COUNTER, "samples", "Samples that could not be read and were left out."),
    _Metric("samples_replaced", _COUNTER, "samples", "Samples that could not be read and were replaced."),
    _Metric("bytes_delivered", _COUNTER, "bytes", "Bytes of samples that were handed out."),
    _Metric("bytes_read", _COUNTER, "bytes", "Bytes that were read."),
    _Metric("batch_wait_seconds", _HISTOGRAM, "seconds", "Time that the program waited for a batch."),
    _Metric("read_seconds", _HISTOGRAM, "seconds", "Time that a read took."),
    _Metric("thread_seconds", _COUNTER, "seconds",
            "What the loader's threads, and the one that asks for batches, did.", ("thread", "activity")),
    _Metric("reads_in_flight", _GAUGE, "reads", "Reads in flight."),
    _Metric("memory_bytes", _GAUGE, "bytes", "Memory of the loader by who holds it, measured every 10 ms.",
            ("holder",)),
    _Metric("memory_limit_bytes", _GAUGE, "bytes", "The loader's memory_limit."),
    _Metric("store_requests", _COUNTER, "requests", "Requests to a server of object stores, second attempts too.",
            ("endpoint",)),
    _Metric("store_hedges", _COUNTER, "requests", "Second attempts at requests, made because nothing came.",
            ("endpoint",)),
    _Metric("store_hedges_won", _COUNTER, "requests", "Second attempts that brought the next byte.", ("endpoint",)),
    _Metric("store_throttled", _COUNTER, "answers", "Answers of a server that ask for fewer requests.", ("endpoint",)),
    _Metric("store_connections", _COUNTER, "connections", "Connections that were made to a server.", ("endpoint",)),
    _Metric("store_bytes", _COUNTER, "bytes", "Bytes that a server of object stores gave.", ("endpoint",)),
    _Metric("epoch", _GAUGE, "epochs", "The epoch that the next pass reads."),
    _Metric("fallbacks", _GAUGE, "steps", "What the loader wanted and did without: the steps down of its route."),
    _Metric("waiting_for_storage", _GAUGE, "0 or 1", "1 while the loader waits for storage that is away."),
    _Metric("verdict", _INFO, "", "What the loader waits for.", ("bottleneck",)),
]  # fmt: skip
#: What each process has.
_OF_PROCESSES = [
    _Metric("loaders", _GAUGE, "loaders", "Loaders that have read.", ("process",)),
    _Metric("build", _INFO, "", "The version of uringload.", ("version",)),
]
_LABELS = ("loader", "dataset", "rank")
#: What is counted of each server.
_OF_STORES = ("requests", "hedges", "hedges_won", "throttled", "connections", "bytes")

#: Upper bounds of the histograms' buckets, in seconds: the same on all ranks, so that their counts add up.
_BOUNDS = [part * 10.0**power for power in range(-5, 2) for part in (1, 2.5, 5)]


class Collector:
    """What the loaders of this process measure, for `prometheus_client`.

        prometheus_client.REGISTRY.register(uringload.prometheus.Collector({"train": train, "test": test}))

    Counters begin anew where reading does, which Prometheus takes into account. Counts, sums and buckets of several
    ranks may be added. docs/metrics.md lists the metrics.

    Args:
        loaders: those to collect from: a dictionary of loaders by their names, which become the label "loader"; or a
            list, whose loaders are numbered; None: all of this process that are open at that time, numbered as they
            were made.
    """

    def __init__(self, loaders: Mapping[str, DataLoader] | Iterable[DataLoader] | None = None) -> None:
        named = loaders.items() if isinstance(loaders, Mapping) else enumerate(loaders or ())
        self._loaders = None if loaders is None else [(str(name), loader) for name, loader in named]
        for _, loader in self._loaders or ():
            if not isinstance(loader, DataLoader):
                raise mistyped(f"loaders has a {type(loader).__name__}", "give loaders, as a list or a dictionary")

    def describe(self) -> Iterator[Any]:
        """Nothing. Without it a registry would collect from loaders that have not read yet, to learn names."""
        return iter(())

    def collect(self) -> Iterator[Any]:
        """The families of metrics, as a registry asks for them."""
        loaders = self._loaders
        if loaders is None:
            loaders = [(str(loader._number), loader) for loader in open_loaders()]
        families = {one.name: _family(one, (*_LABELS, *one.labels)) for one in _OF_LOADERS}
        count = 0
        for name, loader in loaders:
            values = _values(loader)
            count += bool(values)
            own = _labels(name, loader)
            for metric, labels, value in values:
                families[metric].add_metric([*own, *labels], *value)
        of_process = {one.name: _family(one, one.labels) for one in _OF_PROCESSES}
        of_process["loaders"].add_metric([str(os.getpid())], count)
        of_process["build"].add_metric([], {"version": native.VERSION})
        yield from of_process.values()
        yield from families.values()


def serve(
    port: int,
    loaders: Mapping[str, DataLoader] | Iterable[DataLoader] | None = None,
    *,
    addr: str = "127.0.0.1",
    registry: Any = core.REGISTRY,
) -> int:
    """Serves what loaders measure, and what else is in `prometheus_client`'s registry, until the process ends.

        uringload.prometheus.serve(9187)

    Args:
        port: the port of the first process of this machine. The others add their local rank to it, where the launcher
            tells it (LOCAL_RANK and its kin).
        loaders: as for `Collector`.
        addr: the address to listen at; "0.0.0.0" for all of this machine.
        registry: another registry than the client's own.

    Returns:
        The port of this process.
    """
    own = arguments.integer("port", port, 1) + _ranks.local_rank()
    collector = Collector(loaders)
    try:
        prometheus_client.start_http_server(own, addr=addr, registry=registry)
    except (OSError, OverflowError) as error:
        raise unavailable(f"port {own} of {addr} cannot be served: {error}",
                          "give another port: each process of this machine that serves needs its own, and without a "
                          "variable such as LOCAL_RANK it has to be told") from error
    registry.register(collector)
    return own


def _family(metric: _Metric, labels: tuple[str, ...]) -> Any:
    # What is information is no label of the family.
    names = [name for name in labels if metric.kind is not _INFO or name not in metric.labels]
    return metric.kind(f"uringload_{metric.name}", metric.about, labels=names)


#: A metric, its own labels, and what `prometheus_client` takes as its value.
_Value = tuple[str, list[str], tuple[Any, ...]]


def _values(loader: DataLoader) -> list[_Value]:
    """What a loader has measured; nothing before it has read."""
    stats, reader = loader.stats(), loader._native
    if not stats or reader is None:
        return []
    waits, reads, held = reader.measured(_BOUNDS)
    read_s = (stats["read_latency"]["mean_s"] or 0.0) * stats["read_latency"]["count"]
    single = {
        **{name: stats[name] for name in COUNTS},
        "reads_in_flight": stats["reads_in_flight"],
        "memory_limit_bytes": reader.memory_limit,
        "epoch": loader.epoch,
        "fallbacks": len(loader.route()["fallbacks"]),
        "waiting_for_storage": stats["outage"] is not None,
        "verdict": {"bottleneck": loader.verdict().bottleneck},
    }
    return [
        *((name, [], (value,)) for name, value in single.items()),
        ("batch_wait_seconds", [], (_buckets(waits), waited(stats))),
        ("read_seconds", [], (_buckets(reads), read_s)),
        *(("memory_bytes", [holder], (bytes_,)) for holder, bytes_ in held),
        *((f"store_{name}", [one["endpoint"]], (one[name],)) for one in stats["endpoints"] for name in _OF_STORES),
        *(("thread_seconds", [*key], (seconds,)) for key, seconds in _activities(stats).items()),
    ]


def _buckets(counts: list[int]) -> list[tuple[str, int]]:
    return list(zip([*(f"{bound:g}" for bound in _BOUNDS), "+Inf"], counts))


def _activities(stats: Stats) -> dict[tuple[str, str], float]:
    """Seconds by kind of thread and activity: threads of a kind are added up."""
    sums: dict[tuple[str, str], float] = {}
    for thread, activities in stats["threads"]:
        for activity, seconds in activities.items():
            sums[thread, activity] = sums.get((thread, activity), 0.0) + seconds
    return sums


def _labels(name: str, loader: DataLoader) -> list[str]:
    paths = loader._dataset._paths
    try:
        rank = str(loader.rank)
    except Error:
        rank = ""
    # A name of a file may have bytes that are no UTF-8.
    dataset = (paths[0] if paths else loader._dataset.format).encode("utf-8", "replace").decode("utf-8")
    return [name, dataset, rank]
