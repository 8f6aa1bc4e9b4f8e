"""Samplers of others: the order is torch's, a state moves nothing, and a resume gives each sample that is left once."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="skipped: torch is not installed")
hypothesis = pytest.importorskip("hypothesis", reason="skipped: hypothesis is not installed")
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils import data

import uringload
from uringload import _look

DRAWS = int(os.environ.get("URINGLOAD_DRAWS", "300"))
SAMPLES = 40
BYTES = 8


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> uringload.Dataset:
    """Forty records."""
    path = tmp_path_factory.mktemp("numbered") / "all.bin"
    path.write_bytes(np.arange(SAMPLES, dtype="<i8").tobytes())
    return uringload.Dataset(path, record_bytes=BYTES, dtype="i64")


class Own:
    """A sampler of a script's: it shuffles by whatever it was given."""

    def __init__(self, shuffle: Callable[[list[int]], Any], **kept: Any) -> None:
        self.shuffle = shuffle
        self.__dict__.update(kept)

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        ids = list(range(SAMPLES))
        self.shuffle(ids)
        yield from ids


class Fewer(data.Sampler):  # type: ignore[misc, type-arg]
    """A sampler that gives fewer than it says, of another sampler."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __iter__(self) -> Iterator[int]:
        yield from list(self.inner)[3:]


class Counting:
    """A sampler whose order depends on how often it was asked, which no one else can know."""

    def __init__(self) -> None:
        self.asked = 0

    def __len__(self) -> int:
        return SAMPLES

    def __iter__(self) -> Iterator[int]:
        self.asked += 1
        yield from torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(self.asked)).tolist()


def seeded(seed: int) -> Any:
    return torch.Generator().manual_seed(seed)


def of_random(seed: int) -> Own:
    rng = random.Random(seed)
    return Own(rng.shuffle, rng=rng)


def of_numpy(kind: Callable[[int], Any]) -> Callable[[int], Own]:
    def make(seed: int) -> Own:
        rng = kind(seed)
        return Own(rng.shuffle, rng=rng)

    return make


def weights(seed: int) -> list[float]:
    return [1.0 + (seed + index) % 7 for index in range(SAMPLES)]


def accelerates(seed: int) -> Any:
    loaders = pytest.importorskip("accelerate.data_loader")
    return loaders.SeedableRandomSampler(range(SAMPLES), data_seed=seed)


def torchdatas(name: str, **more: Any) -> Callable[[int], Any]:
    def make(seed: int) -> Any:
        kinds = pytest.importorskip("torchdata.stateful_dataloader.sampler")
        kind = getattr(kinds, name)
        return kind(range(SAMPLES), seed=seed, **more) if more else kind(range(SAMPLES), generator=seeded(seed))

    return make


#: Samplers by name, made of a seed, and whether later passes are theirs too after a resume: they hold their generator.
KINDS: dict[str, tuple[Callable[[int], Any], bool]] = {
    "RandomSampler": (lambda seed: data.RandomSampler(range(SAMPLES), generator=seeded(seed)), True),
    "RandomSampler, no generator": (lambda seed: data.RandomSampler(range(SAMPLES)), False),
    "RandomSampler, again": (lambda seed: data.RandomSampler(range(SAMPLES), True, 50, seeded(seed)), True),
    "RandomSampler, more": (lambda seed: data.RandomSampler(range(SAMPLES), num_samples=95, generator=seeded(seed)),
                            True),
    "WeightedRandomSampler": (lambda seed: data.WeightedRandomSampler(weights(seed), 30, generator=seeded(seed)), True),
    "WeightedRandomSampler, no generator": (lambda seed: data.WeightedRandomSampler(weights(seed), 40, False), False),
    "SubsetRandomSampler": (lambda seed: data.SubsetRandomSampler(range(5, 30), seeded(seed)), True),
    "SubsetRandomSampler, no generator": (lambda seed: data.SubsetRandomSampler(range(5, 30)), False),
    "SequentialSampler": (lambda seed: data.SequentialSampler(range(SAMPLES)), True),
    "DistributedSampler": (lambda seed: data.DistributedSampler(range(SAMPLES), 3, 1, seed=seed), True),
    "SeedableRandomSampler": (accelerates, True),
    "torchdata's RandomSampler": (torchdatas("RandomSampler"), True),
    "torchdata's distributed one": (torchdatas("StatefulDistributedSampler", num_replicas=2, rank=1), True),
    "a list": (lambda seed: random.Random(seed).sample(range(SAMPLES), 21), True),
    "an array": (lambda seed: np.random.default_rng(seed).permutation(SAMPLES), True),
    "a tensor": (lambda seed: torch.randperm(SAMPLES, generator=seeded(seed)), True),
    "random.Random": (of_random, True),
    "numpy's Generator": (of_numpy(np.random.default_rng), True),
    "numpy's Philox": (of_numpy(lambda seed: np.random.Generator(np.random.Philox(seed))), True),
    "numpy's RandomState": (of_numpy(np.random.RandomState), True),
    "the module random": (lambda seed: Own(random.shuffle), False),
    "the module numpy.random": (lambda seed: Own(np.random.shuffle), False),
    "one within another": (lambda seed: Fewer(data.RandomSampler(range(SAMPLES), generator=seeded(seed))), True),
}


#: Those that can be drawn: a package that one is of is not installed everywhere. (`test_a_state_moves_nothing` skips.)
OF_PACKAGES = {"SeedableRandomSampler": "accelerate", "torchdata's RandomSampler": "torchdata",
               "torchdata's distributed one": "torchdata"}  # fmt: skip
DRAWN = [kind for kind in sorted(KINDS) if importlib.util.find_spec(OF_PACKAGES.get(kind, "torch")) is not None]


def seed_all(seed: int) -> None:
    """Sets the generators that all code shares."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % (1 << 32))


