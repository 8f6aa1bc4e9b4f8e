"""What a wheel has built in."""

from __future__ import annotations

import os
import pathlib

import pytest

import uringload

PHOTO = pathlib.Path(__file__).parents[2] / "images/tests/data/420.jpg"


@pytest.mark.skipif(not os.environ.get("URINGLOAD_BUILT_IN"), reason="skipped: this is no wheel of wheel.sh")
def test_jpegs_are_decoded_by_what_is_built_in(tmp_path: pathlib.Path) -> None:
    (tmp_path / "0.jpg").write_bytes(PHOTO.read_bytes())
    steps = {"data": "resize(32), center_crop(24), to_tensor(u8)"}
    with uringload.DataLoader(tmp_path, 1, transforms=steps, output="dlpack") as loader:
        assert len(list(loader)) == 1
        told = loader.route()["text"]
    name = os.environ["URINGLOAD_BUILT_IN"]
    assert f"JPEGs by {name} " in told and "(built in)" in told, told
