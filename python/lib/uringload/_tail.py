"""The rest of a Compose after the steps that the loader does itself: it runs in Python's threads."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable
from typing import Any

from . import _compose, _random
from ._compose import Split
from .errors import unavailable

#: Albumentations takes seeds of 32 bits.
_SEED_BITS = 32


class Tail:
    """The rest of a Compose, as a function of the value that the loader's chain has made; or, if it did nothing, all of
    the Compose, as a function of an image's bytes.
    """

    def __init__(self, compose: Any, split: Split, orient: bool) -> None:
        self._decodes = not split.is_partial
        is_albumentations = type(compose).__module__.startswith("albumentations")
        if self._decodes:
            self._input: Callable[[Any], Any] = _Decoded(is_albumentations, orient)
        else:
            self._input = _INPUTS.get(split.form) or _Tensor(split.is_planar, split.form)
        if is_albumentations:
            self._run: Callable[[Any, int | None], Any] = _Albumentations(
                compose if self._decodes else type(compose)(copy.deepcopy(split.rest))
            )
        else:
            self._run = _Steps([compose] if self._decodes else split.rest)
        moving = [step for step in split.rest if _compose.moves(step)]
        #: The step for which nothing goes along with the images, and whether it may move pixels.
        self.step = type([*moving, *split.rest, compose][0]).__name__
        self.moves = bool(moving) or self._decodes

    @property
    def takes_bytes(self) -> bool:
        """Whether it takes images as they are stored."""
        return self._decodes

    def __call__(self, value: Any, key: int | None = None) -> Any:
        """Transforms a value. `key` decides the random numbers of steps that take some."""
        return self._run(self._input(value), key)


class OfSamples:
    """Tails of columns, and a transform after them, as a function of a sample, its epoch and its number."""

    def __init__(self, tails: list[tuple[str, Tail]], seed: int, then: _random.Keyed | None) -> None:
        self._tails = tails
        self._seed = seed
        self._then = then

    def __call__(self, sample: Any, epoch: int, number: int) -> Any:
        for name, tail in self._tails:
            sample[name] = tail(sample[name], _random.key(self._seed, epoch, number))
        return sample if self._then is None else self._then(sample, epoch, number)


def words(where: str, split: Split) -> str:
    """Which steps run where, as a line for the log."""
    if not split.is_partial:
        return f"{where} runs in Python's threads, and Pillow decodes for it: {split.why()}"
    return (f"{where}: {_compose.names(split.done)} in the loader's threads, {_compose.names(split.rest)} in Python's: "
            f"{split.why()}")


class _Steps:
    """torchvision's, one after the other."""

    def __init__(self, steps: list[Any]) -> None:
        self._steps = steps

    def __call__(self, value: Any, key: int | None) -> Any:
        for step in self._steps:
            value = step(value)
        return value


class _Albumentations:
    """A Compose of Albumentations. It draws from generators of its own, so each thread has a copy, which is seeded for
    each sample.
    """

    def __init__(self, compose: Any) -> None:
        self._compose = compose
        self._local = threading.local()

    def __call__(self, value: Any, key: int | None) -> Any:
        compose = getattr(self._local, "compose", None)
        if compose is None:
            compose = self._local.compose = copy.deepcopy(self._compose)
        if key is not None and hasattr(compose, "set_random_seed"):
            compose.set_random_seed(key & ((1 << _SEED_BITS) - 1))
        return compose(image=value)["image"]


class _Decoded:
    """Pillow's image of an image's bytes, or the array of it."""

    def __init__(self, is_array: bool, orient: bool) -> None:
        self._is_array, self._orient = is_array, orient

    def __call__(self, value: bytes) -> Any:
        import io

        try:
            from PIL import Image, ImageOps
        except ImportError as error:
            raise unavailable("a Compose that the loader cannot begin needs Pillow", "pip install pillow") from error
        image: Any = Image.open(io.BytesIO(value))
        image = (ImageOps.exif_transpose(image) if self._orient else image).convert("RGB")
        if not self._is_array:
            return image
        import numpy

        return numpy.array(image)


def _array(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else value


def _photo(value: Any) -> Any:
    from PIL import Image

    return Image.fromarray(_array(value))


class _Tensor:
    """A tensor, or torchvision's Image, of shape [channels, height, width]."""

    def __init__(self, is_planar: bool, form: str) -> None:
        self._is_planar, self._form = is_planar, form

    def __call__(self, value: Any) -> Any:
        import torch

        tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(value)
        tensor = tensor if self._is_planar else tensor.permute(2, 0, 1)
        # A step of torchvision's has made an Image, so it is imported.
        return tensor if self._form == "tensor" else sys.modules["torchvision.tv_tensors"].Image(tensor)


#: What makes of a column's value what the first step takes, by its form, where that is no tensor.
_INPUTS: dict[str, Callable[[Any], Any]] = {"pil": _photo, "array": _array}
