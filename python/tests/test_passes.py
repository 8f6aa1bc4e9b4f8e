"""Passes, epochs, states and ranks: each sample once, in an order that can be gone on with."""

from __future__ import annotations

import json
import logging
import pathlib
import pickle
import random
from collections.abc import Iterator
from typing import Any

import conftest
import pytest
from conftest import RECORDS, SEED, numbers, of_records

import uringload
from uringload import DataLoader

pytestmark = conftest.needs_numpy


def test_a_pass_has_every_sample_once_and_the_next_pass_is_the_next_epoch(records: pathlib.Path) -> None:
    with DataLoader(**of_records(records, shuffle=True, seed=SEED)) as loader:
        epochs = [[number for batch in loader for number in numbers(batch)] for _ in range(3)]
        assert [sorted(epoch) for epoch in epochs] == [list(range(RECORDS))] * 3
        assert epochs[0] != epochs[1] != epochs[2]
        assert len(loader) == 32 and loader.epoch == 3
    # The same epochs, asked for by number, in another order, and with another number of threads.
    with DataLoader(**of_records(records, shuffle=True, seed=SEED, num_threads=1)) as again:
        for epoch in (2, 0, 1):
            again.set_epoch(epoch)
            assert [number for batch in again for number in numbers(batch)] == epochs[epoch]


def test_without_a_shuffle_samples_come_as_they_lie(records: pathlib.Path) -> None:
    with DataLoader(**of_records(records)) as loader:
        assert [number for batch in loader for number in numbers(batch)] == list(range(RECORDS))
        batch = next(iter(loader))
        assert (batch.epoch, batch.position, batch.ids) == (1, 0, list(range(32)))


def test_a_pass_that_is_broken_off_is_followed_by_the_next_epoch_from_its_beginning(records: pathlib.Path) -> None:
    with DataLoader(**of_records(records, shuffle=True)) as loader:
        first = numbers(next(iter(loader)))
        second = [number for batch in loader for number in numbers(batch)]
        assert len(second) == RECORDS and second[:32] != first
        loader.set_epoch(0)
        assert numbers(next(iter(loader))) == first


def test_an_older_pass_is_refused_and_a_finished_one_stays_finished(records: pathlib.Path) -> None:
    with DataLoader(**of_records(records)) as loader:
        old = iter(loader)
        next(old)
        new = iter(loader)
        with pytest.raises(uringload.InvalidArgumentError, match="another one began"):
            next(old)
        assert len(list(new)) == 32
        with pytest.raises(StopIteration):
            next(new)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_ranks_share_an_epoch(records: pathlib.Path, world_size: int, drop_last: bool) -> None:
    ranks = []
    for rank in range(world_size):
        given = of_records(records, shuffle=True, rank=rank, world_size=world_size, drop_last=drop_last)
        with DataLoader(**given) as loader:
            batches = list(loader)
            assert len(batches) == len(loader)
            padding = [flag for batch in batches for flag in batch.padding or [False] * len(batch.ids)]
            ranks.append(([number for batch in batches for number in numbers(batch)], padding, len(batches)))
    assert len({count for _, _, count in ranks}) == 1, "all ranks have the same number of steps"
    own = [number for all_of, padding, _ in ranks for number, is_pad in zip(all_of, padding) if not is_pad]
    assert len(own) == len(set(own)), "no sample twice"
    expected = RECORDS // (32 * world_size) * 32 * world_size if drop_last else RECORDS
    assert len(own) == expected
    assert sum(sum(padding) for _, padding, _ in ranks) < world_size


def test_a_state_goes_on_in_the_middle_of_an_epoch(records: pathlib.Path) -> None:
    seed = random.randrange(1 << 32)
    given = of_records(records, shuffle=True, seed=seed)
    with DataLoader(**given) as loader:
        whole = [numbers(batch) for _ in range(2) for batch in loader]
    for stop in (0, 1, 17, 31, 32, 40):
        with DataLoader(**given) as loader:
            taken = []
            while len(taken) < stop:
                for batch in loader:
                    taken.append(numbers(batch))
                    if len(taken) == stop:
                        break
            state = json.loads(json.dumps(loader.state_dict()))
            assert len(json.dumps(state)) < 1000
        with DataLoader(**given) as other:
            other.load_state_dict(state)
            assert other.state_dict()["position"] == state["position"], f"seed {seed}"
            rest = [numbers(batch) for batch in other]
            if other.epoch < 2:
                rest += [numbers(batch) for batch in other]
            assert taken + rest == whole, f"seed {seed}, stopped after {stop} batches"


