"""A loader's trace and the profile of a training loop, in one file and on one clock."""

from __future__ import annotations

import gzip
import json
import os
from typing import Any

from ._arguments import paths
from .errors import Error, mistyped, refused

#: What is added to the numbers of the loader's threads, which a profile counts as the system does.
_TID_OFFSET = 1_000_000_000

#: The event of a loader's trace that says which time its clock starts at.
_CLOCK = "uringload clock"

_REMEDY = 'give what DataLoader(trace="run.json") has written'


def merge_traces(
    trace: str | os.PathLike[str], profile: str | os.PathLike[str], out: str | os.PathLike[str]
) -> None:
    """Writes one file for https://ui.perfetto.dev: the threads of a loader below those of the training.

    ``trace`` is what ``DataLoader(trace="run.json")`` has written; one that a killed process has left, and of which the
    end is missing, will do. ``profile`` is what ``torch.profiler``'s ``export_chrome_trace`` has written, or its
    handler for TensorBoard (``.json`` or ``.json.gz``). Times become those of the profile.

    Raises `InvalidArgumentError` for files that are neither, and for two that have no moment in common.
    """
    trace, profile, out = (paths(name, given)[0] for name, given in
                           (("trace", trace), ("profile", profile), ("out", out)))
    ours, theirs = _trace(trace), _profile(profile)
    # Nanoseconds between the clock of the loader's trace, which is the system's since its start, and the profile's.
    shift = _clock(trace, ours) - int(theirs.get("baseTimeNanoseconds", 0))
    for event in ours:
        if "ts" in event:
            event["ts"] = event["ts"] + shift / 1000
        if "tid" in event:
            event["tid"] += _TID_OFFSET
    _check_overlap(trace, ours, profile, theirs["traceEvents"])
    theirs["traceEvents"] = [*theirs["traceEvents"], *ours]
    with gzip.open(out, "wt") if out.endswith(".gz") else open(out, "w") as file:
        json.dump(theirs, file)


def _read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read()
        return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    except (gzip.BadGzipFile, EOFError, UnicodeDecodeError) as error:
        raise _no_json(path, error, "give a file of JSON") from None


def _no_json(path: str, error: Exception, remedy: str) -> Error:
    return refused(f"{path} is no JSON: {error}", remedy)


def _trace(path: str) -> list[dict[str, Any]]:
    text = _read(path)
    if text[:1] != "[":
        raise refused(f"{path} is no trace of a loader in JSON", _REMEDY)
    # An event has a line of its own, and only a part of the last one may be there.
    for end in (len(text), text.rfind(",\n"), text.rfind(",\n", 0, max(text.rfind(",\n"), 0))):
        try:
            events: list[dict[str, Any]] = json.loads(text[: max(end, 1)].rstrip().rstrip(",").removesuffix("]") + "]")
            return events
        except ValueError as error:
            last = error
    raise _no_json(path, last, _REMEDY)


def _profile(path: str) -> dict[str, Any]:
    remedy = "give what torch.profiler's export_chrome_trace has written"
    try:
        found = json.loads(_read(path))
    except ValueError as error:
        raise _no_json(path, error, remedy) from None
    if not isinstance(found, dict) or not isinstance(found.get("traceEvents"), list):
        raise mistyped(f"{path} has no traceEvents", remedy)
    return found


def _clock(path: str, events: list[dict[str, Any]]) -> int:
    """What the time of day is beyond the trace's clock, in nanoseconds."""
    for event in events:
        if event.get("name") == _CLOCK:
            return int(event["args"]["unix_minus_ts_ns"])
    raise refused(f"{path} does not say what its clock stands for", _REMEDY)


def _check_overlap(trace: str, ours: list[Any], profile: str, theirs: list[Any]) -> None:
    first, last = _span(ours)
    begin, end = _span(theirs)
    if last < begin or end < first:
        by = (begin - last if last < begin else first - end) / 1e6
        raise refused(f"{trace} and {profile} have no moment in common: {by:.1f} s lie between them",
                      "give a trace and a profile of one run")


def _span(events: list[Any]) -> tuple[float, float]:
    times = [(float(event["ts"]), float(event.get("dur", 0))) for event in events if event.get("ph") in "XBEiC"
             and "ts" in event]  # fmt: skip
    return (min(at for at, _ in times), max(at + length for at, length in times)) if times else (0.0, 0.0)
