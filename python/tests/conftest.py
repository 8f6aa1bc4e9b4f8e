"""Datasets that tests share, and what is skipped aloud where a package is absent."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import random
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

# Launchers of the machine that tests run on say nothing about the tests.
LAUNCHERS = (
    "RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
    "PMI_SIZE", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE",
    "LOCAL_RANK", "NODE_RANK", "LOCAL_WORLD_SIZE", "JOB_COMPLETION_INDEX",
)  # fmt: skip
# Nor do defaults of whoever runs them.
DEFAULTS = ("URINGLOAD_NUM_THREADS", "URINGLOAD_MEMORY_LIMIT", "URINGLOAD_PROFILE", "URINGLOAD_LOG",
            "URINGLOAD_SHARE_STATS")  # fmt: skip
for _name in (*LAUNCHERS, *DEFAULTS):
    os.environ.pop(_name, None)

# A shell has what it starts in the background ignore Ctrl-C, and tests of it would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

HAS_TORCH = importlib.util.find_spec("torch") is not None
HAS_NUMPY = importlib.util.find_spec("numpy") is not None

needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="skipped: torch is not installed")
needs_numpy = pytest.mark.skipif(not HAS_NUMPY, reason="skipped: NumPy is not installed")


def is_there(package: str) -> bool:
    """Whether a package can be imported: torchcodec needs libraries of FFmpeg, which pip does not install."""
    try:
        importlib.import_module(package)
    except (ImportError, OSError, RuntimeError):
        return False
    return True


RECORD_ELEMENTS = 64
RECORDS = 1000
SEED = 7


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run what takes minutes too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes minutes; run with --slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has each step down once in a process, and a test wants its own."""
    monkeypatch.setattr("uringload._log._told", set())


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A file of 1000 records of 64 32-bit integers; all elements of record i are i."""
    path = tmp_path_factory.mktemp("records") / "all.bin"
    path.write_bytes(b"".join(number.to_bytes(4, "little") * RECORD_ELEMENTS for number in range(RECORDS)))
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """200 files of different lengths in two classes; file i is i % 256, again and again."""
    root = tmp_path_factory.mktemp("folder")
    lengths = random.Random(SEED)
    for index in range(200):
        place = root / ("cat" if index % 2 else "dog")
        place.mkdir(exist_ok=True)
        (place / f"{index:04}.dat").write_bytes(bytes([index % 256]) * lengths.randrange(1, 9000))
    return root


#: Of other programs, and of commands of ours that remedies name as they are run.
OTHERS = {"gpus", "high", "iouring", "local-dir", "membind", "rebuild", "repo-type", "security-opt", "sparse", "status",
          "target", "ulimit"}  # fmt: skip


def unlike_python(remedy: str) -> list[str]:
    """The options of the command line in a remedy that it does not name by Python's words too."""
    import inspect

    import uringload
    from uringload import _dataset

    calls = (uringload.DataLoader, uringload.Dataset, uringload.pack, uringload.bench, uringload.tune)
    names = {name for call in calls for name in inspect.signature(call).parameters}
    names |= {*_dataset.OPTIONS, *_dataset.LISTS}
    # Whole commands are for a shell.
    ours = re.sub(r"(docker run|uringload pack) [^;,]*", "", remedy)
    words = {*re.findall(r"\w+", re.sub(r"--[a-z-]+", "", ours))}
    flags = {*re.findall(r"--([a-z][a-z-]+)", ours)} - OTHERS
    return sorted(flag for flag in flags if flag.replace("-", "_") not in words & names)


def takes_turns() -> bool:
    """Whether other programs keep this one from a processor for more than a tenth of the time, just now."""
    seconds, begun, worked = 0.2, time.perf_counter(), time.thread_time()
    while time.perf_counter() - begun < seconds:
        pass
    return time.thread_time() - worked < 0.9 * seconds


def judged(bottleneck: str, run: Callable[[], tuple[Any, Any]], tries: int = 8) -> tuple[Any, Any]:
    """What a run returns whose verdict, the first of the two, names this bottleneck.

    While other programs take the processors it is rightly they who are named: then it runs again, and where they never
    leave off the test is skipped aloud.
    """
    said = []
    for _ in range(tries):
        verdict, beside = run()
        if verdict.bottleneck == bottleneck:
            return verdict, beside
        said.append(str(verdict))
    if takes_turns():
        pytest.skip(f"skipped: other programs take the processors: {said[-1]}")
    pytest.fail(f"not {bottleneck}: {said}")


def of_records(path: os.PathLike[str], **given: object) -> dict[str, object]:
    """Arguments of a loader of `records`."""
    return {
        "dataset": path,
        "record_bytes": 4 * RECORD_ELEMENTS,
        "dtype": "i32",
        "output": "numpy",
        "batch_size": 32,
        **given,
    }


def numbers(batch: object) -> list[int]:
    """Which records are in a batch, by what is in them."""
    data = batch["data"]  # type: ignore[index]
    assert all((row == row[0]).all() for row in data), "a record is torn"
    return [int(row[0]) for row in data]


def same(mine: Any, theirs: Any) -> bool:
    """Whether two batches are the same, types and containers included. A subclass of a container will do."""
    import numpy as np
    import torch
    from PIL import Image

    if isinstance(theirs, torch.Tensor):
        return (isinstance(mine, torch.Tensor) and mine.dtype == theirs.dtype and mine.shape == theirs.shape
                and torch.equal(mine.isnan(), theirs.isnan())
                and torch.equal(torch.nan_to_num(mine), torch.nan_to_num(theirs)))
    if isinstance(theirs, np.ndarray):
        has_nan = theirs.dtype.kind in "fc"
        return (type(mine) is type(theirs) and mine.dtype == theirs.dtype and mine.shape == theirs.shape
                and all(map(same, mine, theirs) if theirs.dtype == object
                        else [np.array_equal(mine, theirs, equal_nan=has_nan)]))
    if isinstance(theirs, dict):
        return isinstance(mine, dict) and [*mine] == [*theirs] and all(map(same, mine.values(), theirs.values()))
    if isinstance(theirs, (list, tuple)):
        return isinstance(mine, type(theirs)) and len(mine) == len(theirs) and all(map(same, mine, theirs))
    if isinstance(theirs, Image.Image):
        return isinstance(mine, Image.Image) and mine.mode == theirs.mode and mine.tobytes() == theirs.tobytes()
    if hasattr(theirs, "equals"):
        return type(mine) is type(theirs) and bool(mine.equals(theirs))
    return type(mine) is type(theirs) and bool(mine == theirs or mine != mine)


class Listed:
    """A dataset of these samples."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]
