"""JAX and Keras, with the real packages: batches are trees, arrays may be kept, and a model is fitted."""

from __future__ import annotations

import importlib.util
import os
import pathlib
from typing import Any

import pytest
from conftest import RECORDS, needs_numpy, of_records

import uringload
from uringload import DataLoader

# What is installed decides, and no GPU is needed.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("KERAS_BACKEND", "jax")

jax = pytest.importorskip("jax", reason="skipped: jax is not installed")
needs_keras = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="skipped: keras is not installed")
pytestmark = needs_numpy


def test_a_batch_is_a_tree(records: pathlib.Path) -> None:
    def least(batch: Any) -> Any:
        return jax.tree.map(lambda column: column.min(), batch)

    for collate, kind in (("auto", dict), ("tuple", tuple)):
        with DataLoader(**of_records(records, collate=collate, index=True)) as loader:
            for number, batch in enumerate(loader):
                leaves, tree = jax.tree.flatten(batch)
                assert len(leaves) == 2 and isinstance(jax.tree.unflatten(tree, leaves), kind)
                found = jax.jit(least)(batch)
                assert [int(leaf) for leaf in jax.tree.leaves(found)] == [32 * number] * 2
                if number == 3:
                    break
    assert jax.tree.structure(uringload.Batch({"b": 1, "a": 2})).num_leaves == 2


def test_arrays_that_jax_keeps_are_its_own(records: pathlib.Path) -> None:
    """More than the loader's memory, kept to the end of the run: no StarvedError."""
    with DataLoader(**of_records(records, memory_limit="2MiB", batch_size=100, starved_after=1.0)) as loader:
        kept = [jax.tree.map(jax.numpy.array, batch) for _ in range(20) for batch in loader]
    assert sum(batch["data"].nbytes for batch in kept) > 2 * (2 << 20)
    for number, batch in enumerate(kept):
        assert batch["data"][0, 0] == number % 10 * 100 and batch["data"][99, 63] == number % 10 * 100 + 99


def test_memory_that_jax_points_to_is_not_read_into(records: pathlib.Path) -> None:
    """On the CPU `device_put` may take the batch's own memory: what it gave stays as it is, batch dropped or not."""
    kept: list[Any] = []
    with DataLoader(**of_records(records, memory_limit="2MiB", batch_size=100, starved_after=1.0)) as loader:
        try:
            for _ in range(20):
                kept += [jax.device_put(batch["data"]) for batch in loader]
        except uringload.StarvedError as error:
            assert error.remedy
    assert len(kept) >= 10
    for number, array in enumerate(kept):
        assert (array == jax.numpy.arange(100)[:, None] + number % 10 * 100).all(), number


def test_an_array_of_all_processes(records: pathlib.Path) -> None:
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    sharding = NamedSharding(Mesh(jax.devices(), ("data",)), PartitionSpec("data"))
    with DataLoader(**of_records(records)) as loader:
        batch = next(iter(loader))
        made = jax.tree.map(lambda column: jax.make_array_from_process_local_data(sharding, column), batch)
        assert isinstance(made, uringload.Batch) and made["data"].sharding == sharding
        assert made["data"].shape == (32, 64) and (made["data"] == batch["data"]).all()


@needs_keras
@pytest.mark.parametrize("steps", [None, 3])
def test_keras_fits_a_loader(records: pathlib.Path, steps: int | None) -> None:
    import keras
    import numpy as np

    from uringload.adapters.keras import Batches

    seen: list[tuple[int, list[int]]] = []

    def both(batch: Any) -> Any:
        seen.append((batch.epoch, batch.ids))
        return (batch["data"] / RECORDS).astype(np.float32), batch["data"][:, 0] / RECORDS

    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.SGD(1e-3), loss="mse")
    given = of_records(records, shuffle=True, batch_size=100, batch_transform=both, num_threads=0)
    with DataLoader(**given) as loader:
        counted: list[int] = []
        count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: counted.append(step))
        history = model.fit(Batches(loader), epochs=3, steps_per_epoch=steps, verbose=0, callbacks=[count])
        assert len(counted) == 3 * (steps or 10) and len(history.history["loss"]) == 3
        assert history.history["loss"][-1] < history.history["loss"][0]
        if steps is None:
            # What Keras looked at to build the model came again.
            epochs: dict[int, set[int]] = {}
            for epoch, ids in seen:
                epochs.setdefault(epoch, set()).update(ids)
            assert [epoch for epoch in epochs if epoch < 3] == [0, 1, 2] and loader.epoch == 3
            assert all(epochs[epoch] == {*range(RECORDS)} for epoch in range(3)), "each epoch is whole"
        assert np.isfinite(model.evaluate(Batches(loader), verbose=0))


@needs_keras
def test_keras_begins_again_where_it_left_an_epoch(records: pathlib.Path) -> None:
    from uringload.adapters.keras import Batches

    with DataLoader(**of_records(records, collate="tuple", index=True, batch_size=100)) as loader:
        list(loader)
        loader.load_state_dict(loader.state_dict())
        given = Batches(loader)
        for _ in range(2):
            assert given.num_batches == 10
            assert given[7][1][0] == 0, "an epoch that was left begins again"
        assert [int(given[0][1][0]) for _ in range(9)] == [*range(100, 1000, 100)]
        assert given.num_batches == 10 and given[0][1][0] == 0 and loader.last_batch.epoch == 2
        state = loader.state_dict()
        loader.load_state_dict(state)
        with pytest.raises(uringload.InvalidArgumentError, match="9 batches of its epoch left, and Keras counts 10"):
            Batches(loader)[0]
    with DataLoader(**of_records(records)) as loader:
        with pytest.raises(uringload.InvalidArgumentError, match="no tuple") as error:
            Batches(loader)[0]
        assert 'collate="tuple"' in str(error.value.remedy)
    with pytest.raises(TypeError, match="loader is a list"):
        Batches([])  # type: ignore[arg-type]
