"""What torchvision and Albumentations compose, as a chain of operations that the loader's own threads run.

Steps are recognised by the names of their classes and by their attributes; nothing is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

#: Names of filters as torchvision's `InterpolationMode` and OpenCV's flags, which Albumentations takes, have them.
_FILTERS = {"nearest": "nearest", "bilinear": "bilinear", "bicubic": "bicubic", "lanczos": "lanczos", "box": "box"}
_OPENCV = {0: "nearest", 1: "bilinear", 2: "bicubic", 4: "lanczos"}


class Split(NamedTuple):
    """A composition of transforms: what runs in the loader's threads, and what is left to Python."""

    #: The operations, or "" if the first step is unknown.
    chain: str
    #: The first step that is unknown, and those behind it.
    rest: list[Any]
    #: Whether a tensor comes out, as torchvision's ToTensor makes it, and not an image.
    is_tensor: bool
    #: Whether the chain makes images of one size of all, as a column needs it.
    is_sized: bool
    #: What the first step that is left takes: "pil", "array" (Albumentations'), "tensor", or "image" (torchvision's).
    kind: str
    #: The steps that the chain stands for.
    done: list[Any]

    @property
    def unknown(self) -> str:
        """The step that ended it, in words."""
        return type(self.rest[0]).__name__ if self.rest else ""

    @property
    def is_partial(self) -> bool:
        """Whether the loader can do the beginning of it, and Python the rest."""
        return bool(self.rest and self.done and self.is_sized)

    def why(self) -> str:
        """Why not all of it is the loader's, in words."""
        if self.done and not self.is_sized:
            return f"no step before {self.unknown} makes images of one size"
        return f"{self.unknown} is a step that the loader does not do itself"


class _Unknown(Exception):
    """A step, or an argument of it, that the loader does not do."""


def steps_of(value: Any) -> list[Any] | None:
    """The steps of a Compose; None for anything else."""
    module = type(value).__module__.partition(".")[0]
    steps = getattr(value, "transforms", None)
    if type(value).__name__ not in ("Compose", "Sequential") or module not in ("torchvision", "albumentations"):
        return None
    return list(steps) if isinstance(steps, Iterable) else None


def split(value: Any) -> Split | None:
    """What of a Compose the loader does; None for anything else."""
    steps = steps_of(value)
    if steps is None:
        return None
    made = _Made("array" if type(value).__module__.startswith("albumentations") else "pil")
    if not _is_plain(value):
        return made.split([], steps)
    for place, step in enumerate(steps):
        try:
            made.add(step)
        except (_Unknown, AttributeError, KeyError, TypeError, ValueError):
            return made.split(steps[:place], steps[place:])
    return made.split(steps, [])


def _is_plain(value: Any) -> bool:
    """Whether a Compose does its steps and nothing else: Albumentations' may leave them out, and move boxes along."""
    return getattr(value, "p", 1.0) == 1.0 and not getattr(value, "processors", None)


