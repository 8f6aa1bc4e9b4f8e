"""`reindex=True`: files that change between epochs are indexed anew, and said; nothing else changes."""

from __future__ import annotations

import logging
import os
import pathlib
from typing import Any

import pytest

import uringload

LINES = 40


def write(path: pathlib.Path, word: str, lines: int = LINES) -> None:
    """Replaces a file by another one, by renaming."""
    new = path.with_suffix(".new")
    new.write_text("".join(f"{word}-{line}\n" for line in range(lines)))
    new.rename(path)


@pytest.fixture
def texts(tmp_path: pathlib.Path) -> pathlib.Path:
    for name in "abc":
        write(tmp_path / f"{name}.txt", name)
    return tmp_path


def words(loader: Any) -> list[str]:
    return sorted(value for batch in loader for value in batch["text"])


def expected(**lines: int) -> list[str]:
    return sorted(f"{word}-{line}" for word, count in lines.items() for line in range(count))


def of(path: Any, **given: Any) -> uringload.DataLoader:
    form = {} if isinstance(path, uringload.Dataset) else {"format": "text"}
    given = {"batch_size": 7, "shuffle": True, "output": "numpy", "reindex": True, **form, **given}
    return uringload.DataLoader(path, **given)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "indexed anew" in record.getMessage()]


def test_what_changed_is_read_anew_and_said_in_one_line(texts: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "uringload")
    with of(texts) as loader:
        assert len(loader) == 18
        assert words(loader) == words(loader) == expected(a=LINES, b=LINES, c=LINES)
        assert not said(caplog)
        write(texts / "b.txt", "other", 30)
        assert words(loader) == expected(a=LINES, other=30, c=LINES)
        (line,) = said(caplog)
        assert "1 of 3 files changed" in line and "b.txt" in line and "110 samples" in line and "before 120" in line
        assert len(loader) == 16 and loader.epoch == 3
        assert words(loader) == expected(a=LINES, other=30, c=LINES)
        assert len(said(caplog)) == 1, "nothing has changed since"


def test_files_that_were_added_and_that_are_gone_count(texts: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "uringload")
    with of(texts) as loader:
        assert words(loader) == expected(a=LINES, b=LINES, c=LINES)
        write(texts / "d.txt", "d", 3)
        assert words(loader) == expected(a=LINES, b=LINES, c=LINES, d=3)
        (texts / "a.txt").unlink()
        assert words(loader) == expected(b=LINES, c=LINES, d=3)
        assert "files were added" in said(caplog)[0] and "a.txt" in said(caplog)[1]


def test_same_size_and_time_are_no_disguise(texts: pathlib.Path) -> None:
    """`rsync -t`."""
    with of(texts) as loader:
        words(loader)
        path = texts / "c.txt"
        before = path.stat()
        write(path, "x")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_size == before.st_size
        assert words(loader) == expected(a=LINES, b=LINES, x=LINES)


def test_without_it_a_changed_file_is_an_error_of_its_samples(texts: pathlib.Path) -> None:
    with of(texts, reindex=False) as loader:
        assert words(loader) == expected(a=LINES, b=LINES, c=LINES)
    with of(texts, reindex=False) as loader:
        write(texts / "b.txt", "other", 30)
        with pytest.raises(uringload.Error, match="b.txt"):
            words(loader)


def test_within_an_epoch_a_change_is_an_error_and_the_next_epoch_has_it(tmp_path: pathlib.Path) -> None:
    """Large enough that not all was read ahead when the file changes."""
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(64 << 20))
    given = {"record_bytes": 1 << 20, "batch_size": 1, "output": "numpy", "memory_limit": 8 << 20, "on_error": "skip"}
    with uringload.DataLoader(path, reindex=True, **given) as loader:
        passes = iter(loader)
        next(passes)
        new = tmp_path / "new"
        new.write_bytes(b"\1" * (32 << 20))
        new.rename(path)
        left = [bool(batch["data"].any()) for batch in passes if len(batch.ids)]
        assert len(left) < 63 and not any(left), "no byte of the other file"
        assert [bool((batch["data"] == 1).all()) for batch in loader] == [True] * 32


def test_a_file_that_cannot_be_indexed_is_an_error_of_the_pass_and_tried_again(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\n')
    with of(path, format="jsonl", columns=["text"]) as loader:
        assert words(loader) == ["one"]
        path.unlink()
        with pytest.raises(uringload.Error, match="a.jsonl"):
            iter(loader)
        path.write_text('{"text": "one"}\n{"text": "two"}\n')
        assert words(loader) == ["one", "two"]


def test_a_state_of_what_was_there_before_is_refused(texts: pathlib.Path) -> None:
    with of(texts) as loader:
        for number, _ in enumerate(loader):
            if number == 3:
                break
        state = loader.state_dict()
        loader.load_state_dict(state)
        # After the state was loaded, and before the pass.
        write(texts / "b.txt", "other", 30)
        with pytest.raises(uringload.StateMismatchError):
            words(loader)
        loader.set_epoch(5)
        assert words(loader) == expected(a=LINES, other=30, c=LINES)
        with pytest.raises(uringload.StateMismatchError):
            loader.load_state_dict(state)
        fresh = loader.state_dict()
        loader.load_state_dict(fresh)


def test_a_state_fits_where_nothing_changed(texts: pathlib.Path) -> None:
    with of(texts) as loader, of(texts) as resumed:
        found = []
        for number, batch in enumerate(loader):
            found += list(batch["text"])
            if number == 3:
                break
        resumed.load_state_dict(loader.state_dict())
        assert sorted(found + words(resumed)) == expected(a=LINES, b=LINES, c=LINES)


def test_transforms_and_views_see_the_new_dataset(texts: pathlib.Path) -> None:
    parts = [uringload.Dataset(texts / f"{name}.txt", format="text") for name in "ab"]
    dataset = uringload.mix(parts, [1, 1], "all_exhausted_without_replacement")
    given = {"transform": lambda sample: {"text": sample["text"].upper()}, "collate": "list", "num_threads": 2}
    with of(dataset, **given) as loader:
        assert sorted(row["text"] for batch in loader for row in batch) == expected(A=LINES, B=LINES)
        write(texts / "b.txt", "other", 12)
        assert sorted(row["text"] for batch in loader for row in batch) == expected(A=LINES, OTHER=12)
        assert len(loader.dataset) == LINES + 12 and dataset is not loader.dataset
    chosen = uringload.Dataset(texts / "c.txt", format="text")[:3]
    with of(chosen) as loader:
        assert words(loader) == ["c-0", "c-1", "c-2"]
        write(texts / "c.txt", "d", 9)
        assert words(loader) == ["d-0", "d-1", "d-2"]


def test_what_cannot_be_kept_is_refused(texts: pathlib.Path) -> None:
    with pytest.raises(uringload.InvalidArgumentError, match="barrier"):
        of(texts, rank=0, world_size=2)
    with pytest.raises(uringload.InvalidArgumentError, match="sampler"):
        of(texts, shuffle=False, sampler=[1, 2])
    with pytest.raises(uringload.InvalidArgumentError, match="reindex"):
        uringload.DataLoader([1, 2, 3], batch_size=2, reindex=True)
    with pytest.raises(TypeError, match="reindex"):
        of(texts, reindex="yes")
