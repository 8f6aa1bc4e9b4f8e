"""The facts of a batch about its samples, whatever it is made of: repeats, failures, numbers."""

from __future__ import annotations

import copy
import pathlib
import pickle
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest
from conftest import RECORDS, Listed, needs_torch, of_records

import uringload
from uringload import DataLoader

Pair = namedtuple("Pair", ["x", "y"])


class Own:
    """What a collate function may make."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples


def pair(sample: dict[str, Any]) -> tuple[Any, int]:
    return sample["data"], 1


#: How batches are made, and whether a batch has the facts about its samples itself.
WAYS: dict[str, tuple[dict[str, Any], bool]] = {
    "columns": ({}, True),
    "tuple": ({"collate": "tuple"}, True),
    "list": ({"collate": "list", "transform": pair}, True),
    "a transform's tuples": ({"transform": pair}, True),
    "a transform's tuples, by position": ({"transform": pair, "collate": "tuple"}, True),
    "a transform's lists": ({"transform": lambda sample: [*pair(sample)]}, True),
    "a function's tuple": ({"collate_fn": lambda samples: (samples, 1)}, True),
    "a function's dictionary": ({"collate_fn": lambda samples: {"all": samples}}, True),
    "a batch transform's tuple": ({"batch_transform": lambda batch: (batch["data"], 1)}, True),
    "numbers": ({"transform": lambda sample: int(sample["data"][0])}, False),
    "named tuples": ({"transform": lambda sample: Pair(*pair(sample))}, False),
    "an object": ({"collate_fn": Own}, False),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("threads", [0, 2])
def test_repeats_are_told(records: pathlib.Path, way: str, threads: int) -> None:
    given, tells = WAYS[way]
    # 1000 samples on 3 ranks: two of them repeat one.
    repeated = 0
    for rank in range(3):
        with DataLoader(**of_records(records, rank=rank, world_size=3, num_threads=threads, **given)) as loader:
            assert loader.last_batch is None
            for batch in loader:
                last = loader.last_batch
                assert last is not None and len(last.ids) == len(last)
                repeated += sum(last.padding or [])
                if tells:
                    assert (batch.ids, batch.padding, batch.failed) == (last.ids, last.padding, last.failed)
                    assert (batch.epoch, batch.position) == (last.epoch, last.position) and batch.epoch == 0
                else:
                    assert not hasattr(batch, "padding")
    assert repeated == 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_failures_are_told(records: pathlib.Path, way: str, on_error: str) -> None:
    given, tells = WAYS[way]
    inner: Callable[[Any], Any] = given.get("transform", lambda sample: sample)

    def breaks(sample: dict[str, Any]) -> Any:
        if sample["data"][0] in (7, RECORDS - 1):
            raise ValueError("no good")
        return inner(sample)

    with DataLoader(**of_records(records, **{**given, "transform": breaks}, on_error=on_error)) as loader:
        found = []
        for batch in loader:
            assert loader.last_batch is not None
            found += [failed[0] for failed in loader.last_batch.failed]
            if tells:
                assert batch.ids == loader.last_batch.ids and batch.failed == loader.last_batch.failed
    assert found == [7, RECORDS - 1]


async def every(loader: DataLoader) -> list[Any]:
    return [(batch, loader.last_batch) async for batch in loader]


def test_an_asynchronous_pass_tells_too(records: pathlib.Path) -> None:
    import asyncio

    for given in ({"collate": "tuple"}, {"transform": pair}):
        with DataLoader(**of_records(records, **given)) as loader:
            batches = asyncio.run(every(loader))
        assert [number for _, last in batches for number in last.ids] == list(range(RECORDS))
        assert all(batch.ids == last.ids for batch, last in batches)


def batches_of(records: pathlib.Path) -> list[Any]:
    made = []
    for given in ({}, {"collate": "tuple"}, {"transform": lambda sample: [*pair(sample)]}):
        with DataLoader(**of_records(records, rank=2, world_size=3, output="torch", **given)) as loader:
            made.append(list(loader)[-1])
    return made


@needs_torch
def test_copies_keep_what_they_can(records: pathlib.Path) -> None:
    import torch

    for batch, plain in zip(batches_of(records), (dict, tuple, list)):
        assert isinstance(batch, plain) and batch.padding is not None and sum(batch.padding) == 1
        for same in (copy.copy(batch), pickle.loads(pickle.dumps(batch))):
            assert type(same) is type(batch) and same.padding == batch.padding and same.ids == batch.ids
        # What builds another one of it has the columns and no facts, not those of another batch.
        values = batch.values() if plain is dict else batch
        other = type(batch)(dict(batch) if plain is dict else list(values))
        assert other.padding is None and other.ids == [] and len(other) == len(batch)
        # torch's trees look into it as into what it is made of.
        moved = torch.utils._pytree.tree_map(lambda value: value, batch)
        assert type(moved) is type(batch) and len(moved) == len(batch) and moved.padding is None
        leaves, _ = torch.utils._pytree.tree_flatten(batch)
        assert len(leaves) == len(batch) and isinstance(leaves[0], torch.Tensor)


@needs_torch
def test_trainers_move_it(records: pathlib.Path) -> None:
    import torch

    movers: list[Callable[[Any], Any]] = []
    try:
        from accelerate.utils import send_to_device

        movers.append(lambda batch: send_to_device(batch, torch.device("cpu")))
    except ImportError:
        pass
    try:
        from lightning.pytorch.utilities import move_data_to_device

        movers.append(lambda batch: move_data_to_device(batch, torch.device("cpu")))
    except ImportError:
        pass
    if not movers:
        pytest.skip("skipped: neither accelerate nor lightning is installed")
    for move in movers:
        for batch, plain in zip(batches_of(records), (dict, tuple, list)):
            moved = move(batch)
            assert isinstance(moved, plain) and len(moved) == len(batch)
            values, before = (each.values() if plain is dict else each for each in (moved, batch))
            assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(values, before))


@needs_torch
def test_datasets_of_others_tell_too(tmp_path: pathlib.Path) -> None:
    """Images and tensors: what torch's default_collate makes lists of."""
    image = pytest.importorskip("PIL.Image")
    folders = pytest.importorskip("torchvision.datasets")
    transforms = pytest.importorskip("torchvision.transforms")
    import torch
    from torch.utils.data import TensorDataset

    (tmp_path / "a").mkdir()
    for number in range(3):
        image.new("RGB", (20, 20), (number, 9, 9)).save(tmp_path / "a" / f"{number}.png")
    steps = transforms.Compose([transforms.CenterCrop(8), transforms.ToTensor()])
    given: list[Any] = [
        folders.ImageFolder(tmp_path, steps),
        folders.ImageFolder(tmp_path, lambda image: len(steps(image))),
        TensorDataset(torch.arange(3)),
        Listed([(number, number) for number in range(3)]),
        Listed([{"n": number} for number in range(3)]),
    ]
    for dataset in given:
        with uringload.DataLoader(dataset, 2, rank=1, world_size=2) as loader:
            (batch,) = loader
        assert batch.padding == [False, True] and batch.ids[0] == 1, dataset
        assert isinstance(batch, (list, dict))
