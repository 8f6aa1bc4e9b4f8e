"""The suite for machines with a GPU (benches/gpu.sh), the part that needs none: what it keeps of calls that are
killed, what it does with programs that hang, and that torch's checks ask for loaders that there are."""

from __future__ import annotations

import concurrent.futures
import gzip
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from conftest import needs_numpy
from mock_cuda import LIBRARY, needs_mock

ROOT = pathlib.Path(__file__).parents[2]
SUITE = ROOT / "benches" / "gpu"
FAKED = pathlib.Path(__file__).parent / "faked"
NVJPEG = LIBRARY.with_name("libmock_nvjpeg.so")

needs_groups = pytest.mark.skipif(sys.version_info < (3, 11), reason="skipped: the suite's calls need Python 3.11")

KILLS = 100
#: What the faked torch lacks, by check.
LACKS = {"backward": "double", "graph": "CUDAGraph", "training": "DataLoader"}


class Calls:
    """The calls with programs that do nothing but take a twentieth of a second each, and say when they end."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        program = b'#!/bin/sh\necho "output of $0 $*"\nsleep 0.05\n%s >>"$ENDED"\n'
        (folder / "kit").mkdir()
        for name in ("tests", "suite", "uringload"):
            (folder / f"kit/{name}.gz").write_bytes(gzip.compress(program % b'echo "${0##*/}"'))
        (folder / "kit/made-from.txt").write_text("nothing\n")
        real = b'case $1 in */calls.py) exec "%s" "$@" ;; esac\n' % sys.executable.encode()
        named = b'echo $(expr "$1 $2" : ".*/\\([a-z]*\\).*py")'
        self.fake("python3", (program % named).replace(b"\n", b"\n" + real, 1))
        self.fake("compute-sanitizer", program % b'echo "$2"')
        # What it would run says something of the machine, and takes its time.
        self.fake("timeout", b"#!/bin/sh\n")

    def fake(self, name: str, program: bytes) -> None:
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(program)
        path.chmod(0o755)

    def begin(self, call: str, out: pathlib.Path) -> subprocess.Popen[str]:
        (out / "tmp").mkdir(parents=True)
        given = {"GPU_KIT": self.folder / "kit", "GPU_DATA": out / "tmp", "TMPDIR": out / "tmp", "ENDED": out / "ended",
                 "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}  # fmt: skip
        environment = {**os.environ, **{name: str(value) for name, value in given.items()}}
        return subprocess.Popen([ROOT / "benches/gpu.sh", call, out / "out"], env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, start_new_session=True)  # fmt: skip


@pytest.fixture
def calls(tmp_path: pathlib.Path) -> Calls:
    return Calls(tmp_path)


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The folder, whose modules can be imported."""
    monkeypatch.syspath_prepend(str(SUITE))
    return SUITE


def told(out: pathlib.Path) -> dict[str, str]:
    """The steps' results by name."""
    path = out / "out" / "results.json"
    return {step["name"]: step["status"] for step in json.loads(path.read_text())["steps"]} if path.exists() else {}


@needs_groups
@pytest.mark.parametrize("call", ["correct", "figures"])
def test_a_call_runs_its_steps(calls: Calls, suite: pathlib.Path, tmp_path: pathlib.Path, call: str) -> None:
    from calls import CALLS

    done = calls.begin(call, tmp_path / "run")
    printed, _ = done.communicate(timeout=60)
    statuses = told(tmp_path / "run")
    assert done.returncode == 0 and list(statuses) == [name for name, *_ in CALLS[call][1]], printed
    assert all(status == "ok" or (name, status) == ("ptx", "ok, with skips") for name, status in statuses.items())
    assert sorted(os.listdir(tmp_path / "run/out")) == ["log.txt", "results.json", "table.txt"]
    table = (tmp_path / "run/out/table.txt").read_text()
    assert table in printed and all(f"step {name}" in table for name in statuses)
    assert os.listdir(tmp_path / "run/tmp") == []


