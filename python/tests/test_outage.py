"""Storage that is away for a while: the log reports it, and nothing is lost."""

from __future__ import annotations

import logging
import pathlib
import threading
import time

import pytest
from conftest import needs_numpy

from uringload import DataLoader

FILES = 200


@needs_numpy
def test_an_outage_is_logged_and_waited_out(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    root, away = tmp_path / "data", tmp_path / "away"
    (root / "files").mkdir(parents=True)
    for number in range(FILES):
        (root / "files" / f"{number:03}").write_bytes(bytes([number]) * (20_000 + number))
    given = {"format": "folder", "labels": False, "batch_size": 4, "memory_limit": "1MiB", "collate": "list",
             "output": "numpy"}  # fmt: skip
    with caplog.at_level(logging.WARNING, "uringload"), DataLoader(root, shuffle=True, **given) as loader:
        batches = iter(loader)
        seen = [bytes(sample)[0] for sample in next(batches)["data"]]
        # As a whole: to move files one by one would look like writing to them.
        (root / "files").rename(away)

        def come_back() -> None:
            end = time.monotonic() + 120
            while time.monotonic() < end and not any("waiting for" in one.message for one in caplog.records):
                time.sleep(0.1)
            away.rename(root / "files")

        thread = threading.Thread(target=come_back)
        thread.start()
        try:
            for batch in batches:
                seen += [bytes(sample)[0] for sample in batch["data"]]
        finally:
            thread.join()
    assert sorted(seen) == list(range(FILES))
    told = [one for one in caplog.records if "waiting for" in one.message]
    assert told and told[0].levelname == "WARNING", caplog.records
    assert told[0].message.startswith(f'waiting for "{root}" for ') and " s: " in told[0].message
