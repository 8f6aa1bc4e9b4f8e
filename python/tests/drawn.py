"""Files drawn at random, read by the loader and by the writer's own reader: how many, and how they are read."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import hypothesis
import uringload

# The slow suite sets 20000.
DRAWS = int(os.environ.get("URINGLOAD_DRAWS", "300"))

# Files of one example: they are read by one loader.
TOGETHER = 30


def settings(together: int = TOGETHER) -> hypothesis.settings:
    """So many examples that DRAWS files are written. Nothing is shrunk: each file is told in words."""
    return hypothesis.settings(
        max_examples=max(1, DRAWS // together), deadline=None, database=None, phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck), derandomize="URINGLOAD_DRAWS" not in os.environ,
    )  # fmt: skip


class Written(NamedTuple):
    """A file that was drawn."""

    # In words.
    what: str
    file: bytes
    # A file of the same content that its reader reads, where that does not read this one.
    twin: bytes

    def __repr__(self) -> str:
        return self.what


def decoded(folder: pathlib.Path, chain: str, **given: Any) -> tuple[Mapping[str, Any], bool]:
    """What the loader makes of each image of a folder, by the file's name: an array, or the error. And whether
    libjpeg-turbo decodes, as it does in Pillow."""
    dataset = uringload.Dataset(folder)
    names = [str(dataset.key(sample)) for sample in range(len(dataset))]
    made: dict[str, Any] = {}
    with uringload.DataLoader(dataset, 16, transforms={"data": chain}, output="numpy", on_error="skip",
                              **given) as loader:  # fmt: skip
        for batch in loader:
            made.update({names[failure[0]]: failure[2] for failure in batch.failed})
            made.update({names[int(sample)]: pixels for sample, pixels in zip(batch.ids, batch["data"], strict=True)})
        by_turbo = any("libjpeg-turbo" in said for said in (loader.route() or {}).get("locality", []))
    assert sorted(made) == sorted(names), "a sample is neither delivered nor told as failed"
    return made, by_turbo