@needs_groups
def test_what_has_ended_is_told_by_calls_that_are_killed(calls: Calls, tmp_path: pathlib.Path) -> None:
    """At 100 random moments, with SIGKILL, which nothing can be done about then."""
    begin = time.monotonic()
    calls.begin("correct", tmp_path / "whole").communicate(timeout=60)
    seconds, seed = time.monotonic() - begin, time.time_ns()
    print(f"seed {seed}")
    rng = random.Random(seed)

    def killed(number: int, moment: float) -> int:
        out = tmp_path / str(number)
        process = calls.begin("correct", out)
        time.sleep(moment)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        ended = (out / "ended").read_text().split() if (out / "ended").exists() else []
        statuses = told(out)
        # The last may have ended just before or after the kill.
        sure, table = ended[:-1], out / "out" / "table.txt"
        assert all(statuses.get(name) == "ok" for name in sure), (number, ended, statuses)
        assert not sure[1:] or all(f"step {name}" in table.read_text() for name in sure[:-1]), (number, ended)
        log = (out / "out/log.txt").read_text() if ended else ""
        assert log.count("output of ") >= len(ended), (number, ended, log)
        return len(statuses)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        moments = [rng.uniform(0, 1.5 * seconds) for _ in range(KILLS)]
        counts = list(pool.map(killed, range(KILLS), moments))
    assert len(set(counts)) > 3, "the kills hit one place only"


