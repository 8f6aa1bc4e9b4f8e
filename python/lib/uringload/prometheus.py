"""Prometheus: a collector for `prometheus_client`, which serves, pushes or writes what loaders measure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ._loader import DataLoader
from ._opened import open_loaders
from ._report import COUNTS, Stats, waited
from .errors import Error, mistyped, refused

try:
    from prometheus_client import core
except ImportError as error:
    raise refused("prometheus_client is not installed", "pip install prometheus_client") from error

__all__ = ["Collector"]

#: What each count of `DataLoader.stats` means.
_ABOUT = {
    "batches": "Batches that were handed out.",
    "batches_ready": "Batches that lay ready when they were asked for.",
    "samples": "Samples that were handed out.",
    "samples_failed": "Samples that could not be read, in the place of which an error was raised.",
    "samples_skipped": "Samples that could not be read and were left out.",
    "samples_replaced": "Samples that could not be read and were replaced.",
    "bytes_delivered": "Bytes of samples that were handed out.",
    "bytes_read": "Bytes that were read.",
}
_LABELS = ("loader", "dataset", "rank")


class Collector:
    """What the loaders of this process measure, for `prometheus_client`.

        import prometheus_client
        import uringload.prometheus

        prometheus_client.REGISTRY.register(uringload.prometheus.Collector())
        prometheus_client.start_http_server(9187, addr="127.0.0.1")

    Counters begin anew where reading does, which Prometheus takes into account. Counts and sums of several ranks may be
    added.

    Args:
        loaders: those to collect from; None: all of this process that are open at that time.
    """

    def __init__(self, loaders: Iterable[DataLoader] | None = None) -> None:
        self._loaders = None if loaders is None else list(loaders)
        for loader in self._loaders or ():
            if not isinstance(loader, DataLoader):
                raise mistyped(f"loaders has a {type(loader).__name__}", "give loaders, as a list")

    def describe(self) -> Iterator[Any]:
        """Nothing. Without it a registry would collect from loaders that have not read yet, to learn names."""
        return iter(())

    def collect(self) -> Iterator[Any]:
        """The families of metrics, as a registry asks for them."""
        loaders = open_loaders() if self._loaders is None else self._loaders
        shown = [(_labels(number, loader), loader, loader.stats()) for number, loader in enumerate(loaders)]
        shown = [each for each in shown if each[2]]

        def gauge(name: str, about: str, value: Callable[[DataLoader, Stats], float]) -> Any:
            family = core.GaugeMetricFamily(f"uringload_{name}", about, labels=_LABELS)
            for labels, loader, stats in shown:
                family.add_metric(labels, value(loader, stats))
            return family

        process = core.GaugeMetricFamily("uringload_loaders", "Loaders that have read.", labels=["process"])
        process.add_metric([str(os.getpid())], len(shown))
        yield process
        for name in COUNTS:
            counter = core.CounterMetricFamily(f"uringload_{name}", _ABOUT[name], labels=_LABELS)
            for labels, _, stats in shown:
                counter.add_metric(labels, stats[name])
            yield counter
        yield gauge("reads_in_flight", "Reads in flight.", lambda _, stats: stats["reads_in_flight"])
        yield gauge("epoch", "The epoch that the next pass reads.", lambda loader, _: loader.epoch)
        yield gauge("fallbacks", "What the loader wanted and did without: the steps down of its route.",
                    lambda loader, _: len(loader.route()["fallbacks"]))
        yield gauge("waiting_for_storage", "1 while the loader waits for storage that is away.",
                    lambda _, stats: stats["outage"] is not None)
        verdict = core.InfoMetricFamily("uringload_verdict", "What the loader waits for.", labels=_LABELS)
        for labels, loader, _ in shown:
            verdict.add_metric(labels, {"bottleneck": loader.verdict().bottleneck})
        yield verdict
        for name, about, times in (
            ("batch_wait_seconds", "Time that the program waited for a batch.", "batch_wait"),
            ("read_seconds", "Time that a read took.", "read_latency"),
        ):
            summary = core.SummaryMetricFamily(f"uringload_{name}", about, labels=_LABELS)
            for labels, _, stats in shown:
                count = stats[times]["count"]
                total = waited(stats) if times == "batch_wait" else (stats[times]["mean_s"] or 0.0) * count
                summary.add_metric(labels, count_value=count, sum_value=total)
            yield summary
        threads = core.CounterMetricFamily(
            "uringload_thread_seconds", "What the loader's threads, and the one that asks for batches, did.",
            labels=[*_LABELS, "thread", "activity"],
        )  # fmt: skip
        for labels, _, stats in shown:
            for (thread, activity), seconds in _activities(stats).items():
                threads.add_metric([*labels, thread, activity], seconds)
        yield threads


def _activities(stats: Stats) -> dict[tuple[str, str], float]:
    """Seconds by kind of thread and activity: threads of a kind are added up."""
    sums: dict[tuple[str, str], float] = {}
    for thread, activities in stats["threads"]:
        for activity, seconds in activities.items():
            sums[thread, activity] = sums.get((thread, activity), 0.0) + seconds
    return sums


def _labels(number: int, loader: DataLoader) -> list[str]:
    paths = loader._dataset._paths
    try:
        rank = str(loader.rank)
    except Error:
        rank = ""
    # A name of a file may have bytes that are no UTF-8.
    dataset = (paths[0] if paths else loader._dataset.format).encode("utf-8", "replace").decode("utf-8")
    return [str(number), dataset, rank]
