"""Storage that leaves a call about one file without an answer: its sample fails in time, the others come, and the
process ends. (`tests/loaders/faults_disk.rs` shows the same of the library, by each way to read.)
"""

from __future__ import annotations

import json
import os
import pathlib
import select
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import conftest
import pytest
from hanging import GETATTR, LOOKUP, OPEN, READ, READDIR, Hanging, wait_until_forgotten

pytestmark = [
    conftest.needs_numpy,
    pytest.mark.skipif(os.geteuid() != 0 or not os.path.exists("/dev/fuse"),
                       reason="skipped: only root can mount FUSE"),
]

FILES, HANGS, TIMEOUT = 120, 7, 1.0
CALLS = {"lookup": LOOKUP, "open": OPEN, "getattr": GETATTR, "read": READ, "readdir": READDIR}

#: Opens the folder, tells so, waits for a word, and reads all of it.
READER = """
import json, sys, time
import uringload
path, options = sys.argv[1], json.loads(sys.argv[2])
given = options.pop("given", {})
begin = time.monotonic()
try:
    dataset = uringload.Dataset(path, format="folder", **given)
except uringload.ReadTimeoutError as error:
    print(json.dumps([time.monotonic() - begin, str(error)]), flush=True)
    sys.exit(3)
print("open", flush=True)
sys.stdin.readline()
times, ids, failed = [time.monotonic()], [], []
loader = uringload.DataLoader(dataset, batch_size=8, on_error="skip", output="numpy", **options)
for batch in loader:
    ids += batch.ids
    failed += [str(error) for error in batch.failed]
times.append(time.monotonic())
engine = loader.route()["engine"]
loader.state_dict()
times.append(time.monotonic())
loader.close()
times.append(time.monotonic())
print(json.dumps([[after - before for before, after in zip(times, times[1:])], ids, failed, engine]), flush=True)
"""


@pytest.fixture
def mounted(tmp_path: pathlib.Path) -> Iterator[Hanging]:
    with Hanging(tmp_path, {f"{number:03}.dat": bytes([number]) * 20_000 for number in range(FILES)}) as files:
        yield files


def started(files: Hanging, options: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", READER, str(files.at), json.dumps(options)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line_of(reader: subprocess.Popen[str], files: Hanging) -> str:
    assert reader.stdout is not None
    if not select.select([reader.stdout], [], [], 60)[0]:
        files.release()
        pytest.fail("nothing is said within a minute")
    return reader.stdout.readline()


@pytest.mark.parametrize("io", ["auto", "direct", "buffered"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_hangs_costs_its_sample_alone(mounted: Hanging, call: str, io: str) -> None:
    reader = started(mounted, {"timeout": TIMEOUT, "io": io})
    assert line_of(reader, mounted) == "open\n"
    wait_until_forgotten()
    mounted.hang(CALLS[call], HANGS)
    assert reader.stdin is not None
    reader.stdin.write("go on\n")
    reader.stdin.flush()
    took, ids, failed, engine = json.loads(line_of(reader, mounted))
    mounted.release()
    assert reader.wait(60) == 0
    # A look-up of a file returns its attributes, and the folder is not listed again.
    assert len(failed) <= 1 and (len(failed) == 1 or call in ("getattr", "readdir")), failed
    assert sorted(ids) == [number for number in range(FILES) if not failed or number != HANGS]
    assert all(f"{HANGS:03}.dat" in error for error in failed), failed
    # To read all, to make a state, and to close the loader.
    assert max(took) < 2 * TIMEOUT, took
    # This server does not say what file system that is.
    assert engine == "threads"


@pytest.mark.parametrize("call", ["lookup", "readdir"])
def test_a_call_that_hangs_ends_the_opening(mounted: Hanging, call: str) -> None:
    mounted.hang(CALLS[call], HANGS)
    reader = started(mounted, {"given": {"timeout": TIMEOUT}})
    took, error = json.loads(line_of(reader, mounted))
    mounted.release()
    assert reader.wait(60) == 3
    assert TIMEOUT <= took < 2 * TIMEOUT
    assert str(mounted.at) in error and (call == "readdir" or f"{HANGS:03}.dat" in error)
