"""`uringload.bench` and `uringload.tune`."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

import uringload


def files(folder: pathlib.Path, count: int = 40) -> pathlib.Path:
    for number in range(count):
        (folder / f"{number:03}.dat").write_bytes(bytes([number]) * 3000)
    return folder


def test_a_bench_says_what_the_command_line_says(tmp_path: pathlib.Path) -> None:
    data = files(tmp_path)
    told = uringload.bench(data, batch_size=8, shuffle="full", seed=3, rounds=2, epochs=2)
    assert (told["samples"], told["bytes"], told["ended"]) == (80, 80 * 3000, "complete")
    assert len(told["rounds"]) == 2 and told["verdict"]["bottleneck"] and told["raw_read_bytes_per_s"] > 0
    out = tmp_path.parent / f"{tmp_path.name}.json"
    line = ["bench", str(data), "--batch-size=8", "--shuffle=full", "--seed=3", "--epochs=2", "--json", str(out)]
    main = "import sys; from uringload._command import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", main, *line], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    other = json.loads(out.read_text())
    assert list(told) == list(other) and told["digest"] == other["digest"]
    with uringload.DataLoader(data, batch_size=8, shuffle="full", seed=3, output="numpy") as loader:
        ids = [int(number) for _ in range(2) for batch in loader for number in batch.ids]
    assert sorted(ids) == sorted([*range(40)] * 2)


def test_transforms_and_mixtures_are_measured(tmp_path: pathlib.Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    parts = [files(tmp_path / name, count) for name, count in (("one", 20), ("two", 10))]
    told = uringload.bench(uringload.mix(parts, [1.0, 1.0], "all_exhausted"), batch_size=4, raw=False)
    assert told["samples"] >= 40 and told["raw_read_bytes_per_s"] is None
    numbers = tmp_path / "numbers.bin"
    numbers.write_bytes(bytes(4096))
    steps = {"data": "array(slice(:2))"}
    told = uringload.bench(numbers, record_bytes=16, dtype="f32", transforms=steps, batch_size=4, raw=False)
    assert told["samples"] == 256 and told["samples_per_s"] > 0


def test_what_python_does_is_refused(tmp_path: pathlib.Path) -> None:
    data = files(tmp_path)
    for given, why in [
        ({"transform": lambda sample: sample}, "transform is work of Python's"),
        ({"batch_transform": lambda batch: batch}, "batch_transform is work"),
        ({"collate_fn": list, "output": "dlpack"}, "collate_fn is work"),
        ({"sampler": range(4), "output": "dlpack"}, "sampler is work"),
    ]:
        asked: dict[str, Any] = {"output": "dlpack", "batch_size": 4, **given}
        for function in (uringload.bench, uringload.tune):
            with pytest.raises(uringload.InvalidArgumentError, match=why):
                function(data, **asked)
    for asked, why in [
        ({"compare": "mapping"}, "no way to read called \"mapping\""),
        ({"duration": 0}, "duration is 0"),
        ({"rounds": 0}, "rounds"),
        ({"epochs": 0}, "epochs"),
        ({"batchsize": 4}, "batchsize"),
    ]:
        with pytest.raises((ValueError, TypeError), match=why):
            uringload.bench(data, **{"batch_size": 4, "output": "dlpack", **asked})


def test_a_profile_is_written_and_read(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").mkdir()
    data, out = files(tmp_path / "data", 200), tmp_path / "train.toml"
    found = uringload.tune(data, batch_size=8, shuffle=True, limit=3, out=out)
    assert found["best"]["samples_per_s"] > 0 and found["took_s"] < 10 and not found["interrupted"]
    text = out.read_text()
    assert all(f"{name} = " in text for name in found["profile"])
    with uringload.DataLoader(data, batch_size=8, shuffle=True, profile=out, output="dlpack") as loader:
        assert sum(len(batch.ids) for batch in loader) == 200


def test_a_sample_that_cannot_be_read_is_the_loaders_error(tmp_path: pathlib.Path) -> None:
    data = files(tmp_path)
    dataset = uringload.Dataset(data)
    (tmp_path / "007.dat").unlink()
    with pytest.raises(uringload.NotFoundError, match=r"007\.dat"):
        uringload.bench(dataset, batch_size=4, raw=False)
    told = uringload.bench(dataset, batch_size=4, raw=False, on_error="skip")
    assert (told["samples"], told["samples_skipped"]) == (39, 1)


def test_ctrl_c_ends_a_bench(tmp_path: pathlib.Path) -> None:
    measured = f"uringload.bench({str(files(tmp_path))!r}, batch_size=8, duration=60)"
    code = f"import uringload; print('on', flush=True); {measured}"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"on\n"
    time.sleep(0.5)
    os.kill(child.pid, signal.SIGINT)
    begun = time.monotonic()
    _, told = child.communicate(timeout=30)
    assert b"KeyboardInterrupt" in told and time.monotonic() - begun < 5
