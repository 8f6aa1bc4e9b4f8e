"""Chains of other people's transforms, drawn at random: what the loader makes of them is what they make themselves.

`URINGLOAD_DRAWS` is how many chains are drawn of each kind. What random steps would draw is left no choice (a flip with
p=1, a crop of the whole), so that both give one result.
"""

from __future__ import annotations

import collections
import itertools
import os
import pathlib
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import uringload
from uringload import _compose

pytest.importorskip("hypothesis", reason="skipped: hypothesis is not installed")
np = pytest.importorskip("numpy", reason="skipped: NumPy is not installed")
torch = pytest.importorskip("torch", reason="skipped: torch is not installed")
pytest.importorskip("torchvision", reason="skipped: torchvision is not installed")

from hypothesis import HealthCheck, given, settings, strategies as st  # noqa: E402
from PIL import Image  # noqa: E402
from torchvision import transforms as v1  # noqa: E402
from torchvision.transforms import InterpolationMode as Mode, v2  # noqa: E402
from torchvision.transforms.functional import _compute_resized_output_size  # noqa: E402

DRAWS = int(os.environ.get("URINGLOAD_DRAWS", "300"))
drawn = settings(max_examples=DRAWS, deadline=None, derandomize=DRAWS <= 300, database=None,
                 suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

#: How many chains of each kind ran where, to know that both ways are tried.
ways: collections.Counter[tuple[str, str]] = collections.Counter()

pytestmark = pytest.mark.filterwarnings("ignore")


def written(folder: str, images: list[Any]) -> None:
    os.mkdir(f"{folder}/a")
    for number, image in enumerate(images):
        Image.fromarray(image).save(f"{folder}/a/{number}.png")


def ours(images: list[Any], compose: Any, is_folder: bool = False, **given: Any) -> Any:
    """What the loader makes of images."""
    with tempfile.TemporaryDirectory() as folder:
        written(folder, images)
        if is_folder:
            from torchvision.datasets import ImageFolder

            with uringload.DataLoader(ImageFolder(folder, compose), len(images)) as loader:
                return next(iter(loader))[0].clone()
        with uringload.DataLoader(folder, len(images), transforms={"data": compose, **given}) as loader:
            return torch.as_tensor(next(iter(loader))["data"]).clone()


def way(kind: str, compose: Any) -> str:
    split = _compose.split(compose)
    assert split is not None
    found = "python" if split.rest and not split.is_partial else "partly" if split.rest else "natively"
    ways[kind, found] += 1
    return found


@st.composite
def noise(draw: Any, low: int = 2, high: int = 40) -> list[Any]:
    """Two images of one size: noise, where every difference shows."""
    height, width = draw(st.integers(low, high)), draw(st.integers(low, high))
    if draw(st.booleans()):
        width = height
    random = np.random.default_rng(draw(st.integers(0, 99)))
    return [random.integers(0, 256, (height, width, 3), np.uint8) for _ in range(2)]


# torchvision.


class Patched(v1.CenterCrop):  # type: ignore[misc]
    """A class of a user's that does something else."""

    def forward(self, img: Any) -> Any:
        return super().forward(img).transpose(0) if isinstance(img, Image.Image) else super().forward(img)


def with_forward(step: Any) -> Any:
    step.forward = lambda image: image
    return step


def with_hook(step: Any) -> Any:
    step.register_forward_hook(lambda module, inputs, output: inputs[0])
    return step


UNKNOWN = (0, 0)


class Chain:
    """A chain as it is drawn, and the size of images in it."""

    def __init__(self, draw: Any, size: tuple[int, int]) -> None:
        self.draw, self.size = draw, size
        self.library: Any = v1 if draw(st.booleans()) else v2
        self.steps: list[Any] = []

    def __repr__(self) -> str:
        return f"{self.size} {self.steps}"

    def one(self, *values: Any) -> Any:
        return self.draw(st.sampled_from(values))

    def side(self) -> int:
        return self.draw(st.integers(1, 40))

    def make(self, name: str, *given: Any, **named: Any) -> None:
        library = self.one(self.library, self.library, self.library, v1, v2)
        kind = getattr(library, name, None) or getattr(self.library, name, None) or getattr(v2, name)
        self.steps.append(kind(*given, **named))

    def resize(self) -> None:
        named = {"interpolation": self.one(Mode.BILINEAR, Mode.BILINEAR, Mode.BICUBIC, Mode.NEAREST, Mode.BOX,
                                           Mode.LANCZOS, Mode.NEAREST_EXACT, Mode.HAMMING, 2, 3, 1),
                 "antialias": self.one(True, True, True, False, None)}
        shape = self.one("both", "both", "square", "short", "list", "limited")
        side, most = self.side(), 41 if shape == "limited" else None
        if shape in ("short", "list", "limited"):
            self.cut()
            self.size = tuple(_compute_resized_output_size(self.size, [side], most))
            return self.make("Resize", [side] if shape == "list" else side, max_size=most, **named)
        self.size = (side, side if shape == "square" else self.side())
        self.make("Resize", self.size, **named)

    def cut(self) -> None:
        """Makes images of a size that is known, after a step that may change it."""
        if self.size == UNKNOWN:
            self.size = (20, 20)
            self.make("CenterCrop", 20)

    def center_crop(self) -> None:
        side = self.side()
        self.size = (side, self.one(side, self.side()))
        size: Any = side if self.size[0] == self.size[1] and self.draw(st.booleans()) else self.size
        self.make("CenterCrop", size)

    def random_crop(self) -> None:
        self.cut()
        padding = self.one(None, None, 0, 1, 3, [2, 2], [1, 2, 3, 4])
        if padding == [1, 2, 3, 4]:
            added = (6, 4)
        else:
            added = (2 * (padding[0] if isinstance(padding, list) else padding or 0),) * 2
        self.size = (self.size[0] + added[0], self.size[1] + added[1])
        self.make("RandomCrop", self.size, padding=padding, fill=self.one(0, 0, 7, 255, 300, (1, 2, 3), 1.5),
                  padding_mode=self.one("constant", "constant", "reflect", "edge"), pad_if_needed=self.one(False, True))

    def resized_crop(self) -> None:
        self.cut()
        if self.size[0] != self.size[1]:
            self.make("CenterCrop", self.size[0])
        self.size = (self.side(), self.side())
        self.make("RandomResizedCrop", self.size, scale=(1, 1), ratio=(1, 1),
                  interpolation=self.one(Mode.BILINEAR, Mode.BILINEAR, Mode.BICUBIC, Mode.NEAREST),
                  antialias=self.one(True, True, False))

    def flip(self) -> None:
        self.make(self.one("RandomHorizontalFlip", "RandomVerticalFlip"), p=self.one(0.0, 1.0, 1))

    def colors(self) -> None:
        name = self.one("brightness", "contrast", "saturation", "hue", "nothing")
        if name == "nothing":
            return self.make("ColorJitter")
        value = self.one(-0.5, -0.2, 0.1, 0.5) if name == "hue" else self.one(0.0, 0.3, 1.0, 1.7)
        self.make("ColorJitter", **{name: (value, value)})

    def gray(self) -> None:
        if self.draw(st.booleans()):
            self.make("Grayscale", self.one(1, 3, 3))
        else:
            self.make("RandomGrayscale", p=self.one(0.0, 1.0))

    def blur(self) -> None:
        self.make("GaussianBlur", self.one(1, 3, 5, (3, 5)), sigma=self.one(0.5, 1.7))

    def numbers(self) -> None:
        name = self.one("ToTensor", "ToTensor", "PILToTensor", "ToImage", "ToImage", "ToPILImage", "ToPureTensor")
        self.make(name)

    def dtype(self) -> None:
        dtype = self.one(torch.float32, torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.float64)
        if self.draw(st.booleans()):
            self.make("ConvertImageDtype", dtype)
        else:
            self.steps.append(v2.ToDtype(dtype, scale=self.one(True, True, False)))

    def normalize(self) -> None:
        self.make("Normalize", *self.one(([0.5, 0.4, 0.3], [0.2, 0.3, 0.4]), ([0.5], [0.5])),
                  inplace=self.one(False, True))

    def erasing(self) -> None:
        self.make("RandomErasing", p=0.0, value=self.one(0, 0.5, "random", (1, 2, 3)))

    def others(self) -> None:
        """Steps that the loader does not do, or that only look like its own."""
        self.size = UNKNOWN
        self.steps.append(self.one(
            v1.Lambda(lambda image: image), v1.RandomRotation((90, 90)), v1.RandomInvert(1.0), v1.Pad(1), v2.Identity(),
            v1.RandomApply([v1.RandomHorizontalFlip(1.0)], p=1.0), v1.RandomChoice([v1.RandomHorizontalFlip(1.0)]),
            v1.Compose([v1.RandomHorizontalFlip(1.0)]), v2.Compose([v2.RandomVerticalFlip(1.0), v2.ToImage()]),
            with_forward(v1.RandomHorizontalFlip(1.0)), with_hook(v2.RandomHorizontalFlip(1.0)), Patched(9), v2.RGB(),
            v1.RandomAdjustSharpness(2.0, p=1.0), lambda image: image))

    def compose(self) -> Any:
        return self.one(self.library, self.library, v1, v2).Compose(self.steps)


PICTURES: tuple[Callable[[Chain], None], ...] = (
    Chain.resize, Chain.resize, Chain.center_crop, Chain.center_crop, Chain.random_crop, Chain.resized_crop, Chain.flip,
    Chain.flip, Chain.colors, Chain.gray, Chain.blur)
NUMBERS: tuple[Callable[[Chain], None], ...] = (Chain.numbers, Chain.dtype, Chain.normalize, Chain.erasing)


@st.composite
def chain(draw: Any, size: tuple[int, int]) -> Any:
    """Mostly as people write it: pictures, numbers, a normalization; now and then in any order."""
    made = Chain(draw, size)
    usual = draw(st.integers(0, 3)) > 0
    for step in draw(st.lists(st.sampled_from(PICTURES), max_size=3)):
        step(made)
    if usual:
        draw(st.sampled_from([Chain.center_crop, Chain.resize]))(made)
    others = [*PICTURES, *NUMBERS, Chain.others] if not usual else [*NUMBERS, *PICTURES]
    made.numbers()
    for step in draw(st.lists(st.sampled_from(others), max_size=4)):
        step(made)
    return made


def theirs(images: list[Any], compose: Any) -> Any:
    return torch.stack([torch.as_tensor(compose(Image.fromarray(image))) for image in images])


def apart(got: Any, want: Any) -> float:
    """The largest difference; NaN where only one is NaN."""
    is_other = ~((got == want) | (got.isnan() & want.isnan()))
    return float((got.double() - want.double()).abs()[is_other].max()) if is_other.any() else 0.0


def tolerance(steps: list[Any], dtype: Any) -> float:
    """How far results may be apart, as docs/images.md says."""
    names = [type(step).__name__ for step in steps]
    levels, is_tensor = 0, False
    for step, name in zip(steps, names, strict=True):
        is_tensor = name in ("ToTensor", "PILToTensor", "ToImage") or (is_tensor and name != "ToPILImage")
        resizes = name in ("Resize", "RandomResizedCrop") and is_tensor
        levels += 2 * resizes + (name == "GaussianBlur")
    if dtype == torch.uint8:
        return levels
    spread = 5 if "Normalize" in names else 1
    rounding = {torch.float16: 1e-3, torch.bfloat16: 8e-3}.get(dtype, 1e-6) if levels or dtype == torch.float32 else 0
    return (levels / 255 + rounding) * spread


@drawn
@given(st.data())
def test_what_torchvision_composes(data: Any) -> None:
    images = data.draw(noise())
    made = data.draw(chain(images[0].shape[:2]))
    compose = made.compose()
    try:
        want = theirs(images, compose)
    except Exception:
        # It is an error elsewhere, too; or no tensor comes out.
        made.steps.append(v1.PILToTensor())
        compose = made.compose()
        try:
            want = theirs(images, compose)
        except Exception:
            return
    found = way("torchvision", compose)
    got = ours(images, compose, data.draw(st.booleans()))
    assert got.shape == want.shape and got.dtype == want.dtype, (compose, got.shape, want.shape, got.dtype, want.dtype)
    allowed = 0.0 if found == "python" else tolerance(made.steps, want.dtype)
    difference = apart(got, want)
    assert difference <= allowed, (compose, [image.shape for image in images], found, difference, allowed)


def test_both_ways_are_tried() -> None:
    """The test above would pass if everything ran in Python, or nothing."""
    many = sum(count for (kind, _), count in ways.items() if kind == "torchvision")
    if not many:
        pytest.skip("skipped: no chain was drawn before")
    assert all(ways["torchvision", name] > many / 10 for name in ("natively", "partly", "python")), ways


# Albumentations. What it does to arrays is exact, or its own.


@st.composite
def album(draw: Any, size: tuple[int, int]) -> list[Any]:
    album = pytest.importorskip("albumentations", reason="skipped: Albumentations is not installed")
    height, width = size
    steps = []
    names = ["flip", "flip", "crop", "crop", "other", "other", "normal"]
    for name in draw(st.lists(st.sampled_from(names), max_size=4)):
        side, wide = draw(st.integers(1, height)), draw(st.integers(1, width))
        p = draw(st.sampled_from([0.0, 1.0, 1]))
        if name == "flip":
            steps.append(draw(st.sampled_from([album.HorizontalFlip, album.VerticalFlip]))(p=p))
        elif name == "crop":
            steps.append(album.RandomCrop(height, width, pad_if_needed=draw(st.booleans()), p=p))
        elif name == "normal":
            steps.append(draw(st.sampled_from([album.Normalize(), album.Normalize(max_pixel_value=1.0, p=p),
                                               album.ToFloat(255.0), album.InvertImg(p=p)])))
        else:
            # Of what is square, all is taken.
            resized = album.RandomResizedCrop((side, wide), scale=(1, 1), ratio=(1, 1))
            resized = resized if height == width else album.Resize(side, wide)
            steps.append(draw(st.sampled_from([
                album.Resize(side, wide), album.Resize(side, wide, interpolation=0), album.SmallestMaxSize(side),
                album.CenterCrop(side, wide), resized,
                album.PadIfNeeded(height + 3, width + 2, border_mode=4), album.Transpose(p=p), album.NoOp(),
                album.OneOf([album.HorizontalFlip(p=1.0)], p=1.0), album.Sequential([album.VerticalFlip(p=1.0)], p=1.0),
                album.Compose([album.HorizontalFlip(p=1.0)], p=p), album.Affine(translate_px=(2, 2), p=1.0)])))
            # A crop after it would be one of another size.
            if name == "other" and type(steps[-1]).__name__ not in ("NoOp", "OneOf", "Sequential"):
                break
    steps.extend([album.ToTensorV2(p=draw(st.sampled_from([1.0, 1])))] if draw(st.booleans()) else [])
    return steps


@drawn
@given(st.data())
def test_what_albumentations_composes(data: Any) -> None:
    album_of = pytest.importorskip("albumentations", reason="skipped: Albumentations is not installed")
    images = data.draw(noise())
    compose = album_of.Compose(data.draw(album(images[0].shape[:2])), p=data.draw(st.sampled_from([1.0, 1.0, 0.0])))
    try:
        want = torch.stack([torch.as_tensor(np.array(compose(image=image)["image"])) for image in images])
    except ValueError:
        return
    way("albumentations", compose)
    got = ours(images, compose)
    assert got.dtype == want.dtype and torch.equal(got, want), (compose, images[0].shape)


def test_albumentations_draws_where_ours_draws() -> None:
    """Crops are places of the image, each as probable; what resizes, normalizes or finds a middle is left to it."""
    album_of = pytest.importorskip("albumentations", reason="skipped: Albumentations is not installed")
    image = np.random.default_rng(1).integers(0, 256, (5, 4, 3), np.uint8)
    compose = album_of.Compose([album_of.RandomCrop(4, 3), album_of.HorizontalFlip(), album_of.ToTensorV2()])
    assert _compose.split(compose).is_whole  # type: ignore[union-attr]
    found = collections.Counter(image.numpy().tobytes() for image in ours([image] * 400, compose))
    known = {compose(image=image)["image"].contiguous().numpy().tobytes() for _ in range(400)}
    assert {*found} == known and len(known) == 8 and min(found.values()) > 20
    for step in (album_of.Resize(4, 4), album_of.CenterCrop(3, 3), album_of.Normalize(), album_of.SmallestMaxSize(9),
                 album_of.RandomResizedCrop((4, 4)), album_of.RandomCrop(9, 9, pad_if_needed=True)):
        assert _compose.split(album_of.Compose([step])).done == []  # type: ignore[union-attr]


# What follows images.

STILL: list[Callable[[], Any]] = [
    lambda: v1.ColorJitter(0.1), lambda: v1.RandomGrayscale(1.0), lambda: v1.RandomErasing(0.0),
    lambda: v1.RandomApply([v1.ColorJitter(0.1)], p=1.0), lambda: v1.RandomAdjustSharpness(1.0)]  # fmt: skip
MOVING: list[Callable[[], Any]] = [
    lambda: v1.RandomHorizontalFlip(), lambda: v1.RandomVerticalFlip(), lambda: v1.RandomCrop(20, padding=4),
    lambda: v1.CenterCrop(25), lambda: v1.RandomRotation((90, 90)), lambda: v1.RandomRotation((180, 180)),
    lambda: v1.Pad(3), lambda: v1.Lambda(lambda image: image), lambda: v2.RandomRotation((90, 90)),
    lambda: v1.RandomApply([v1.RandomHorizontalFlip(1.0)], p=1.0), lambda: with_forward(v1.CenterCrop(20)),
    lambda: v1.RandomAffine((90, 90)), lambda: v2.RandomResize(20, 25), lambda: v1.TrivialAugmentWide()]  # fmt: skip


@drawn
@given(st.data())
def test_a_mask_goes_where_its_image_goes_or_is_refused(data: Any) -> None:
    """Each image is its mask, so that both show alike after steps that blend nothing; or the loader refuses."""
    steps = [make() for make in data.draw(st.lists(st.sampled_from([*MOVING, *MOVING, *STILL]), max_size=4))]
    place = data.draw(st.integers(0, len(steps)))
    # The conversion to numbers stands somewhere among them.
    steps = [v1.CenterCrop(30), *steps[:place], v1.ToTensor(), *steps[place:], v1.CenterCrop(18)]
    mask = (np.random.default_rng(data.draw(st.integers(0, 99))).random((33, 33)) > 0.5).astype(np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/images"), os.mkdir(f"{folder}/masks")
        Image.fromarray(np.stack([mask * 255] * 3, 2)).save(f"{folder}/images/0.png")
        Image.fromarray(mask).save(f"{folder}/masks/0.png")
        transforms = {"images": v1.Compose(steps), "masks": "mask(images)"}
        try:
            with uringload.DataLoader(folder, 1, pairs="folder", transforms=transforms) as loader:
                batch = next(iter(loader))
        except uringload.InvalidArgumentError as error:
            assert "nothing goes along" in error.headline, error
            ways["mask", "refused"] += 1
            return
        except (TypeError, ValueError, RuntimeError):
            # torchvision refuses the order of steps.
            return
    if any(type(step).__name__ == "TrivialAugmentWide" for step in steps):
        # It changes levels too.
        return
    ways["mask", "gone along"] += 1
    assert torch.equal(batch["images"][0].mean(0) > 0.5, batch["masks"][0] > 0), steps


def test_masks_are_followed_and_refused() -> None:
    if not any(kind == "mask" for kind, _ in ways):
        pytest.skip("skipped: no chain was drawn before")
    assert ways["mask", "refused"] > 10 and ways["mask", "gone along"] > 10, ways


def test_what_belongs_to_images_goes_along_or_is_refused(tmp_path: pathlib.Path) -> None:
    """Boxes, mixed labels, and `Images` after a chain; steps that leave pixels in their places are no hindrance."""
    written(str(tmp_path), NOISE)
    square = v1.Compose([v1.CenterCrop(20), v1.RandomRotation(10), v1.ToTensor()])
    still = v1.Compose([v1.CenterCrop(20), v1.ToTensor(), v1.RandomInvert(), v1.RandomApply([v1.ColorJitter()])])
    mix, mask = "mix(data, classes=2, mixup=1)", "mask(data)"
    chain = "center_crop(20x20), to_tensor(u8, hwc)"
    flip = v2.Compose([v2.RandomHorizontalFlip(1.0)])
    with pytest.raises(uringload.InvalidArgumentError, match="and RandomHorizontalFlip works on these after that"):
        # A mask that is a plain tensor is passed over.
        with uringload.DataLoader(tmp_path, 2, transforms={"data": chain, "label": mask}, transform=flip) as loader:
            next(iter(loader))
    for transforms, step in [
        ({"data": square, "label": mix}, "mixes the images of \"data\", and RandomRotation"),
        ({"data": still, "label": mix}, "mixes the images of \"data\", and RandomInvert"),
        ({"data": square, "label": mask}, "follows the images of \"data\", and RandomRotation"),
        ({"data": square, "label": "boxes(data)"}, "follows the images of \"data\", and RandomRotation"),
        ({"data": [chain, uringload.Images(flip=0.5)], "label": mask}, "follows the images of \"data\", and Images"),
        ({"data": v1.Compose([v1.RandomRotation(9), v1.CenterCrop(9), v1.ToTensor()]), "label": mask},
         "follows the images of \"data\", and RandomRotation"),
    ]:  # fmt: skip
        with pytest.raises(uringload.InvalidArgumentError, match=step):
            with uringload.DataLoader(tmp_path, 2, transforms=transforms) as loader:
                next(iter(loader))


def test_masks_lie_as_their_images_are_stored(tmp_path: pathlib.Path) -> None:
    """Made in stored pixels, a mask fits a photo that is not turned; of one that is turned its sample fails."""
    for name in ("images", "masks"):
        os.mkdir(tmp_path / name)
    exif = Image.Exif()
    exif[0x112] = 6
    pixels = np.zeros((20, 30, 3), np.uint8)
    pixels[:8, :8] = 255
    Image.fromarray(pixels).save(tmp_path / "images/0.jpg", exif=exif, quality=100)
    Image.fromarray(pixels[:, :, 0]).save(tmp_path / "masks/0.png")
    transforms = {"images": "center_crop(16x24)", "masks": "mask(images)"}
    with uringload.DataLoader(tmp_path, 1, pairs="folder", transforms=transforms, orient=False) as loader:
        batch = next(iter(loader))
    assert torch.equal(batch["images"][0].mean(0) > 0.5, batch["masks"][0] > 0)
    with uringload.DataLoader(tmp_path, 1, pairs="folder", transforms=transforms) as loader:
        with pytest.raises(uringload.Error, match="the mask has 20 x 30 pixels, and its image 30 x 20"):
            next(iter(loader))


def test_a_compose_of_one_of_several_columns_is_named(tmp_path: pathlib.Path) -> None:
    """The second generation passes over a sample of bytes without a word."""
    for name in ("images", "masks"):
        os.mkdir(tmp_path / name)
        Image.fromarray(NOISE[0]).save(tmp_path / name / "0.png")
    compose = v2.Compose([v2.CenterCrop(8), v2.ToImage()])
    with pytest.raises(uringload.InvalidArgumentError, match="transform is a Compose, and there are 2 columns"):
        uringload.DataLoader(tmp_path, 1, pairs="folder", transform=compose)


# Random steps: what the loader draws is one of what they may draw.


def results(image: Any, make: Callable[[Any], Any], times: int) -> set[bytes]:
    """What torchvision makes of an image, time after time."""
    return {np.array(make(Image.fromarray(image))).tobytes() for _ in range(times)}


@pytest.mark.parametrize("library", [v1, v2])
@pytest.mark.parametrize("name", ["RandomCrop", "padded", "flips", "RandAugment", "TrivialAugmentWide", "ColorJitter"])
def test_random_steps_draw_what_theirs_draw(library: Any, name: str) -> None:
    image = np.random.default_rng(4).integers(0, 256, (9, 7, 3), np.uint8)
    make = {
        "RandomCrop": lambda: [library.RandomCrop((5, 6))],
        "padded": lambda: [library.RandomCrop(8, padding=2, fill=9)],
        "flips": lambda: [library.RandomHorizontalFlip(), library.RandomVerticalFlip(), library.CenterCrop((9, 7))],
        "RandAugment": lambda: [library.RandAugment(1, 5), library.CenterCrop((9, 7))],
        "TrivialAugmentWide": lambda: [library.TrivialAugmentWide(), library.CenterCrop((9, 7))],
        # Its draws are real numbers; these two give the same for many.
        "ColorJitter": lambda: [library.ColorJitter(saturation=(0, 0), hue=(0.25, 0.25)), library.CenterCrop((9, 7))],
    }[name]()
    compose = library.Compose([*make, library.PILToTensor()])
    split = _compose.split(compose)
    # The second generation's threshold of Solarize is a rounding above a whole level.
    assert split is not None and split.is_whole == ((library, name) != (v2, "TrivialAugmentWide"))
    got = ours([image] * 60, compose)
    found = {image.permute(1, 2, 0).contiguous().numpy().tobytes() for image in got}
    known = results(image, library.Compose(make), 15000 if name == "TrivialAugmentWide" else 3000)
    assert found <= known and len(found) >= min(len(known), 8) / 2, (len(found), len(known), len(found - known))


@pytest.mark.parametrize(("mode", "of_pillow"), [(Mode.BILINEAR, 2), (Mode.BICUBIC, 3)])
def test_random_boxes_are_boxes_of_the_image(mode: Any, of_pillow: int) -> None:
    """Any, of all shapes; and of those of one shape each is as probable."""
    image = np.random.default_rng(5).integers(0, 256, (9, 7, 3), np.uint8)
    crop = v1.RandomResizedCrop((4, 5), interpolation=mode)
    made = ours([image] * 300, v1.Compose([crop, v1.PILToTensor()]))
    found = [one.permute(1, 2, 0).numpy().tobytes() for one in made]
    photo, known = Image.fromarray(image), {}
    for top, left, height, width in itertools.product(range(9), range(7), range(1, 10), range(1, 8)):
        if top + height <= 9 and left + width <= 7:
            box = photo.crop((left, top, left + width, top + height)).resize((5, 4), of_pillow)
            known[np.array(box).tobytes()] = (height, width)
    assert {*found} <= {*known}
    shapes = collections.Counter(map(known.__getitem__, found))
    theirs = collections.Counter(crop.get_params(photo, crop.scale, crop.ratio)[2:] for _ in range(20000))
    assert all(theirs[shape] for shape in shapes), "of no shape that torchvision does not draw"
    assert all(abs(shapes[shape] / 300 - count / 20000) < 0.08 for shape, count in theirs.items())


# What has rules of its own.


@pytest.mark.parametrize("library", [v1, v2])
def test_every_rule_meets_the_class_as_it_is(library: Any) -> None:
    """No class of the libraries has hooks or methods that look like a user's."""
    given: dict[str, Any] = {"Resize": 8, "CenterCrop": 8, "RandomCrop": 8, "RandomResizedCrop": 8, "GaussianBlur": 3,
                             "ConvertImageDtype": torch.float32, "ToDtype": torch.float32}
    for name in _compose._TORCHVISION:
        kind = getattr(library, name, None)
        if kind is not None:
            step = kind((0.5,), (0.5,)) if name == "Normalize" else kind(*([given[name]] if name in given else []))
            assert _compose._is_plain(step), name
            assert not _compose.is_users_own(step), name


def test_what_is_not_the_librarys_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    flip = v2.RandomHorizontalFlip(1.0)

    def done(*steps: Any) -> int:
        split = _compose.split(v2.Compose(list(steps)))
        assert split is not None
        return len(split.done)

    fake = type("CenterCrop", (), {"__module__": "torchvision.transforms.transforms", "size": (3, 3)})()
    assert done(flip) == 1
    assert done(with_forward(v2.RandomHorizontalFlip(1.0))) == done(with_hook(v2.CenterCrop(3))) == 0
    assert done(Patched(3)) == done(fake) == done(v1.Lambda(lambda image: image)) == 0
    assert done(v2.Compose([flip, v1.Compose([flip])]), flip) == 3, "a Compose within is its steps"
    hooked = with_hook(v2.Compose([flip]))
    assert done(hooked) == 0 and _compose.split(hooked).done == []  # type: ignore[union-attr]
    monkeypatch.setattr(v2.RandomHorizontalFlip, "transform", lambda self, image, params: image)
    assert done(v2.RandomHorizontalFlip(1.0)) == 0


# Fixed cases: what the draws found, and what was wrong before.

NOISE = [np.random.default_rng(0).integers(0, 256, (31, 45, 3), np.uint8) for _ in range(2)]
F32 = v2.ToDtype(torch.float32, scale=True)


@pytest.mark.parametrize("steps", [
    [v2.ToImage(), v2.Resize((12, 12), antialias=False), F32],
    [v1.PILToTensor(), v1.Resize((12, 12), antialias=False), v1.ConvertImageDtype(torch.float32)],
    [v2.ToImage(), v2.CenterCrop(20), v2.RandomResizedCrop(12, scale=(1, 1), ratio=(1, 1), antialias=False), F32],
    [v2.ToImage(), v2.Resize((12, 12), interpolation=Mode.NEAREST), F32],
    [v2.ToImage(), v2.Resize((12, 12), interpolation=Mode.BICUBIC), F32],
    [v2.ToImage(), v2.CenterCrop(24), v2.ColorJitter(hue=(0.2, 0.2)), F32],
    [v2.ToImage(), v2.CenterCrop(24), v2.Grayscale(3), F32],
    # Pillow's number of its bilinear filter is OpenCV's of its bicubic one.
    [v2.Resize((12, 12), interpolation=2), v2.ToImage()],
    # The second generation passes over what is no PIL image.
    [v2.CenterCrop(24), v2.ToImage(), v2.ToTensor()],
    [v2.CenterCrop(24), v2.ToPureTensor(), v2.ToImage()],
    [v2.CenterCrop(24), v2.ToImage(), v2.ToPILImage(), v2.ToTensor()],
    # Pillow makes rows before columns.
    [v1.CenterCrop((31, 9)), v1.Resize((12, 8), interpolation=Mode.BICUBIC), v1.PILToTensor()],
    # A fill that no chain has, and scales that only warn.
    [v1.CenterCrop(20), v1.RandomCrop(24, padding=2, fill=(1, 2, 3)), v1.PILToTensor()],
    [v1.CenterCrop(20), v1.RandomCrop(24, padding=2, fill=300), v1.PILToTensor()],
    # Moves after numbers.
    [v1.CenterCrop(24), v1.ToTensor(), v1.RandomHorizontalFlip(1.0), v1.Normalize((0.5,), (0.2,))],
    [v1.CenterCrop(24), v1.ToTensor(), v1.Normalize((0.5,), (0.2,)), v1.RandomVerticalFlip(1.0)],
    [v1.CenterCrop(24), v1.ToTensor(), v1.Normalize((0.5,), (0.2,)), v1.CenterCrop(60)],
    [v1.CenterCrop(24), v1.ToTensor(), v1.Normalize((0.5,), (-0.2,))],
    # A hue that is NaN.
    [v1.CenterCrop(24), v1.ToTensor(), v1.Normalize((1.0,), (0.2,)), v1.ColorJitter(hue=(-0.5, -0.5))],
    # A crop that only fits what is long.
    [v1.CenterCrop((4, 9)), v1.Resize(8), v1.RandomCrop((8, 18)), v1.PILToTensor()],
    [v1.Resize(8), v1.RandomCrop((8, 11)), v1.PILToTensor()],
    # A Compose whose images happen to be of one size.
    [v1.Resize(12), v1.ToTensor()],
])  # fmt: skip
def test_chains_that_were_taken_for_ours(steps: list[Any]) -> None:
    library = v2 if any(type(step).__module__.startswith("torchvision.transforms.v2") for step in steps) else v1
    compose = library.Compose(steps)
    want = theirs(NOISE, compose)
    for is_folder in (False, True):
        got = ours(NOISE, compose, is_folder)
        assert got.shape == want.shape and got.dtype == want.dtype
        assert apart(got, want) <= tolerance(steps, want.dtype)
