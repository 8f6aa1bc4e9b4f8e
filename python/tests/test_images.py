"""Encoded images: decoded and augmented in the loader's threads, by a chain or by what torchvision composes."""

from __future__ import annotations

import importlib.util
import logging
import pathlib
import shutil
from typing import Any

import pytest
from conftest import needs_numpy

import uringload

DATA = pathlib.Path(__file__).parents[2] / "images/tests/data"
CHAIN = "random_resized_crop(24), hflip, normalize(imagenet)"

HAS_TORCHVISION = importlib.util.find_spec("torchvision") is not None
HAS_ALBUMENTATIONS = importlib.util.find_spec("albumentations") is not None
needs_albumentations = pytest.mark.skipif(not HAS_ALBUMENTATIONS, reason="skipped: Albumentations is not installed")
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


def known() -> Any:
    """What torchvision composes, of which the loader does everything."""
    from torchvision import transforms

    return transforms.Compose([
        transforms.RandomResizedCrop(24), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])  # fmt: skip


@needs_numpy
@pytest.mark.parametrize("make", [lambda: CHAIN, pytest.param(known, marks=needs_torchvision)])
def test_a_chain_or_a_compose_makes_one_tensor(photos: pathlib.Path, make: Any) -> None:
    import numpy

    transform = make()
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


@needs_torchvision
def test_a_compose_is_the_chain_of_its_steps(photos: pathlib.Path) -> None:
    import numpy

    def read(transform: Any) -> Any:
        with uringload.DataLoader(photos, 12, seed=3, output="numpy", transforms={"data": transform}) as loader:
            return numpy.array(next(iter(loader))["data"])

    assert (read(CHAIN) == read(known())).all()


def test_what_cannot_be_is_told(photos: pathlib.Path) -> None:
    with (
        pytest.raises(uringload.InvalidArgumentError, match=r"(?s)at character 1 .*did you mean hflip"),
        uringload.DataLoader(photos, 4, output="dlpack", transforms={"data": "hfilp"}) as loader,
    ):
        next(iter(loader))


@needs_torchvision
def test_a_compose_that_cannot_be_is_told(photos: pathlib.Path) -> None:
    from torchvision import transforms

    crop = transforms.RandomResizedCrop(24)
    with pytest.raises(uringload.InvalidArgumentError, match="makes no tensor"):
        uringload.DataLoader(photos, 4, transforms={"data": transforms.Compose([crop])})
    lines = transforms.Compose([crop, transforms.RandomPerspective(), transforms.ToTensor()])
    with pytest.raises(uringload.InvalidArgumentError, match='output="dlpack" is of no use'):
        uringload.DataLoader(photos, 4, output="dlpack", transforms={"data": lines})