def loader_of(numbered: uringload.Dataset, sampler: Any, size: int, **more: Any) -> uringload.DataLoader:
    more = {"rank": 0, "world_size": 1, "output": "numpy", **more}
    return uringload.DataLoader(numbered, batch_size=size, sampler=sampler, **more)


def read(batches: Any) -> list[list[int]]:
    return [batch["data"].flatten().tolist() for batch in batches]


def torchs(sampler: Any, size: int, drop_last: bool, epochs: list[int | None]) -> list[list[list[int]]]:
    """What torch's loader gives, pass by pass."""
    loader = data.DataLoader(range(SAMPLES), size, sampler=sampler, drop_last=drop_last)  # type: ignore[arg-type]
    passes = []
    for epoch in epochs:
        if epoch is not None and hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        passes.append([batch.tolist() for batch in loader])
    return passes


@settings(max_examples=DRAWS, deadline=None, database=None)
@given(st.data())
def test_orders_and_resumes_are_torchs(numbered: uringload.Dataset, drawn: Any) -> None:
    make, is_held = KINDS[drawn.draw(st.sampled_from(DRAWN), label="sampler")]
    seed, size = drawn.draw(st.integers(0, (1 << 32) - 2), label="seed"), drawn.draw(st.integers(1, 17), label="size")
    drop_last, threads = drawn.draw(st.booleans(), label="drop_last"), drawn.draw(st.integers(0, 2), label="threads")
    tells = drawn.draw(st.booleans(), label="set_epoch")
    passes = drawn.draw(st.integers(0, 2), label="passes before")
    epochs: list[int | None] = [3 + number if tells else None for number in range(passes + 3)]
    seed_all(seed)
    expected = torchs(make(seed), size, drop_last, epochs)
    more: dict[str, Any] = {"drop_last": drop_last}
    if threads:
        more.update(batch_transform=lambda batch: batch, num_threads=threads)

    def told(sampler: Any, number: int) -> None:
        if tells and hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epochs[number])

    def look(loader: uringload.DataLoader) -> None:
        """What moves nothing: whenever it is asked for."""
        for what in drawn.draw(st.lists(st.sampled_from(["state", "load", "len", "show"]), max_size=2), label="look"):
            if what == "state":
                loader.state_dict()
            elif what == "load":
                loader.load_state_dict(loader.state_dict())
            elif what == "len":
                len(loader)
            elif expected[0]:
                _look.first_batch(loader)

    seed_all(seed)
    sampler = make(seed)
    with loader_of(numbered, sampler, size, **more) as loader:
        for number in range(passes):
            look(loader)
            told(sampler, number)
            assert read(loader) == expected[number]
        look(loader)
        told(sampler, passes)
        taken = drawn.draw(st.integers(0, len(expected[passes])), label="batches")
        has_begun = taken > 0 or drawn.draw(st.booleans(), label="begun")
        batches = iter(loader) if has_begun else iter(())
        first = read(next(batches) for _ in range(taken))
        state = json.loads(json.dumps(loader.state_dict()))
        # Asking for a state disturbs no pass either.
        rest = read(batches)
        if has_begun:
            assert first + rest == expected[passes]
    # Another process: its own shared generators, and a sampler as it was made.
    seed_all(seed + 1)
    sampler = make(seed)
    with loader_of(numbered, sampler, drawn.draw(st.integers(1, 17), label="size then") if not drop_last else size,
                   **more) as loader:
        look(loader)
        loader.load_state_dict(state)
        if drawn.draw(st.booleans(), label="saved again"):
            again = loader.state_dict()
            # Between epochs, the length is what the sampler says; accelerate's makes its generator when it is drawn.
            names = ["delivered", "checksum", "length", *(["sampler"] if make is accelerates else [])]
            told_only = dict.fromkeys(names)
            assert {**again, **told_only} == {**state, **told_only}
            loader.load_state_dict(again)
        is_over = taken == len(expected[passes])
        number = passes + 1 if is_over else passes
        told(sampler, number)
        left = [sample for batch in read(loader) for sample in batch]
        if is_held or (taken and not is_over) or (has_begun and not is_over):
            whole = [sample for batch in expected[number] for sample in batch]
            assert left == (whole if is_over else whole[taken * size:])
        if is_held:
            told(sampler, number + 1)
            after = [sample for batch in read(loader) for sample in batch]
            if number + 1 < len(expected):
                assert after == [sample for batch in expected[number + 1] for sample in batch]


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_state_moves_nothing(numbered: uringload.Dataset, name: str) -> None:
    make, _ = KINDS[name]
    seed_all(5)
    (expected,) = torchs(make(5), 4, False, [None])
    seed_all(5)
    with loader_of(numbered, make(5), 4) as loader:
        loader.state_dict()
        loader.load_state_dict(loader.state_dict())
        _look.first_batch(loader)
        assert read(loader) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: data.DistributedSampler(range(SAMPLES), 2, 0, seed=1),
         lambda: data.DistributedSampler(range(SAMPLES), 2, 0, seed=2)),
        (lambda: list(range(SAMPLES)), lambda: list(reversed(range(SAMPLES)))),
        (lambda: data.SubsetRandomSampler(range(20), seeded(1)),
         lambda: data.SubsetRandomSampler(range(1, 21), seeded(1))),
        (lambda: accelerates(1), lambda: accelerates(2)),
        (lambda: Own(lambda ids: ids.sort(key=lambda id: -id)), lambda: Own(lambda ids: None)),
    ],
    ids=["seed", "list", "subset", "accelerate's seed", "own"],
)  # fmt: skip
def test_another_order_is_refused_and_moves_nothing(numbered: uringload.Dataset, one: Any, other: Any) -> None:
    with loader_of(numbered, one(), 4) as loader:
        next(iter(loader))
        state = loader.state_dict()
    (expected,) = torchs(other(), 4, False, [None])
    with loader_of(numbered, other(), 4) as loader:
        with pytest.raises(uringload.StateMismatchError, match="draws other samples for epoch 0") as caught:
            loader.load_state_dict(state)
        assert caught.value.remedy and "set_epoch" in caught.value.remedy
        assert read(loader) == expected


