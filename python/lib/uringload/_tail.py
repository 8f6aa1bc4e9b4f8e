"""What is left of a Compose behind the steps that the loader does itself: it runs in Python's threads."""

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

    def __init__(self, compose: Any, split: Split) -> None:
        self._decodes = not split.is_partial
        steps = [*split.done, *split.rest] if self._decodes else split.rest
        self._input = _inputs(type(compose).__module__.startswith("albumentations"), self._decodes, split.kind)
        if type(compose).__module__.startswith("albumentations"):
            self._run: Callable[[Any, int | None], Any] = _Albumentations(
                compose if self._decodes else type(compose)(split.rest)
            )
        else:
            self._run = _Steps(steps)

    @property
    def takes_bytes(self) -> bool:
        """Whether it takes images as they are stored."""
        return self._decodes

    def __call__(self, value: Any, key: int | None = None) -> Any:
        """What becomes of a value. `key` decides the random numbers of steps that take some."""
        return self._run(self._input(value), key)


class OfSamples:
    """Tails of columns, and a transform behind them, as a function of a sample, its epoch and its number."""

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


def _inputs(is_albumentations: bool, decodes: bool, kind: str) -> Callable[[Any], Any]:
    """A function that makes of a column's value what the first step takes."""
    if decodes:
        return _array_of_bytes if is_albumentations else _decoded
    return {"pil": _photo, "array": _array, "tensor": _tensor, "image": _image}[kind]


def _decoded(value: bytes) -> Any:
    import io

    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise unavailable("a Compose that the loader cannot begin needs Pillow", "pip install pillow") from error
    return ImageOps.exif_transpose(Image.open(io.BytesIO(value))).convert("RGB")


def _array_of_bytes(value: bytes) -> Any:
    import numpy

    return numpy.array(_decoded(value))


def _array(value: Any) -> Any:
    return value.numpy() if hasattr(value, "numpy") else value


def _photo(value: Any) -> Any:
    from PIL import Image

    return Image.fromarray(_array(value))


def _tensor(value: Any) -> Any:
    import torch

    return torch.from_numpy(value) if not isinstance(value, torch.Tensor) else value


def _image(value: Any) -> Any:
    # A step of torchvision's has made it, so it is imported.
    return sys.modules["torchvision.tv_tensors"].Image(_tensor(value))
