"""A loader's reports for people: text on a terminal, a table in a notebook."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class Remedy(NamedTuple):
    """Something to try, how many times as fast it would then go, and the samples a second; None: not measured."""

    what: str
    gain: float | None
    samples_per_s: float | None

    def __str__(self) -> str:
        if self.gain is None or self.samples_per_s is None:
            return f"{self.what}: not measured"
        return f"{self.what}: {self.gain:.1f}x, {self.samples_per_s:.0f} samples/s"


class Verdict(NamedTuple):
    """The bottleneck, how clear it is (0 to 1), what that means, and what to try.

    `gain` is how many times as fast it would go if that part took no time; `remedies` are one to three things to try,
    the best first; `without` lists what could not be read on this machine.
    """

    bottleneck: str
    share: float
    advice: str
    gain: float | None = None
    remedies: tuple[Remedy, ...] = ()
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        tried = [f"try {remedy}" for remedy in self.remedies]
        return "\n".join([f"{self.bottleneck} ({self.share * 100:.0f} %): {self.advice}", *tried])


def told(
    bottleneck: str, share: float, advice: str, gain: float | None, remedies: Iterable[Any], without: Iterable[str]
) -> Verdict:
    """What the native loader says, as a `Verdict`."""
    return Verdict(bottleneck, share, advice, gain, tuple(Remedy(*one) for one in remedies), tuple(without))


class Route(dict[str, Any]):
    """How bytes are actually read; "fallbacks" lists every step down from the fastest way, with its reason."""

    def __str__(self) -> str:
        return "\n".join([str(self.get("text", "not read yet")), *self.get("fallbacks", [])])


class Stats(dict[str, Any]):
    """Counters, rates (per second), times (seconds) and what each thread did, as plain values for `json.dumps`."""

    def rows(self) -> list[tuple[str, str]]:
        """The most important numbers, as pairs of a label and a text."""
        if not self:
            return [("batches", "none yet")]
        wait, first, amplification = self["batch_wait"], self["first_batch_s"], self["read_amplification"]
        ready = f", {self['batches_ready']:,} ready at once" if self["batches"] else ""
        rows = [
            ("batches", f"{self['batches']:,}{ready}"),
            ("samples", f"{self['samples']:,} ({self['samples_per_s']:,.0f}/s)"),
            ("delivered", f"{_bytes(self['bytes_delivered'])} ({_bytes(self['bytes_per_s'])}/s)"),
            ("first batch", _time(first)),
            ("wait for a batch", f"median {_time(wait['p50_s'])}, 99 % {_time(wait['p99_s'])}"),
            ("a read", f"median {_time(self['read_latency']['p50_s'])}, 99 % {_time(self['read_latency']['p99_s'])}"),
            ("reads in flight", f"{self['reads_in_flight_mean']:.1f} on average"),
            ("read for each byte", "-" if amplification is None else f"{amplification:.2f}"),
        ]
        for one in self["endpoints"]:
            told = f"{one['requests']:,} requests, {one['hedges']:,} made twice, {one['throttled']:,} refused for now"
            rows.append(("server", f"{one['endpoint']}: {told}"))
        failed = self["samples_failed"] + self["samples_skipped"] + self["samples_replaced"]
        return [*rows, ("samples that failed", f"{failed:,}")] if failed else rows

    def __str__(self) -> str:
        return "\n".join(f"{name:<20} {value}" for name, value in self.rows())

    def _repr_html_(self) -> str:
        return table(self.rows())


def table(rows: list[tuple[str, str]], caption: str = "") -> str:
    """A small HTML table."""
    from html import escape

    head = f"<caption>{escape(caption)}</caption>" if caption else ""
    body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{head}{body}</table>"


def _bytes(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


#: The statistics that only grow.
COUNTS = (
    "batches", "batches_ready", "samples", "samples_failed", "samples_skipped", "samples_replaced", "bytes_delivered",
    "bytes_read",
)  # fmt: skip


def numbers(stats: Stats) -> dict[str, float]:
    """The most important statistics as one dictionary of numbers, for loggers; empty before the first batch."""
    if not stats:
        return {}
    wait = waited(stats)
    return {f"loader/{name}": float(stats[name]) for name in (*COUNTS, "reads_in_flight")} | {
        "loader/samples_per_s": float(stats["samples_per_s"]),
        "loader/bytes_per_s": float(stats["bytes_per_s"]),
        "loader/waited_s": wait,
        "loader/waited_share": wait / stats["elapsed_s"] if stats["elapsed_s"] else 0.0,
    }


def waited(stats: Stats) -> float:
    """Seconds that the program waited for batches. (The histogram of waits has them by size only.)"""
    return float(sum(times.get("wait for batch", 0.0) for thread, times in stats["threads"] if thread == "consumer"))
