"""Trainers that share out, skip or count by themselves: small copies of what theirs do, so that no package is needed.
`test_launchers.py` runs the real ones."""

from __future__ import annotations

import importlib
import logging
import pathlib
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import conftest
import pytest
from conftest import RECORDS, numbers, of_records

import uringload
from uringload import DataLoader

pytestmark = conftest.needs_numpy

SAMPLES = {"samples": True, "batch_size": 20}


class IterableDatasetShard:
    """As accelerate's: it is iterated over on every rank, and drops what belongs to the others."""

    def __init__(self, dataset: Any, batch_size: int | None, rank: int, ranks: int) -> None:
        self.dataset, self.batch_size = dataset, batch_size
        self.process_index, self.num_processes = rank, ranks

    def set_epoch(self, epoch: int) -> None:
        self.dataset.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        assert self.batch_size is not None
        for position, element in enumerate(self.dataset):
            if position // self.batch_size % self.num_processes == self.process_index:
                yield element


class DataLoaderShard:
    """As accelerate's: it numbers its passes, and reads one ahead."""

    def __init__(self, dataset: Any) -> None:
        self.dataset, self.iteration = dataset, 0

    def set_epoch(self, epoch: int) -> None:
        self.iteration = epoch
        self.dataset.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        self.set_epoch(self.iteration)
        ahead = None
        for element in self.dataset:
            if ahead is not None:
                yield ahead
            ahead = element
        yield ahead
        self.iteration += 1


class DataLoaderDispatcher(DataLoaderShard):
    """As accelerate's: it is iterated over on rank 0, which hands out what it reads."""


class PartialState:
    """As accelerate's."""

    num_processes = 2


class GradientState:
    """As accelerate's: it holds whatever is iterated over weakly, the innermost last."""

    _shared_state: dict[str, Any] = {}

    def __init__(self) -> None:
        self.__dict__ = self._shared_state
        self.__dict__.setdefault("_references", [None])

    def _add_dataloader(self, loader: Any) -> None:
        self.dataloader_references += [loader]

    @property
    def dataloader_references(self) -> list[Any]:
        return [one if one is None else one() for one in self._references]

    @dataloader_references.setter
    def dataloader_references(self, references: list[Any]) -> None:
        self._references = [one if one is None else weakref.ref(one) for one in references]

    @property
    def active(self) -> Any:
        return self.dataloader_references[-1]


class Loop:
    """As Lightning's loop, with what states need."""

    restarting = True

    def __init__(self, done: int, limit: float = 1.0) -> None:
        self.trainer = types.SimpleNamespace(limit_train_batches=limit)
        current = types.SimpleNamespace(ready=done)
        self.epoch_loop = types.SimpleNamespace(batch_progress=types.SimpleNamespace(current=current))

    def setup_data(self, loader: DataLoader, state: dict[str, Any] | None) -> None:
        if state is not None:
            loader.load_state_dict(state)
        iter(loader)


