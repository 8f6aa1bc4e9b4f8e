"""Training scripts that were written for torch: two lines change, and the samples are the same.

docs/from-torch.md promises that. Each script runs as it is, and with its lines replaced.
"""

from __future__ import annotations

import collections
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from conftest import DEFAULTS, LAUNCHERS, needs_numpy, needs_torch

import uringload

PORTS = pathlib.Path(__file__).parent / "ports"
IMPORT = {"from torch.utils.data import DataLoader": "from uringload import DataLoader"}

pytestmark = [needs_numpy, needs_torch]


def needs(*packages: str) -> pytest.MarkDecorator:
    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    return pytest.mark.skipif(bool(absent), reason=f"skipped: {', '.join(absent)} is not installed")


def run(name: str, changes: dict[str, str], folder: pathlib.Path, *arguments: object) -> None:
    """Runs a script with these of its lines replaced, whatever they are indented by."""
    lines = (PORTS / name).read_text().splitlines()
    for old, new in changes.items():
        (at,) = [at for at, line in enumerate(lines) if line.strip() == old]
        lines[at] = lines[at].replace(old, new)
    assert len(changes) <= 2
    script = folder / name
    script.write_text("\n".join(lines))
    environment = {name: value for name, value in os.environ.items() if name not in (*LAUNCHERS, *DEFAULTS)}
    command = [sys.executable, script, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def drawn(path: pathlib.Path, number: int, mode: str = "RGB") -> None:
    """A picture that no other number has."""
    import numpy as np
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    size = (36 + number % 8, 40 + number % 5)
    pixels = np.random.default_rng(number).integers(0, 256 if mode == "RGB" else 2, (*size, 3), np.uint8)
    Image.fromarray(pixels if mode == "RGB" else pixels[..., 0]).save(path)


@needs("torchvision")
def test_an_image_folder_on_two_ranks(tmp_path: pathlib.Path) -> None:
    root = tmp_path / "photos"
    # One short of a whole number of batches: torch's sampler repeats a sample, and then no batch is dropped.
    for number in range(63):
        drawn(root / f"class-{number % 3}" / f"{number:03}.png", number)
    call = ("train_loader = DataLoader(dataset=train_dataset, batch_size=8, sampler=train_sampler, num_workers=2, "
            "drop_last=True)")  # fmt: skip
    ways: dict[str, dict[str, str]] = {
        "torch": {},
        "import": IMPORT,
        "both": {**IMPORT, call: "train_loader = DataLoader(train_dataset, batch_size=8, shuffle=True, drop_last=True, "
                                 'order="distributed", num_workers=2)'},
        "own order": {**IMPORT, call: "train_loader = DataLoader(train_dataset, batch_size=8, shuffle=True, "
                                      "drop_last=True, num_workers=2)"},
    }  # fmt: skip
    told: dict[str, list[Any]] = {}
    for way, changes in ways.items():
        folder = tmp_path / way
        folder.mkdir()
        run("image_folder.py", changes, folder, root, folder)
        told[way] = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
    for one in told["torch"]:
        assert (one["batches"], one["samples"], len(one["seen"])) == (4, 32, 64)
    assert told["import"] == told["both"] == told["torch"], "the same samples in the same order, and the same losses"
    # The loader's own order repeats no sample, so that the batch which is one short is dropped.
    own = told["own order"]
    assert [(one["batches"], one["samples"]) for one in own] == [(3, 32)] * 2
    every = {tuple(sample[1:]) for one in told["torch"] for sample in one["seen"]}
    for epoch in range(2):
        seen = [tuple(sample[1:]) for one in own for sample in one["seen"] if sample[0] == epoch]
        assert len(seen) == len({*seen}) == 48 and {*seen} <= every


@needs("torchdata")
def test_packed_tokens_with_a_resume(tmp_path: pathlib.Path) -> None:
    import numpy as np

    path = tmp_path / "tokens.bin"
    tokens = np.random.default_rng(0).integers(0, 50_000, 32 * 30 + 7, np.uint16)
    tokens.tofile(path)
    changes = {
        "from torchdata.stateful_dataloader import StatefulDataLoader as DataLoader":
            "from uringload import DataLoader, Tokens",
        "loader = DataLoader(Windows(path), batch_size=4, shuffle=True, drop_last=True)":
            'loader = DataLoader(path, window_tokens=33, token_dtype="u16", batch_size=4, shuffle=True, '
            'drop_last=True, transforms={"tokens": Tokens()})',
    }  # fmt: skip
    told = {}
    for way, given in (("torch", {}), ("ours", changes)):
        folder = tmp_path / way
        folder.mkdir()
        parts = []
        for stop in (3, 10, -1):
            run("tokens.py", given, folder, path, folder / "state.pt", folder / "out.json", stop)
            parts.append(json.loads((folder / "out.json").read_text()))
        assert [part["steps"] for part in parts] == [3, 10, 14]
        seen = [(epoch, *map(tuple, rows)) for part in parts for epoch, *rows in part["seen"]]
        # 7 batches of 4 of 30 windows in each of two epochs, over two interruptions.
        assert len(seen) == len({*seen}) == 2 * 28, "no window is lost or comes twice"
        told[way] = seen, parts[0]["batches"], parts[0]["types"]
    assert told["ours"][1:] == told["torch"][1:] == (7, ["torch.int64"] * 2)
    windows = [tokens[32 * number : 32 * number + 33].tolist() for number in range(30)]
    every = {(tuple(window[:-1]), tuple(window[1:])) for window in windows}
    assert {rows[1:] for rows in told["ours"][0]} <= every and {rows[1:] for rows in told["torch"][0]} <= every


@needs("albumentations")
def test_segmentation_with_albumentations(tmp_path: pathlib.Path) -> None:
    root = tmp_path / "scans"
    for number in range(40):
        drawn(root / "images" / f"{number:03}.png", number)
        drawn(root / "masks" / f"{number:03}.png", number, "L")
    told = {}
    for way, changes in (("torch", {}), ("ours", IMPORT)):
        run("segmentation.py", changes, tmp_path, root, tmp_path / "out.json")
        told[way] = json.loads((tmp_path / "out.json").read_text())
    for name in ("batches", "types"):
        assert told["ours"][name] == told["torch"][name]
    counts = [collections.Counter(map(tuple, told[way]["seen"])) for way in told]
    assert counts[0] == counts[1] and len(counts[0]) == 80
    orders = [[sample for epoch, sample in told["ours"]["seen"] if epoch == which] for which in range(2)]
    assert orders[0] != orders[1], "each epoch has an order of its own"


def test_what_scripts_ask_a_loader_for(tmp_path: pathlib.Path) -> None:
    for number in range(20):
        drawn(tmp_path / f"class-{number % 3}" / f"{number}.png", number)
    ranks = {"rank": 1, "world_size": 3}
    with uringload.DataLoader(dataset=tmp_path, batch_size=4, shuffle=True, num_workers=2, **ranks) as loader:
        assert (loader.num_workers, loader.pin_memory) == (2, False)
        assert loader.dataset.classes == ["class-0", "class-1", "class-2"]
        assert (len(loader), len(loader.sampler)) == (2, 7)
        loader.sampler.set_epoch(5)
        assert loader.epoch == 5 and next(iter(loader)).epoch == 5
    with uringload.DataLoader(tmp_path, batch_size=4, sampler=[3, 1]) as loader:
        assert loader.sampler == [3, 1] and loader.num_workers == 0
    with pytest.raises(uringload.InvalidArgumentError, match="batch_size") as error:
        uringload.DataLoader(tmp_path, batch_size=None)
    assert "collate_fn=lambda samples: samples[0]" in str(error.value.remedy)
    single = uringload.DataLoader(tmp_path, batch_size=1, collate_fn=lambda samples: samples[0])
    with single as loader:
        assert [sample["label"] for sample in loader] == [loader.dataset[number]["label"] for number in range(20)]
