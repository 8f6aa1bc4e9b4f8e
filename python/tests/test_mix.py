"""Mixtures by weight, and lists of samples that are wanted."""

from __future__ import annotations

import itertools
import json
import pathlib
import pickle
from typing import Any

import pytest
from conftest import RECORDS, SEED, needs_numpy, numbers, of_records

import uringload
from uringload import DataLoader, Dataset

pytestmark = needs_numpy


def parts(records: pathlib.Path) -> list[Dataset]:
    """Records 0 to 99, 100 to 399, 400 to 999."""
    given: dict[str, Any] = {"record_bytes": 256, "dtype": "i32"}
    return [Dataset(records, only=range(*ends), **given) for ends in ((0, 100), (100, 400), (400, 1000))]


def loader_of(dataset: Dataset, **given: Any) -> DataLoader:
    return DataLoader(dataset, batch_size=20, output="numpy", shuffle=True, seed=SEED, **given)


def shares(seen: list[int]) -> list[int]:
    return [sum(first <= number < end for number in seen) for first, end in ((0, 100), (100, 400), (400, 1000))]


def test_a_mixture_has_the_shares_that_are_asked_for(records: pathlib.Path) -> None:
    mixture = uringload.mix(parts(records), weights=[5, 3, 2])
    assert len(mixture) == RECORDS and "a mixture of 3" in repr(mixture)
    with loader_of(mixture) as loader:
        epochs = [[number for batch in loader for number in numbers(batch)] for _ in range(2)]
    for seen in epochs:
        # It ends where the first one is exhausted, which has half of the samples.
        assert abs(len(seen) - 200) < 12 and len(set(seen)) == len(seen), "no sample twice"
        for share, weight in zip(shares(seen), (5, 3, 2)):
            assert abs(share - len(seen) * weight / 10) < 8, shares(seen)
    assert epochs[0] != epochs[1]
    assert len(loader) == -(-len(epochs[0]) // 20)


@pytest.mark.parametrize("stopping", ["all_exhausted_without_replacement", "all_exhausted", "after:300"])
def test_how_an_epoch_ends(records: pathlib.Path, stopping: str) -> None:
    mixture = uringload.mix(parts(records), weights=[1, 1, 1], stopping=stopping)
    with loader_of(mixture) as loader:
        seen = [number for batch in loader for number in numbers(batch)]
    if stopping == "after:300":
        assert len(seen) == 300
    elif stopping == "all_exhausted":
        assert set(seen) == set(range(RECORDS)) and len(seen) > RECORDS
    else:
        assert sorted(seen) == list(range(RECORDS))


def test_ranks_states_and_pickles_of_mixtures(records: pathlib.Path) -> None:
    mixture = uringload.mix(parts(records), [1, 2, 3], stopping="all_exhausted_without_replacement")
    ranks = []
    for rank in range(2):
        with loader_of(mixture, rank=rank, world_size=2) as loader:
            ranks.append([number for batch in loader for number in numbers(batch)])
    assert sorted(itertools.chain(*ranks)) == list(range(RECORDS)) and len(ranks[0]) == len(ranks[1])
    again = pickle.loads(pickle.dumps(mixture))
    with loader_of(mixture) as loader, loader_of(again) as other:
        batches = iter(loader)
        first = [number for _ in range(10) for number in numbers(next(batches))]
        state = json.loads(json.dumps(loader.state_dict()))
        rest = [number for batch in batches for number in numbers(batch)]
        other.load_state_dict(state)
        assert [number for batch in other for number in numbers(batch)] == rest
        assert sorted(first + rest) == list(range(RECORDS))
    # With other weights it goes on from there, and what is left comes once.
    with loader_of(uringload.mix(parts(records), [3, 2, 1], stopping="all_exhausted_without_replacement")) as changed:
        changed.load_state_dict(state)
        other_rest = [number for batch in changed for number in numbers(batch)]
    assert sorted(first + other_rest) == list(range(RECORDS)) and other_rest != rest


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"weights": [1, 1]}, "2 weights"),
        ({"weights": [1, -1, 1]}, "weight"),
        ({"weights": [0, 0, 0]}, "weight"),
        ({"weights": ["1", 1, 1]}, "weights[0] is '1'"),
        ({"weights": "111"}, "weights is a str"),
        ({"weights": [1, 1, 1], "stopping": "never"}, "never"),
        ({"weights": [1, 1, 1], "datasets": "one"}, "datasets is a str"),
    ],
)
def test_what_cannot_be_mixed_is_refused(records: pathlib.Path, given: dict[str, Any], told: str) -> None:
    with pytest.raises(uringload.Error) as caught:
        uringload.mix(**{"datasets": parts(records), **given})
    assert told in str(caught.value) and caught.value.remedy, str(caught.value)


def test_only_what_is_wanted(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    wanted = tmp_path / "wanted.txt"
    wanted.write_text("# some\n7\n900\n3\n")
    exclude = tmp_path / "not.txt"
    exclude.write_text("1\n")
    for only, samples in (([7, 900, 3], [7, 900, 3]), (wanted, [3, 7, 900]), ([str(wanted)], [3, 7, 900])):
        with DataLoader(**of_records(records, only=only)) as loader:
            assert numbers(next(iter(loader))) == samples
            again = pickle.loads(pickle.dumps(loader.dataset))
            assert len(again) == 3
        with DataLoader(**of_records(records, only=only, exclude=exclude)) as loader:
            assert numbers(next(iter(loader))) == [samples[0], samples[2]]
    for only, told in (([5000], "5000"), ([], "no samples"), (3, "only is 3"), ([True], "only[0] is True")):
        with pytest.raises(uringload.Error) as caught:
            DataLoader(**of_records(records, only=only))
        assert told in str(caught.value), str(caught.value)
