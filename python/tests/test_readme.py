"""The Python lines of both README files, run as they stand: on small data instead of /data."""

from __future__ import annotations

import functools
import pathlib
import re
from typing import Any

import pytest
from conftest import HAS_TORCH, needs_numpy

import uringload

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks() -> list[tuple[str, str]]:
    """Name and text of each block of Python."""
    found = []
    for name in ("README.md", "python/README.md"):
        text = (ROOT / name).read_text()
        for match in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
            found.append((f"{name}:{text.count(chr(10), 0, match.start()) + 2}", match[1]))
    return found


BLOCKS = blocks()


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    """What README's paths name: class folders of files, and a file of pixels."""
    for number in range(40):
        place = tmp_path / "train" / ("cat" if number % 2 else "dog")
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.dat").write_bytes(bytes([number]) * 3000)
    (tmp_path / "pixels.bin").write_bytes(bytes(range(256)) * (256 * 3 * 8))
    return tmp_path


def test_both_readmes_have_python() -> None:
    assert len(BLOCKS) >= 3
    assert {name.split(":")[0] for name, _ in BLOCKS} == {"README.md", "python/README.md"}


@needs_numpy
@pytest.mark.parametrize(("name", "text"), BLOCKS, ids=[name for name, _ in BLOCKS])
def test_runs(name: str, text: str, data: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    states: list[object] = []
    if not HAS_TORCH:
        monkeypatch.setattr(uringload, "DataLoader", functools.partial(uringload.DataLoader, output="numpy"))
    # The machine may have no GPU, and the host gives the same bytes.
    code = text.replace('"/data/', f'"{data}/').replace('"cuda:0"', '"cpu"')
    names = {
        "uringload": uringload,
        "model": None,
        "step": lambda values, labels: steps.append(len(values)),
        "save": lambda model, state: states.append(state),
    }
    exec(compile(code, name, "exec"), names)
    loader: Any = names["loader"]
    if "range(90)" in code:
        assert (sum(steps), len(states)) == (90 * 40, 90)
    else:
        assert sum(len(batch.ids) for batch in loader) == 8
    loader.close()
