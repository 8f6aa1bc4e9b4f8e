"""Situations in which the user's own Python is the limit, or is not: the verdict, and what its remedy brings.

The rest of them is in tests/situations.rs.
"""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any

import pytest
from conftest import judged, of_records, takes_turns

import uringload

# On a machine that others work on too, it is now and then rightly somebody else who is named, and a thread that has
# slept waits for a processor. So each is tried again, and no try has to compare with an earlier one.
TRIES = 8
# A multiple of the threads: what is transformed in turns of eight is not kept waiting by a turn of two.
BATCH = 64
# Of a sample. Long beside what a thread waits for a processor, which no number of threads shortens.
WAIT_S = 0.01
WORK_S = 0.001


def read(records: pathlib.Path, step: float = 0.0, **given: Any) -> tuple[Any, float]:
    """The verdict on a run, and samples a second."""
    with uringload.DataLoader(**of_records(records, **{"batch_size": BATCH, **given})) as loader:
        begun = time.perf_counter()
        count = 0
        for _ in loader:
            count += given.get("batch_size", BATCH)
            time.sleep(step)
        return loader.verdict(), count / (time.perf_counter() - begun)


def find(bottleneck: str, records: pathlib.Path, **given: object) -> tuple[Any, float]:
    """A run of this verdict."""
    return judged(bottleneck, lambda: read(records, **given), TRIES)  # type: ignore[arg-type]


def tell(what: str, remedy: Any, gain: float) -> None:
    """Leaves a row of the table that benches/situations.py makes: what was predicted, and what came."""
    path = os.environ.get("URINGLOAD_SITUATIONS")
    if path is not None and remedy.gain is not None:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{what}\t{remedy.what}\t{remedy.gain:.3f}\t{gain:.3f}\n")


def waits(sample: Any) -> Any:
    time.sleep(WAIT_S)
    return sample


def holds_the_lock(sample: Any) -> Any:
    end = time.thread_time() + WORK_S
    while time.thread_time() < end:
        pass
    return sample


# What it compares is how long threads sleep, so a machine with other work decides it.
@pytest.mark.slow
def test_a_transform_that_waits_wants_threads(records: pathlib.Path) -> None:
    # A thread works on a batch, so there are four for each of eight threads.
    few: dict[str, Any] = {"transform": waits, "num_threads": 2, "batch_size": 16, "only": range(32 * 16)}
    tried = []
    for _ in range(TRIES):
        # One right behind the other: what slows the machine slows both.
        verdict, before = read(records, **few)
        after = read(records, **{**few, "num_threads": 8})[1]
        tried.append((str(verdict), after / before))
        if verdict.bottleneck == "transform" and len(tried) == 1:
            tell("a transform in Python that waits", verdict.remedies[0], after / before)
        if verdict.bottleneck != "transform":
            continue
        remedy = verdict.remedies[0]
        assert remedy.what == "num_threads = 8", verdict.remedies
        if after / before == pytest.approx(remedy.gain, rel=0.25) and remedy.gain > 2.5:
            return
    if takes_turns():
        pytest.skip(f"skipped: other programs take the processors: {tried}")
    pytest.fail(f"no prediction came true: {tried}")


def test_a_transform_under_pythons_lock_does_not_want_threads(records: pathlib.Path) -> None:
    # A batch takes 64 ms to transform and 10 ms to use. The loop waits for the lock, too, 5 ms and more whenever it has
    # slept; nobody can tell that from its own work, so it takes from what is said to be gained.
    given: dict[str, Any] = {"num_threads": 2, "only": range(12 * BATCH), "step": 0.01}
    verdicts: list[Any] = []
    while len(verdicts) < TRIES and not any(verdict.gain > 1.5 for verdict in verdicts):
        verdict, before = find("transform", records, transform=holds_the_lock, **given)
        assert "num_threads" not in verdict.remedies[0].what, verdict.remedies
        verdicts.append(verdict)
    gains: list[float] = []
    while len(gains) < TRIES and (not gains or max(gains) <= 1.5):
        gains.append(read(records, **given)[1] / before)
    if any(verdict.gain > 1.5 for verdict in verdicts) and max(gains) > 1.5:
        (built_in,) = (remedy for remedy in verdicts[-1].remedies if "built-in" in remedy.what)
        return tell("a transform that holds Python's lock", built_in, gains[-1])
    if takes_turns():
        pytest.skip(f"skipped: other programs take the processors: {verdicts}, {gains}")
    pytest.fail(f"{verdicts}, {gains}")


def test_a_wait_for_pythons_lock_is_no_step(records: pathlib.Path) -> None:
    # A loop that does nothing: all of its time is the loader's, also what a call waits for the lock to hand over a
    # batch that is ready.
    given: dict[str, Any] = {"batch_size": 8, "num_threads": 2, "only": range(32 * 8)}
    steps = []
    for _ in range(TRIES):
        with uringload.DataLoader(**of_records(records, transform=holds_the_lock, **given)) as loader:
            for _ in loader:
                pass
            stats = loader.stats()
        (times,) = (times for role, times in stats["threads"] if role == "consumer")
        steps.append(times.get("step", 0.0) / stats["elapsed_s"])
        if steps[-1] < 0.1:
            return
    pytest.fail(f"the step's shares of the time: {steps}")


def test_a_slow_loop_is_the_trainer(records: pathlib.Path) -> None:
    given: dict[str, Any] = {"transform": waits, "num_threads": 8, "only": range(8 * BATCH)}
    # A batch takes 80 ms to make, and 200 ms to use.
    verdict, before = find("trainer", records, step=0.2, **given)
    assert verdict.remedies[0].what.startswith("a faster step")
    gains: list[float] = []
    while len(gains) < TRIES and (not gains or max(gains) <= 1.6):
        gains.append(read(records, **given)[1] / before)
    tell("a loop in Python that is slow", verdict.remedies[0], gains[0])
    if max(gains) <= 1.6 and takes_turns():
        pytest.skip(f"skipped: other programs take the processors: {gains}")
    assert max(gains) > 1.6, gains
