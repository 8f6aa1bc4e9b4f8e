"""The suite for machines with a GPU (benches/gpu), as far as it goes without one: torch's checks ask for loaders that
there are."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

from conftest import needs_numpy
from mock_cuda import LIBRARY, needs_mock

SUITE = pathlib.Path(__file__).parents[2] / "benches" / "gpu"
FAKED = pathlib.Path(__file__).parent / "faked"

#: What the faked torch lacks, by check.
LACKS = {"backward": "double", "graph": "CUDAGraph", "training": "DataLoader"}


@needs_mock
@needs_numpy
def test_torchs_checks_ask_for_loaders_that_there_are(tmp_path: pathlib.Path) -> None:
    """Each runs to its end, or to what no faked torch can do, which its error names."""
    shutil.copy(LIBRARY, tmp_path / "libcuda.so.1")
    path = os.pathsep.join([str(FAKED), str(FAKED.parent), *sys.path])
    command = [sys.executable, SUITE / "torch_device.py", tmp_path, "--json", tmp_path / "told", "--required", "--tiny"]
    done = subprocess.run(command, env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": path},
                          capture_output=True, text=True, timeout=300)  # fmt: skip
    assert "violation" not in done.stderr, done.stderr
    runs = {name: run for name, run in json.loads((tmp_path / "told").read_text()).items() if isinstance(run, dict)}
    failed = {name: run["error"] for name, run in runs.items() if not run["passed"]}
    assert failed.keys() == LACKS.keys() and {"streams", "dlpack", "pinned", "beside"} <= runs.keys(), done.stderr
    for name, error in failed.items():
        assert "AttributeError" in error and f"'{LACKS[name]}'" in error, done.stderr