class _Made:
    """The chain, step by step."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._ops: list[str] = []
        self._behind: list[str] = []
        self._dtype: str | None = None
        self.is_tensor = False
        self.is_sized = False

    def text(self) -> str:
        tensor = f"to_tensor({self._dtype or 'u8'}{'' if self.is_tensor else ', hwc'})"
        return ", ".join([*self._ops, tensor, *self._behind]) if self._ops or self.is_tensor else ""

    def split(self, done: list[Any], rest: list[Any]) -> Split:
        # Albumentations makes arrays of numbers without a step that makes tensors.
        is_tensor = self.is_tensor or self._dtype is not None
        return Split(self.text(), rest, is_tensor, self.is_sized, self._kind, done)

    def add(self, step: Any) -> None:
        library, _, rest = type(step).__module__.partition(".")
        table = {"torchvision": _TORCHVISION, "albumentations": _ALBUMENTATIONS}.get(library)
        known = None if table is None else table.get(type(step).__name__)
        if known is None:
            raise _Unknown
        known(self, step)

    def op(self, text: str) -> None:
        if self._behind or self._dtype not in (None, "u8"):
            # What changes levels between 0 and 1 is another operation, with other roundings.
            raise _Unknown
        self._ops.append(text)
        name, _, size = text.partition("(")
        self.is_sized |= "crop" in name or (name == "resize" and "x" in size.partition(",")[0])

    def behind(self, text: str) -> None:
        if self._dtype != "f32":
            raise _Unknown
        self._behind.append(text)

    def is_first_behind(self) -> None:
        """Refuses what stands behind a normalization or an erasing."""
        if self._behind:
            raise _Unknown

    def dtype(self, dtype: str) -> None:
        if self._behind or self._dtype not in (None, dtype):
            raise _Unknown
        self._dtype = dtype

    def tensor(self, dtype: str | None, kind: str = "tensor") -> None:
        if dtype is not None:
            self.dtype(dtype)
        self.is_tensor = True
        self._kind = kind


def _only(value: Any, *expected: Any) -> None:
    """Refuses an argument of a step that the loader does not have."""
    if not any(value is one or (type(value) is type(one) and value == one) for one in expected):
        raise _Unknown


def _sides(size: Any) -> str:
    sides = [size, size] if isinstance(size, int) else [int(side) for side in size]
    rows, columns = sides * 2 if len(sides) == 1 else sides
    return f"{rows}x{columns}"


def _filter(step: Any) -> str:
    mode = step.interpolation
    name = _OPENCV.get(mode) if isinstance(mode, int) else _FILTERS.get(str(getattr(mode, "value", mode)))
    if name is None:
        raise _Unknown
    return name


def _range(pair: Any) -> str:
    low, high = (float(number) for number in pair)
    return f"{low!r}..{high!r}"


def _list(numbers: Any) -> str:
    many = [numbers] if isinstance(numbers, (int, float)) else list(numbers)
    return ":".join(repr(float(number)) for number in many)


def _whole(number: Any) -> int:
    if isinstance(number, (list, tuple)) and len({*number}) == 1:
        number = number[0]
    if number != int(number):
        raise _Unknown
    return int(number)


# torchvision, both generations.


def _resize(made: _Made, step: Any) -> None:
    _only(getattr(step, "max_size", None), None)
    # Of PIL images antialiasing is not a choice.
    size = step.size
    if isinstance(size, int) or len(size) == 1:
        made.op(f"resize({size if isinstance(size, int) else size[0]}, {_filter(step)})")
    else:
        made.op(f"resize({_sides(size)}, {_filter(step)})")


def _random_crop(made: _Made, step: Any) -> None:
    _only(step.pad_if_needed, False)
    _only(step.padding_mode, "constant")
    padding = 0 if step.padding is None else _whole(step.padding)
    fill = step.fill if isinstance(step.fill, (int, float)) else 0 if not step.fill else -1
    made.op(f"random_crop({_sides(step.size)}, {padding}, {_whole(fill)})")


def _random_resized_crop(made: _Made, step: Any) -> None:
    made.op(f"random_resized_crop({_sides(step.size)}, {_range(step.scale)}, {_range(step.ratio)}, {_filter(step)})")


def _jitter(made: _Made, step: Any) -> None:
    names = ("brightness", "contrast", "saturation", "hue")
    given = [(name, getattr(step, name)) for name in names if getattr(step, name) is not None]
    made.op(f"color_jitter({', '.join(f'{name}={_range(pair)}' for name, pair in given)})")


def _gray(made: _Made, step: Any) -> None:
    _only(getattr(step, "num_output_channels", 3), 3)
    made.op(f"grayscale({float(getattr(step, 'p', 1.0))!r})")


def _blur(made: _Made, step: Any) -> None:
    made.op(f"gaussian_blur({_whole(step.kernel_size)}, {_range(step.sigma)})")


def _rand_augment(made: _Made, step: Any) -> None:
    _only(step.num_magnitude_bins, 31)
    _plain_augment(step)
    made.op(f"rand_augment({_whole(step.num_ops)}, {_whole(step.magnitude)})")


def _trivial_augment(made: _Made, step: Any) -> None:
    _only(step.num_magnitude_bins, 31)
    _plain_augment(step)
    made.op("trivial_augment")


def _auto_augment(made: _Made, step: Any) -> None:
    _plain_augment(step)
    made.op(f"auto_augment({step.policy.value})")


def _plain_augment(step: Any) -> None:
    if getattr(step.interpolation, "value", step.interpolation) != "nearest":
        raise _Unknown
    fill = step.fill
    if isinstance(fill, dict):
        fill = None if not any(fill.values()) else fill
    if fill not in (None, 0):
        raise _Unknown


def _to_dtype(made: _Made, step: Any) -> None:
    dtype, scale = step.dtype, getattr(step, "scale", True)
    if isinstance(dtype, dict):
        raise _Unknown
    name = {"torch.float32": "f32", "torch.float16": "f16", "torch.bfloat16": "bf16", "torch.uint8": "u8"}[str(dtype)]
    if not made.is_tensor or (name != "u8" and not scale):
        raise _Unknown
    made.dtype(name)


def _normalize(made: _Made, step: Any) -> None:
    made.is_first_behind()
    made.behind(f"normalize({_list(step.mean)}, {_list(step.std)})")


def _erasing(made: _Made, step: Any) -> None:
    value = step.value
    value = "random" if value is None or value == "random" else repr(float(_whole(value)))
    made.behind(f"random_erasing({float(step.p)!r}, {_range(step.scale)}, {_range(step.ratio)}, {value})")


_Step = Callable[[_Made, Any], None]

_TORCHVISION: dict[str, _Step] = {
    "Resize": _resize,
    "CenterCrop": lambda made, step: made.op(f"center_crop({_sides(step.size)})"),
    "RandomCrop": _random_crop,
    "RandomResizedCrop": _random_resized_crop,
    "RandomHorizontalFlip": lambda made, step: made.op(f"hflip({float(step.p)!r})"),
    "RandomVerticalFlip": lambda made, step: made.op(f"vflip({float(step.p)!r})"),
    "ColorJitter": _jitter,
    "Grayscale": _gray,
    "RandomGrayscale": _gray,
    "GaussianBlur": _blur,
    "RandAugment": _rand_augment,
    "TrivialAugmentWide": _trivial_augment,
    "AutoAugment": _auto_augment,
    "ToTensor": lambda made, _: made.tensor("f32"),
    "PILToTensor": lambda made, _: made.tensor(None),
    "ToImage": lambda made, _: made.tensor(None, "image"),
    "ToPureTensor": lambda made, _: made.tensor(None),
    "ToDtype": _to_dtype,
    "ConvertImageDtype": _to_dtype,
    "Normalize": _normalize,
    "RandomErasing": _erasing,
    # Nothing is to be done: it is decoded.
    "ToPILImage": lambda made, step: None if not made.is_tensor else _only(made, None),
    "RGB": lambda made, _: None,
}


# Albumentations.


def _a_always(step: Any) -> None:
    if getattr(step, "p", 1.0) != 1.0:
        raise _Unknown


def _a_resize(made: _Made, step: Any) -> None:
    _a_always(step)
    made.op(f"resize({step.height}x{step.width}, {_filter(step)})")


def _a_shorter(made: _Made, step: Any) -> None:
    _a_always(step)
    made.op(f"resize({_whole(step.max_size)}, {_filter(step)})")


def _a_center(made: _Made, step: Any) -> None:
    _a_always(step)
    made.op(f"center_crop({step.height}x{step.width})")


def _a_crop(made: _Made, step: Any) -> None:
    _a_always(step)
    _only(getattr(step, "pad_if_needed", False), False)
    made.op(f"random_crop({step.height}x{step.width})")


def _a_resized(made: _Made, step: Any) -> None:
    _a_always(step)
    _random_resized_crop(made, step)


def _a_normalize(made: _Made, step: Any) -> None:
    _a_always(step)
    _only(getattr(step, "normalization", "standard"), "standard")
    if step.max_pixel_value != 255.0:
        raise _Unknown
    made.dtype("f32")
    made.behind(f"normalize({_list(step.mean)}, {_list(step.std)})")


_ALBUMENTATIONS: dict[str, _Step] = {
    "Resize": _a_resize,
    "SmallestMaxSize": _a_shorter,
    "CenterCrop": _a_center,
    "RandomCrop": _a_crop,
    "RandomResizedCrop": _a_resized,
    "HorizontalFlip": lambda made, step: made.op(f"hflip({float(step.p)!r})"),
    "VerticalFlip": lambda made, step: made.op(f"vflip({float(step.p)!r})"),
    "Normalize": _a_normalize,
    "ToTensorV2": lambda made, _: made.tensor(None),
}


def names(steps: Sequence[Any]) -> str:
    """Steps in words."""
    return ", ".join(type(step).__name__ for step in steps)
