"""Every launcher with every trainer, with the real packages: each record comes once, also where a run stops within an
epoch and goes on with another number of ranks."""

from __future__ import annotations

import collections
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import LAUNCHERS, needs_torch

WORKER = pathlib.Path(__file__).parent / "launchers" / "worker.py"
#: A run takes 5 to 20 s, most of it to import and to start processes, and minutes beside other work.
LIMIT_S = 900
RECORDS, STOP = 960, 5

#: Each trainer, and the packages it needs.
TRAINERS = {
    "spawn": (), "loop": (), "lightning": ("lightning", "torchdata"), "lightning_spawn": ("lightning", "torchdata"),
    "accelerate": ("accelerate",), "trainer": ("transformers", "accelerate"), "ray": ("ray", "pyarrow"),
}  # fmt: skip
KINDS = ("plain", "iterable", "map")
#: Where a run stops, and where it goes on.
RANKS = ((1, 2), (2, 3), (3, 1))

pytestmark = [pytest.mark.slow, needs_torch]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A file of records that are a multiple of what all ranks take in a step: no rank has to fill up a batch."""
    path = tmp_path_factory.mktemp("records") / "all.bin"
    path.write_bytes(b"".join(number.to_bytes(4, "little") * 64 for number in range(RECORDS)))
    return path


def run(trainer: str, kind: str, records: pathlib.Path, folder: pathlib.Path, ranks: int, steps: int) -> None:
    """One run, with the launcher that belongs to the trainer."""
    command = [sys.executable]
    if trainer in ("loop", "trainer"):
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    elif trainer == "accelerate":
        command += ["-m", "accelerate.commands.launch", "--num_machines=1", "--mixed_precision=no",
                    "--dynamo_backend=no", "--main_process_port=0", f"--num_processes={ranks}",
                    *(["--multi_gpu"] if ranks > 1 else ["--cpu"])]  # fmt: skip
    command += [str(WORKER), trainer, kind, str(records), str(folder), str(ranks), str(steps)]
    environment = {name: value for name, value in os.environ.items() if name not in LAUNCHERS}
    environment |= {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "HOME": str(folder), "USE_TF": "0"}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]


def seen(folder: pathlib.Path, steps: int) -> list[list[int]]:
    """What each rank was given."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob(f"seen-{steps}-*.json"))]


@pytest.mark.parametrize(("first", "then"), RANKS, ids=[f"{first}-to-{then}" for first, then in RANKS])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trainer", TRAINERS)
def test_each_record_comes_once(
    records: pathlib.Path, tmp_path: pathlib.Path, trainer: str, kind: str, first: int, then: int
) -> None:
    for package in TRAINERS[trainer]:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"skipped: {package} is not installed")
    # Lightning goes on with the states of loaders, and torch's own loader has none.
    stops = not (trainer.startswith("lightning") and kind == "map")
    if stops:
        run(trainer, kind, records, tmp_path, first, STOP)
        assert [len(given) for given in seen(tmp_path, STOP)] == [STOP * 60 // first] * first
    run(trainer, kind, records, tmp_path, then, 0)
    given = [*seen(tmp_path, STOP), *seen(tmp_path, 0)]
    assert len(given) == (first if stops else 0) + then
    times = collections.Counter(number for numbers in given for number in numbers)
    assert sorted(times) == list(range(RECORDS)) and set(times.values()) == {1}, "one is lost, or comes twice"