def module(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    made = types.ModuleType(name)
    made.__dict__.update(content)
    monkeypatch.setitem(sys.modules, name, made)


@pytest.fixture
def accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    classes: list[type] = [IterableDatasetShard, DataLoaderShard, DataLoaderDispatcher]
    module(monkeypatch, "accelerate.data_loader", **{cls.__name__: cls for cls in classes})
    monkeypatch.setattr(GradientState, "_shared_state", {})
    module(monkeypatch, "accelerate.state", PartialState=PartialState, GradientState=GradientState)


@pytest.fixture
def datasets(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`uringload.torch`, also where there is no torch."""
    if not conftest.HAS_TORCH:
        for name in ("torch", "torch.utils"):
            module(monkeypatch, name)
        module(monkeypatch, "torch.utils.data", IterableDataset=object, Dataset=object, get_worker_info=lambda: None)
        sys.modules["torch"].utils = sys.modules["torch.utils"]  # type: ignore[attr-defined]
        sys.modules["torch.utils"].data = sys.modules["torch.utils.data"]  # type: ignore[attr-defined]
        monkeypatch.delitem(sys.modules, "uringload.torch", raising=False)
    return importlib.import_module("uringload.torch")


@pytest.fixture
def callback(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`uringload.transformers.LoaderState`, also where there is no transformers."""
    module(monkeypatch, "transformers", TrainerCallback=type("TrainerCallback", (), {}))
    module(monkeypatch, "transformers.trainer_callback", ExportableState=type("ExportableState", (), {}))
    monkeypatch.delitem(sys.modules, "uringload.transformers", raising=False)
    made = importlib.import_module("uringload.transformers").LoaderState
    monkeypatch.delitem(sys.modules, "uringload.transformers")
    return made


def ranks(monkeypatch: pytest.MonkeyPatch, rank: int, world_size: int = 2) -> None:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(world_size))


@pytest.mark.usefixtures("accelerate")
def test_a_shard_of_accelerate_is_not_sharded_again(
    records: pathlib.Path, datasets: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "uringload")
    seen: list[int] = []
    for rank in range(2):
        ranks(monkeypatch, rank)
        dataset = datasets.IterableDataset(**of_records(records, shuffle=True, **SAMPLES))
        seen += [int(sample["data"][0]) for sample in IterableDatasetShard(dataset, 20, rank, 2)]
        # Nothing shares out here, and what was read so far was the share of no rank.
        with pytest.raises(uringload.InvalidArgumentError, match="rank 0 of 1 .from accelerate's IterableDatasetShard"):
            next(iter(dataset))
    assert sorted(seen) == list(range(RECORDS))
    assert "rank 0 of 1 (from accelerate's IterableDatasetShard)" in caplog.text


@pytest.mark.usefixtures("accelerate")
def test_the_dispatcher_of_accelerate_gets_everything(
    records: pathlib.Path, datasets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks(monkeypatch, 0)
    dataset = datasets.IterableDataset(**of_records(records, shuffle=True))
    dispatcher = DataLoaderDispatcher(dataset)
    first = [number for batch in dispatcher for number in numbers(batch)]
    assert sorted(first) == list(range(RECORDS)) and len(dataset) == 32
    second = [number for batch in dispatcher for number in numbers(batch)]
    assert sorted(second) == list(range(RECORDS)) and second != first
    with dataset.loader:
        batches = iter(dispatcher)
        next(batches)
        with pytest.raises(uringload.InvalidArgumentError, match="reads further than it has handed out") as error:
            dataset.state_dict()
        assert "uringload.DataLoader itself" in str(error.value.remedy)


@pytest.mark.usefixtures("accelerate")
def test_ranks_of_ones_own_under_accelerate_are_refused(records: pathlib.Path, datasets: Any) -> None:
    bad: list[tuple[dict[str, Any], str, str]] = [
        ({"rank": 0, "world_size": 2}, "already the share of rank 0 of 2", "leave out rank"),
        ({"batch_size": None, "global_batch_size": 32}, "global_batch_size cannot be kept", "give batch_size"),
    ]
    for given, message, remedy in bad:
        dataset = datasets.IterableDataset(**of_records(records, **given))
        with pytest.raises(uringload.InvalidArgumentError, match=message) as error:
            next(iter(DataLoaderDispatcher(dataset)))
        assert remedy in str(error.value.remedy)
    dataset = datasets.IterableDataset(**of_records(records, rank=0, world_size=1))
    assert sorted(number for batch in DataLoaderDispatcher(dataset) for number in numbers(batch)) == [*range(RECORDS)]
    whole_batches = IterableDatasetShard(datasets.IterableDataset(**of_records(records)), None, 0, 2)
    with pytest.raises(uringload.InvalidArgumentError, match="samples, and this dataset gives whole batches"):
        next(iter(DataLoaderShard(whole_batches)))


@pytest.mark.usefixtures("accelerate")
def test_passes_that_accelerate_numbers_go_on_from_a_state(records: pathlib.Path, datasets: Any) -> None:
    given = of_records(records, shuffle=True)
    with DataLoader(**given) as loader:
        loader.set_epoch(3)
        batches = iter(loader)
        [next(batches) for _ in range(5)]
        state = loader.state_dict()
        rest, after = [numbers(batch) for batch in batches], [numbers(batch) for batch in loader]
    dataset = datasets.IterableDataset(**given)
    dataset.load_state_dict(state)
    prepared = DataLoaderShard(dataset)
    assert [numbers(batch) for batch in prepared] == rest
    assert prepared.iteration == 4 and [numbers(batch) for batch in prepared] == after
    dataset.load_state_dict(state)
    prepared.set_epoch(4)
    assert [numbers(batch) for batch in prepared] == after, "asked for by name, another epoch is read"


def skipping(loader: DataLoader, batches: int) -> Iterator[Any]:
    """As torch's loader does what `accelerate.skip_first_batches` makes of a loader."""
    assert hasattr(loader, "sampler") and loader.prefetch_factor is None
    collate, read = loader.collate_fn, getattr(loader.dataset, "__getitems__", lambda indices: [*indices])
    for counted, indices in enumerate(loader.batch_sampler):
        if counted >= batches:
            try:
                yield collate(read(indices))
            except StopIteration:
                return


@pytest.mark.parametrize(
    "given",
    [{}, {"drop_last": True, "batch_size": 30}, {"sampler": [*range(1, 900)], "shuffle": False},
     {"transform": lambda sample: sample, "collate_fn": lambda every: {"data": [each["data"] for each in every]}},
     {"bucket_boundaries": [100], "bucket_batch_sizes": [16, 8], "batch_size": None, "row_window": 64}],
    ids=["plain", "drop_last", "sampler", "transform", "buckets"],
)  # fmt: skip
@pytest.mark.parametrize("skipped", [0, 7, 500])
def test_skipping_batches(records: pathlib.Path, given: dict[str, Any], skipped: int) -> None:
    with DataLoader(**of_records(records, **{"shuffle": True, **given})) as loader:
        first, second = ([numbers(batch) for batch in loader] for _ in range(2))
        loader.batch_sampler.set_epoch(0)
        assert [numbers(batch) for batch in skipping(loader, skipped)] == first[skipped:]
        assert [numbers(batch) for batch in loader] == second, "only one pass is without them"


@pytest.mark.parametrize("given", [{}, {"batch_transform": lambda batch: batch, "num_threads": 2}])
def test_accelerate_is_told_of_the_last_batch(records: pathlib.Path, accelerate: None, given: dict[str, Any]) -> None:
    """Where gradients are accumulated it steps there, although fewer batches are left than it accumulates."""
    with DataLoader(**of_records(records, **given)) as loader:
        list(loader)
        assert GradientState._shared_state == {}, "an Accelerate that is not used gets no report"
        state = GradientState()
        for _ in range(2):
            assert [state.active.end_of_dataloader for _ in loader] == [False] * 31 + [True]
            assert state.dataloader_references == [None]
        batches = iter(loader)
        next(batches)
        of_training = state.active
        with DataLoader(**of_records(records, **given)) as validating:
            for _, _ in zip(validating, range(3)):
                assert state.active is not of_training
        assert state.active is of_training, "a pass that is left early is over"
        del of_training
        assert len(list(batches)) == 31 and state.active is None, "also where the iterator is kept"
        # Accelerate's own loader, which reads ahead, reports itself.
        assert [state.active for _ in DataLoaderShard(loader)] == [None] * 32
    loader = DataLoader(**of_records(records))
    next(iter(loader))
    gone = weakref.ref(loader)
    del loader
    assert gone() is None, "it keeps no loader alive"


def test_locals_of_callers_are_not_kept_alive(
    records: pathlib.Path, datasets: Any, accelerate: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until Python 3.13 whoever looks at the locals of a frame keeps them, and a loader's threads, until it returns."""
    module(monkeypatch, "lightning.pytorch.loops.fit_loop", _FitLoop=Loop)
    module(monkeypatch, "torchdata.stateful_dataloader", StatefulDataLoader=Loop)
    for kind in (DataLoader, datasets.IterableDataset):
        loader = kind(**of_records(records))
        batches = iter(loader)
        next(batches)
        loader.load_state_dict(loader.state_dict())
        gone = weakref.ref(loader)
        del loader, batches
        assert gone() is None, kind


@pytest.mark.parametrize(("samples", "world_size", "repeated"), [(1000, 2, 0), (999, 2, 1), (998, 3, 1), (997, 3, 2)])
def test_accelerate_is_told_what_ranks_repeat(
    records: pathlib.Path, accelerate: None, samples: int, world_size: int, repeated: int,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    state, before, ends, told = GradientState(), [], [], []
    for rank in range(world_size):
        given = of_records(records, only=range(samples), rank=rank, world_size=world_size, shuffle=True)
        with DataLoader(**given) as loader:
            for batch in loader:
                if state.active.end_of_dataloader:
                    told.append(state.active.remainder)
                    ends += numbers(batch)
                else:
                    before += numbers(batch)
    assert len(told) == world_size and len({*told}) == 1, "all ranks are told the same"
    # What gather_for_metrics does with the last batches.
    remainder = told[0]
    every = before + (ends[:remainder] if remainder > 0 else ends)
    assert {*every} == {*range(samples)} and len(every) == samples + (repeated if repeated > 1 else 0)
    assert remainder == (len(ends) - 1 if repeated == 1 else -min(repeated, 1))
    assert ("gets 2 samples twice" in caplog.text) == (repeated == 2)
    with DataLoader(**of_records(records, drop_last=True, rank=0, world_size=3)) as loader:
        assert [state.active.remainder for _ in loader][-1] == 0


def test_a_loader_made_of_parts_of_ours_is_refused(records: pathlib.Path) -> None:
    with DataLoader(**of_records(records)) as loader:
        with pytest.raises(uringload.InvalidArgumentError, match="another loader was made of this one's collate_fn"):
            loader.collate_fn([{"data": 0}])


def test_a_loaded_state_comes_before_skipping(records: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    with DataLoader(**of_records(records, shuffle=True)) as loader:
        whole = [numbers(batch) for batch in loader]
        loader.set_epoch(0)
        batches = iter(loader)
        [next(batches) for _ in range(9)]
        state = loader.state_dict()
        for skipped in (9, 4):
            loader.load_state_dict(state)
            assert [numbers(batch) for batch in skipping(loader, skipped)] == whole[9:]
        loader.load_state_dict(state)
        loader.set_epoch(5)
        assert "the state that was loaded is in epoch 0, and set_epoch(5) leaves it unused" in caplog.text


def test_lightning_would_end_the_epoch_too_soon(
    records: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with DataLoader(**of_records(records, batch_size=30)) as loader:
        batches = iter(loader)
        [next(batches) for _ in range(20)]
        state = loader.state_dict()
    module(monkeypatch, "lightning.pytorch.loops.fit_loop", _FitLoop=Loop)
    with DataLoader(**of_records(records, batch_size=None, global_batch_size=60)) as loader:
        with pytest.raises(uringload.InvalidArgumentError) as error:
            Loop(20).setup_data(loader, state)
        assert "has counted 20 batches of this epoch, which has 7 left and 17 in all" in str(error.value)
        assert "global_batch_size=30" in str(error.value.remedy)
        Loop(20, limit=0.5).setup_data(loader, state)
        Loop(10).setup_data(loader, state)
        assert not caplog.text
        loader.load_state_dict(state)
        assert len(list(loader)) == 7
    with DataLoader(**of_records(records, batch_size=15)) as loader:
        Loop(20).setup_data(loader, state)
        loader.load_state_dict(state)
        assert len(list(loader)) == 27
        Loop(67).setup_data(loader, None)
        assert not caplog.text
        Loop(20).setup_data(loader, None)
        assert "Lightning goes on after batch 20 of an epoch, and its checkpoint has no state" in caplog.text


def resumed(steps: int, saved: Any) -> Any:
    return types.SimpleNamespace(global_step=steps, stateful_callbacks={"LoaderState": saved})


@pytest.mark.parametrize("ignore", [True, False])
def test_the_callback_of_the_trainer(
    records: pathlib.Path, callback: Any, ignore: bool, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = types.SimpleNamespace(gradient_accumulation_steps=2, ignore_data_skip=ignore)
    with DataLoader(**of_records(records, shuffle=True)) as loader:
        whole = [numbers(batch) for batch in loader]
        loader.set_epoch(0)
        saves = callback()
        saves.on_train_begin(arguments, resumed(0, None), None, train_dataloader=loader)
        batches = iter(loader)
        [next(batches) for _ in range(10)]
        exported = saves.state()
    with DataLoader(**of_records(records, shuffle=True)) as loader:
        # A new run in the same process begins at the beginning, whatever the callback holds.
        saves.on_train_begin(arguments, resumed(0, exported), None, train_dataloader=loader)
        assert [numbers(batch) for batch in loader] == whole
        callback().on_train_begin(arguments, resumed(5, [exported]), None, train_dataloader=loader)
        loader.batch_sampler.set_epoch(0)
        assert [numbers(batch) for batch in (loader if ignore else skipping(loader, 10))] == whole[10:]
        callback().on_train_begin(arguments, resumed(5, None), None, train_dataloader=loader)
        assert "the checkpoint has no state of the loader" in caplog.text
        with pytest.raises(uringload.InvalidArgumentError, match="return a uringload.DataLoader"):
            callback().on_train_begin(arguments, resumed(5, exported), None, train_dataloader=[])
    with DataLoader(**of_records(records, shuffle=True, batch_size=256)) as loader:
        # 4 batches, 2 steps: the Trainer believes that 5 steps are two epochs.
        with pytest.raises(uringload.InvalidArgumentError, match="in epoch 0, and the Trainer counts to epoch 2"):
            callback().on_train_begin(arguments, resumed(5, exported), None, train_dataloader=loader)
    with DataLoader(**of_records(records, shuffle=True, batch_size=64)) as loader:
        # 16 batches, 8 steps. 11 batches are left, and the Trainer would ask for 6.
        if ignore:
            callback().on_train_begin(arguments, resumed(5, exported), None, train_dataloader=loader)
            assert len(list(loader)) == 11
        else:
            with pytest.raises(uringload.InvalidArgumentError, match="11 batches left") as error:
                callback().on_train_begin(arguments, resumed(5, exported), None, train_dataloader=loader)
            assert "ignore_data_skip=True" in str(error.value.remedy)
