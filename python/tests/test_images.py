"""Encoded images: decoded and augmented in the loader's threads, by a chain or by what torchvision composes."""

from __future__ import annotations

import importlib.util
import logging
import pathlib
import shutil
import types
from typing import Any

import pytest
from conftest import needs_numpy

import uringload
from uringload import _compose

DATA = pathlib.Path(__file__).parents[2] / "images/tests/data"
CHAIN = "random_resized_crop(24), hflip, normalize(imagenet)"

HAS_TORCHVISION = importlib.util.find_spec("torchvision") is not None
needs_torchvision = pytest.mark.skipif(not HAS_TORCHVISION, reason="skipped: torchvision is not installed")


@pytest.fixture
def photos(tmp_path: pathlib.Path) -> pathlib.Path:
    """Twelve images in two classes."""
    for number in range(12):
        folder = tmp_path / "cats" if number % 2 else tmp_path / "dogs"
        folder.mkdir(exist_ok=True)
        name = ("420.jpg", "rgb.png", "progressive.jpg")[number % 3]
        shutil.copy(DATA / name, folder / f"{number:02}.jpg")
    return tmp_path


def step(name: str, **attributes: Any) -> Any:
    """A step of torchvision, which need not be there."""
    return type(name, (), {"__module__": "torchvision.transforms.transforms", **attributes})()


def compose(*steps: Any) -> Any:
    return step("Compose", transforms=list(steps))


MODE = types.SimpleNamespace(value="bilinear")
CROP = step("RandomResizedCrop", size=(24, 24), scale=(0.08, 1.0), ratio=(0.75, 4 / 3), interpolation=MODE)
FLIP = step("RandomHorizontalFlip", p=0.5)
NORMALIZE = step("Normalize", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
KNOWN = compose(CROP, FLIP, step("ToTensor"), NORMALIZE)


@needs_numpy
@pytest.mark.parametrize("transform", [CHAIN, KNOWN])
def test_a_chain_or_a_compose_makes_one_tensor(photos: pathlib.Path, transform: Any) -> None:
    import numpy

    seen: list[dict[int, Any]] = []
    for threads in (0, 2):
        with uringload.DataLoader(photos, 5, shuffle=True, seed=3, output="numpy", index=True, num_threads=threads,
                                  transforms={"data": transform}) as loader:
            epoch = {}
            for batch in loader:
                assert batch["data"].shape == (len(batch["index"]), 3, 24, 24)
                assert batch["data"].dtype == numpy.float32
                epoch.update(zip(batch["index"].tolist(), numpy.array(batch["data"]), strict=True))
            seen.append(epoch)
            assert loader.stats()["samples_decoded"] >= 12
    assert len(seen[0]) == 12
    assert all((seen[0][number] == seen[1][number]).all() for number in range(12))


@needs_numpy
def test_a_compose_is_the_chain_of_its_steps(photos: pathlib.Path) -> None:
    import numpy

    def read(transform: Any) -> Any:
        with uringload.DataLoader(photos, 12, seed=3, output="numpy", transforms={"data": transform}) as loader:
            return numpy.array(next(iter(loader))["data"])

    assert (read(CHAIN) == read(KNOWN)).all()


def test_what_is_not_known_is_told(photos: pathlib.Path) -> None:
    lines = compose(CROP, step("RandomLines"), step("ToTensor"))
    with pytest.raises(uringload.InvalidArgumentError, match="RandomLines, which the loader does not do"):
        uringload.DataLoader(photos, 4, transforms={"data": lines})
    with pytest.raises(uringload.InvalidArgumentError, match="makes no tensor"):
        uringload.DataLoader(photos, 4, transforms={"data": compose(CROP)})
    with (
        pytest.raises(uringload.InvalidArgumentError, match=r"(?s)at character 1 .*did you mean hflip"),
        uringload.DataLoader(photos, 4, output="dlpack", transforms={"data": "hfilp"}) as loader,
    ):
        next(iter(loader))


def test_a_broken_image_fails_as_a_sample(photos: pathlib.Path) -> None:
    (photos / "cats" / "05.jpg").write_bytes(b"no image")
    with uringload.DataLoader(photos, 4, output="dlpack", on_error="skip", transforms={"data": CHAIN}) as loader:
        batches = list(loader)
        assert sum(len(batch.ids) for batch in batches) == 11
        assert loader.stats()["samples_skipped"] >= 1


def test_what_a_compose_becomes() -> None:
    def of(*steps: Any) -> Any:
        return _compose.split(compose(*steps))

    tensor = step("ToTensor")
    resize = step("Resize", size=256, interpolation=MODE, max_size=None)
    assert of(resize, tensor)[::3] == ("resize(256, bilinear), to_tensor(f32)", False)
    unknown = step("Lambda")
    assert of(CROP, unknown, tensor).rest == [unknown, tensor]
    # What stands behind the conversion to numbers from 0 to 1 has other roundings.
    assert of(tensor, resize).unknown == "Resize"
    erasing = step("RandomErasing", p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0)
    assert of(CROP, tensor, NORMALIZE, erasing).chain.endswith("random_erasing(0.5, 0.02..0.33, 0.3..3.3, 0.0)")
    assert of(CROP, tensor, erasing, NORMALIZE).unknown == "Normalize"
    padded = step("RandomCrop", size=(32, 32), padding=4, pad_if_needed=True, fill=0, padding_mode="constant")
    assert of(padded).unknown == "RandomCrop"
    assert _compose.split(len) is None


@needs_torchvision
def test_an_image_folder_as_it_is(photos: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    import torch
    from torchvision import datasets, transforms

    caplog.set_level(logging.INFO, "uringload")
    known = transforms.Compose([transforms.Resize((30, 40)), transforms.ToTensor()])
    folder = datasets.ImageFolder(str(photos), known)
    with uringload.DataLoader(folder, 5) as loader:
        batches = [[part.clone() for part in batch] for batch in loader]
        assert loader.stats()["samples_decoded"] >= 12
    assert "decoded and transformed in the loader's threads (Resize, ToTensor)" in caplog.text
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert labels.tolist() == [label for _, label in folder.samples]
    theirs = torch.stack([image for image, _ in folder])
    # Two decoders of JPEG, and one resampling.
    assert images.shape == theirs.shape
    assert (images - theirs).abs().max() < 8 / 255
    unknown = transforms.Compose([transforms.Resize((30, 40)), transforms.ToTensor(), transforms.Lambda(lambda x: x)])
    with uringload.DataLoader(datasets.ImageFolder(str(photos), unknown), 5) as loader:
        assert next(iter(loader))[0].shape == (5, 3, 30, 40)
        assert loader.stats()["samples_decoded"] == 0
    assert "Lambda is a step that the loader does not do itself" in caplog.text
