"""What a type checker knows of the package."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest

import uringload

pytest.importorskip("mypy", reason="skipped: mypy is not installed")

Checked = Callable[[str], str]


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Checked:
    """Checks a piece of code strictly and returns what mypy says."""
    place = tmp_path_factory.mktemp("typing")

    def check(code: str) -> str:
        (place / "piece.py").write_text("import uringload\nfrom uringload import DataLoader\n" + textwrap.dedent(code))
        found = pathlib.Path(uringload.__file__).resolve().parents[1]
        command = [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--follow-imports=silent",
                   "--cache-dir", str(place / "cache"), "piece.py"]
        # It finds installed packages by itself, and refuses them as arguments.
        told = {} if "-packages" in found.name else {"MYPYPATH": str(found)}
        done = subprocess.run(command, cwd=place, env={**os.environ, **told}, capture_output=True, text=True,
                              timeout=300, check=False)
        return done.stdout + done.stderr

    return check


def test_a_misspelt_argument_is_found(checked: Checked) -> None:
    told = checked("""
        DataLoader("/data", batch_size=1, recrd=1)
        DataLoader("/data", batch_sise=1)
        uringload.Dataset("/data", recrd_bytes=1)
        DataLoader("/data", batch_size="8")
        DataLoader("/data", batch_size=8, record_bytes=[1])
        DataLoader("/data", batch_size=8, samples="file")
    """)
    lines = [line for line in told.splitlines() if "error" in line]
    for number, what in enumerate(('"recrd"', '"batch_sise"', '"recrd_bytes"', '"batch_size"', '"record_bytes"',
                                   '"samples"')):
        assert any(line.startswith(f"piece.py:{number + 4}:") and what in line for line in lines), (what, told)


def test_what_is_right_passes(checked: Checked) -> None:
    told = checked("""
        from typing import Any

        async def run() -> None:
            loader = DataLoader("/data", batch_size=8, record_bytes="4KiB", dtype="int32", only=range(3), in_order=True,
                                transform=lambda sample, rng: sample, collate="tuple", prefetch_factor=2)
            for x, y in loader:
                print(x, y)
            async for batch in loader:
                print(batch)

        def step(batch: uringload.Batch, typed: uringload.Batch[bytes]) -> bytes:
            reveal_type(typed["x"])
            anything: Any = batch["x"]
            print(anything.shape, batch.ids, uringload.__version__)
            return typed["x"]
    """)
    assert 'Revealed type is "builtins.bytes"' in told.replace('"bytes"', '"builtins.bytes"'), told
    assert "error" not in told, told


def test_the_types_name_every_option_of_the_formats() -> None:
    from uringload import _arguments, _dataset, _loader

    source = (pathlib.Path(_loader.__file__).parent / "_typed.py").read_text()
    named = {line.split(":")[0].strip() for line in source.splitlines() if line.startswith("    ") and ":" in line}
    assert named == {*_dataset.OPTIONS, *_dataset.LISTS, *_arguments.IGNORED}