def test_an_order_that_nobody_can_repeat_is_refused(numbered: uringload.Dataset) -> None:
    with loader_of(numbered, Counting(), 4) as loader:
        list(loader)
        next(iter(loader))
        state = loader.state_dict()
    with loader_of(numbered, Counting(), 4) as loader:
        with pytest.raises(uringload.StateMismatchError, match="Counting.* draws other samples for epoch 1"):
            loader.load_state_dict(state)


def test_a_state_of_another_dataset_moves_no_sampler(numbered: uringload.Dataset, tmp_path: pathlib.Path) -> None:
    (tmp_path / "x.bin").write_bytes(bytes(BYTES * 50))
    other = uringload.Dataset(tmp_path / "x.bin", record_bytes=BYTES, dtype="i64")
    make = KINDS["RandomSampler"][0]
    with loader_of(other, make(1), 4) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with loader_of(numbered, make(1), 4) as loader:
        with pytest.raises(uringload.StateMismatchError):
            loader.load_state_dict(state)
        assert read(loader) == torchs(make(1), 4, False, [None])[0]


def test_what_is_no_sampler_is_refused(numbered: uringload.Dataset) -> None:
    class Endless:
        def __len__(self) -> int:
            return SAMPLES

        def __iter__(self) -> Iterator[int]:
            while True:
                yield 1

    class Unmeasured:
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    with loader_of(numbered, Endless(), 4) as loader:
        with pytest.raises(uringload.InvalidArgumentError, match="Endless.* goes on after the 40 samples"):
            iter(loader)
    with pytest.raises(uringload.ArgumentTypeError, match="no len"):
        loader_of(numbered, Unmeasured(), 4)
    batches = data.BatchSampler(data.SequentialSampler(range(SAMPLES)), 4, False)
    with loader_of(numbered, batches, 4) as loader:
        with pytest.raises(uringload.ArgumentTypeError, match="BatchSampler.* gives batches of samples"):
            iter(loader)