@needs_albumentations
def test_the_rest_of_a_compose_runs_in_python(photos: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    import albumentations
    import numpy

    class Dark(albumentations.ImageOnlyTransform):  # type: ignore[misc]
        """A step of the user's, which draws a number."""

        def apply(self, img: Any, **params: Any) -> Any:
            return img // 2 + self.py_random.randrange(100)

    caplog.set_level(logging.INFO, "uringload")
    both = albumentations.Compose([albumentations.RandomCrop(20, 20), albumentations.HorizontalFlip(), Dark(p=1.0)])

    def read(threads: int, **given: Any) -> tuple[dict[int, Any], int]:
        with uringload.DataLoader(photos, 5, shuffle=True, seed=3, output="numpy", index=True, num_threads=threads,
                                  **given) as loader:
            batches = list(loader)
            assert all(batch["data"].shape == (len(batch.ids), 20, 20, 3) for batch in batches)
            assert sorted(label for batch in batches for label in batch["label"].tolist()) == [0] * 6 + [1] * 6
            found = {number: image for batch in batches for number, image in zip(batch["index"].tolist(), batch["data"],
                                                                                 strict=True)}
            return found, loader.stats()["samples_decoded"]

    plain, _ = read(2, transforms={"data": "random_crop(20x20), hflip(0.5), to_tensor(u8, hwc)"})
    first, decoded = read(0, transforms={"data": both})
    assert decoded >= 12, "what is known runs in the loader's threads"
    told = "RandomCrop, HorizontalFlip in the loader's threads, Dark in Python's: Dark is a step"
    assert f"transforms['data']: {told}" in caplog.text
    drawn = {number: int((first[number].astype(int) - plain[number] // 2).max()) for number in first}
    assert all((first[number] == (plain[number] // 2 + drawn[number]).astype(numpy.uint8)).all() for number in drawn)
    assert len({*drawn.values()}) > 3, "each sample draws its own"
    again, _ = read(3, transform=both)
    assert f"transform, for the images of column 'data': {told}" in caplog.text
    assert all((first[number] == again[number]).all() for number in first), "for any number of threads"


@needs_albumentations
def test_a_step_that_fails_is_an_error_of_its_sample(photos: pathlib.Path) -> None:
    import albumentations
    from PIL import Image

    class Picky(albumentations.ImageOnlyTransform):  # type: ignore[misc]
        def apply(self, img: Any, **params: Any) -> Any:
            # All are larger than this but the one that was replaced.
            if img.shape[0] < 10:
                raise ValueError("too small")
            return img[:8, :8]

    Image.new("RGB", (4, 4)).save(photos / "cats" / "05.jpg", "PNG")
    # Nothing of it is known, so Pillow decodes.
    picky = albumentations.Compose([Picky(p=1.0)])
    with uringload.DataLoader(photos, 4, output="numpy", on_error="skip", transform=picky) as loader:
        batches = list(loader)
        failed = [one for batch in batches for one in batch.failed]
    assert [batch["data"].shape[1:] for batch in batches] == [(8, 8, 3)] * 3
    assert len(failed) == 1 and "too small" in str(failed[0][2])


@needs_numpy
def test_a_compose_of_the_users_own_steps_takes_samples(photos: pathlib.Path) -> None:
    class Compose:
        __module__ = "torchvision.transforms.transforms"
        transforms = (len,)

        def __call__(self, sample: dict[str, Any]) -> list[str]:
            return sorted(sample)

    with uringload.DataLoader(photos, 4, output="numpy", binary="data", transform=Compose(), collate="list") as loader:
        assert next(iter(loader))[0] == ["data", "label"]


def test_a_broken_image_fails_as_a_sample(photos: pathlib.Path) -> None:
    (photos / "cats" / "05.jpg").write_bytes(b"no image")
    with uringload.DataLoader(photos, 4, output="dlpack", on_error="skip", transforms={"data": CHAIN}) as loader:
        batches = list(loader)
        assert sum(len(batch.ids) for batch in batches) == 11
        assert loader.stats()["samples_skipped"] >= 1


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
        begun = torch.cat([images for images, _ in loader])
        assert loader.stats()["samples_decoded"] >= 12
    assert "Resize, ToTensor in the loader's threads, Lambda in Python's: Lambda is a step" in caplog.text
    assert (begun == images).all()
    whole = transforms.Compose([transforms.Lambda(lambda x: x), transforms.Resize((30, 40)), transforms.ToTensor()])
    with uringload.DataLoader(datasets.ImageFolder(str(photos), whole), 5) as loader:
        assert (torch.cat([images for images, _ in loader]) == theirs).all()
        assert loader.stats()["samples_decoded"] == 0
    assert "(Lambda is a step that the loader does not do itself)" in caplog.text


@needs_torchvision
def test_what_the_first_step_in_python_gets(photos: pathlib.Path) -> None:
    import torch
    from torchvision.transforms import v2

    seen: list[str] = []

    def look(image: Any) -> Any:
        seen.append(f"{type(image).__module__}.{type(image).__qualname__} {getattr(image, 'shape', None)}")
        return image

    sized, number = v2.Resize((6, 8)), v2.ToDtype(torch.float32, scale=True)
    made = {}
    for name, steps in {
        "PIL.Image.Image None": [sized, look, v2.ToImage(), number],
        "torchvision.tv_tensors._image.Image torch.Size([3, 6, 8])": [sized, v2.ToImage(), look, number],
        "torch.Tensor torch.Size([3, 6, 8])": [sized, v2.PILToTensor(), look, number],
    }.items():
        seen.clear()
        with uringload.DataLoader(photos, 12, transform=v2.Compose(steps), num_threads=0) as loader:
            made[name] = next(iter(loader))["data"]
        assert {*seen} == {name}
    first, *others = made.values()
    assert first.shape == (12, 3, 6, 8) and all((other == first).all() for other in others)


@needs_numpy
def test_labels_of_mixed_batches_are_shares(photos: pathlib.Path) -> None:
    import numpy

    seen = []
    for threads in (0, 2):
        with uringload.DataLoader(photos, 4, shuffle=True, seed=3, output="numpy", num_threads=threads, transforms={
                "data": CHAIN, "label": "mix(data, classes=2, mixup=1, cutmix=1)"}) as loader:
            batches = [(numpy.array(batch["data"]), numpy.array(batch["label"])) for batch in loader]
        assert all(labels.shape == (4, 2) and labels.dtype == numpy.float32 for _, labels in batches)
        assert all(numpy.allclose(labels.sum(1), 1) for _, labels in batches)
        assert any(((labels > 0) & (labels < 1)).any() for _, labels in batches)
        seen.append(batches)
    assert all((one[0] == other[0]).all() and (one[1] == other[1]).all() for one, other in zip(*seen, strict=True))


def test_what_follows_nothing_is_refused(photos: pathlib.Path) -> None:
    for text, why in [("mask(picture)", "no column \"picture\""), ("mask()", "does not begin with the column"),
                      ("labels(data)", "has no boxes"), ("mix(data, classes=2)", "neither mixup nor cutmix")]:
        with pytest.raises(ValueError, match=why), uringload.DataLoader(
                photos, 4, output="numpy", transforms={"data": CHAIN, "label": text}) as loader:
            next(iter(loader))
