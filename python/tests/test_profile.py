"""Profiles of `uringload tune`: what they set, what wins over them, and the errors of broken ones."""

from __future__ import annotations

import json
import os
import pathlib

import pytest
from conftest import of_records

import uringload


def written(place: pathlib.Path, text: str) -> pathlib.Path:
    path = place / ".uringload.toml"
    path.write_text(text)
    return path


def test_a_profile_sets_what_the_arguments_leave_open(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    text = 'version = 1\nqueue_depth = 7\nread_size = "64KiB"\nengine = "threads"\nio_threads = 8\n'
    profile = written(tmp_path, text)

    def route(**given: object) -> dict[str, object]:
        with uringload.DataLoader(**of_records(records, profile=profile, **given)) as loader:
            assert len(list(loader)) == len(loader)
            return dict(loader.route())

    found = route()
    assert (found["engine"], found["queue_depth"]) == ("threads", 7)
    assert route(queue_depth=5)["queue_depth"] == 5, "what is given wins"


@pytest.mark.parametrize(("text", "told"), [
    ("version = 1\nqueue_deep = 7\n", "line 2 of the profile: unknown field `queue_deep`"),
    ("version = 9\n", "version is 9"),
    ("queue_depth = 7\n", "no version"),
    ("version = 1\nqueue_depth = 0\n", "line 2"),
])
def test_what_is_no_profile_is_refused(records: pathlib.Path, tmp_path: pathlib.Path, text: str, told: str) -> None:
    profile = written(tmp_path, text)
    with pytest.raises(uringload.InvalidArgumentError, match=told) as raised:
        uringload.DataLoader(**of_records(records, profile=profile))
    assert str(profile) in str(raised.value)


def test_a_profile_that_is_not_there(records: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="cannot read the profile"):
        uringload.DataLoader(**of_records(records, profile=tmp_path / "none.toml"))


def test_what_is_shared_goes_with_the_loader(
    records: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shared(**given: object) -> int:
        with uringload.DataLoader(**of_records(records, **given)) as loader:
            next(iter(loader))
            pages = [json.loads(page.read_text()) for page in tmp_path.glob("uringload-*.json")]
        assert all((page["pid"], page["dataset"]["samples"]) == (os.getpid(), 1000) for page in pages)
        assert not list(tmp_path.iterdir())
        return len(pages)

    assert (shared(), shared(share_stats=tmp_path)) == (0, 1)
    monkeypatch.setenv("URINGLOAD_SHARE_STATS", str(tmp_path))
    assert (shared(), shared(share_stats=False)) == (1, 0)
