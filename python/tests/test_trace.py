"""What threads do when, as a file; and that file beside a profile of torch's."""

from __future__ import annotations

import gzip
import json
import pathlib
import time
from typing import Any

import pytest
from conftest import needs_torch, of_records

import uringload


def events(path: pathlib.Path) -> list[Any]:
    """Those of a trace that is whole."""
    found: list[Any] = json.loads(path.read_text())
    return found


def run(records: pathlib.Path, trace: pathlib.Path) -> None:
    with uringload.DataLoader(**of_records(records, output="dlpack", trace=trace)) as loader:
        assert sum(1 for _ in loader) == 32
    deadline = time.monotonic() + 60
    while not trace.exists() or not trace.read_text().endswith("\n]\n"):
        assert time.monotonic() < deadline, "it is written every 20 ms"
        time.sleep(0.01)


def profile(path: pathlib.Path, times: tuple[float, float], base: int = 0) -> pathlib.Path:
    """A profile as torch writes it, of one step from a time to another, as seconds of the time of day."""
    begin, end = (at * 1e6 - base / 1e3 for at in times)
    step = {"ph": "X", "name": "step", "pid": 1, "tid": 1, "ts": begin, "dur": end - begin}
    text = json.dumps({"traceEvents": [step], "baseTimeNanoseconds": base})
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_a_trace_is_written(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    trace = tmp_path / "run.json"
    run(records, trace)
    found = events(trace)
    names = {event["args"]["name"].rpartition(" ")[0] for event in found if event.get("name") == "thread_name"}
    assert {"reactor", "consumer"} <= names
    assert sum(str(event.get("name")).startswith("batch ") for event in found) == 32


def test_reading_that_begins_anew_gets_a_file_of_its_own(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with uringload.DataLoader(**of_records(records, output="dlpack", trace=tmp_path / "run.json")) as loader:
        next(iter(loader))
        state = loader.state_dict()
        loader.load_state_dict(state)
        next(iter(loader))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.2.json", "run.json"]


def test_ranks_do_not_share_a_file(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    def loader(name: str) -> uringload.DataLoader:
        return uringload.DataLoader(**of_records(records, output="dlpack", rank=1, world_size=2, trace=tmp_path / name))

    with pytest.raises(uringload.InvalidArgumentError, match="names one file for 2 ranks") as error:
        loader("run.json")
    assert "run-{rank}.json" in str(error.value.remedy)
    with loader("run-{rank}.json") as reading:
        next(iter(reading))
    assert [path.name for path in tmp_path.iterdir()] == ["run-1.json"]


@pytest.mark.parametrize(("name", "base"), [("p.json", 0), ("p.json.gz", 1_700_000_000_000_000_000)])
def test_a_trace_beside_a_profile(records: pathlib.Path, tmp_path: pathlib.Path, name: str, base: int) -> None:
    trace, before = tmp_path / "run.json", time.time()
    run(records, trace)
    after = time.time()
    theirs = profile(tmp_path / name, (before, after), base)
    # A process that was killed leaves a line without its end.
    trace.write_text(trace.read_text().removesuffix("\n]\n") + ',\n{"pid":1,"tid":')
    uringload.merge_traces(trace, theirs, tmp_path / "both.json")
    both = json.loads((tmp_path / "both.json").read_text())["traceEvents"]
    step, ours = both[0], both[1:]
    assert step["name"] == "step" and len(ours) > 32
    times = [event["ts"] for event in ours if "ts" in event]
    # Clocks of the time of day may be set by a few microseconds meanwhile.
    assert step["ts"] - 1e4 < min(times) and max(times) < step["ts"] + step["dur"] + 1e4
    assert not {event.get("tid") for event in ours} & {1}, "threads are not confused"


def test_what_cannot_be_merged_is_refused(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    trace, out = tmp_path / "run.json", tmp_path / "both.json"
    run(records, trace)
    other = profile(tmp_path / "p.json", (1.0, 2.0))

    def refused(trace: pathlib.Path, profile: pathlib.Path, match: str) -> None:
        with pytest.raises(uringload.Error, match=match):
            uringload.merge_traces(trace, profile, out)
        assert not out.exists()

    refused(trace, other, "have no moment in common")
    refused(other, other, "is no trace of a loader in JSON")
    refused(trace, trace, "is no JSON|no traceEvents")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    refused(tmp_path / "bytes", other, "is no JSON")
    (tmp_path / "array.json").write_text("[\n{}]")
    refused(tmp_path / "array.json", other, "is no JSON|does not say what its clock")
    with pytest.raises(FileNotFoundError):
        uringload.merge_traces(tmp_path / "none.json", other, out)


@needs_torch
def test_a_profile_of_torch(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    import torch

    trace = tmp_path / "run.json"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        with torch.profiler.record_function("epoch"):
            run(records, trace)
    recorded.export_chrome_trace(str(tmp_path / "profile.json"))
    uringload.merge_traces(trace, tmp_path / "profile.json", tmp_path / "both.json")
    both = json.loads((tmp_path / "both.json").read_text())["traceEvents"]
    (epoch,) = (event for event in both if event.get("name") == "epoch" and event["ph"] == "X")
    batches = [event["ts"] for event in both if str(event.get("name")).startswith("batch ")]
    assert len(batches) == 32
    assert all(epoch["ts"] - 1e3 < at < epoch["ts"] + epoch["dur"] + 1e3 for at in batches)


def test_a_trace_that_its_disk_has_no_room_for_is_told(
    records: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    with uringload.DataLoader(**of_records(records, output="dlpack", trace="/dev/full")) as loader:
        assert len(list(loader)) == 32
    assert any("/dev/full" in line and "No space left" in line for line in caplog.messages), caplog.messages
