"""The datasets of `uringload.torch`, under torch's DataLoader, and the order of its DistributedSampler."""

from __future__ import annotations

import importlib.util
import pathlib
from typing import Any

import conftest
import pytest
from conftest import RECORDS, numbers, of_records

import uringload

torch = pytest.importorskip("torch", reason="skipped: torch is not installed")
data = torch.utils.data

RECORD = {"record_bytes": 4 * conftest.RECORD_ELEMENTS, "dtype": "i32"}


class Old(data.Dataset):  # type: ignore[misc, name-defined]
    """What a script has before: a map-style dataset in Python."""

    def __init__(self, path: pathlib.Path) -> None:
        self.all = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.int32).view(-1, conftest.RECORD_ELEMENTS)

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.all[index]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize("drop_last", [True, False])
def test_the_order_of_the_distributed_sampler(
    records: pathlib.Path, world_size: int, drop_last: bool, shuffle: bool
) -> None:
    for rank in range(world_size):
        sampler = data.DistributedSampler(Old(records), world_size, rank, shuffle=shuffle, seed=5)
        old = data.DataLoader(Old(records), batch_size=32, sampler=sampler, drop_last=drop_last)
        given = of_records(records, output="torch", order="distributed", seed=5, shuffle=shuffle, drop_last=drop_last)
        with uringload.DataLoader(**given, rank=rank, world_size=world_size) as new:
            assert len(new) == len(old)
            for epoch in range(2):
                sampler.set_epoch(epoch)
                pairs = list(zip(old, new, strict=True))
                assert all(torch.equal(mine, batch["data"]) for mine, batch in pairs)


def test_a_state_in_the_order_of_the_distributed_sampler(records: pathlib.Path) -> None:
    given = of_records(records, output="torch", order="distributed", shuffle=True, rank=1, world_size=2)
    with uringload.DataLoader(**given) as loader:
        loader.set_epoch(3)
        batches = iter(loader)
        [next(batches) for _ in range(4)]
        state = loader.state_dict()
        rest = [numbers(batch) for batch in batches] + [numbers(batch) for batch in loader]
    with uringload.DataLoader(**given) as loader:
        loader.load_state_dict(state)
        assert [numbers(batch) for batch in loader] + [numbers(batch) for batch in loader] == rest
    with uringload.DataLoader(**{**given, "order": None}) as loader:
        with pytest.raises(uringload.StateMismatchError, match="DistributedSampler"):
            loader.load_state_dict(state)
    seed = state["order"]["seed"]
    assert state["order"] == {"kind": "torch_distributed", "ranks": 2, "seed": seed, "version": 1}
    with uringload.DataLoader(**{**given, "seed": seed + 1}) as loader:
        with pytest.raises(uringload.StateMismatchError, match=f"seed {seed} in the state, {seed + 1} here"):
            loader.load_state_dict(state)


def test_a_sampler_of_the_callers(records: pathlib.Path) -> None:
    weights = [float(index < 100) for index in range(RECORDS)]
    sampler = data.WeightedRandomSampler(weights, 200, generator=torch.Generator().manual_seed(1))
    with uringload.DataLoader(**of_records(records, output="torch", sampler=sampler)) as loader:
        assert len(loader) == 7
        epochs = [[number for batch in loader for number in numbers(batch)] for _ in range(2)]
    assert epochs[0] != epochs[1] and all(number < 100 for epoch in epochs for number in epoch)


def test_an_iterable_dataset_under_torchs_loader(records: pathlib.Path) -> None:
    from uringload.torch import IterableDataset

    dataset = IterableDataset(records, batch_size=32, shuffle=True, **RECORD)
    loader = data.DataLoader(dataset, batch_size=None)
    assert len(loader) == 32
    epochs = [[number for batch in loader for number in numbers(batch)] for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(RECORDS))] * 2 and epochs[0] != epochs[1]
    single = IterableDataset(records, batch_size=32, samples=True, **RECORD)
    batches = list(data.DataLoader(single, batch_size=10))
    assert [int(batch["data"][0, 0]) for batch in batches] == list(range(0, RECORDS, 10))


def test_transformed_samples_come_one_by_one(records: pathlib.Path) -> None:
    from uringload.torch import IterableDataset

    def transform(sample: dict[str, Any]) -> tuple[Any, int]:
        return sample["data"][:3], int(sample["data"][0])

    single = IterableDataset(records, batch_size=32, samples=True, transform=transform, **RECORD)
    x, y = next(iter(data.DataLoader(single, batch_size=10)))
    assert x.shape == (10, 3) and y.tolist() == list(range(10))
    with pytest.raises(uringload.InvalidArgumentError, match="samples=True asks for samples"):
        IterableDataset(records, batch_size=32, samples=True, collate="tuple", **RECORD)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_are_refused(records: pathlib.Path, context: str) -> None:
    from uringload.torch import IterableDataset

    dataset = IterableDataset(records, batch_size=32, **RECORD)
    loader = data.DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context=context)
    with pytest.raises(ValueError, match="num_workers=0"):
        next(iter(loader))


@pytest.mark.skipif(importlib.util.find_spec("torchdata") is None, reason="skipped: torchdata is not installed")
@pytest.mark.parametrize("samples", [False, True])
def test_it_goes_on_under_the_stateful_loader(records: pathlib.Path, samples: bool) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    from uringload.torch import IterableDataset

    def make() -> StatefulDataLoader:
        dataset = IterableDataset(records, batch_size=20, shuffle=True, samples=samples, **RECORD)
        return StatefulDataLoader(dataset, batch_size=20 if samples else None)

    loader = make()
    batches = iter(loader)
    [next(batches) for _ in range(7)]
    state = loader.state_dict()
    rest = [numbers(batch) for batch in batches]
    again = make()
    again.load_state_dict(state)
    assert [numbers(batch) for batch in again] == rest and len(rest) == 43


@pytest.mark.parametrize("workers", [0, 1])
def test_a_map_style_dataset(records: pathlib.Path, workers: int) -> None:
    from uringload.torch import Dataset

    dataset = Dataset(records, transform=lambda sample: sample["data"] + 1, **RECORD)
    assert len(dataset) == RECORDS and dataset[-1].tolist() == [RECORDS] * 64
    with pytest.raises(IndexError):
        dataset[RECORDS]
    generator = torch.Generator().manual_seed(3)
    new = data.DataLoader(dataset, batch_size=64, shuffle=True, num_workers=workers, generator=generator)
    old = data.DataLoader(Old(records), batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(3))
    for _ in range(2):
        assert all(torch.equal(mine + 1, batch) for mine, batch in zip(old, new, strict=True))
    with pytest.raises(uringload.InvalidArgumentError, match="batch_size is of no use"):
        Dataset(records, batch_size=3, **RECORD)


def test_the_map_style_dataset_has_lists_too(folder: pathlib.Path) -> None:
    from uringload.torch import Dataset

    dataset = Dataset(folder, output="numpy", key=True)
    samples = dataset.__getitems__([5, 0, 5])
    assert [sample["key"] for sample in samples] == ["cat/0011.dat", "cat/0001.dat", "cat/0011.dat"]
    assert samples[0]["data"][0] == 11 and samples[0]["label"] == 0