def test_a_state_goes_on_at_another_world_size(records: pathlib.Path) -> None:
    states, taken = [], []
    for rank in range(2):
        with DataLoader(**of_records(records, shuffle=True, rank=rank, world_size=2)) as loader:
            batches = iter(loader)
            taken += [number for _ in range(5) for number in numbers(next(batches))]
            states.append(loader.state_dict())
    own = ("delivered", "checksum")
    without = [{name: value for name, value in state.items() if name not in own} for state in states]
    assert without[0] == without[1], "all but what a rank was given is the same"
    assert states[0]["delivered"] != states[1]["delivered"]
    for rank in range(3):
        with DataLoader(**of_records(records, shuffle=True, rank=rank, world_size=3, batch_size=8)) as loader:
            loader.load_state_dict(states[1])
            for batch in loader:
                padding = batch.padding or [False] * len(batch.ids)
                taken += [number for number, is_pad in zip(numbers(batch), padding) if not is_pad]
    assert sorted(taken) == list(range(RECORDS))


def test_a_state_of_something_else_is_refused_with_the_difference(records: pathlib.Path, folder: pathlib.Path) -> None:
    with DataLoader(folder, batch_size=8, output="numpy") as loader:
        state = loader.state_dict()
    with DataLoader(**of_records(records)) as other:
        with pytest.raises(uringload.StateMismatchError, match='"folder" in the state, "records" here') as caught:
            other.load_state_dict(state)
        assert caught.value.remedy
        for wrong in ({}, {**other.state_dict(), "order": "shuffled, seed 3"}, {"version": 99}):
            with pytest.raises(uringload.Error):
                other.load_state_dict(wrong)
        with pytest.raises(uringload.CorruptError, match="checksum"):
            other.load_state_dict({**other.state_dict(), "position": 1})
        unsigned = {name: value for name, value in other.state_dict().items() if name != "checksum"}
        shuffled = {**unsigned, "order": {"kind": "shuffled", "seed": 3, "version": 1}}
        with pytest.raises(uringload.StateMismatchError, match="kind shuffled in the state, sequential here"):
            other.load_state_dict(shuffled)
        unknown = {**unsigned, "order": {"kind": "spiral"}}
        with pytest.raises(uringload.StateMismatchError, match='"spiral", which this version of uringload does not'):
            other.load_state_dict(unknown)
        with pytest.raises(TypeError, match="state_dict is a list"):
            other.load_state_dict([])  # type: ignore[arg-type]
        assert len(list(other)) == 32, "what was refused has changed nothing"


class Reversed:
    """A sampler of the caller's."""

    def __init__(self, order_id: object = None) -> None:
        if order_id is not None:
            self.order_id = order_id

    def __len__(self) -> int:
        return RECORDS

    def __iter__(self) -> Iterator[int]:
        return iter(range(RECORDS - 1, -1, -1))


def test_a_sampler_is_known_by_its_type_and_what_it_says(records: pathlib.Path) -> None:
    def state_of(sampler: object) -> dict[str, Any]:
        with DataLoader(**of_records(records, sampler=sampler)) as loader:
            next(iter(loader))
            return loader.state_dict()

    def load(sampler: object, state: dict[str, Any]) -> None:
        with DataLoader(**of_records(records, sampler=sampler)) as loader:
            loader.load_state_dict(state)

    plain, named = state_of(Reversed()), state_of(Reversed("by length"))
    assert plain["order"] == {"kind": "custom", "name": "python:Reversed", "digest": "0" * 16, "version": 1}
    assert named["order"]["digest"] not in (plain["order"]["digest"], state_of(Reversed(1))["order"]["digest"])
    load(Reversed(), plain)
    load(Reversed("by length"), named)
    with pytest.raises(uringload.StateMismatchError, match="digest"):
        load(Reversed("by name"), named)
    with pytest.raises(uringload.StateMismatchError, match='name "python:Reversed" in the state, "python:list" here'):
        load(list(range(RECORDS)), plain)
    with pytest.raises(TypeError, match="order_id of the sampler is a list"):
        load(Reversed([1]), plain)