def test_ranks(numbered: uringload.Dataset) -> None:
    """A state of one rank serves all whose order follows from the epoch; not where ranks draw for themselves."""

    def made(rank: int) -> uringload.DataLoader:
        sampler = data.DistributedSampler(range(SAMPLES), 2, rank, seed=3)
        return uringload.DataLoader(numbered, 4, sampler=sampler, rank=rank, world_size=2, output="numpy")

    seen = []
    with made(0) as first, made(1) as second:
        for loader in (first, second):
            loader.set_epoch(6)
            batches = iter(loader)
            seen += read(next(batches) for _ in range(3))
        state = first.state_dict()
    for rank in range(2):
        with made(rank) as loader:
            loader.load_state_dict(state)
            seen += read(loader)
    assert sorted(sample for batch in seen for sample in batch) == list(range(SAMPLES))

    def random_on(rank: int) -> uringload.DataLoader:
        sampler = data.RandomSampler(range(SAMPLES), generator=seeded(rank))
        return uringload.DataLoader(numbered, 4, sampler=sampler, rank=rank, world_size=2, output="numpy")

    with random_on(0) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with random_on(1) as loader:
        with pytest.raises(uringload.InvalidArgumentError, match="the state is that of rank 0.*this is rank 1"):
            loader.load_state_dict(state)


def test_set_epoch_is_passed_on(numbered: uringload.Dataset) -> None:
    sampler = data.DistributedSampler(range(SAMPLES), 1, 0, seed=3)
    with loader_of(numbered, sampler, 4) as loader:
        # As under torch, a sampler that does not get epochs has one order.
        assert read(loader) == read(loader)
        loader.set_epoch(5)
        found = read(loader)
    assert found == torchs(sampler, 4, False, [5])[0]


def test_a_state_without_a_draw_is_warned_of(numbered: uringload.Dataset, caplog: pytest.LogCaptureFixture) -> None:
    """Such as `uringload state seek` and earlier versions write."""
    make = KINDS["DistributedSampler"][0]
    with loader_of(numbered, make(1), 4) as loader:
        next(iter(loader))
        state = loader.state_dict()
    del state["sampler"]
    with loader_of(numbered, make(1), 4) as loader:
        loader.load_state_dict(state)
        assert "DistributedSampler" in caplog.text and "cannot be checked" in caplog.text
        assert read(loader) == torchs(make(1), 4, False, [None])[0][1:]


def test_a_damaged_draw_is_refused(numbered: uringload.Dataset) -> None:
    make = KINDS["RandomSampler"][0]
    with loader_of(numbered, make(1), 4) as loader:
        next(iter(loader))
        state = loader.state_dict()
    (name,) = state["sampler"]["generators"]
    for text in ("", "????", "AAAA", state["sampler"]["generators"][name][:-8], 7, None):
        broken = {**state, "sampler": {**state["sampler"], "generators": {name: text}}}
        with loader_of(numbered, make(1), 4) as loader:
            with pytest.raises(uringload.StateMismatchError):
                loader.load_state_dict(broken)
            assert read(loader) == torchs(make(1), 4, False, [None])[0]
    for broken in ({**state, "sampler": {**state["sampler"], "digest": "0" * 32}},
                   {**state, "sampler": {**state["sampler"], "generators": {}}}):
        with loader_of(numbered, make(2), 4) as loader:
            with pytest.raises(uringload.StateMismatchError):
                loader.load_state_dict(broken)


def test_the_command_line_reads_such_a_state(numbered: uringload.Dataset, tmp_path: pathlib.Path) -> None:
    make = KINDS["RandomSampler"][0]
    with loader_of(numbered, make(1), 4) as loader:
        next(iter(loader))
        state = loader.state_dict()
    assert state["checksum"] and state["sampler"]
    path = tmp_path / "state.json"
    path.write_text(json.dumps(state))
    main = "import sys; from uringload._command import main; sys.exit(main())"
    told = subprocess.run([sys.executable, "-c", main, "state", "show", path], capture_output=True, text=True)
    assert told.returncode == 0 and "RandomSampler" in told.stdout, told