@pytest.fixture
def steps(suite: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    import steps

    monkeypatch.setattr(steps, "LEAST_S", 0)
    return steps


@needs_groups
def test_what_a_step_has_begun_ends_with_it(steps: Any, tmp_path: pathlib.Path) -> None:
    pids = tmp_path / "pids"
    kept: list[Any] = []
    runner = steps.Steps(tmp_path / "log", 60, lambda told: kept.append(list(told)))
    child = f"sleep 600 & echo $! >>{pids}"
    runner.run("hangs", 0.5, f"{child}; echo begun; sleep 600")
    runner.run("leaves something behind", 30, child)
    runner.run("fails", 30, "echo skipped: nothing; exit 3")
    runner.run("skips", 30, "echo; printf skip; sleep 0.1; echo 'ped: something'")
    statuses = ["out of time", "ok", "FAILED (3)", "ok, with skips"]
    assert [status for _, status, _ in runner.told] == statuses and kept[-1] == runner.told
    assert not runner.is_well() and "begun" in (tmp_path / "log").read_text()
    for pid in pids.read_text().split():
        deadline = time.monotonic() + 20
        while pathlib.Path(f"/proc/{pid}/stat").exists() and " Z " not in pathlib.Path(f"/proc/{pid}/stat").read_text():
            assert time.monotonic() < deadline, "a child lives on"
            time.sleep(0.01)


@needs_groups
def test_a_step_that_cannot_be_killed_is_left_behind(
    steps: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one in state D, in a call into the driver, cannot."""
    hung = []
    monkeypatch.setattr(steps, "kill", hung.append)
    monkeypatch.setattr(steps, "GRACE_S", 0.1)
    runner = steps.Steps(tmp_path / "log", 60, lambda told: 1 // 0)
    begin = time.monotonic()
    try:
        runner.run("hangs", 0.2, "sleep 600")
        assert time.monotonic() - begin < 20, "it was waited for"
        runner.run("goes on", 30, "true")
    finally:
        hung[0].kill()
        hung[0].wait()
    statuses = [status for _, status, _ in runner.told]
    assert statuses == ["out of time, and left behind: it does not end", "ok"]
    assert "ZeroDivisionError" in (tmp_path / "log").read_text(), "what cannot be kept is told"


@needs_groups
def test_logs_have_the_begin_and_the_end(steps: Any, tmp_path: pathlib.Path) -> None:
    runner = steps.Steps(tmp_path / "log", 60, lambda told: None)
    runner.run("talks", 30, "echo begin; head -c 4000000 /dev/zero; echo the end")
    log = (tmp_path / "log").read_bytes()
    assert len(log) < steps.BEGIN_BYTES + steps.END_BYTES + 200
    assert b"begin\n" in log[:100] and b"the end\n" in log[-100:] and b"bytes]" in log


def test_calls_fit_into_their_time_and_files(suite: pathlib.Path) -> None:
    import calls
    import steps

    for call, most in (("correct", 150), ("figures", 420)):
        seconds, of_call = calls.CALLS[call]
        assert seconds == most and sum(limit for _, limit, _ in of_call) + calls.AROUND_S <= seconds
        assert len(of_call) * (steps.BEGIN_BYTES + steps.END_BYTES + 1000) < 16 << 20
    assert "two calls, of 150 and of 420 seconds at most" in (ROOT / "benches/gpu.sh").read_text()


def test_a_table_of_steps_of_which_none_has_ended(suite: pathlib.Path, tmp_path: pathlib.Path) -> None:
    import merge

    merge.write(tmp_path, tmp_path, [])
    assert (tmp_path / "table.txt").read_text() == ""
    assert json.loads((tmp_path / "results.json").read_text())["steps"] == []


def test_a_long_error_is_whole_in_the_results_alone(suite: pathlib.Path, tmp_path: pathlib.Path) -> None:
    import merge

    error = "an error of many words, " * 40
    torch = {"checks": ["nvjpeg", "graph"], "nvjpeg": {"passed": False, "error": error}, "graph": {"passed": True}}
    whole = {"suite": {"table": [["jpeg", error, "", "FAILED"], ["exact", "x" * 80, "", ""]]}, "torch": torch}
    for name, run in whole.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(run))
    merge.write(tmp_path, tmp_path, [("torch", "FAILED (1)", 3.0)])
    table = (tmp_path / "table.txt").read_text()
    assert max(map(len, table.splitlines())) < 130 and "x" * 80 in table
    assert table.count(f"{error[:77]}...  ") == 2 and table.count("  FAILED\n") == 2
    results = json.loads((tmp_path / "results.json").read_text())
    assert {name: results[name] for name in whole} == whole


@needs_mock
@needs_numpy
@pytest.mark.skipif(not NVJPEG.exists(), reason="skipped: no mock of nvJPEG (cargo build -p mock-nvjpeg)")
@pytest.mark.parametrize("kind", ["checks", "figures"])
def test_torchs_checks_ask_for_loaders_that_there_are(tmp_path: pathlib.Path, kind: str) -> None:
    """Each runs to its end, or to what no faked torch can do, which its error names."""
    shutil.copy(LIBRARY, tmp_path / "libcuda.so.1")
    places = [str(tmp_path), str(FAKED), str(FAKED.parent), *sys.path]
    (tmp_path / "nvidia/cu13/lib").mkdir(parents=True)
    shutil.copy(NVJPEG, tmp_path / "nvidia/cu13/lib/libnvjpeg.so.13")
    given = {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(places)}
    command = [sys.executable, SUITE / "torch_device.py", tmp_path, "--json", tmp_path / "told", "--required", "--tiny"]
    done = subprocess.run(command + ["--figures"] * (kind == "figures"), env={**os.environ, **given},
                          capture_output=True, text=True, timeout=300)  # fmt: skip
    runs = json.loads((tmp_path / "told").read_text())
    assert "violation" not in done.stderr, done.stderr
    failed = {name: runs[name]["error"] for name in runs["checks"] if not runs[name]["passed"]}
    assert failed.keys() == LACKS.keys() & runs["checks"], done.stderr
    for name, error in failed.items():
        assert "AttributeError" in error and f"'{LACKS[name]}'" in error, done.stderr
    assert all("torchvision" in run["skipped"] for run in runs.values() if "skipped" in run), runs