def test_a_saved_end_of_an_epoch_is_the_beginning_of_the_next(records: pathlib.Path) -> None:
    with DataLoader(**of_records(records, shuffle=True)) as loader:
        list(loader)
        state = loader.state_dict()
        expected = numbers(next(iter(loader)))
    assert (state["epoch"], state["position"], state["delivered"]["samples"]) == (1, 0, RECORDS)
    with DataLoader(**of_records(records, shuffle=True)) as loader:
        loader.load_state_dict(state)
        assert numbers(next(iter(loader))) == expected


def test_samples_are_read_by_number(records: pathlib.Path) -> None:
    with DataLoader(**of_records(records, shuffle=True, rank=1, world_size=2, drop_last=True)) as loader:
        batches = iter(loader)
        first = next(batches).ids
        assert numbers(loader.read([5, -1, 5])) == [5, RECORDS - 1, 5]
        with pytest.raises(IndexError, match="no sample 1000"):
            loader.read([RECORDS])
        with pytest.raises(uringload.InvalidArgumentError, match="no samples"):
            loader.read([])
        assert len([*batches]) == 14 and loader.state_dict()["delivered"]["samples"] == 15 * 32 and len(first) == 32


def test_it_pickles_as_its_configuration(records: pathlib.Path) -> None:
    with DataLoader(**of_records(records, shuffle=True)) as loader:
        batches = iter(loader)
        first = numbers(next(batches))
        with pickle.loads(pickle.dumps(loader)) as copy:
            assert numbers(next(iter(copy))) == first
        opened = pickle.loads(pickle.dumps(loader.dataset))
        assert opened.fingerprint == loader.dataset.fingerprint


def test_ranks_are_told_by_launchers_and_named_in_the_log(
    records: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "uringload")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(uringload.InvalidArgumentError, match="WORLD_SIZE is not"):
        iter(DataLoader(**of_records(records)))
    monkeypatch.setenv("WORLD_SIZE", "4")
    with DataLoader(**of_records(records)) as loader:
        assert (loader.rank, loader.world_size) == (1, 4)
    assert "rank 1 of 4 (from RANK and WORLD_SIZE)" in caplog.text
    with DataLoader(**of_records(records, rank=0, world_size=2)) as loader:
        assert (loader.rank, loader.world_size) == (0, 2)
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    monkeypatch.setenv("SLURM_PROCID", "2")
    monkeypatch.setenv("SLURM_NTASKS", "3")
    with DataLoader(**of_records(records, global_batch_size=96, batch_size=None)) as loader:
        assert (loader.rank, loader.world_size, loader.batch_size) == (2, 3, 32)
    monkeypatch.setenv("SLURM_NTASKS", "two")
    with pytest.raises(uringload.InvalidArgumentError, match="SLURM_NTASKS is 'two'"):
        iter(DataLoader(**of_records(records)))


def test_words_about_itself(records: pathlib.Path) -> None:
    with DataLoader(**of_records(records)) as loader:
        assert loader.stats() == {} and loader.route() == {} and loader.verdict().bottleneck == "unknown"
        assert "none yet" in str(loader.stats())
        list(loader)
        stats = loader.stats()
        assert (stats["batches"], stats["samples"], stats["bytes_delivered"]) == (32, RECORDS, RECORDS * 256)
        json.dumps(stats)
        assert "<table>" in stats._repr_html_() and "batches" in str(stats)
        assert loader.route()["engine"] in ("uring", "threads") and str(loader.route())
        assert str(loader.verdict()) and "records" in repr(loader)
        assert "verdict" in loader._repr_html_() and "<script" not in loader._repr_html_()
    with pytest.raises(uringload.InvalidArgumentError, match="was closed"):
        iter(loader)
